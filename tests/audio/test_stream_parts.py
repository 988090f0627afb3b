"""What streams are made of: the choice of a device, its format, the ring, the mixing of channels, the patience."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from assistant.audio.devices import PortAudio
from assistant.audio.stream_choice import Format, SoundDevice, choose, opening_format
from assistant.audio.stream_intake import Downmix, Intake, Ring
from assistant.audio.stream_supervisor import Supervisor
from assistant.audio.stream_watch import Backoff, Watchdog
from assistant.errors import ConfigError, DeviceError, ExitCode


def device(name: str, inputs: int = 2, outputs: int = 2, **more: Any) -> SoundDevice:
    return SoundDevice(index=0, name=name, host_api="ALSA", inputs=inputs, outputs=outputs, default_rate=44_100, **more)


DEVICES = [
    device("HDA Intel: ALC (hw:0,0)"),
    device("USB Audio: Mic [A] (hw:1,0)", outputs=0),
    device("USB Audio"),
    device("default", default_input=True, default_output=True),
]


# --- which one ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "pattern", "name"),
    [
        ("input", "", "default"),
        ("input", "usb", "USB Audio: Mic [A] (hw:1,0)"),
        ("output", "usb", "USB Audio"),
        ("input", "USB Audio", "USB Audio"),  # the exact name wins over the first that matches
        ("input", "USB Audio: Mic [A] (hw:1,0)", "USB Audio: Mic [A] (hw:1,0)"),  # though it means other names as regex
        ("output", r"hw:\d", "HDA Intel: ALC (hw:0,0)"),
    ],
)
def test_a_device_is_chosen_by_name_or_expression(kind: Any, pattern: str, name: str) -> None:
    assert choose(DEVICES, kind, pattern).name == name


def test_a_pattern_that_is_none_is_a_mistake_in_the_settings() -> None:
    with pytest.raises(ConfigError, match=r"audio\.input = '\('") as caught:
        choose(DEVICES, "input", "(")
    assert caught.value.exit_code == ExitCode.USAGE


def test_where_nothing_matches_the_names_are_listed() -> None:
    with pytest.raises(DeviceError, match=r"'headset'.*HDA Intel.*default") as caught:
        choose(DEVICES, "output", "headset")
    assert "Mic [A]" not in caught.value.message  # it is no speaker
    with pytest.raises(DeviceError, match=r"no speaker was found; plug one in, or start the sound server$"):
        choose([], "output")


@pytest.mark.parametrize(
    ("taken", "wanted"),
    [
        ([(48_000, 1), (16_000, 1), (48_000, 2)], (48_000, 1)),
        ([(16_000, 1)], (16_000, 1)),
        ([(44_100, 2)], (44_100, 2)),
        ([(44_100, 1), (32_000, 8)], (32_000, 8)),
        ([(48_000, 2), (48_000, 8)], (48_000, 2)),
        ([(8_000, 1)], (8_000, 1)),
    ],
)
def test_a_device_is_opened_as_it_can_be(taken: list[tuple[int, int]], wanted: tuple[int, int]) -> None:
    one = device("box", inputs=8)
    assert opening_format(one, "input", lambda format: (format.rate, format.channels) in taken) == Format(*wanted)


def test_a_device_that_opens_in_no_way_is_named_with_what_it_claims() -> None:
    with pytest.raises(DeviceError, match=r"speaker 'box'.*48000, 16000.*1 or 2 channels.*44100 Hz.*audio\.output"):
        opening_format(device("box"), "output", lambda format: False)


# --- the sound ------------------------------------------------------------------------------------------------------
def test_the_ring_keeps_the_newest_and_counts_what_it_lost() -> None:
    ring, format = Ring(3), Format(16_000, 1)
    for number in range(5):
        ring.put(1 if number < 4 else 2, format, bytes([number]))
    assert ring.lost == 2
    assert ring.take() == [(1, format, b"\2\3"), (2, format, b"\4")]
    assert ring.take() == []


def test_a_channel_without_a_microphone_does_not_halve_the_level() -> None:
    sound = np.zeros((48_000, 2), np.float32)
    sound[:, 1] = 8000 * np.sin(np.arange(48_000) * 0.05)
    sound[:, 0] = np.random.default_rng(0).normal(0, 30, 48_000)  # a socket's noise
    mix = Downmix(2, 48_000)
    mixed = np.concatenate([mix(block) for block in np.split(sound, 100)])
    assert np.abs(mixed[4800:]).max() == pytest.approx(8000, rel=0.01)
    assert np.abs(np.diff(mixed)).max() < 450  # no jump: the sine's own steepest step is 400


def test_two_channels_of_about_the_same_level_are_averaged() -> None:
    sound = np.ones((1000, 2), np.float32) * [1000, 3000]
    mixed = Downmix(2, 16_000)(sound.astype(np.float32))
    assert mixed == pytest.approx(np.full(1000, 2000))


def test_pieces_give_the_same_sound_as_the_whole() -> None:
    stereo = np.repeat((9000 * np.sin(2 * np.pi * 300 * np.arange(44_100) / 44_100)).astype("<i2"), 2).tobytes()
    whole = Intake(Format(44_100, 2))(stereo)
    pieces = Intake(Format(44_100, 2))
    step = 1411 * 4
    assert b"".join(pieces(stereo[at : at + step]) for at in range(0, len(stereo), step))[:28_000] == whole[:28_000]
    # the filter keeps back what it has not seen both sides of: 30 ms
    assert len(whole) / 2 == pytest.approx(16_000, abs=600)


def test_sound_that_is_right_already_is_not_touched() -> None:
    pcm = np.arange(-500, 500, dtype="<i2").tobytes()
    assert Intake(Format(16_000, 1))(pcm) == pcm


# --- patience -------------------------------------------------------------------------------------------------------
def test_attempts_come_ever_slower_until_one_lived() -> None:
    patience = Backoff()
    assert [patience.failed() for _ in range(7)] == [0.25, 0.5, 1, 2, 4, 5, 5]
    assert patience.failed(lived_s=9) == 5
    assert patience.failed(lived_s=11) == 0.25


def test_a_device_is_broken_after_two_seconds_without_a_frame() -> None:
    watch = Watchdog(now=10)
    assert not watch.broken(0, 12.9)  # some take their time to begin
    assert watch.broken(0, 13.1)
    assert not watch.broken(512, 13.2)
    assert not watch.broken(512, 15.1)
    assert watch.broken(512, 15.3)
    assert watch.silent_s(512, 15.2) == pytest.approx(2.0)


class Counting(PortAudio):
    """Looks for no devices, but says how often it was to."""

    def __init__(self) -> None:
        self.refreshes = 0

    def refresh(self) -> None:
        self.refreshes += 1


class Part:
    """A stream as the supervisor sees it."""

    def __init__(self, *, is_open: bool = False, indispensable: bool = False, wanting: bool = False) -> None:
        self.is_open, self.indispensable, self._wanting = is_open, indispensable, wanting
        self.paused = 0
        self.stepped = threading.Event()

    def needs_refresh(self, now: float) -> bool:
        return self._wanting

    def step(self, now: float) -> float | None:
        self.stepped.set()
        return None

    def pause(self) -> None:
        self.paused += 1

    def end(self) -> None:
        self.is_open = False


def stepped(supervisor: Supervisor, *parts: Part) -> None:
    for part in parts:
        supervisor.add(part)
    for _ in range(3):
        for part in parts:
            part.stepped.clear()
        supervisor.wake()
        for part in parts:
            assert part.stepped.wait(5)
    for part in reversed(parts):
        assert supervisor.remove(part)


def test_devices_are_not_looked_for_while_the_other_stream_plays() -> None:
    portaudio, playing = Counting(), Part(is_open=True, indispensable=True)
    stepped(Supervisor(portaudio), playing, Part(wanting=True))
    assert (portaudio.refreshes, playing.paused) == (0, 0)


def test_a_microphone_that_works_is_interrupted_ever_more_rarely() -> None:
    portaudio, now, counts = Counting(), [100.0], []
    supervisor = Supervisor(portaudio, clock=lambda: now[0])
    for moment in (100, 114, 116, 132, 147):
        now[0], listening = moment, Part(is_open=True)
        stepped(supervisor, listening, Part(wanting=True))
        counts.append((portaudio.refreshes, listening.paused))
    assert counts == [(0, 0), (0, 0), (1, 1), (1, 0), (2, 1)]


def test_the_supervisor_rests_when_nobody_is_left_and_starts_again() -> None:
    supervisor, began = Supervisor(Counting()), time.monotonic()
    stepped(supervisor, Part())
    deadline = time.monotonic() + 5
    while any(thread.name == "devices" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    stepped(supervisor, Part())
    assert time.monotonic() - began < 5
