"""The speaker, through PortAudio. The only module that imports sounddevice, and only when a device is asked for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from assistant.closing import Closing
from assistant.errors import ConfigError, DeviceError

_BLOCK_S = 0.1
"""What is handed to the device at once: how long an interruption can take to be heard."""


def _sounddevice() -> Any:
    try:
        import sounddevice
    except OSError as error:
        raise DeviceError(
            f"no sound system: {error}; install PortAudio (on Debian: libportaudio2), or use --out FILE.wav or"
            " --no-speech"
        ) from None
    return sounddevice


def output_device(pattern: str = "") -> str:
    """The name of the speaker that would be used. Raises `DeviceError` when there is none.

    `pattern`: a regular expression that the name must match; empty = the system's default.
    """
    import re

    sounddevice = _sounddevice()
    try:
        if not pattern:
            return str(sounddevice.query_devices(kind="output")["name"])
        names = [str(one["name"]) for one in sounddevice.query_devices() if one["max_output_channels"] > 0]
        matching = [name for name in names if re.search(pattern, name, re.IGNORECASE)]
    except (sounddevice.PortAudioError, ValueError):
        raise DeviceError("no speaker was found; use --out FILE.wav or --no-speech") from None
    except re.error as error:
        raise ConfigError(f"audio.output = {pattern!r} is no regular expression: {error}") from None
    if not matching:
        raise DeviceError(f"no speaker matches audio.output = {pattern!r}; there are: {', '.join(names) or 'none'}")
    return matching[0]


class Speaker(Closing):
    """Plays s16le mono as it arrives, in a thread of its own; `close` returns when all of it was heard.

    `opened` is a seam: called with (device, sample rate) it gives a started stream with `write`, `stop`, `abort`
    and `close`.
    """

    def __init__(self, device: str, opened: Callable[[str, int], Any] | None = None) -> None:
        self._device = device
        self._open = opened or _open_stream
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


def _open_stream(device: str, sample_rate: int) -> Any:
    sounddevice = _sounddevice()
    stream = sounddevice.RawOutputStream(samplerate=sample_rate, channels=1, dtype="int16", device=device)
    stream.start()
    return stream
