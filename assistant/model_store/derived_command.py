"""Makes derived files in a process of its own. Imports `errors`, `derived_make`, `json_command`.

Why a process: the memory that making them takes is given back by its exit, and a file system that is full under a
mapped file kills whoever writes there (SIGBUS), which must not be the worker. What a process that was killed leaves
behind is swept.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence

import msgspec

from assistant import errors
from assistant.errors import EngineFailed
from assistant.model_store import derived_make, json_command
from assistant.model_store.derived import Derived, Found


def make(derived: Derived, needed: int, command: Sequence[str], timeout_s: float) -> Found:
    """Runs the command, which shall publish `derived.path`, and gives what it made.

    Raises what the command reports; `EngineFailed` codes "cache-disk-full" and "cache-not-writable"; and `EngineFailed`
    when it died or took more than `timeout_s`.
    """
    derived_make.prepare(derived, needed)
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=json_command.child_environment(),
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineFailed(f"making {derived.path} took more than {timeout_s:.0f} s; is the disk slow?") from None
    finally:
        derived_make.sweep_unused(derived.root)
    last = _last(done.stdout)
    if "error" in last:
        raise _reported(derived, last["error"])
    if done.returncode == -signal.SIGBUS:
        raise derived_make.disk_filled_up(derived)
    found = derived.find()
    if "report" not in last or done.returncode != 0 or found is None:
        raise EngineFailed(
            f"making {derived.path} ended with status {done.returncode}; see the log, and free some memory"
        )
    return found


def _reported(derived: Derived, error: dict[str, str]) -> errors.AssistantError:
    if error["code"] == "disk-full":
        return derived_make.disk_filled_up(derived)
    return errors.by_name(error["type"])(error["message"], code=error["code"])


def _last(stdout: bytes) -> dict[str, dict[str, str]]:
    lines = stdout.splitlines()
    try:
        last = msgspec.json.decode(lines[-1]) if lines else {}
    except msgspec.DecodeError:
        return {}
    return last if isinstance(last, dict) else {}
