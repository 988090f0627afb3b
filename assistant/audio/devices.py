"""Microphones and speakers, through PortAudio: what there is, how it is opened; the speaker of a single answer.

Imports `closing, errors, front_messages, stream_choice`. The only module that imports sounddevice, and only when a
device is asked for. Watches nothing: streams that live on while devices come and go are in `streams`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from assistant.audio.front_messages import DeviceKind
from assistant.audio.stream_choice import NOUN, Format, SoundDevice, choose, opening_format
from assistant.closing import Closing
from assistant.errors import DeviceError

_BLOCK_S = 0.1
"""What is handed to the device at once: how long an interruption can take to be heard."""


class RawStream(Protocol):
    """What of sounddevice's streams is used."""

    @property
    def active(self) -> bool: ...
    @property
    def latency(self) -> float: ...
    def start(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


def _sounddevice() -> Any:
    try:
        import sounddevice
    except OSError as error:
        raise DeviceError(f"no sound system: {error}; install PortAudio (on Debian: libportaudio2)") from None
    return sounddevice


# --- PortAudio ------------------------------------------------------------------------------------------------------
class PortAudio:
    """The library itself, which there is once per process. Everything here may take long, and is for one thread."""

    def devices(self) -> tuple[SoundDevice, ...]:
        """As they were when the library was initialised. Raises `DeviceError` where there is no PortAudio."""
        sounddevice = _sounddevice()
        apis = [str(one["name"]) for one in sounddevice.query_hostapis()]
        default_input, default_output = self._default(sounddevice, "input"), self._default(sounddevice, "output")
        return tuple(
            SoundDevice(
                index=number,
                name=str(one["name"]),
                host_api=apis[one["hostapi"]],
                inputs=int(one["max_input_channels"]),
                outputs=int(one["max_output_channels"]),
                default_rate=round(one["default_samplerate"]),
                default_input=number == default_input,
                default_output=number == default_output,
            )
            for number, one in enumerate(sounddevice.query_devices())
        )

    def _default(self, sounddevice: Any, kind: DeviceKind) -> int | None:
        try:
            return int(sounddevice.query_devices(kind=kind)["index"])
        except (sounddevice.PortAudioError, ValueError):
            return None

    def takes(self, kind: DeviceKind, device: SoundDevice, format: Format) -> bool:
        """Whether it really opens like this; tried with the device itself."""
        sounddevice = _sounddevice()
        check = sounddevice.check_input_settings if kind == "input" else sounddevice.check_output_settings
        try:
            check(device=device.index, channels=format.channels, samplerate=format.rate, dtype="int16")
        except (sounddevice.PortAudioError, ValueError):
            return False
        return True

    def open(
        self,
        kind: DeviceKind,
        device: SoundDevice,
        format: Format,
        callback: Callable[[Any, int, Any, Any], None],
        finished: Callable[[], None],
        *,
        block_s: float,
        latency_s: float,
    ) -> RawStream:
        """A started stream. `callback` gets (buffer of s16le, frames, times, flags) in a thread of PortAudio's.

        `finished` is called when the stream has ended, for whatever reason. Raises `DeviceError`.
        """
        sounddevice = _sounddevice()
        opened = sounddevice.RawInputStream if kind == "input" else sounddevice.RawOutputStream
        stream: RawStream | None = None
        try:
            stream = opened(
                device=device.index, samplerate=format.rate, channels=format.channels, dtype="int16",
                blocksize=round(block_s * format.rate), latency=latency_s, callback=callback,
                finished_callback=finished,
            )  # fmt: skip
            stream.start()
        except (sounddevice.PortAudioError, ValueError) as error:
            if stream is not None:
                self.close(stream)
            raise DeviceError(f"{NOUN[kind]} {device.name!r} cannot be opened: {error}") from None
        return stream

    def close(self, stream: RawStream) -> None:
        """Without waiting for what is still to be played. A device that has gone has nothing more to say."""
        error = _sounddevice().PortAudioError
        with contextlib.suppress(error):
            stream.abort()
        with contextlib.suppress(error):
            stream.close()

    def refresh(self) -> None:
        """Looks for devices anew; every stream must have been closed. Raises `DeviceError`."""
        sounddevice = _sounddevice()
        try:
            with contextlib.suppress(sounddevice.PortAudioError):  # it was not initialised: the last time failed
                sounddevice._terminate()
            sounddevice._initialize()
        except sounddevice.PortAudioError as error:
            raise DeviceError(f"PortAudio finds no sound system: {error}") from None


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """PortAudio and ALSA write pages to the process's stderr while they try a device; not within this."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


# --- the speaker of a single answer ---------------------------------------------------------------------------------
def output_device(pattern: str = "") -> str:
    """The name of the speaker that would be used. Raises `DeviceError` when there is none, `ConfigError`.

    `pattern`: see `choose`.
    """
    return choose(PortAudio().devices(), "output", pattern).name


class Speaker(Closing):
    """Plays s16le mono as it arrives, in a thread of its own; `close` returns when all of it was heard.

    `opened` is a seam: called with (device, sample rate) it gives a started stream with `write`, `stop`, `abort`
    and `close`.
    """

    def __init__(self, device: str, opened: Callable[[str, int], Any] | None = None) -> None:
        self._device = device
        self._open = opened or open_speaker
        self._queue: queue.Queue[bytes | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._stop_now = threading.Event()
        self._error: DeviceError | None = None
        self._bytes = 0
        self.sample_rate = 0

    @property
    def seconds(self) -> float:
        """Of sound that was handed over."""
        return self._bytes / 2 / self.sample_rate if self.sample_rate else 0.0

    def write(self, pcm: bytes, sample_rate: int) -> None:
        """Returns at once. Raises `DeviceError` when the device has failed meanwhile."""
        if self._error is not None:
            raise self._error
        self._bytes += len(pcm)
        if self._thread is None:
            self.sample_rate = sample_rate
            self._thread = threading.Thread(target=self._play, name="speaker", daemon=True)
            self._thread.start()
        self._queue.put(pcm)

    def close(self) -> None:
        """Waits for the end of the sound. Raises `DeviceError` when the device failed."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
        if self._error is not None:
            raise self._error

    def abort(self) -> None:
        """Silence within a block, whatever is still queued."""
        self._stop_now.set()
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _play(self) -> None:
        try:
            stream = self._open(self._device, self.sample_rate)
        except Exception as error:  # noqa: BLE001 - PortAudio's error class can only be named after importing it
            self._error = DeviceError(f"{self._device!r} cannot be opened: {error}; use --out FILE.wav")
            return
        step = int(self.sample_rate * _BLOCK_S) * 2
        try:
            while (pcm := self._queue.get()) is not None:
                for at in range(0, len(pcm), step):
                    if self._stop_now.is_set():
                        stream.abort()
                        return
                    stream.write(pcm[at : at + step])
            stream.stop()
        except Exception as error:  # noqa: BLE001
            self._error = DeviceError(f"{self._device!r} was lost while speaking: {error}", code="audio-device-lost")
        finally:
            stream.close()


def open_speaker(device: str, sample_rate: int, portaudio: PortAudio | None = None) -> Any:
    """A started stream that takes s16le mono at this rate with `write`, converted where the device takes none of it."""
    portaudio = portaudio or PortAudio()
    found, asked = choose(portaudio.devices(), "output", device), Format(sample_rate, 1)

    def takes(format: Format) -> bool:
        return portaudio.takes("output", found, format)

    format = asked if takes(asked) else opening_format(found, "output", takes)
    stream = _sounddevice().RawOutputStream(
        samplerate=format.rate, channels=format.channels, dtype="int16", device=found.index
    )
    stream.start()
    return stream if format == asked else _Converting(stream, sample_rate, format)


class _Converting:
    """A stream of another rate or channel count than what is written."""

    def __init__(self, stream: Any, sample_rate: int, format: Format) -> None:
        import soxr

        self._stream, self._channels = stream, format.channels
        self._resample = soxr.ResampleStream(sample_rate, format.rate, 1, dtype="int16")
        self.abort, self.close = stream.abort, stream.close

    def write(self, pcm: bytes, last: bool = False) -> None:
        import numpy as np

        mono = self._resample.resample_chunk(np.frombuffer(pcm, "<i2"), last=last)
        self._stream.write(np.repeat(mono, self._channels).tobytes())

    def stop(self) -> None:
        self.write(b"", last=True)
        self._stream.stop()
