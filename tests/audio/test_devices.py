"""The speaker: order, silence on request, typed failures; and a real sound system (PulseAudio's null sink)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assistant.audio.devices import Speaker
from assistant.errors import DeviceError, ExitCode
from tests.audio.streaming import pitch, samples
from tests.lacking import lacks
from tests.sound import RATE, SoundSystem


class Stream:
    """A device that takes its time and remembers."""

    def __init__(self, *, delay_s: float = 0, fails_at: int = 10**9) -> None:
        self.calls: list[str] = []
        self.heard = b""
        self.playing = threading.Event()
        self._delay_s, self._fails_at = delay_s, fails_at

    def write(self, pcm: bytes) -> None:
        if len(self.heard) >= self._fails_at:
            raise OSError("unplugged")
        self.heard += pcm
        self.playing.set()
        time.sleep(self._delay_s)

    def __getattr__(self, name: str) -> Any:
        return lambda: self.calls.append(name)


def speaker(stream: Stream) -> Speaker:
    return Speaker("box", lambda device, rate: stream)


def test_all_of_it_is_heard_in_order() -> None:
    stream = Stream()
    with speaker(stream) as one:
        for number in range(5):
            one.write(bytes([number]) * 44100, 22050)
    assert stream.heard == b"".join(bytes([number]) * 44100 for number in range(5))
    assert stream.calls == ["stop", "close"]
    assert one.seconds == 5.0


def test_an_exception_silences_it_within_a_block() -> None:
    stream = Stream(delay_s=0.1)
    started = time.monotonic()
    with pytest.raises(KeyError), speaker(stream) as one:
        one.write(bytes(22050 * 2 * 60), 22050)
        stream.playing.wait(5)
        raise KeyError
    assert time.monotonic() - started < 1
    assert stream.calls == ["abort", "close"]


def test_a_lost_device_is_a_typed_error() -> None:
    one = speaker(Stream(fails_at=1000))
    one.write(bytes(22050 * 2), 22050)
    with pytest.raises(DeviceError, match="unplugged") as caught:
        one.close()
    assert (caught.value.code, caught.value.exit_code) == ("audio-device-lost", ExitCode.AUDIO_DEVICE)


def test_a_device_that_does_not_open_is_a_typed_error() -> None:
    def refuse(device: str, rate: int) -> Any:
        raise OSError("busy")

    one = Speaker("box", refuse)
    one.write(b"\0\0", 22050)
    with pytest.raises(DeviceError, match="--out"):
        one.close()


# --- a real sound system --------------------------------------------------------------------------------------------
PLAY = """
import sys
import numpy as np
from assistant.audio.devices import PortAudio, Speaker, open_speaker, output_device
from tests.audio.stream_child import Picky
portaudio = Picky(sys.argv[1]) if sys.argv[1:] else PortAudio()
tone = (8000 * np.sin(2 * np.pi * 440 * np.arange(22050) / 22050)).astype("<i2").tobytes()
with Speaker(output_device(), lambda device, rate: open_speaker(device, rate, portaudio)) as speaker:
    speaker.write(tone, 22050)
"""


@pytest.mark.sound
@pytest.mark.parametrize("only", [[], ["44100x2"], ["48000x1"]], ids=" ".join)
def test_a_real_sound_system_plays_what_is_written(tmp_path: Path, only: list[str]) -> None:
    with SoundSystem(tmp_path) as sound, sound.recording() as spoken:
        played = subprocess.run([sys.executable, "-c", PLAY, *only], env=sound.environ, capture_output=True, text=True)
        time.sleep(0.3)
    if "no sound system" in played.stderr:
        lacks("sound", "PortAudio is not installed (Debian: libportaudio2)")
    assert played.returncode == 0, played.stderr
    loud = np.abs(samples(spoken.pcm)) > 500
    assert 0.95 < loud.sum() / RATE / (1 - 2 / np.pi * np.arcsin(500 / 8000)) < 1.02
    assert abs(pitch(spoken.pcm) - 440) < 5


def test_a_machine_without_a_sound_system_says_so_in_one_line(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PULSE_SERVER": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", PLAY], env=environ, capture_output=True, text=True)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "DeviceError" in last
    assert "plug one in" in last
