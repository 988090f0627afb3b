"""An example as a process of its own."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


class Program:
    """An example that runs until it is told to stop."""

    def __init__(self, folder: Path, name: str, *args: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", str(EXAMPLES / name), *args],
            env={**os.environ, "XDG_RUNTIME_DIR": str(folder), "PYTHONPATH": str(EXAMPLES.parent), **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.said = ""

    def read_until(self, text: str, within_s: float = 10) -> str:
        """What it has said so far, with `text` in it."""
        assert self.process.stdout is not None
        give_up = time.monotonic() + within_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while text not in self.said:
                assert time.monotonic() < give_up, f"{text!r} is not in {self.said!r}"
                if selector.select(0.1):
                    more = self.process.stdout.read()
                    assert more, f"{text!r} is not in {self.said!r}, and that was all"
                    self.said += more.decode()
        return self.said

    def waiting(self) -> str:
        """What it has said and nobody has read yet."""
        assert self.process.stdout is not None
        return (self.process.stdout.read() or b"").decode()

    def end(self) -> tuple[int, str]:
        """What it said in all, and how it ended."""
        self.process.wait(15)
        assert self.process.stdout is not None
        self.said += (self.process.stdout.read() or b"").decode()
        assert "Traceback" not in self.said
        return self.process.returncode, self.said

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
