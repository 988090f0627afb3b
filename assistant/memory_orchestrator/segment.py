"""How a shared-memory segment gets its name, and how one that was left behind loses it. Knows nothing of what is in it.

Of many processes that want the same name at the same moment, exactly one gets it, also in the place of a dead owner.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from assistant.errors import AssistantError

_LOCK_TRIES, _LOCK_STEP_S = 50, 0.01

LivingOwner = Callable[[int], int]
"""From the descriptor of a segment, the pid of its owner; 0 when that has gone."""


def publish(fresh: Path, path: Path, living_owner: LivingOwner) -> None:
    """Gives `fresh` the name `path`. A link, unlike a rename, never replaces what another has put there meanwhile.

    Raises `AssistantError`, with code "ledger-in-use" when a living process owns what is there.
    """
    while True:
        try:
            os.link(fresh, path)
            return
        except FileExistsError:
            pass
        except OSError as error:
            raise not_made(path, error) from None
        try:
            remove_left_behind(path, living_owner)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise not_made(path, error) from None


def not_made(path: Path, error: OSError) -> AssistantError:
    """What to say when a segment's file cannot be had: something has its name, or nothing can be written there."""
    if os.path.lexists(path):
        return AssistantError(f"{path} is in the way of the ledger: {error.strerror}; remove it")
    return AssistantError(
        f"the ledger cannot be made: {path.parent} cannot be written ({error.strerror});"
        f" mount a tmpfs with room there (mount -t tmpfs tmpfs {path.parent}; --shm-size=64m for a container)"
    )


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """The descriptor of a segment of ours, to read. Raises `OSError`, for what is not ours too."""
    # the folder is everybody's: a pipe would block us, a link lead us elsewhere
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            raise FileExistsError(errno.EEXIST, "it is not a file of ours")
        yield fd
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    """Held for no longer than a removal takes; the kernel frees it when we die. Raises `OSError` when somebody keeps
    it longer."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_LOCK_STEP_S)
    raise BlockingIOError(errno.EAGAIN, "somebody holds it locked")


def remove_left_behind(path: Path, living_owner: LivingOwner) -> None:
    """Removes a segment whose owner has gone. Raises `AssistantError` when it lives, `OSError` for what is not ours.

    Under a lock on that very file: of two who find it at the same moment, the second must not remove what the first
    has put in its place.
    """
    with opened(path) as fd:
        found = os.fstat(fd)
        _lock(fd)
        owner = living_owner(fd)
        if owner:
            raise AssistantError(f"process {owner} already keeps the ledger {path.name}", code="ledger-in-use")
        if os.path.samestat(found, os.lstat(path)):
            path.unlink()
