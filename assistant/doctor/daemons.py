"""Sockets, and the daemons behind or beside them. Imports `api` and the ledger's reader; starts and ends nothing."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from assistant import __version__, paths
from assistant.api.sockets import COMMAND, CONTROL, EVENTS, LOCK, DaemonLock, somebody_listens
from assistant.doctor.findings import Finding
from assistant.doctor.scene import Scene
from assistant.errors import NotRunning
from assistant.memory_orchestrator.ledger import LedgerReader, segment_name
from assistant.messages_status import Status

_ANSWER_S = 2.0


def look_at_sockets(scene: Scene, version: str = __version__) -> Iterator[Finding]:
    """`version`: ours, which a daemon should have, too."""
    folder = scene.places.runtime
    listening, troubles = False, []
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
            troubles.append(_stale(path))
    status = None
    if listening and not troubles:
        try:
            status = _asked(folder)
        except NotRunning as error:
            troubles.append(_silent(folder, error))
    if status is not None and status.version != version:
        text = f"process {status.pid} is version {status.version}; this is {version}"
        troubles.append(
            Finding(
                "daemon-outdated",
                "advice",
                text,
                f"kill {status.pid}, then: assistant run (or: systemctl restart assistant)",
            )
        )
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
    try:
        pid = int((folder / LOCK).read_text("ascii"))
    except (OSError, ValueError):
        pid = 0
    end = f"kill {pid}; sleep 5; kill -KILL {pid}" if pid else f"fuser -k {shlex.quote(str(folder / CONTROL))}"
    return Finding("daemon-silent", "problem", error.message, end)


def _stale(path: Path) -> Finding:
    def mend() -> str:
        with DaemonLock(path.parent):  # a daemon that is just starting has it, and needs no help
            if not somebody_listens(path):
                path.unlink(missing_ok=True)
        return f"removed {path}"

    return Finding("socket-stale", "advice", f"nobody listens at {path}", f"rm {shlex.quote(str(path))}", mend)


def _others(scene: Scene) -> Iterator[Finding]:
    """Ledgers of daemons in other runtime folders; each is mapped by a living process, or says nothing."""
    directory = scene.root / "dev/shm"
    ours, all_of_them = segment_name(paths.daemon_owner(scene.places.runtime)), segment_name("daemon")
    for file in sorted(directory.glob(f"{all_of_them}*")):
        if file.name == ours:
            continue
        try:
            reader = LedgerReader(file.name, directory)
            try:
                pid = reader.read().writer_pid
            finally:
                reader.close()
        except NotRunning:
            continue
        if pid != os.getpid():
            yield Finding(
                "daemon-other",
                "advice",
                f"process {pid} is another daemon of this user",
                f"unless it is meant: kill {pid}",
            )
