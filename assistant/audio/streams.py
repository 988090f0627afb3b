"""The microphone and the speaker as they are used: there when they are there, told of when they are not.

Imports `front_messages, stream_*`. PortAudio's threads only copy; opening, watching and opening again is done by the
supervisor's thread. Nothing here makes the caller wait for a device. Decides nothing of what is heard or played.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assistant.audio.front_messages import Device
from assistant.audio.stream_base import BLOCK_S, Stream
from assistant.audio.stream_choice import Format
from assistant.audio.stream_intake import RING_S, Intake, Ring
from assistant.audio.stream_supervisor import Supervisor

INPUT_LATENCY_S = 0.1
"""Blocks come by threes then: half of the wake-ups of the lowest latency."""
OUTPUT_LATENCY_S = 0.06
"""What is in the device's buffer is heard after an interruption, too; it must be less than 0.1 s."""
PRE_ROLL_S = 0.15
"""Silence ahead of the first sound: a speaker that wakes up swallows it instead of a syllable."""
IDLE_S = 10.0
"""Without sound, until the speaker is closed: an open one wakes this process 30 times a second."""


class InputStream(Stream):
    """The microphone. `ready` is called by PortAudio's thread when there is something to read, and must not wait;
    `tell` by the supervisor's. Raises `ConfigError` for a pattern that is no regular expression.
    """

    kind = "input"
    latency_s = INPUT_LATENCY_S

    def __init__(
        self,
        pattern: str,
        *,
        ready: Callable[[], None],
        tell: Callable[[Device], None],
        supervisor: Supervisor | None = None,
    ) -> None:
        super().__init__(pattern, tell, supervisor)
        self._ready = ready
        self._ring = Ring(round(RING_S / BLOCK_S))
        self._intake: tuple[int, Intake] | None = None
        self._started = self._muted = False
        self._device_lost = 0
        self.captured_s = 0.0
        """Of sound that the device gave since the start."""
        self.heeded = False
        """Set by the owner: somebody speaks who is listened to, and a refresh for the speaker's sake can wait."""

    def start(self) -> None:
        self._started = True
        self._join()

    def mute(self, on: bool) -> None:
        """A muted microphone is closed: nobody needs to trust us."""
        self._muted = on
        self._ring.take()
        if self._added:
            self._supervisor.wake()

    @property
    def overflows(self) -> int:
        """Times that sound was lost, in the device or here, because nobody took it in time."""
        return self._ring.lost + self._device_lost

    def read(self) -> bytes:
        """All that has come since the last call, s16le mono at 16 kHz. Never waits; for one thread."""
        out = []
        for opening, format, pcm in self._ring.take():
            if self._intake is None or self._intake[0] != opening:
                self._intake = opening, Intake(format)
            out.append(self._intake[1](pcm))
        return b"" if self._muted else b"".join(out)

    @property
    def indispensable(self) -> bool:
        return self.heeded

    def _wanted(self, now: float) -> bool:
        return self._started and not self._muted

    def _rested(self) -> None:
        if self._started:
            self._say(Device(kind=self.kind, state="off"))

    def _callback(self, opening: int, format: Format) -> Callable[[Any, int, Any, Any], None]:
        def arrived(sound: Any, frames: int, times: Any, flags: Any) -> None:
            if opening != self._opening:
                return
            self._frames += frames
            self.captured_s += frames / format.rate
            self._device_lost += bool(flags.input_overflow)
            self._ring.put(opening, format, bytes(sound))
            self._ready()

        return arrived


class OutputStream(Stream):
    """The speaker. `fill(frames, rate)` is called by PortAudio's thread: s16le mono, and silence for what is short; it
    must not wait. `tell` is called by the supervisor's thread. Raises `ConfigError` as above.
    """

    kind = "output"
    latency_s = OUTPUT_LATENCY_S

    def __init__(
        self,
        pattern: str,
        *,
        fill: Callable[[int, int], bytes],
        tell: Callable[[Device], None],
        idle_s: float = IDLE_S,
        supervisor: Supervisor | None = None,
    ) -> None:
        super().__init__(pattern, tell, supervisor)
        self._fill, self._idle_s = fill, idle_s
        self._sounded_at = self._asked_at = -idle_s
        self._pre_roll = 0
        self.underflows = 0
        """Times that the device got its samples too late."""

    def wanted(self) -> None:
        """Something is to be played. Returns at once; `fill` is called a few milliseconds later if it is closed now."""
        self._asked_at = self._supervisor.clock()
        if self._stream is None:
            self._join()

    def start(self) -> None:
        """Opens it to see that it is there; it closes again when nothing is played."""
        self.wanted()

    @property
    def indispensable(self) -> bool:
        return self._supervisor.clock() - self._sounded_at < 1.0

    def _wanted(self, now: float) -> bool:
        # one that is lost is looked for without being used, so that its return is told
        return self._lost or now - max(self._sounded_at, self._asked_at) < self._idle_s

    def _begin(self, format: Format) -> None:
        self._pre_roll = round(PRE_ROLL_S * format.rate)

    def _callback(self, opening: int, format: Format) -> Callable[[Any, int, Any, Any], None]:
        def asked(sound: Any, frames: int, times: Any, flags: Any) -> None:
            if opening != self._opening:
                sound[:] = bytes(len(sound))
                return
            self._frames += frames
            self.underflows += bool(flags.output_underflow)
            quiet, self._pre_roll = min(self._pre_roll, frames), max(0, self._pre_roll - frames)
            if quiet == frames:
                sound[:] = bytes(len(sound))
                return
            mono = bytes(2 * quiet) + self._fill(frames - quiet, format.rate)
            mono += bytes(2 * frames - len(mono))
            if mono.count(0) != len(mono):
                self._sounded_at = self._supervisor.clock()
            sound[:] = mono if format.channels == 1 else _spread(mono, format.channels)

        return asked


def _spread(mono: bytes, channels: int) -> bytes:
    """The same samples on every channel."""
    import numpy as np

    return bytes(np.repeat(np.frombuffer(mono, "<i2"), channels).tobytes())
