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

LivingOwner = Callable[[int, bool], int]
"""From the descriptor of a segment, and whether somebody holds its lock, the pid of its owner; 0 when that has gone."""


def made_locked(fresh: Path) -> int:
    """The descriptor of an empty file of that name (0600), locked for as long as it is open. Raises `OSError`."""
    while True:
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _lock(fd)
            os.ftruncate(fd, 0)  # no sooner: what somebody has mapped would end him
            if os.path.samestat(os.fstat(fd), os.lstat(fresh)):
                return fd
        except FileNotFoundError:
            pass  # swept between its creation and our lock
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


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
    if isinstance(error, BlockingIOError):
        return AssistantError(f"{path} is in the way of the ledger: {error.strerror}", code="ledger-in-use")
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


def _lock(fd: int, unless: Callable[[], None] = lambda: None) -> None:
    """The kernel frees it when we die. `unless` may raise while somebody else has it. Raises `OSError` when he keeps it
    for longer than a look or a removal takes."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            unless()
            time.sleep(_LOCK_STEP_S)
    raise BlockingIOError(errno.EAGAIN, "somebody holds it locked, perhaps in another container")


def remove_left_behind(path: Path, living_owner: LivingOwner) -> None:
    """Removes a segment whose owner has gone. Raises `AssistantError` when it lives, `OSError` for what is not ours,
    and for what somebody keeps locked who cannot be seen from here.

    Under a lock on that very file: of two who find it at the same moment, the second must not remove what the first
    has put in its place.
    """
    with opened(path) as fd:

        def refuse_living(locked: bool = True) -> None:
            if owner := living_owner(fd, locked):
                raise AssistantError(f"process {owner} already keeps the ledger {path.name}", code="ledger-in-use")

        found = os.fstat(fd)
        _lock(fd, refuse_living)
        refuse_living(locked=False)
        if os.path.samestat(found, os.lstat(path)):
            path.unlink()
