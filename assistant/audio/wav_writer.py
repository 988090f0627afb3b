"""Speech into a WAV file, as it arrives. Imports `errors` alone."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

from assistant.closing import Closing
from assistant.errors import UsageError


class WavWriter(Closing):
    """Writes s16le mono to `path` as it arrives; the file appears under its name only when it is whole.

    Writes beside the target and renames in `close`; leaving a `with` block by an exception removes it instead. A target
    that is no regular file (/dev/null, a pipe) is written straight. Raises `UsageError` when the target cannot be
    written, from the constructor on, so that nobody waits for an answer that has nowhere to go.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rate = 0
        self._data_bytes = 0
        try:
            if path.is_dir():
                raise UsageError(f"Cannot write {path}: it is a directory. Name a file in it.", code="bad-output")
            self._direct = path.exists() and not path.is_file()
            if self._direct:
                self._target = self._part = path  # not resolved: what /dev/stdout leads to may have no name
                # a pipe that nobody reads must be an error, not a wait without end
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                os.set_blocking(fd, True)
                self._file = os.fdopen(fd, "wb")
            else:
                self._target = path.resolve()
                self._part = self._target.with_name(f".{self._target.name[:200]}.{os.getpid()}.{id(self):x}.part")
                self._file = open(self._part, "xb")  # noqa: SIM115 - closed by close/discard
        except (OSError, ValueError) as error:
            raise self._cannot_write(error) from None

    def _cannot_write(self, error: Exception) -> UsageError:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return UsageError(f"Cannot write {self._path}: {reason}. Choose another file.", code="bad-output")

    @property
    def sample_rate(self) -> int:
        """Hz; 0 before the first block."""
        return self._rate

    @property
    def seconds(self) -> float:
        return self._data_bytes / 2 / self._rate if self._rate else 0.0

    def write(self, pcm: bytes, sample_rate: int) -> None:
        """Appends s16le mono; every block must have the sample rate (Hz) of the first one."""
        if self._rate not in (0, sample_rate):
            raise ValueError(f"the file has {self._rate} Hz, this block {sample_rate} Hz")
        try:
            if not self._rate:
                self._rate = sample_rate
                self._file.write(_wav_header(sample_rate, None))
            self._file.write(pcm)
        except OSError as error:
            self.abort()
            raise self._cannot_write(error) from None
        self._data_bytes += len(pcm)

    def close(self) -> None:
        """Finishes the file. Without a single block there is no sound, and no file."""
        if self._file.closed:
            return
        if not self._rate:
            return self.abort()
        try:
            if self._file.seekable():
                self._file.seek(0)
                self._file.write(_wav_header(self._rate, self._data_bytes))
            self._file.close()
            if not self._direct:
                self._part.replace(self._target)
        except OSError as error:
            self.abort()
            raise self._cannot_write(error) from None

    def abort(self) -> None:
        """Leaves nothing behind; an older file of that name stays as it was. Never raises."""
        with contextlib.suppress(OSError):
            self._file.close()
        if not self._direct:
            with contextlib.suppress(OSError):
                self._part.unlink(missing_ok=True)


def _wav_header(rate: int, data_bytes: int | None) -> bytes:
    """The 44 bytes of RIFF/WAVE PCM, mono, 16 bit. None: length not known yet (readers then go on to the end)."""
    size = 0xFFFFFFFF - 36 if data_bytes is None else min(data_bytes, 0xFFFFFFFF - 36)
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF", size + 36, b"WAVE", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16, b"data", size,
    )  # fmt: skip
