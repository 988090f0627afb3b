"""What a conversion shows its caller when it runs as a command of its own. Imports `errors` alone.

Stdout carries JSON lines and nothing else: any number of `{"done": n, "total": m}`, then one `{"report": {...}}` or
`{"error": {"type": "ModelDamaged", "message": "..."}}`. What C libraries print goes to stderr. The exit status is 0
or the error's own. The command ends, and cleans up, when its parent dies: also a parent that died while the command
still imported, if it was started with `child_environment`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

import msgspec

from assistant.errors import AssistantError, Cancelled, FetchFailed, ModelError

Update = Callable[[int, int], None]
"""Called with (done, total)."""

_PR_SET_PDEATHSIG = 1
_PARENT = "_ASSISTANT_PARENT_PID"


def child_environment() -> dict[str, str]:
    """The environment for a command that shall not outlive this process."""
    return {**os.environ, _PARENT: str(os.getpid())}


class _Stopped(BaseException):
    """SIGTERM: unwinds, so that temporary folders go."""


def run(work: Callable[[Update], msgspec.Struct]) -> int:
    """Does the work and tells about it; returns the exit status."""
    out = os.dup(1)
    sys.stdout.flush()
    os.dup2(2, 1)  # converters written in C print to stdout what is no JSON
    signal.signal(signal.SIGTERM, _stop)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.environ.pop(_PARENT, str(os.getppid())) != str(os.getppid()):
        return int(Cancelled.exit_code)  # it died before we could ask to be told

    def say(line: dict[str, object]) -> None:
        os.write(out, msgspec.json.encode(line) + b"\n")

    try:
        say({"report": work(lambda done, total: say({"done": done, "total": total}))})
    except AssistantError as error:
        return _fail(say, error)
    except (KeyboardInterrupt, _Stopped):
        return _fail(say, Cancelled("the conversion was interrupted; nothing was left behind"))
    except BrokenPipeError:
        return int(AssistantError.exit_code)  # nobody reads; the work has been undone on the way up
    except OSError as error:
        return _fail(say, _of_the_system(error))
    return 0


def _of_the_system(error: OSError) -> AssistantError:
    what = f"{error.strerror or error}: {error.filename or 'no file named'}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FetchFailed(f"{what}; make room and run this again", code="disk-full")
    return ModelError(f"{what}; check the path and its permissions")


def _stop(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise _Stopped


def _fail(say: Callable[[dict[str, object]], None], error: AssistantError) -> int:
    try:
        say({"error": {"type": type(error).__name__, "code": error.code, "message": error.message}})
    except BrokenPipeError:
        return int(AssistantError.exit_code)
    return int(error.exit_code)
