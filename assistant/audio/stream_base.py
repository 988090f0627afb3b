"""A stream that is opened, watched and opened again: what microphone and speaker have in common.

Imports `devices, front_messages, stream_*`. Decides when a stream is broken and when it is tried again; what it tells
is told once per change. Knows nothing of sound but that frames pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from assistant.audio.devices import RawStream
from assistant.audio.front_messages import Device, DeviceKind
from assistant.audio.stream_choice import NOUN, Format, SoundDevice, checked_pattern, choose, opening_format
from assistant.audio.stream_supervisor import Supervisor, shared
from assistant.audio.stream_watch import Backoff, Watchdog
from assistant.closing import Closing
from assistant.errors import DeviceError

BLOCK_S = 0.032
WATCH_S = 1.0
"""Between two looks at a stream that works."""


class Stream(Closing, ABC):
    """What both have in common. Flags are set by any thread; everything else belongs to the supervisor's."""

    kind: DeviceKind
    latency_s: float
    """What the device is asked for."""

    def __init__(self, pattern: str, tell: Callable[[Device], None], supervisor: Supervisor | None) -> None:
        checked_pattern(pattern, self.kind)
        self._pattern, self._tell = pattern, tell
        self._supervisor = supervisor or shared()
        self._added = False
        self._stream: RawStream | None = None
        self._device: SoundDevice | None = None
        self._format = Format(0, 0)
        self._opening = 0
        """Number of the current opening: what still comes of an older one is not taken."""
        self._ended = False
        self._frames = 0
        self._watch = Watchdog(0)
        self._opened_at = 0.0
        self._backoff = Backoff()
        self._retry_at = 0.0
        self._fails = 0
        self._missing = False
        self._told: tuple[object, ...] = ()
        self.reopened = 0
        """Times that it came back after it was lost."""

    # --- for the owner ----------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Waits at most 1.5 s; a device that hangs is left behind."""
        self._supervisor.remove(self)

    def _join(self) -> None:
        if self._added:
            self._supervisor.wake()
        else:
            self._added = True
            self._supervisor.add(self)

    # --- for the supervisor -----------------------------------------------------------------------------------------
    @property
    def is_open(self) -> bool:
        return self._stream is not None

    def needs_refresh(self, now: float) -> bool:
        if self._stream is not None or now < self._retry_at or not self._wanted(now):
            return False
        return self._missing or self._fails >= 2

    @property
    def _lost(self) -> bool:
        return self._told[:1] == ("lost",)

    @property
    def indispensable(self) -> bool:
        return False

    @abstractmethod
    def _wanted(self, now: float) -> bool: ...

    def step(self, now: float) -> float | None:
        if not self._wanted(now):
            self.pause()
            self._missing, self._fails = False, 0
            self._rested()
            return None
        if self._stream is not None and (reason := self._fault(self._stream, now)):
            self._lose(reason, now)
        if self._stream is None and now >= self._retry_at:
            self._open(now)
        return self._retry_at if self._stream is None else now + WATCH_S

    def _fault(self, stream: RawStream, now: float) -> str:
        """Why it is of no use any more; empty = it works."""
        if self._ended or not stream.active:
            return "has ended by itself; was it unplugged, or has the sound server ended?"
        if self._watch.broken(self._frames, now):
            return f"has moved no sound for {self._watch.silent_s(self._frames, now):.0f} s"
        return ""

    def _open(self, now: float) -> None:
        portaudio = self._supervisor.portaudio
        try:
            device = choose(portaudio.devices(), self.kind, self._pattern)
            format = opening_format(device, self.kind, lambda one: portaudio.takes(self.kind, device, one))
            self._opening += 1
            self._device, self._format, self._ended, self._frames = device, format, False, 0
            self._begin(format)
            self._stream = portaudio.open(
                self.kind, device, format, self._callback(self._opening, format), self._finished(self._opening),
                block_s=BLOCK_S, latency_s=self.latency_s,
            )  # fmt: skip
        except DeviceError as error:
            self._failed(error, now)
            return
        self._watch, self._opened_at = Watchdog(now), now
        self._fails, self._missing = 0, False
        self.reopened += self._lost
        self._say(Device(kind=self.kind, state="ok", name=device.name, sample_rate=format.rate,
                         channels=format.channels))  # fmt: skip

    def _failed(self, error: DeviceError, now: float) -> None:
        self._missing = error.code == "audio-device-missing"
        self._fails += 1
        self._retry_at = now + self._backoff.failed()
        name = self._device.name if self._device else self._pattern
        self._say(Device(kind=self.kind, state="lost", name=name, message=f"{error.message}; it is tried again"))

    def _lose(self, reason: str, now: float) -> None:
        assert self._device is not None
        # said first: closing a device that hangs may take half a minute
        message = f"the {NOUN[self.kind]} {self._device.name!r} {reason} It is looked for again and again"
        self._say(Device(kind=self.kind, state="lost", name=self._device.name, message=message))
        self._retry_at = now + self._backoff.failed(now - self._opened_at)
        self.pause()

    def _say(self, told: Device) -> None:
        now = (told.state, told.name, told.sample_rate, told.channels)
        if now != self._told and not (told.state == "lost" and self._lost):
            self._told = now
            self._tell(told)

    def pause(self) -> None:
        self._opening += 1
        stream, self._stream = self._stream, None
        if stream is not None:
            self._supervisor.portaudio.close(stream)

    def end(self) -> None:
        self.pause()

    def _rested(self) -> None:
        """It is not wanted now, and closed."""

    def _begin(self, format: Format) -> None:
        """It is about to be opened like this."""

    def _finished(self, opening: int) -> Callable[[], None]:
        def finished() -> None:
            if opening == self._opening:
                self._ended = True
                self._supervisor.wake()

        return finished

    @abstractmethod
    def _callback(self, opening: int, format: Format) -> Callable[[Any, int, Any, Any], None]: ...
