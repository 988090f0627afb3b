"""A daemon in a bad world: its own mounts, user, limits and locale; what a test starts and mounts ends with it.

The mounts are in a namespace of the daemon's own, so nothing of them is seen outside, and nothing has to be undone.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from assistant import paths
from assistant.api import wire
from assistant.api.client import Client
from assistant.closing import Closing
from assistant.messages import Outcome, QueryReport
from assistant.messages_timers import TimerStatus
from assistant.model_store.store import ModelStore
from tests.api.daemon_process import alive, children, until

READY_S, END_S, ANSWER_S = 15.0, 10.0, 30.0
NOBODY = 65534
LOCAL, QUESTION = "what time is it", "What is the capital of France?"
NEEDED = ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium")


class World(Closing):
    """Sockets, state, settings and caches of its own, the caches unless `own_cache` says otherwise."""

    def __init__(
        self,
        *mounts: str,
        nobody: bool = False,
        own_cache: bool = False,
        prefix: Iterable[str] = (),
        name: str = "",
        root: Path | None = None,
    ) -> None:
        """`mounts`: shell lines that root runs in a mount namespace of the daemon's own before it starts, with $W for
        this world's folder and {models} for that of the models.
        `prefix`: a command that runs the daemon. `name`: of the folder below the temporary one.
        `root`: the checkout that runs; the default is this one."""
        if (mounts or nobody) and not may_mount():
            pytest.skip("this needs root and mount namespaces")
        self.base = Path(tempfile.mkdtemp(prefix="va-"))
        self.folder = self.base / name if name else self.base
        self.folder.mkdir(exist_ok=True)
        self.base.chmod(0o755)
        self.root = root or checkout()
        models = shlex.quote(str(self.root / "models"))
        self._mounts = [
            *(one.replace("{models}", models) for one in mounts),
            *(open_ways(self.base / "ways", self.root) if nobody else ()),
        ]
        self._nobody, self._prefix = nobody, tuple(prefix)
        self.runtime, self.state = self.folder / "run", self.folder / "state"
        for one in (self.runtime, self.state, self.folder / "home"):
            one.mkdir(mode=0o700)
        # where the daemon may write or open little, scripts/coverage cannot either, and would complain into its log
        uncounted = ("COVERAGE_",) if mounts or nobody or self._prefix else ()
        unset = ("ASSISTANT_", "XDG_", *uncounted)
        self.environ = {
            **{name: text for name, text in os.environ.items() if not name.startswith(unset)},
            "PYTHONPATH": str(self.root),
            "ASSISTANT_AUDIO_ENABLED": "false",
            "XDG_CACHE_HOME": str(paths.cache_dir().parent),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "XDG_STATE_HOME": str(self.state),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
        }
        if own_cache or nobody:
            self.environ["XDG_CACHE_HOME"] = str(self.folder / "cache")
        if nobody:
            self.environ["HOME"] = str(self.folder / "home")
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, NOBODY, NOBODY)
        self.process: subprocess.Popen[bytes]
        self._started: list[subprocess.Popen[bytes]] = []

    # --- processes --------------------------------------------------------------------------------------------------
    def command(self, *args: str) -> list[str]:
        """Python with `args` in this world."""
        command = [sys.executable, "-P", *args]
        if self._nobody:
            command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
        command = [*self._prefix, *command]
        if self._mounts:
            lines = [f"W={shlex.quote(str(self.folder))}", *self._mounts, 'cd "$W" && exec "$@"']
            command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", "\n".join(lines), "sh", *command]
        return command

    def start(self, *sets: str) -> subprocess.Popen[bytes]:
        """`assistant run`, not waited for; its words go to the file `log`."""
        arguments = [part for one in sets for part in ("--set", one)]
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                self.command("-m", "assistant.service", *arguments),
                cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._started.append(self.process)
        return self.process

    def daemon(self, *sets: str) -> subprocess.Popen[bytes]:
        """One that is ready."""
        process = self.start(*sets)
        assert until(lambda: "ready: " in self.log or process.poll() is not None, READY_S), self.log
        assert process.poll() is None, self.log
        return process

    def refused(self, code: int, *words: str, sets: Iterable[str] = ()) -> str:
        """It does not start, and says why in one line."""
        process = self.start(*sets)
        assert process.wait(READY_S) == code, self.log
        assert "Traceback" not in self.log
        told = [line for line in self.log.splitlines() if line.startswith("error: ")]
        assert len(told) == 1, self.log
        for word in words:
            assert word in told[0]
        return told[0]

    def verb(self, *args: str, code: int = 0) -> str:
        """A verb of the command line in a world like the daemon's; its stdout."""
        done = subprocess.run(
            self.command("-m", "assistant", *args), cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=END_S + ANSWER_S, check=False,
        )  # fmt: skip
        told = done.stderr.decode("utf-8", "replace")
        assert "Traceback" not in told, told
        assert done.returncode == code, told
        return done.stdout.decode("utf-8")

    def inside(self, script: str) -> None:
        """Shell lines as root among the daemon's own mounts."""
        script = f"W={shlex.quote(str(self.folder))}\n{script}"
        subprocess.run(
            ["nsenter", "-t", str(self.process.pid), "-m", "sh", "-euc", script],
            check=True, capture_output=True, timeout=END_S,
        )  # fmt: skip

    def ends(self) -> None:
        """On SIGTERM, soon, with everything that it started and nothing left behind; and it never lost its temper."""
        family = [self.process.pid, *children(self.process.pid)]
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(END_S) == 0, self.log
        assert until(lambda: not any(map(alive, family)))
        assert "Traceback" not in self.log, self.log

    def power_cut(self) -> None:
        """Everything at once."""
        for pid in (self.process.pid, *children(self.process.pid)):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(END_S)

    # --- what it says -----------------------------------------------------------------------------------------------
    @property
    def log_file(self) -> Path:
        return self.base / "log"

    @property
    def log(self) -> str:
        return self.log_file.read_text("utf-8", "replace")

    @property
    def owner(self) -> str:
        """Of its ledger."""
        return paths.daemon_owner(self.runtime / "assistant")

    def client(self) -> Client:
        """Seen through the daemon's own mounts."""
        return Client(Path(f"/proc/{self.process.pid}/root{self.runtime}/assistant"))

    def ask(self, text: str) -> QueryReport:
        if self._nobody:  # whose sockets are for nobody else
            return QueryReport(**json.loads(self.verb("ask", text, "--no-speech", "--json")))
        with self.client() as client:
            return asked(client, text)

    def seen(self, path: str) -> Path:
        """A file of this world, through the daemon's own mounts."""
        return Path(f"/proc/{self.process.pid}/root{self.folder}/{path}")

    def timers(self) -> tuple[TimerStatus, ...]:
        with self.client() as client:
            return client.timers()

    def works(self, *, llm: bool = True) -> None:
        """Answers what it knows itself, and a question for the LLM."""
        local = self.ask(LOCAL)
        assert local.outcome == Outcome.HANDLED, (local.error, self.log)
        if llm:
            answer = self.ask(QUESTION)
            assert answer.outcome == Outcome.ANSWERED, (answer.error, self.log)
            assert "Paris" in answer.reply

    def close(self) -> None:
        for process in self._started:
            for pid in (*children(process.pid), process.pid):
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
            process.wait(END_S)
        shutil.rmtree(self.base)


