"""Drives `stream_child` in a sound system of its own."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tests.lacking import lacks
from tests.sound import RATE, SoundSystem

PATIENCE_S = 10.0


def tone(seconds: float, hertz: float = 440, peak: float = 8000) -> bytes:
    return (peak * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)).astype("<i2").tobytes()


def samples(pcm: bytes) -> NDArray[np.float64]:
    return np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2").astype(float)


def pitch(pcm: bytes) -> float:
    """Hz of what is loudest in it."""
    sound = samples(pcm)
    return float(np.fft.rfftfreq(len(sound), 1 / RATE)[np.abs(np.fft.rfft(sound)).argmax()])


class Streaming:
    """`with Streaming(sound, "listen") as child:`; options are those of `stream_child.Child`."""

    def __init__(self, sound: SoundSystem, file: Path, *commands: str, **options: object) -> None:
        self._file = file
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.audio.stream_child", str(file),
             *(f"{name}={value}" for name, value in options.items())],
            env=sound.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self.errors = ""
        self._threads = [threading.Thread(target=reader) for reader in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()
        for command in commands:
            self.order(command)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self.errors = self._process.stderr.read()

    def order(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def told(self, key: str, timeout_s: float = PATIENCE_S, **wanted: object) -> dict[str, Any]:
        """The next line that has this key, with these values in it; others are passed over."""
        deadline, passed = time.monotonic() + timeout_s, []
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except queue.Empty:
                break
            passed.append(line)
            if key in line and (not wanted or wanted.items() <= line[key].items()):
                return line
        if "no sound system" in json.dumps(passed):
            lacks("sound", "PortAudio is not installed (Debian: libportaudio2)")
        raise AssertionError(f"not told in {timeout_s} s: {key} {wanted}; but {passed}")

    def nothing_told(self, seconds: float) -> None:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return
        raise AssertionError(f"told {line}")

    def stats(self) -> dict[str, Any]:
        self.order("stats")
        return self.told("stats")

    @property
    def heard(self) -> bytes:
        """From the microphone so far; s16le mono 16 kHz."""
        return self._file.read_bytes()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        for thread in self._threads:
            thread.join()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue
