"""How long things take, shown to a person on stderr. Imports nothing of ours; rich only when bars are drawn.

Three ways: bars on a terminal, one line per task elsewhere, nothing with `--quiet`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

Update = Callable[[int, int], None]
"""Called with (done, total) bytes; may be called often, and from another thread."""


class Progress(Protocol):
    def task(self, label: str, total: int) -> AbstractContextManager[Update]:
        """One piece of work of `total` bytes, for as long as the block runs."""

    def note(self, text: str) -> None:
        """One line of news."""


class Silent:
    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Update]:
        yield lambda done, total: None

    def note(self, text: str) -> None:
        del text


def size_text(size: int) -> str:
    """ "43.1 MB", "43 KB": bytes, as people read them."""
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{-(-size // 1000)} KB"


class Lines:
    """For logs and pipes: a line when a task starts, and nothing that overwrites itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Update]:
        self.note(f"{label} ({size_text(total)})" if total else label)
        yield lambda done, total: None

    def note(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class Bars:
    """For a terminal; each task's bar stays when it is done."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream)

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Update]:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console) as bars:
            task = bars.add_task(label, total=total or None)

            def update(done: int, total: int) -> None:
                bars.update(task, completed=done, total=total or None)

            yield update
            if total:
                bars.update(task, completed=total, total=total)

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)


def for_stream(stream: TextIO | None = None, *, quiet: bool = False) -> Progress:
    """The way that suits where the text goes; stderr by default."""
    stream = stream or sys.stderr
    if quiet:
        return Silent()
    return Bars(stream) if stream.isatty() else Lines(stream)