def asked(client: Client, text: str, **more: Any) -> QueryReport:
    sent = client.ask(wire.Ask(text=text, speech=False, stream=False, **more))
    return next(wire.plain(reply) for reply, _ in client.replies(sent, ANSWER_S) if isinstance(reply, wire.Report))


def checkout() -> Path:
    root = paths.checkout()
    assert root is not None
    return root


def may_mount() -> bool:
    if os.geteuid() != 0:
        return False
    return not subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode


def open_ways(hold: Path, root: Path) -> list[str]:
    """Shell lines after which everybody may read the interpreter, the code and the models, wherever they lie: in the
    place of a folder that is closed stands one that holds these alone."""
    wanted = {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), root.resolve()}
    store = ModelStore.default()
    wanted |= {store.open(name).path.resolve() for name in NEEDED}
    closed: dict[Path, list[Path]] = {}
    for path in sorted(wanted):
        above = [one for one in reversed(path.parents) if not one.stat().st_mode & 0o001]
        if above:
            closed.setdefault(above[0], []).append(path)
    lines = []
    for folder, inside in closed.items():
        pairs = [(shlex.quote(str(hold / str(number))), shlex.quote(str(path))) for number, path in enumerate(inside)]
        lines += [f"mkdir -p {held} && mount --bind {path} {held}" for held, path in pairs]
        lines.append(f"mount -t tmpfs -o mode=755,size=1m tmpfs {shlex.quote(str(folder))}")
        lines += [f"mkdir -p {path} && mount --bind {held} {path}" for held, path in pairs]
    return lines
