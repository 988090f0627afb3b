"""Runs a program that may not choose its CPUs or its priority: `python forbidding.py [all] COMMAND...`. Needs no root.
`all`: not even the scheduling that it has.

The system calls fail with EPERM, as under a strict container's or unit's filter (seccomp).
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_CALLS = {
    # sched_setaffinity, setpriority, sched_setattr, ioprio_set, sched_setscheduler
    "x86_64": (203, 141, 314, 251, 144),
    "aarch64": (122, 140, 274, 30, 119),
}
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_EPERM, _ALLOW = 0x00050001, 0x7FFF0000


def _instruction(code: int, true: int, false: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, true, false, value)


def main(command: list[str]) -> None:
    everything = command[0] == "all"
    calls = _CALLS.get(os.uname().machine, ())[: None if everything else -1]
    program = _instruction(0x20, 0, 0, 0)  # load the number of the call
    for left, number in zip(range(len(calls) - 1, -1, -1), calls, strict=True):
        program += _instruction(0x15, left + 1, 0, number)  # equal: to the last instruction
    program += _instruction(0x06, 0, 0, _ALLOW) + _instruction(0x06, 0, 0, _EPERM)
    code = ctypes.create_string_buffer(program)
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if not calls or libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_SECCOMP, _FILTER, head, 0, 0):
        sys.stderr.write(f"not forbidden: {os.strerror(ctypes.get_errno())}\n")
        sys.stderr.flush()
    os.execvp(command[everything], command[everything:])


if __name__ == "__main__":
    main(sys.argv[1:])
