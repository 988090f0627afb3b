"""A daemon for a benchmark: `python -m assistant.service` with a runtime folder of its own, and caches and state of the
user. Imports the client; never the pipeline. Never leaves a process behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from assistant import paths
from assistant.api import wire
from assistant.api.client import Client, found, raised
from assistant.errors import AssistantError, EngineFailed
from assistant.memory_orchestrator.ledger import LedgerReader, segment_name

_LOOK_S = 0.02
_STOP_S = 10.0
ENTER = 'echo $$ > "$0" && exec "$@"'
"""A shell that moves itself into the cgroup of `$0` and becomes the daemon: no page is charged elsewhere."""


class OwnDaemon:
    """`with OwnDaemon(...) as daemon:`; answers inside, and is gone afterwards."""

    def __init__(
        self,
        sets: Sequence[str] = (),
        *,
        procs: Path | None = None,
        start_s: float = 60,
        environ: Mapping[str, str] | None = None,
        module: str = "assistant.service",
    ) -> None:
        """`sets`: settings `key=value`; microphone and speaker are off unless they say otherwise. `procs`: the file
        that moves a process into the cgroup it shall live in. `environ`: its environment; None = ours. `module`: its
        main."""
        self._sets = ("audio.enabled=false", *sets)
        self._procs, self._start_s, self._environ, self._module = procs, start_s, environ, module
        self.process: subprocess.Popen[bytes]
        self._folder: Path
        self.client: Client

    def __enter__(self) -> Self:
        """Raises what kept it from starting, with its own words and exit code."""
        self._folder = Path(tempfile.mkdtemp(prefix="assistant-bench-"))
        command = [sys.executable, "-m", self._module]
        for one in self._sets:
            command += ["--set", one]
        if self._procs is not None:
            command = ["sh", "-c", ENTER, str(self._procs), *command]
        environment = {**(os.environ if self._environ is None else self._environ), "XDG_RUNTIME_DIR": str(self._folder)}
        with open(self._folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=paths.checkout()
            )
        try:
            self.client = self._connected()
        except BaseException:
            self._end()
            raise
        return self

    def _connected(self) -> Client:
        give_up = time.monotonic() + self._start_s
        while time.monotonic() < give_up:
            if self.process.poll() is not None:
                raise self._failed()
            client = found(self._folder / "assistant")
            if client is not None:
                return client
            time.sleep(_LOOK_S)
        raise EngineFailed(f"the daemon did not start within {self._start_s:g} s: {self._last_words()}")

    def _failed(self) -> AssistantError:
        status = self.process.returncode
        return raised(
            wire.Failure(
                code="daemon-ended", message=f"the daemon ended ({status}): {self._last_words()}", exit_code=status
            )
        )

    def _last_words(self) -> str:
        lines = (self._folder / "log").read_text("utf-8", "replace").strip().splitlines()
        return lines[-1].removeprefix("error: ") if lines else "it said nothing"

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text("utf-8", "replace")

    @property
    def owner(self) -> str:
        """Of its ledger."""
        return paths.daemon_owner(self._folder / "assistant")

    @property
    def folder(self) -> Path:
        """Of its sockets."""
        return self._folder / "assistant"

    @property
    def pid(self) -> int:
        return self.process.pid

    def ledger(self) -> LedgerReader:
        """Its ledger, which any process of this user may read."""
        return LedgerReader(segment_name(self.owner))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(AssistantError):
            self.client.shutdown()
        self.client.close()
        self._end(asked=True)

    def _end(self, asked: bool = False) -> None:
        """`asked`: it was told to end, and gets the time to do so."""
        for number in (0, signal.SIGTERM, signal.SIGKILL) if asked else (signal.SIGTERM, signal.SIGKILL):
            self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_S)
                break
        shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def terminable() -> Iterator[Callable[[], None]]:
    """SIGTERM and SIGHUP end a benchmark as Ctrl-C does: what it has started and made is cleared away.

    Yields a function that raises `KeyboardInterrupt` when one was lost, to be called between two steps: an exception
    that comes within a callback of the import system, or within a destructor, is dropped by Python. At the end of the
    block it is called once more.
    """
    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    def unless_interrupted() -> None:
        if interrupted:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield unless_interrupted
        unless_interrupted()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
