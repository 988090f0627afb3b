"""Starts the interpreter of the fork server. Imports `paths` and little of the standard library.

The command line calls `early` before anything else: the server's interpreter then comes up on another core while this
one still imports. `ForkServer` takes over what was started early.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from assistant import paths

Spawned = tuple["subprocess.Popen[bytes]", socket.socket]
_early: list[Spawned] = []


def early() -> None:
    """Starts a server for the next `ForkServer` of this process. One that nobody takes ends with this process."""
    _early.append(spawn())


def taken() -> Spawned:
    """The server that was started early, or a new one."""
    return _early.pop() if _early else spawn()


def spawn() -> Spawned:
    """The process and our end of its control socket (SOCK_SEQPACKET, non-blocking). Returns at once."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            # -P: a numpy.py in the user's folder must not become ours
            [sys.executable, "-P", "-m", "assistant.stages.forkserver", str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # its own session: a terminal's Ctrl-C must reach the daemon alone
            start_new_session=True,
            env=_environment(),
        )
    ours.setblocking(False)
    return process, ours


def _environment() -> dict[str, str]:
    return {
        **paths.environment_of_ours(),
        # one heap arena: with one per thread, what is freed in one is not reused by another
        "MALLOC_ARENA_MAX": "1",
        # threads that wait shall sleep: spinning takes the cores from the stages that work
        "OMP_WAIT_POLICY": "PASSIVE",
        # nothing in a fully local assistant reports to anybody, should a newer onnxruntime be installed
        "ORT_DISABLE_TELEMETRY": "1",
    }
