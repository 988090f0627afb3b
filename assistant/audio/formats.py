"""Sound files: reads whatever libsndfile knows into 16 kHz mono. Imports `errors, messages`.

Reading streams in blocks: memory holds the result and one block, whatever a header claims. libsndfile, numpy and soxr
are imported when a file is read, so that importing this module stays cheap. Never decides whether somebody speaks;
never touches a device.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from assistant.errors import BadAudio
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


class _Steady:
    """A stream for libsndfile, whose damaged headers make it seek to where nothing is: then it stays where it was.

    An exception could not get through C anyway; it would be printed, with a traceback, and be ignored.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.read, self.tell = stream.read, stream.tell

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with contextlib.suppress(OSError, ValueError, OverflowError):
            return self._stream.seek(offset, whence)
        return self._stream.tell()


@contextlib.contextmanager
def _decoder(stream: BinaryIO, name: str) -> Iterator[Any]:
    import soundfile

    class Forward(soundfile.SoundFile):  # type: ignore[misc]
        """Forward only: seeking between blocks, as soundfile does, puts clicks into MP3 and trips over damage."""

        def seekable(self) -> bool:
            return False

    try:
        sound = Forward(_Steady(stream))
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
