"""Faults of a disk, told apart from those of a model: to fetch it again would mend nothing. Imports `errors`."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from assistant.errors import ModelUnreachable

_DISK_FAILS = frozenset({
    errno.EIO, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN,
    errno.EHOSTUNREACH, errno.EREMOTEIO,
})  # fmt: skip


def check(error: OSError, path: Path) -> None:
    """Raises `ModelUnreachable` when it is the disk of `path` that fails."""
    if error.errno in _DISK_FAILS:
        raise ModelUnreachable(
            f"{path} cannot be read ({os.strerror(error.errno)}): look after its disk (the kernel's log may say more),"
            " then ask again"
        ) from None
