"""A process that listens and speaks through `streams`, driven by lines on stdin; what it is told goes to stdout.

PortAudio takes its devices from the environment of the process, so each test has a process of its own. Commands:
"sound on", "sound off", "click", "mute on", "mute off", "read off", "stats", "quit". Answers are lines of JSON. What
is heard goes to the file that the first argument names.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assistant.audio.devices import PortAudio
from assistant.audio.front_messages import Device, DeviceKind
from assistant.audio.stream_choice import Format, SoundDevice
from assistant.audio.stream_supervisor import Supervisor
from assistant.audio.streams import InputStream, OutputStream


class Picky(PortAudio):
    """Real devices that take this format and no other, as many USB devices do."""

    def __init__(self, only: str) -> None:
        rate, channels = only.split("x")
        self._only = Format(int(rate), int(channels))

    def takes(self, kind: DeviceKind, device: SoundDevice, format: Format) -> bool:
        return format == self._only and super().takes(kind, device, format)


class Child:
    def __init__(self, file: Path, only: str = "", idle_s: float = 10.0, input: str = "", output: str = "") -> None:
        supervisor = Supervisor(Picky(only)) if only else Supervisor()
        self._woken = os.eventfd(0)
        self._loud = self._click = False
        self._asked_at = 0.0
        self._rng = np.random.default_rng(1)
        self._heard = file.open("wb", buffering=0)
        self._reading = True
        self._lock = threading.Lock()
        self.microphone = InputStream(input, ready=self._wake, tell=self._told, supervisor=supervisor)
        self.speaker = OutputStream(
            output, fill=self._fill, tell=self._told, idle_s=float(idle_s), supervisor=supervisor
        )

    def _wake(self) -> None:
        os.eventfd_write(self._woken, 1)

    def _told(self, device: Device) -> None:
        self.say(at=time.monotonic(), device=msgspec.to_builtins(device))

    def say(self, **told: Any) -> None:
        with self._lock:
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()

    def _fill(self, frames: int, rate: int) -> bytes:
        self._asked_at = time.monotonic()
        sound = np.zeros(frames, np.int16)
        if self._loud:
            sound[:] = self._rng.integers(-8000, 8000, frames)
        if self._click:  # 10 ms
            sound[: rate // 100], self._click = 12_000, False
        return sound.astype("<i2").tobytes()

    def serve(self) -> None:
        commands = b""
        while True:
            ready, _, _ = select.select([0, self._woken], [], [])
            if self._woken in ready:
                os.eventfd_read(self._woken)
                if self._reading:
                    self._heard.write(self.microphone.read())
            if 0 in ready:
                commands += os.read(0, 4096) or b"quit\n"
                *lines, commands = commands.split(b"\n")
                for line in lines:
                    if line == b"quit":
                        self._quit()
                    self._obey(line.decode())

    def _quit(self) -> None:
        began = time.monotonic()
        self.microphone.close()
        self.speaker.close()
        self.say(at=began, closed={"seconds": time.monotonic() - began})
        os._exit(0)

    def _obey(self, command: str) -> None:
        match command.split():
            case ["listen"]:
                self.microphone.start()
            case ["sound", on]:
                self._loud = on == "on"
                self.say(at=time.monotonic(), sound=on)
                self.speaker.wanted()
            case ["click"]:
                self._click = True
                self.speaker.wanted()
            case ["mute", on]:
                self.microphone.mute(on == "on")
            case ["read", on]:
                self._reading = on == "on"
            case ["stats"]:
                stats = {
                    "captured_s": self.microphone.captured_s,
                    "overflows": self.microphone.overflows,
                    "reopened": self.microphone.reopened + self.speaker.reopened,
                    "underflows": self.speaker.underflows,
                    "asked_s_ago": time.monotonic() - self._asked_at,
                    "cpu_s": time.process_time(),
                }
                self.say(at=time.monotonic(), stats=stats)


if __name__ == "__main__":
    Child(Path(sys.argv[1]), **dict(argument.split("=", 1) for argument in sys.argv[2:])).serve()  # type: ignore[arg-type]
