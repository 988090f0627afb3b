"""Where the LLM's keys and values lie: files that grow in place, in shared memory or on a disk. Imports no engine.

MNN's own allocator grows the cache by allocating anew, copying and freeing, and keeps what it freed: more than twice
the cache's size in the end. With `kvcache_mmap` it keeps one file per layer for keys and one for values instead. It
puts them beside the mapped weights and names them after addresses, which are alike in processes forked from one parent;
so each worker gets a folder of its own, in which the weight files are links. The files lose their names as soon as MNN
has opened them: whatever ends the worker, the kernel takes their memory back. The worker holds a lock on its folder, by
which others know that it lives, also those in another PID namespace, where its number means nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
from pathlib import Path

from assistant.closing import Closing
from assistant.locked_folder import made_locked, remove_unless_held
from assistant.machine import descriptors, has_ended, pid_namespace, process_start
from assistant.messages import KvHome

log = logging.getLogger(__name__)

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - what is made there is checked: `_ours`
DISK_FROM = 160 << 20
"""Bytes of keys and values from which `auto` takes the disk: they would fill what a 2 GB machine has left beside a
model of 1 to 2 B weights."""
_SPARE = 16 << 20
_OTHER_FILES = 48
"""Descriptors that a worker may have open besides; more than it has."""


def home_of(
    setting: str, size: int, disk: Path, shared: Path = SHARED_MEMORY, *, files: int = 0
) -> tuple[KvHome, Path | None]:
    """Where `size` bytes are to lie, and the folder for the workers' folders. `files`: that MNN will keep open for
    them; it crashes where it may not.

    `setting`: auto, memory or disk. "heap" where neither has room: MNN then keeps them itself.
    """
    if files and files + _OTHER_FILES > descriptors():
        return "heap", None
    on_disk: tuple[KvHome, Path] = "disk", disk / "kv"
    in_memory: tuple[KvHome, Path] = "memory", shared / f"assistant-kv-{os.getuid()}"
    first = on_disk if setting == "disk" or (setting == "auto" and size >= DISK_FROM) else in_memory
    for home, folder in (first, in_memory if first is on_disk else on_disk) if setting == "auto" else (first,):
        if _ours(folder) and free(folder) >= size + _SPARE:
            return home, folder
    return "heap", None


def _ours(folder: Path) -> bool:
    """Whether nobody else has made it, or could look into it: /dev/shm is everybody's."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def free(folder: Path) -> int:
    """Bytes that may be written below `folder`, whether it exists or not."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free if os.access(folder, os.W_OK) else 0
    except OSError:
        return 0


class KvFiles(Closing):
    """A worker's folder for MNN's `tmp_path`."""

    def __init__(self, root: Path, weights: Path | None) -> None:
        """`weights`: the folder of mapped weights, which MNN expects in the same place. Raises `OSError`."""
        with contextlib.suppress(FileExistsError):
            root.mkdir(mode=0o700, parents=True)
        if not _ours(root):
            raise PermissionError(f"{root} is not a folder of ours alone")
        sweep(root)
        path = root / f"{os.getpid()}-{process_start(os.getpid())}-{pid_namespace()}"
        shutil.rmtree(path, ignore_errors=True)
        self.path, self._lock = made_locked(lambda: _made(path))
        try:
            for file in weights.resolve().iterdir() if weights is not None else ():
                (self.path / file.name).symlink_to(file)
        except BaseException:
            self.close()
            raise

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes more can be written: what does not fit into a mapped file ends the process."""
        return free(self.path) >= size + _SPARE // 4

    def hide(self) -> None:
        """Takes the names off files that MNN has opened meanwhile; it goes on using them. Empty ones take their places,
        since MNN complains where it finds nothing to remove."""
        for file in self.path.iterdir():
            if file.suffix in (".k", ".v") and file.lstat().st_size:
                file.unlink()
                file.touch()

    def close(self) -> None:
        """Never raises. Safe to repeat."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _made(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def sweep(root: Path) -> None:
    """Removes what killed workers have left: a folder of links, and files whose names there was no time to take off.
    Never raises."""
    with contextlib.suppress(OSError):
        _sweep(root)


def _sweep(root: Path) -> None:
    for folder in root.iterdir():
        pid, _, rest = folder.name.partition("-")
        started, _, space = rest.partition("-")
        if not pid.isdigit() or not started.isdigit():
            continue
        if space in ("", str(pid_namespace())) and not has_ended(int(pid), int(started)):
            continue  # it may be about to lock its folder
        remove_unless_held(folder)
