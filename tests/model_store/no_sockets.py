"""`python no_sockets.py MODULE ARGS...` runs a module that the kernel kills (SIGSYS) at its first socket.

A seccomp filter sees every system call of the process, from Python or from a C library, and its children inherit it:
a run that ends well has opened no socket of any kind. Exit status 77 where the kernel or the machine has no filter.
"""

from __future__ import annotations

import ctypes
import os
import platform
import runpy
import struct
import sys

UNAVAILABLE = 77
_SOCKET = {"x86_64": 41, "aarch64": 198}
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def forbid_sockets() -> bool:
    """False when the kernel refuses the filter."""
    number = _SOCKET.get(platform.machine())
    if number is None:
        return False
    code = [(_LOAD, 0, 0, 0), (_EQUAL, 0, 1, number), (_RETURN, 0, 0, _KILL), (_RETURN, 0, 0, _ALLOW)]
    packed = b"".join(struct.pack("=HBBI", *step) for step in code)
    program = _Program(len(code), packed)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return not libc.prctl(_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)


if __name__ == "__main__":
    if not forbid_sockets():
        os._exit(UNAVAILABLE)
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
