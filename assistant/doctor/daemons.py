"""Sockets, and the daemons behind or beside them. Imports `api` and the ledger's reader; starts and ends nothing."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from assistant import __version__, paths
from assistant.api.sockets import COMMAND, CONTROL, EVENTS, DaemonLock, listener, somebody_listens
from assistant.doctor.findings import Finding
from assistant.doctor.scene import Scene, mib
from assistant.errors import NotRunning
from assistant.memory_orchestrator.ledger import LedgerReader
from assistant.memory_orchestrator.writers import Writer, segment_name, writers
from assistant.messages_status import Status

_ANSWER_S = 2.0


def look_at_sockets(scene: Scene, version: str = __version__) -> Iterator[Finding]:
    """`version`: ours, which a daemon should have, too."""
    folder = scene.places.runtime
    listening, troubles, stale = False, [], []
    for name in (COMMAND, CONTROL, EVENTS):
        path = folder / name
        try:
            mode = path.lstat().st_mode
        except OSError:
            continue
        if not stat.S_ISSOCK(mode):
            text = f"{path} is no socket"
            troubles.append(Finding("socket-blocked", "problem", text, f"rm -r {shlex.quote(str(path))}"))
        elif somebody_listens(path):
            listening = True
        else:
            stale.append(path)
    if stale:
        troubles.append(_stale(stale))
    status = None
    if listening and not troubles:
        try:
            status = _asked(folder)
        except NotRunning as error:
            troubles.append(_silent(folder, error))
    if status is not None and status.version != version:
        pid = listener(folder / CONTROL)
        text = f"process {pid or status.pid} is version {status.version}; this is {version}"
        again = f"kill {pid}, then: assistant run (or: systemctl restart assistant)"
        again = again if pid else "start it anew, in its container"
        troubles.append(Finding("daemon-outdated", "advice", text, again))
    troubles += _others(scene)
    yield from troubles
    if not troubles:
        told = f"a daemon answers (process {status.pid}, {status.state})" if status else "no daemon runs"
        yield Finding("sockets", "ok", f"{told}; {folder}")


def _asked(folder: Path) -> Status | None:
    """None for a daemon that went just now. Raises `NotRunning` for one that listens and does not answer."""
    from assistant.api.client import found as answering

    found = answering(folder, _ANSWER_S)
    if found is None:
        return None
    with found:
        return found.status()


def _silent(folder: Path, error: NotRunning) -> Finding:
    pid, control = listener(folder / CONTROL), shlex.quote(str(folder / CONTROL))
    end = f"kill {pid}; sleep 5; kill -KILL {pid}" if pid else f"fuser -k {control} (in its container, if it has one)"
    return Finding("daemon-silent", "problem", error.message, end)


def _stale(left: list[Path]) -> Finding:
    """One finding for all that a daemon has left."""
    named = ", ".join(map(str, left))

    def mend() -> str:
        with DaemonLock(left[0].parent):  # a daemon that is just starting has it, and needs no help
            for path in left:
                if not somebody_listens(path):
                    path.unlink(missing_ok=True)
        return f"removed {named}"

    return Finding("socket-stale", "advice", f"nobody listens at {named}", shlex.join(["rm", *map(str, left)]), mend)


def _others(scene: Scene) -> Iterator[Finding]:
    """Who else writes a ledger of this user and lives, in this container or in another one."""
    directory = scene.root / "dev/shm"
    ours, daemons = segment_name(paths.daemon_owner(scene.places.runtime)), segment_name("daemon").partition("@")[0]
    for one in writers(directory):
        end = f"unless it is meant: {f'kill {one.pid}' if one.pid else 'end it in its container'}"
        if not one.head.known:
            version = f"in version {one.head.version}, which is not ours"
            text = f"{one}{_home(one)} writes {one.name} {version}; it holds {_held(one)}"
            yield Finding("ledger-other", "advice", text, end)
        elif one.name != ours and one.name.startswith(daemons):
            held = _held(one, directory)
            text = f"{one}{_home(one)} is another daemon of this user; it holds {held}"
            yield Finding("daemon-other", "advice", text, end)


def _home(one: Writer) -> str:
    """Whose it may be, before anybody ends it: where its sockets are, as far as the kernel lets us see."""
    try:
        told = Path(f"/proc/{one.pid}/environ").read_bytes() if one.pid else b""
    except OSError:
        return ""
    variables = dict(pair.partition("=")[::2] for pair in os.fsdecode(told).split("\0"))
    for name in ("XDG_RUNTIME_DIR", "HOME"):
        if variables.get(name):
            return f" ({name}={variables[name]})"
    return ""


def _held(one: Writer, directory: Path | None = None) -> str:
    """`directory`: of a ledger that can be read, for what the kernel does not show of another container."""
    total = one.usage.total
    if not total and directory is not None:
        with contextlib.suppress(NotRunning), contextlib.closing(LedgerReader(one.name, directory)) as reader:
            view = reader.read()
            total = view.base_anon + view.base_file + sum(row.anon + row.file for row in view.rows)
    return mib(total) if total else "memory that cannot be seen from here"
