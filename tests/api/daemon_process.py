"""Real daemons as child processes, in a place of their own; whatever a test starts ends with it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from assistant import paths
from assistant.api.client import Client
from assistant.closing import Closing
from assistant.errors import NotRunning
from assistant.memory_orchestrator.ledger import LedgerReader, segment_name

READY_S = 15.0

STORY = "Tell me a very long story about a dragon."
LONG = ("--set", "stages.llm.max_new_tokens=900", "--set", "stages.llm.system_prompt=Write a long text.")
"""With these settings, the story takes some seconds."""


class Place(Closing):
    """Sockets, state and settings that nobody else uses; the models and their laid-out weights are the user's."""

    def __init__(self) -> None:
        # not pytest's folder: the path of a socket has to be short
        self.folder = Path(tempfile.mkdtemp(prefix="va-"))
        self.runtime = self.folder / "assistant"
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ASSISTANT_")},
            "ASSISTANT_AUDIO_ENABLED": "false",
            "XDG_RUNTIME_DIR": str(self.folder),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
        }
        self.prefix: tuple[str, ...] = ()
        """A command that runs what is started."""
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        """`assistant ARGS` in the background."""
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **more}
        process = subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "assistant", *args],
            cwd=self.folder, env=self.environ, text=True, start_new_session=True, **more,
        )  # fmt: skip
        self._started.append(process)
        return process

    def daemon(self, *args: str) -> subprocess.Popen[str]:
        """A daemon that is ready; its stderr goes to the file `log`."""
        with (self.folder / "log").open("w") as log:
            process = self.start("run", *args, stderr=log)
        assert self.wait_ready(process), self.log()
        return process

    def ledger_keeper(self) -> int:
        """The process that keeps the ledger of this place's daemon; 0 = none."""
        try:
            return LedgerReader(segment_name(paths.daemon_owner(self.runtime))).read().writer_pid
        except NotRunning:
            return 0

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def wait_ready(self, process: subprocess.Popen[str]) -> bool:
        give_up = time.monotonic() + READY_S
        while process.poll() is None and time.monotonic() < give_up:
            if "ready: " in self.log():
                return True
            time.sleep(0.02)
        return False

    def run(self, *args: str, code: int = 0, **more: Any) -> subprocess.CompletedProcess[str]:
        """A verb that must end with `code`."""
        process = self.start(*args, **more)
        out, err = process.communicate(timeout=30)
        assert process.returncode == code, f"{err}\n{out}"
        assert "Traceback" not in err
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def json(self, *args: str, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run(*args, "--json", code=code).stdout)
        return found

    def state(self) -> str:
        """What the daemon says it does."""
        with Client(self.runtime) as client:
            return client.status().state

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        shutil.rmtree(self.folder)


def children(pid: int) -> list[int]:
    """All descendants of a process."""
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, tasks.read_text().split()):
            found += [child, *children(child)]
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Any, timeout_s: float = 5) -> bool:
    give_up = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.02)
    return True
