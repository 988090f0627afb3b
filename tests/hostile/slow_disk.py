"""A disk that is slow or that goes away: a read-only FUSE file system before a folder, spoken with the kernel directly.

    python slow_disk.py SOURCE MOUNTPOINT CONTROL

The file CONTROL says how the disk is just now: `0.02` = each access takes 20 ms, `gone` = each fails with EIO, as one
does whose cable was pulled, `hangs` = each waits until the disk is otherwise again, or its caller is killed, as with a
server on the network that does not answer. Needs root and /dev/fuse, nothing of ours. Structures:
include/uapi/linux/fuse.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import stat
import struct
import sys
import time
from pathlib import Path

_IN = struct.Struct("<IIQQIIIHH")
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_INIT = struct.Struct("<IIIIHHIIHHI28x")
_READ = struct.Struct("<QQI")
_READ_ONLY, _NO_SUID, _NO_DEVICES = 1, 2, 4
_ROOT = 1
_MOST = 128 << 10
"""Bytes that one request asks for."""


class Disk:
    def __init__(self, source: Path, control: Path, fd: int) -> None:
        self._control, self._fd = control, fd
        self._paths = {_ROOT: source}
        self._nodes = {source: _ROOT}
        self._held: dict[int, bytes] = {}
        """Requests that wait, by number."""

    def serve(self) -> None:
        """Until it is unmounted."""
        while True:
            if self._held and self._how() != "hangs":
                for request in [self._held.pop(unique) for unique in list(self._held)]:
                    self._serve(request)
            if self._held and not select.select([self._fd], [], [], 0.02)[0]:
                continue
            try:
                request = os.read(self._fd, _MOST + (64 << 10))
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):  # the caller has given up
                    continue
                return
            _, code, unique, *_ = _IN.unpack_from(request)
            if code == 36:  # INTERRUPT: the caller of another request is being killed
                (other,) = struct.unpack_from("<Q", request, _IN.size)
                if self._held.pop(other, None) is not None:
                    self._tell(other, errno.EINTR)
            elif code in (2, 42):  # FORGET, BATCH_FORGET want no answer
                continue
            elif code != 26 and self._how() == "hangs":
                self._held[unique] = request
            else:
                self._serve(request)

    def _serve(self, request: bytes) -> None:
        _, code, unique, node, *_ = _IN.unpack_from(request)
        try:
            if code != 26:
                self._as_it_is()
            self._tell(unique, 0, self._answer(code, node, request[_IN.size :]))
        except OSError as error:
            self._tell(unique, error.errno or errno.EIO)

    def _tell(self, unique: int, failed: int, answer: bytes = b"") -> None:
        with contextlib.suppress(OSError):  # the caller has given up, or the disk was unmounted, which ends `serve`
            os.write(self._fd, _OUT.pack(_OUT.size + len(answer), -failed, unique) + answer)

    def _how(self) -> str:
        return self._control.read_text().strip()

    def _as_it_is(self) -> None:
        how = self._how()
        if how == "gone":
            raise OSError(errno.EIO, "gone")
        time.sleep(float(how))

    def _answer(self, code: int, node: int, body: bytes) -> bytes:
        path = self._paths.get(node, Path())
        match code:
            case 26:  # INIT
                return _INIT.pack(7, 31, 128 << 10, 0, 12, 9, _MOST, 1, 0, 0, 0)
            case 1:  # LOOKUP
                return self._entry(path / os.fsdecode(body.rstrip(b"\0")))
            case 3:  # GETATTR
                return struct.pack("<QII", 0, 0, 0) + _attributes(node, path)
            case 5:  # READLINK
                return os.fsencode(os.readlink(path))
            case 14:  # OPEN
                return struct.pack("<QII", os.open(path, os.O_RDONLY), 0, 0)
            case 27:  # OPENDIR
                return struct.pack("<QII", 0, 0, 0)
            case 15:  # READ
                fd, offset, size = _READ.unpack_from(body)
                return os.pread(fd, size, offset)
            case 28:  # READDIR
                _, offset, size = _READ.unpack_from(body)
                return _listed(path, offset, size)
            case 17:  # STATFS
                return struct.pack("<QQQQQIIII24x", 1 << 30, 0, 0, 1 << 20, 0, 4096, 255, 4096, 0)
            case 18:  # RELEASE
                os.close(_READ.unpack_from(body)[0])
                return b""
            case 25 | 29 | 34 | 38:  # FLUSH, RELEASEDIR, ACCESS, DESTROY
                return b""
        raise OSError(errno.ENOSYS, "not known")

    def _entry(self, path: Path) -> bytes:
        path.lstat()
        node = self._nodes.setdefault(path, len(self._nodes) + 1)
        self._paths[node] = path
        return _ENTRY.pack(node, 0, 0, 0, 0, 0) + _attributes(node, path)


def _attributes(node: int, path: Path) -> bytes:
    found = path.lstat()
    seconds = [divmod(ns, 10**9) for ns in (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)]
    return _ATTR.pack(
        node, found.st_size, found.st_blocks, *(whole for whole, _ in seconds), *(rest for _, rest in seconds),
        found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, 4096, 0,
    )  # fmt: skip


def _listed(path: Path, offset: int, size: int) -> bytes:
    out = b""
    for number, entry in enumerate(sorted(os.listdir(path))[offset:], offset + 1):
        name, kind = os.fsencode(entry), stat.S_IFMT((path / entry).lstat().st_mode) >> 12
        one = struct.pack("<QQII", number + 1, number, len(name), kind) + name
        one += b"\0" * (-len(one) % 8)
        if len(out) + len(one) > size:
            break
        out += one
    return out


def main(source: str, mountpoint: str, control: str) -> int:
    fd = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other"
    flags = _READ_ONLY | _NO_SUID | _NO_DEVICES
    if libc.mount(b"slow", os.fsencode(mountpoint), b"fuse", flags, options.encode()):
        sys.stderr.write(f"not mounted: {os.strerror(ctypes.get_errno())}\n")
        return 1
    sys.stdout.write("mounted\n")
    sys.stdout.flush()
    Disk(Path(source).resolve(), Path(control), fd).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
