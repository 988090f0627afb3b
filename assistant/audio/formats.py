"""Sound files: reads whatever libsndfile knows into 16 kHz mono, and writes answers as WAV. Imports `errors, messages`.

Reading streams in blocks: memory holds the result and one block, whatever a header claims. libsndfile, numpy and soxr
are imported when a file is read, so that importing this module stays cheap. Never decides whether somebody speaks;
never touches a device.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

import msgspec

from assistant.errors import BadAudio, UsageError
from assistant.messages import ASR_RATE

MAX_SECONDS = 600.0
"""Longest recording taken: ten minutes at 16 kHz mono are 19 MB."""
MAX_SPOOL_BYTES = 512 * 2**20
"""Most that is taken from a pipe; ten minutes of 48 kHz stereo float are 230 MB."""
MIN_RATE, MAX_RATE = 4_000, 384_000
"""Hz; a rate outside of this comes from a damaged header."""

_BLOCK_FRAMES = 4_096
"""Damage costs at most one block of the sound before it."""
_PIPE_BLOCK = 65_536
_SPOOL_IN_MEMORY = 8 * 2**20
_WAY_OUT = "Give a WAV, FLAC, OGG or MP3 file, for example one made with `arecord -f S16_LE -r 16000 question.wav`."


class AudioClip(msgspec.Struct, frozen=True, kw_only=True):
    pcm: bytes
    """s16le mono at 16 kHz."""
    seconds: float
    source_rate: int
    """Hz, as the file says."""
    source_channels: int


def read_audio(source: Path | BinaryIO, *, max_seconds: float = MAX_SECONDS) -> AudioClip:
    """The whole recording as s16le mono at 16 kHz: channels averaged, over-range clipped, NaN taken for silence.

    A stream (standard input) need not be seekable. A recording that breaks off gives what is there. Raises `BadAudio`
    that names the file and the way out.
    """
    name = str(source) if isinstance(source, Path) else "standard input"
    with contextlib.ExitStack() as stack:
        sound = stack.enter_context(_decoder(_seekable(source, name, stack), name))
        rate, channels = int(sound.samplerate), int(sound.channels)
        if not MIN_RATE <= rate <= MAX_RATE:
            raise BadAudio(
                f"{name} claims a sample rate of {rate} Hz; {MIN_RATE} to {MAX_RATE} Hz can be read. "
                "Its header is probably damaged: record or convert it again.",
                code="audio-bad-rate",
            )
        pcm = bytearray()
        for block in _to_16k_mono(sound, name):
            pcm += block
            if len(pcm) > max_seconds * ASR_RATE * 2:
                raise _too_long(name, max_seconds)
    if not pcm:
        raise BadAudio(f"{name} holds no sound, not one sample. Record it again.", code="audio-empty")
    return AudioClip(pcm=bytes(pcm), seconds=len(pcm) / 2 / ASR_RATE, source_rate=rate, source_channels=channels)


def _too_long(name: str, seconds: float) -> BadAudio:
    return BadAudio(
        f"{name} is too long: the limit is {seconds / 60:g} minutes. Cut it into shorter parts.", code="audio-too-long"
    )


def _seekable(source: Path | BinaryIO, name: str, stack: contextlib.ExitStack) -> BinaryIO:
    """A seekable stream with at least one byte in it; closed by `stack` when it was opened here."""
    try:
        if isinstance(source, Path):
            stream: BinaryIO = stack.enter_context(source.open("rb"))
        else:
            stream = source
        if not stream.seekable():
            stream = _spooled(stream, name, stack)
        start = stream.tell()
        empty = not stream.read(1)
        stream.seek(start)
    except FileNotFoundError:
        raise BadAudio(f"There is no file {name}. Check the path.", code="audio-missing") from None
    except IsADirectoryError:
        raise BadAudio(f"{name} is a directory. Name one sound file in it.", code="audio-missing") from None
    except (OSError, ValueError) as error:  # ValueError: a closed stream, a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadAudio(
            f"{name} cannot be read: {reason}. Check the path and its permissions.", code="audio-unreadable"
        ) from None
    if empty:
        raise BadAudio(f"{name} is empty. {_WAY_OUT}", code="audio-empty")
    return stream


def _spooled(stream: BinaryIO, name: str, stack: contextlib.ExitStack) -> BinaryIO:
    """libsndfile must seek, which a pipe cannot: keeps a copy, in memory while it is small."""
    copy = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=_SPOOL_IN_MEMORY))  # noqa: SIM115 - the stack closes it
    while block := stream.read(_PIPE_BLOCK):
        copy.write(block)
        if copy.tell() > MAX_SPOOL_BYTES:
            raise _too_long(name, MAX_SECONDS)
    copy.seek(0)
    return cast(BinaryIO, copy)


@contextlib.contextmanager
def _decoder(stream: BinaryIO, name: str) -> Iterator[Any]:
    import soundfile

    class Forward(soundfile.SoundFile):  # type: ignore[misc]
        """Forward only: seeking between blocks, as soundfile does, puts clicks into MP3 and trips over damage."""

        def seekable(self) -> bool:
            return False

    try:
        sound = Forward(stream)
    except (soundfile.SoundFileError, TypeError) as error:
        detail = getattr(error, "error_string", str(error)).strip().rstrip(".")
        raise BadAudio(
            f"{name} is not a sound file that can be read ({detail}). {_WAY_OUT}", code="audio-not-recognised"
        ) from None
    with sound:
        yield sound


def _to_16k_mono(sound: Any, name: str) -> Iterator[bytes]:
    """Blocks of s16le; mixes down before it resamples, which costs one channel instead of many."""
    import numpy as np

    resampler = None
    if sound.samplerate != ASR_RATE:
        import soxr

        resampler = soxr.ResampleStream(sound.samplerate, ASR_RATE, 1, dtype="float32")
    for block in _blocks(sound, name):
        mono = np.nan_to_num(block, nan=0.0, posinf=1.0, neginf=-1.0).clip(-1.0, 1.0).mean(axis=1, dtype=np.float32)
        if resampler is not None:
            mono = resampler.resample_chunk(mono)
        yield _s16(mono)
    if resampler is not None:
        yield _s16(resampler.resample_chunk(np.zeros(0, np.float32), last=True))


def _blocks(sound: Any, name: str) -> Iterator[Any]:
    """float32 blocks [frames, channels]. Never trusts the frame count of a header; keeps what came before damage."""
    import soundfile

    some = False
    while True:
        try:
            block = sound.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)
        except soundfile.SoundFileError as error:
            if some:
                return
            raise BadAudio(
                f"{name} is damaged: nothing in it can be decoded ({error}). Record or convert it again.",
                code="audio-damaged",
            ) from None
        if not len(block):
            return
        some = True
        yield block


def _s16(mono: Any) -> bytes:
    """float32 in -1..1 to s16le. 32768 makes 16-bit sources come back bit by bit."""
    import numpy as np

    return cast(bytes, np.rint(mono * 32768.0).clip(-32768, 32767).astype("<i2").tobytes())


class WavWriter:
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
            self._target = path.resolve()
            if self._target.is_dir():
                raise UsageError(f"Cannot write {path}: it is a directory. Name a file in it.", code="bad-output")
            self._direct = self._target.exists() and not self._target.is_file()
            self._part = (
                self._target
                if self._direct
                else self._target.with_name(f".{self._target.name[:200]}.{os.getpid()}.{id(self):x}.part")
            )
            self._file = open(self._part, "wb" if self._direct else "xb")  # noqa: SIM115 - closed by close/discard
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
            self.discard()
            raise self._cannot_write(error) from None
        self._data_bytes += len(pcm)

    def close(self) -> None:
        """Finishes the file. Without a single block there is no sound, and no file."""
        if self._file.closed:
            return
        if not self._rate:
            return self.discard()
        try:
            if self._file.seekable():
                self._file.seek(0)
                self._file.write(_wav_header(self._rate, self._data_bytes))
            self._file.close()
            if not self._direct:
                self._part.replace(self._target)
        except OSError as error:
            self.discard()
            raise self._cannot_write(error) from None

    def discard(self) -> None:
        """Leaves nothing behind; an older file of that name stays as it was. Never raises."""
        with contextlib.suppress(OSError):
            self._file.close()
        if not self._direct:
            with contextlib.suppress(OSError):
                self._part.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def _wav_header(rate: int, data_bytes: int | None) -> bytes:
    """The 44 bytes of RIFF/WAVE PCM, mono, 16 bit. None: length not known yet (readers then go on to the end)."""
    size = 0xFFFFFFFF - 36 if data_bytes is None else min(data_bytes, 0xFFFFFFFF - 36)
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF", size + 36, b"WAVE", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16, b"data", size,
    )  # fmt: skip
