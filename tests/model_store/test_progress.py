"""Bars for a terminal, lines for a log, nothing when quiet."""

from __future__ import annotations

import io
import subprocess
import sys

from assistant.model_store.progress import Bars, Lines, Silent, for_stream


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_one_line_per_task() -> None:
    stream = io.StringIO()
    progress = for_stream(stream)
    assert isinstance(progress, Lines)
    with progress.task("model.zip", 41_200_000) as update:
        for done in range(0, 41_200_000, 1_000_000):
            update(done, 41_200_000)
    progress.note("ready")
    assert stream.getvalue() == "model.zip (41.2 MB)\nready\n"


def test_a_terminal_gets_a_bar() -> None:
    stream = Terminal()
    progress = for_stream(stream)
    assert isinstance(progress, Bars)
    with progress.task("model.zip", 1000) as update:
        update(500, 1000)
    assert "model.zip" in stream.getvalue()
    assert "━" in stream.getvalue()


def test_quiet_is_quiet_on_a_terminal_too() -> None:
    stream = Terminal()
    progress = for_stream(stream, quiet=True)
    assert isinstance(progress, Silent)
    with progress.task("model.zip", 1000) as update:
        update(500, 1000)
    progress.note("ready")
    assert stream.getvalue() == ""


def test_rich_is_loaded_for_a_terminal_alone() -> None:
    code = "import io, sys; from assistant.model_store import progress; progress.for_stream(io.StringIO()); "
    code += "print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
