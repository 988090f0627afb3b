"""What is given to the mixer is played, once, in order, at the device's rate; and is silent when it shall be."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from assistant.audio.mixer import FADE_S, MAX_CUES, MAX_RUNS, RAMP_S, Mixer, gain_of
from assistant.audio.mixer_track import MAX_QUEUED_S
from tests.audio.rooms import s16, samples

RATE = 16_000
Sound = NDArray[np.float64]


class Clock:
    def __init__(self) -> None:
        self.now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def noise(count: int, seed: int = 0, level: float = 5000.0) -> bytes:
    return s16(np.random.default_rng(seed).normal(0, level, count))


def tone(hz: float, seconds: float, rate: int, level: float = 8000.0) -> bytes:
    return s16(level * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate)) / rate))


def all_of(mixer: Mixer, rate: int = RATE, block: int = 512) -> Sound:
    """Everything that is left."""
    parts = []
    while mixer.left:
        parts.append(samples(mixer.fill(block, rate)))
        assert len(parts) < 10_000
    return np.concatenate(parts) if parts else np.zeros(0)


def strength(sound: Sound, hz: float, rate: int) -> float:
    """Amplitude of one tone in the middle half of a sound."""
    part = sound[len(sound) // 4 : len(sound) * 3 // 4]
    return float(2 * abs(np.mean(part * np.exp(-2j * np.pi * hz * np.arange(len(part)) / rate))))


def rounded(told: Sequence[tuple[str, float, bool]]) -> list[tuple[str, float, bool]]:
    return [(run, round(seconds, 3), ended) for run, seconds, ended in told]


# --- in and out -----------------------------------------------------------------------------------------------------
@given(
    st.lists(st.integers(0, 2000), max_size=8),
    st.lists(st.integers(0, 2000), max_size=8),
    st.lists(st.integers(1, 1500), min_size=1, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_runs_come_out_whole_and_in_order(first: list[int], second: list[int], blocks: list[int]) -> None:
    mixer = Mixer()
    sent = []
    for number, (run, sizes) in enumerate([("a", first), ("b", second)]):
        for size in sizes:
            piece = noise(size, seed=number * 100 + size)
            assert mixer.play(run, piece, RATE)
            sent.append(piece)
        mixer.play_end(run)
    total = sum(first) + sum(second)
    out = b""
    while len(out) < (total + 1) * 2:
        out += mixer.fill(blocks[len(out) % len(blocks)], RATE)
    assert out[: total * 2] == b"".join(sent)
    assert not any(out[total * 2 :])
    assert mixer.seconds_of("a") == pytest.approx(sum(first) / RATE)
    assert mixer.underruns == 0


@given(
    st.sampled_from([8000, 16000, 22050, 44100, 48000]),
    st.sampled_from([16000, 44100, 48000]),
    st.integers(50, 8000),
    st.integers(16, 4000),
)
@settings(max_examples=30, deadline=None)
def test_resampling_loses_nothing_whatever_the_blocks(source: int, device: int, piece: int, block: int) -> None:
    pcm = tone(440, 0.5, source)
    mixer = Mixer()
    for at in range(0, len(pcm), piece * 2):
        mixer.play("r", pcm[at : at + piece * 2], source)
    mixer.play_end("r")
    out = all_of(mixer, device, block)
    assert mixer.seconds_of("r") == pytest.approx(0.5, abs=0.001)
    assert strength(out[: device // 2], 440, device) == pytest.approx(8000, rel=0.02)
    assert mixer.underruns == 0


def test_an_old_device_and_a_new_one_of_another_rate() -> None:
    mixer = Mixer()
    mixer.play("r", tone(440, 1, 22050), 22050)
    mixer.play_end("r")
    before = samples(mixer.fill(24_000, 48_000))
    after = all_of(mixer, 44_100)
    assert strength(before, 440, 48_000) == pytest.approx(8000, rel=0.02)
    assert strength(after[:20_000], 440, 44_100) == pytest.approx(8000, rel=0.02)
    assert mixer.seconds_of("r") == pytest.approx(1, abs=0.06)


def test_a_run_of_several_rates() -> None:
    mixer = Mixer()
    mixer.play("r", tone(500, 0.3, 22_050), 22_050)
    mixer.play("r", tone(500, 0.3, 16_000), 16_000)
    mixer.play_end("r")
    out = all_of(mixer, 48_000)
    assert mixer.seconds_of("r") == pytest.approx(0.6, abs=0.002)
    for part in (out[: 48_000 * 3 // 10], out[48_000 * 3 // 10 : 48_000 * 6 // 10]):
        assert strength(part, 500, 48_000) == pytest.approx(8000, rel=0.05)


def test_the_last_milliseconds_do_not_wait_for_more() -> None:
    """A resampler holds 30 ms back; between two sentences they would sound like the beginning of the next."""
    mixer = Mixer()
    mixer.play("r", tone(440, 0.2, 22_050), 22_050)
    mixer.fill(48_000, 48_000)
    assert mixer.seconds_of("r") == pytest.approx(0.2, abs=0.001)


def test_half_a_sample_and_nothing_at_all() -> None:
    mixer = Mixer()
    assert mixer.fill(10, RATE) == bytes(20)
    assert mixer.play("r", b"", RATE)
    assert mixer.play("r", b"\1", RATE)
    assert mixer.play("r", b"\1\0\1", RATE)
    mixer.play_end("r")
    assert mixer.fill(3, RATE) == b"\1\0" + bytes(4)
    assert mixer.fill(0, RATE) == b""


@pytest.mark.parametrize("rate", [0, -1, 10**9])
def test_a_rate_that_no_sound_has(rate: int) -> None:
    with pytest.raises(ValueError, match="no sample rate"):
        Mixer().play("r", bytes(100), rate)


# --- bounds ---------------------------------------------------------------------------------------------------------
def test_what_waits_is_bounded() -> None:
    mixer = Mixer()
    second = bytes(2 * RATE)
    taken = sum(mixer.play("r", second, RATE) for _ in range(200))
    assert taken == MAX_QUEUED_S
    assert mixer.dropped == 200 - taken
    mixer.fill(5 * RATE, RATE)
    assert sum(mixer.play("r", second, RATE) for _ in range(20)) == 5
    assert sum(mixer.play(f"run {number}", second, RATE) for number in range(20)) == MAX_RUNS - 1


def test_many_runs_and_cues_leave_nothing_behind() -> None:
    mixer = Mixer()
    for number in range(500):
        mixer.play(str(number), noise(100), RATE)
        mixer.play_end(str(number))
        mixer.cue(noise(100), RATE)
        mixer.fill(200, RATE)
    assert len(mixer._runs) < 50
    assert mixer.left is False
    for _ in range(20):
        mixer.cue(noise(RATE), RATE)
    assert len(all_of(mixer)) == pytest.approx(MAX_CUES * RATE, abs=600)


def test_a_run_that_has_nothing_to_play_is_an_underrun_once() -> None:
    mixer = Mixer()
    mixer.play("r", noise(1000), RATE)
    for _ in range(5):
        mixer.fill(500, RATE)
    assert mixer.underruns == 1
    mixer.play("r", noise(100), RATE)
    mixer.fill(500, RATE)
    assert mixer.underruns == 2
    mixer.play_end("r")
    for _ in range(3):
        mixer.fill(500, RATE)
    assert mixer.underruns == 2
    assert not mixer.left


def test_the_next_run_waits_for_the_end_of_the_one_before() -> None:
    mixer = Mixer()
    mixer.play("a", s16(np.full(100, 1000.0)), RATE)
    mixer.play("b", s16(np.full(100, 2000.0)), RATE)
    assert samples(mixer.fill(200, RATE)).tolist() == [1000] * 100 + [0] * 100
    mixer.play_end("a")
    assert samples(mixer.fill(100, RATE)).tolist() == [2000] * 100


# --- cues -----------------------------------------------------------------------------------------------------------
def test_cues_sound_on_top_and_after_each_other() -> None:
    mixer = Mixer()
    mixer.play("r", s16(np.full(300, 1000.0)), RATE)
    mixer.play_end("r")
    mixer.cue(s16(np.full(100, 10.0)), RATE)
    mixer.cue(s16(np.full(100, 20.0)), RATE)
    assert samples(mixer.fill(400, RATE)).tolist() == [1010] * 100 + [1020] * 100 + [1000] * 100 + [0] * 100


def test_too_loud_together_is_clipped() -> None:
    mixer = Mixer()
    mixer.play("r", s16(np.full(100, 30_000.0)), RATE)
    mixer.cue(s16(np.full(100, 30_000.0)), RATE)
    assert set(samples(mixer.fill(100, RATE))) == {32_767}


# --- silence --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rate", [16_000, 48_000])
@pytest.mark.parametrize("moment", [0, 11, 23])
def test_silence_fades_and_drops_what_still_comes(rate: int, moment: int) -> None:
    mixer = Mixer()
    mixer.play("r", tone(300, 2, RATE), RATE)
    mixer.cue(tone(700, 2, RATE), RATE)
    before = samples(mixer.fill(rate // 10 + moment, rate))
    mixer.silence("r")
    after = samples(mixer.fill(rate // 10, rate))
    faded = int(FADE_S * rate)
    assert np.abs(after[:faded]).max() > 1000
    assert np.abs(after[faded * 9 // 10 : faded]).max() < 1700
    assert not after[faded:].any()
    # nowhere a step that the two tones do not make by themselves
    steps = np.abs(np.diff(np.concatenate([before, after])))
    assert steps.max() <= 1.2 * np.abs(np.diff(before)).max()
    assert not mixer.play("r", noise(1000), RATE)
    assert not samples(mixer.fill(rate // 10, rate)).any()
    assert mixer.dropped == 0


def test_silence_of_one_run_lets_the_next_one_play() -> None:
    mixer = Mixer()
    mixer.play("a", noise(RATE), RATE)
    mixer.play("b", s16(np.full(100, 2000.0)), RATE)
    mixer.play("c", s16(np.full(100, 3000.0)), RATE)
    for run in "bc":
        mixer.play_end(run)
    mixer.silence("b")
    mixer.silence("a")
    assert samples(mixer.fill(200, RATE)).tolist() == [3000] * 100 + [0] * 100


def test_the_sound_of_a_run_that_was_silenced_before_it_came_is_dropped() -> None:
    mixer = Mixer()
    mixer.silence("r")
    assert not mixer.play("r", noise(1000), RATE)
    assert mixer.fill(1000, RATE) == bytes(2000)
    assert mixer.progress() == [("r", 0.0, True)]


def test_silence_all() -> None:
    mixer = Mixer()
    for run in "abc":
        mixer.play(run, noise(RATE), RATE)
    mixer.fill(100, RATE)
    mixer.silence_all()
    mixer.fill(int(FADE_S * RATE), RATE)
    assert mixer.fill(1000, RATE) == bytes(2000)
    assert [(run, ended) for run, _, ended in mixer.progress()] == [("a", True), ("b", True), ("c", True)]


@given(
    st.lists(
        st.sampled_from(["play a", "play b", "end a", "end b", "cue", "silence a", "silence b", "fill"]), max_size=40
    )
)
@settings(max_examples=80, deadline=None)
def test_after_silence_nothing_of_a_run_is_heard_whatever_came_before(orders: Sequence[str]) -> None:
    mixer = Mixer()
    values = {"a": 1000.0, "b": 3.0}
    dead = set()
    for order in orders:
        verb, _, run = order.partition(" ")
        if verb == "play":
            mixer.play(run, s16(np.full(700, values[run])), RATE)
        elif verb == "end":
            mixer.play_end(run)
        elif verb == "cue":
            mixer.cue(s16(np.full(300, 100_0.0)), RATE)
        elif verb == "silence":
            mixer.silence(run)
            mixer.fill(int(FADE_S * RATE), RATE)
            dead.add(run)
        else:
            mixer.fill(256, RATE)
    mixer.silence("a")
    mixer.fill(int(FADE_S * RATE), RATE)
    assert np.abs(all_of_open(mixer)).max(initial=0) <= (0 if "b" in dead else 3)


def all_of_open(mixer: Mixer) -> Sound:
    """Half a minute, also where a run was left open."""
    return np.concatenate([samples(mixer.fill(RATE, RATE)) for _ in range(5)])


# --- volume ---------------------------------------------------------------------------------------------------------
@given(st.floats(0, 100), st.floats(0, 100))
def test_more_is_louder(one: float, other: float) -> None:
    assert (gain_of(one) <= gain_of(other)) or one > other
    assert 0 <= gain_of(one) <= 1


def test_the_curve() -> None:
    assert [gain_of(percent) for percent in (-5, 0, 100, 150, float("nan"))] == [0, 0, 1, 1, 0]
    assert 20 * np.log10(gain_of(50)) == pytest.approx(-18, abs=0.1)


def test_volume_changes_along_a_ramp() -> None:
    mixer = Mixer(volume_percent=100)
    mixer.play("r", s16(np.full(RATE, 10_000.0)), RATE)
    assert set(samples(mixer.fill(100, RATE))) == {10_000}
    mixer.volume(0)
    ramp = np.concatenate([samples(mixer.fill(50, RATE)) for _ in range(20)])
    falling = int(RAMP_S * RATE)
    assert (np.diff(ramp[:falling]) < 0).all()
    assert np.abs(np.diff(ramp)).max() <= 10_000 / falling + 2
    assert not ramp[falling:].any()
    mixer.volume(100)
    assert samples(mixer.fill(1000, RATE))[-1] == 10_000


def test_a_volume_that_was_set_in_silence_holds_from_the_first_sample() -> None:
    mixer = Mixer(volume_percent=50)
    mixer.fill(100, RATE)
    mixer.volume(100)
    mixer.fill(100, RATE)
    mixer.play("r", s16(np.full(100, 10_000.0)), RATE)
    assert set(samples(mixer.fill(100, RATE))) == {10_000}


# --- what was heard -------------------------------------------------------------------------------------------------
def test_what_was_heard_follows_the_device_and_never_goes_back() -> None:
    clock = Clock()
    mixer = Mixer(clock=clock)
    mixer.latency_s = 0.1
    mixer.play("r", noise(RATE), RATE)
    told: list[tuple[str, float, bool]] = []
    values = []
    for step in range(120):
        if step == 67:  # it had nothing to play since step 60
            mixer.play("r", noise(RATE // 5), RATE)
            mixer.play_end("r")
        if step >= 10 and step % 2 == 0:
            mixer.fill(RATE // 25, RATE)  # 40 ms, every 40 ms
        values.append(mixer.heard("r"))
        told += mixer.progress()
        assert values[-1] <= mixer.seconds_of("r")
        clock.now += 0.02
    assert values == sorted(values)
    assert values[10] == 0
    assert values[20] == pytest.approx(0.1, abs=0.021)
    assert values[-1] == pytest.approx(1.2)
    assert [seconds for _, seconds, _ in told] == sorted(seconds for _, seconds, _ in told)
    assert [ended for _, _, ended in told].index(True) == len(told) - 1
    assert rounded(told[-1:]) == [("r", 1.2, True)]
    assert mixer.heard("r", latency_s=0) == pytest.approx(1.2)
    assert mixer.heard("nobody") == mixer.seconds_of("nobody") == 0
    assert mixer.sounding is False


def test_it_sounds_until_the_last_sample_was_heard() -> None:
    clock = Clock()
    mixer = Mixer(clock=clock)
    mixer.latency_s = 0.2
    sounding = [mixer.sounding]
    mixer.play("r", noise(160), RATE)
    mixer.play_end("r")
    sounding.append(mixer.sounding)
    mixer.fill(160, RATE)
    mixer.fill(160, RATE)
    sounding.append(mixer.sounding)
    told = [mixer.progress()]
    clock.now += 0.215
    sounding.append(mixer.sounding)
    told += [rounded(mixer.progress()), mixer.progress()]
    assert sounding == [False, True, True, False]
    assert told == [[], [("r", 0.01, True)], []]


def test_an_answer_without_sound_ends_at_once() -> None:
    mixer = Mixer()
    mixer.play_end("r")
    assert mixer.progress() == [("r", 0.0, True)]
    assert not mixer.play("r", noise(10), RATE)


def test_what_was_silenced_ends_with_what_was_heard_of_it() -> None:
    clock = Clock()
    mixer = Mixer(clock=clock)
    mixer.latency_s = 0.1
    mixer.play("r", noise(RATE), RATE)
    mixer.fill(RATE // 2, RATE)
    clock.now += 0.3
    mixer.silence("r")
    clock.now += 10
    assert rounded(mixer.progress()) == [("r", 0.2, True)]
    assert mixer.seconds_of("r") == pytest.approx(0.505)


# --- threads --------------------------------------------------------------------------------------------------------
def test_a_device_that_pulls_while_others_push() -> None:
    """All that comes out is what went in, and nothing of what was silenced, with three threads at it."""
    mixer = Mixer()
    out: list[bytes] = []
    done = threading.Event()

    def pull() -> None:
        while not done.is_set():
            out.append(mixer.fill(256, RATE))

    puller = threading.Thread(target=pull)
    puller.start()
    for number in range(30):
        run = str(number)
        mixer.play(run, s16(np.full(500, 100.0 + number)), RATE)
        if number % 3:
            mixer.play_end(run)
            while mixer.left:
                time.sleep(0.0005)
        else:
            mixer.silence(run)
            mixer.progress()
    done.set()
    puller.join()
    sound = samples(b"".join(out))
    for number in range(30):
        if number % 3:
            assert np.count_nonzero(sound == 100 + number) >= 500


@pytest.mark.alone("within a millisecond")
def test_filling_is_cheap() -> None:
    mixer = Mixer()
    mixer.play("r", tone(440, 20, 22_050), 22_050)
    mixer.fill(480, 48_000)
    times = []
    for _ in range(100):
        started = time.perf_counter()
        mixer.fill(480, 48_000)
        times.append(time.perf_counter() - started)
    assert sorted(times)[50] < 0.001
