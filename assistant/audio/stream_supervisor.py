"""Keeps streams of sound alive: one thread that opens, watches and opens again. Imports `devices, stream_watch`.

PortAudio is one library for the whole process and lists devices only when it is initialised, which ends every stream.
So there is one thread for all streams: nobody else waits for a device that hangs, and nobody initialises the library
while another stream plays. Knows nothing of what the sound is for.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Protocol

from assistant.audio.devices import PortAudio
from assistant.audio.stream_watch import Backoff
from assistant.errors import DeviceError

FIRST_REFRESH_S, LAST_REFRESH_S = 15.0, 240.0
"""Between two searches for devices that interrupt a stream which works (for about 0.1 s); each doubles the time."""
CLOSE_S = 1.5
"""How long `remove` waits for a device to close; one that hangs is left behind."""


class Supervised(Protocol):
    """Of a stream: all of it is called by the supervisor's thread alone."""

    @property
    def is_open(self) -> bool: ...
    def needs_refresh(self, now: float) -> bool:
        """It is to be opened now, and cannot be with the devices that are known."""
        ...

    @property
    def indispensable(self) -> bool:
        """It plays something, and must not be interrupted."""
        ...

    def step(self, now: float) -> float | None:
        """Does what is to be done; when it is to be called again at the latest (None: not by itself)."""
        ...

    def pause(self) -> None:
        """Closes; the next step opens again."""
        ...

    def end(self) -> None:
        """Closes for good."""
        ...


class Supervisor:
    """`clock` is a seam; so is `portaudio`, which is not touched by any other thread from here on."""

    def __init__(self, portaudio: PortAudio | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.portaudio = portaudio or PortAudio()
        self.clock = clock
        self._lock = threading.Lock()
        self._members: list[Supervised] = []
        self._leaving: list[tuple[Supervised, threading.Event]] = []
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._patience = Backoff(FIRST_REFRESH_S, LAST_REFRESH_S)
        self._refresh_at = 0.0

    def add(self, member: Supervised) -> None:
        with self._lock:
            self._members.append(member)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="devices", daemon=True)
                self._thread.start()
        self.wake()

    def wake(self) -> None:
        """From any thread, and never waits: something has changed."""
        self._woken.set()

    def remove(self, member: Supervised, timeout_s: float = CLOSE_S) -> bool:
        """Closes it. False when the device hangs: its thread stays behind, and ends when the device lets go."""
        left = threading.Event()
        with self._lock:
            if member not in self._members:
                return True
            self._members.remove(member)
            self._leaving.append((member, left))
        self.wake()
        return left.wait(timeout_s)

    # --- the thread -------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            self._woken.clear()
            with self._lock:
                members, leaving, self._leaving = list(self._members), self._leaving, []
            for member, left in leaving:
                member.end()
                left.set()
            now = self.clock()
            wanting = [member for member in members if member.needs_refresh(now)]
            if wanting and self._may_refresh(members, wanting, now):
                self._refresh(members)
            nexts = [member.step(self.clock()) for member in members]
            with self._lock:
                if not self._members and not self._leaving:
                    self._thread = None
                    return
            due = min((at for at in nexts if at is not None), default=None)
            self._woken.wait(None if due is None else max(0.0, due - self.clock()))

    def _may_refresh(self, members: list[Supervised], wanting: list[Supervised], now: float) -> bool:
        others = [member for member in members if member.is_open and member not in wanting]
        if not others:
            self._patience, self._refresh_at = Backoff(FIRST_REFRESH_S, LAST_REFRESH_S), 0.0
            return True
        if not self._refresh_at:  # most devices come back without it, and it costs the other one a tenth of a second
            self._refresh_at = now + self._patience.failed()
        if now < self._refresh_at or any(member.indispensable for member in others):
            return False
        self._refresh_at = now + self._patience.failed()
        return True

    def _refresh(self, members: list[Supervised]) -> None:
        for member in members:
            member.pause()
        # when it fails there is no device, which every stream finds out, and tells, by itself
        with contextlib.suppress(DeviceError):
            self.portaudio.refresh()


_shared: Supervisor | None = None
_shared_lock = threading.Lock()


def shared() -> Supervisor:
    """The supervisor of this process, as there is one PortAudio in it."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Supervisor()
        return _shared
