"""Our cues vanish from what the microphone hears, whatever the room; what people say stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.audio.cues import ALL_TONES, TONES, tone_cue
from assistant.audio.front_messages import CueName
from assistant.audio.notch import PASS_HZ, RATE, Notch, taps
from assistant.audio.vad import speech_probabilities
from assistant.audio.wake_micro import MicroWake
from assistant.bench import wer
from assistant.messages import AsrRequest, Transcript
from assistant.model_store.store import ModelInfo
from assistant.stages.asr_whisper import WhisperAsr
from tests.audio.rooms import Sound, in_room, s16, samples, with_room_around
from tests.speech_corpus import clip_pcm
from tests.stages.asr_engines import whisper

COMMANDS = (
    "cmd_lock_the_front_door.wav",
    "cmd_run_party_time.wav",
    "cmd_whats_the_date.wav",
    "cmd_r3_what_time_is_it.wav",
    "cmd_brooklyn_bridge.wav",
    "cmd_turn_off_lights_in_the_office.wav",
)
"""That are understood where it is quiet."""


def cue_sound(name: CueName) -> Sound:
    return samples(tone_cue(name, RATE).pcm)


def rms(sound: Sound) -> float:
    return float(np.sqrt(np.mean(sound**2)))


def ringing(seconds: float) -> Sound:
    """The timer's ring in a room, its peak at 1."""
    ring = in_room(np.tile(cue_sound("timer"), int(seconds) + 2))[RATE // 2 :]
    loudest: float = np.abs(ring).max()
    return ring / loudest


# --- the filter -----------------------------------------------------------------------------------------------------
def test_it_is_deep_at_the_tones_and_flat_elsewhere() -> None:
    hz = np.fft.rfftfreq(1 << 17, 1 / RATE)
    decibels = 20 * np.log10(np.abs(np.fft.rfft(taps(ALL_TONES), 1 << 17)) + 1e-12)
    nearest = np.min([np.abs(hz - tone) for tone in ALL_TONES], axis=0)
    assert decibels[nearest < 10].max() <= -50
    assert np.abs(decibels[nearest > PASS_HZ]).max() < 0.6


@pytest.mark.parametrize("name", TONES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_cue_is_gone_in_any_room(name: CueName, seed: int) -> None:
    arrived = in_room(cue_sound(name), seed)
    left = samples(Notch().feed(s16(np.concatenate([arrived, np.zeros(RATE // 4)]))))
    # 40 dB were asked for; what is left is a few steps of 16 bits
    assert rms(arrived) / max(rms(left), 1e-9) > 10 ** (48 / 20)


def test_what_is_said_is_not_delayed() -> None:
    noise = np.random.default_rng(0).normal(0, 3000, RATE)
    out = samples(Notch().feed(s16(noise)))
    lags = [float(np.dot(out[100:-100], np.roll(noise, lag)[100:-100])) for lag in range(-20, 21)]
    assert int(np.argmax(lags)) == 20
    assert rms(out) == pytest.approx(rms(noise), rel=0.03)


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_blocks_of_any_size_give_the_same_sound(sizes: list[int]) -> None:
    sound = s16(np.random.default_rng(len(sizes)).normal(0, 5000, sum(sizes)))
    notch, at, parts = Notch(), 0, []
    for size in sizes:
        parts.append(notch.feed(sound[at * 2 : (at + size) * 2]))
        at += size
    assert [len(part) for part in parts] == [size * 2 for size in sizes]
    whole = Notch()(sound)
    assert np.abs(samples(b"".join(parts)) - samples(whole)).max(initial=0) <= 1  # rounding


def test_it_can_be_switched_on_and_off_in_the_middle() -> None:
    sound = s16(np.random.default_rng(1).normal(0, 3000, 4 * 512))
    blocks = [sound[at : at + 1024] for at in range(0, len(sound), 1024)]
    always, switched = Notch(), Notch()
    filtered = [always.feed(block) for block in blocks]
    mixed = [switched.feed(block, through=number < 2) for number, block in enumerate(blocks)]
    assert mixed == [*blocks[:2], *filtered[2:]]


def test_loud_sound_is_clipped_not_wrapped() -> None:
    square = np.where(np.arange(RATE) // 40 % 2, 32767.0, -32768.0)
    out = samples(Notch((1000.0,)).feed(s16(square)))
    assert out.max() == 32767
    assert np.mean(np.sign(out) == np.sign(square)) > 0.99


def test_tones_that_it_cannot_take_out_are_refused() -> None:
    for tone in (0.0, 50.0, 7_990.0):
        with pytest.raises(ValueError, match="notch lies between"):
            Notch((tone,))
    assert Notch(()).feed(b"\1\0" * 600) == b"\1\0" * 600


@pytest.mark.alone("within half a millisecond")
def test_it_costs_little() -> None:
    notch, block = Notch(), s16(np.random.default_rng(0).normal(0, 3000, 512))
    times = []
    for _ in range(50):
        started = time.perf_counter()
        notch.feed(block)
        times.append(time.perf_counter() - started)
    assert sorted(times)[25] < 0.0005


# --- what the listeners make of it ----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", TONES)
def test_nobody_is_heard_in_a_cue(name: CueName) -> None:
    for decibels in (-3, -20, -40):
        sound = np.random.default_rng(0).normal(0, 10, 2 * RATE)
        cue = in_room(cue_sound(name))[:RATE]
        sound[8000 : 8000 + len(cue)] += cue / np.abs(cue).max() * 32767 * 10 ** (decibels / 20)
        assert max(speech_probabilities(Notch().feed(s16(sound)))) < 0.1


@pytest.mark.parametrize("file", ["wake_hey_mycroft_wakeup.wav", "wake_hey_mycroft_short.wav"])
def test_a_wake_word_is_heard_through_a_ringing_timer(speech: Path, file: str) -> None:
    """0.95 is what the makers of this model advise."""
    clip = with_room_around(samples(clip_pcm(speech, file))) * 0.2
    rung = s16(clip + ringing(len(clip) / RATE)[: len(clip)] * np.abs(clip).max())
    assert highest_score("hey_mycroft", rung) < 0.95 < highest_score("hey_mycroft", Notch().feed(rung))


def highest_score(word: str, pcm: bytes) -> float:
    engine = MicroWake()
    features, detector = engine.features(), engine.open(word)
    scores = [detector.feed(frame) for frame in features.feed(pcm)]
    detector.close()
    return max(score for score in scores if score is not None)


@pytest.fixture(scope="module")
def engine(model: Callable[[str], ModelInfo], tmp_path_factory: pytest.TempPathFactory) -> Iterator[WhisperAsr]:
    with whisper(model, tmp_path_factory.mktemp("cache")) as engine:
        yield engine


def heard(engine: WhisperAsr, pcm: bytes) -> list[str]:
    said = [out.text for out in engine.run(AsrRequest(pcm=pcm)) if isinstance(out, Transcript)]
    return wer.folded_words(said[-1])


@pytest.mark.engine
def test_a_command_over_the_awake_cue_reads_as_without_it(speech: Path, engine: WhisperAsr) -> None:
    for file in COMMANDS[:4]:
        clean = clip_pcm(speech, file)
        expected = heard(engine, clean)
        for decibels, delay_s in ((0, 0.0), (-12, 0.3), (6, 0.6)):
            sound = samples(clean) * 0.5
            cue = in_room(cue_sound("awake"))
            at = int(delay_s * RATE)
            cue = cue[: len(sound) - at] * np.abs(sound).max() / np.abs(cue).max() * 10 ** (decibels / 20)
            sound[at : at + len(cue)] += cue
            assert heard(engine, Notch().feed(s16(sound))) == expected, (file, decibels, delay_s)


@pytest.mark.engine
def test_a_command_over_a_ringing_timer_is_understood(speech: Path, engine: WhisperAsr) -> None:
    """With the ring 12 dB above the voice, as beside a speaker: without the filter half of the words are wrong."""
    words = wrong = wrong_without = 0
    for clip in [clip for clip in wer.corpus(speech) if clip.file in COMMANDS]:
        voice = samples(wer.pcm_of(speech, clip)) * 0.2
        rung = s16(voice + ringing(len(voice) / RATE)[: len(voice)] * np.abs(voice).max() * 4)
        reference = wer.folded_words(clip.reference or "")
        words += len(reference)
        wrong += wer.edit_distance(reference, heard(engine, Notch().feed(rung)))
        wrong_without += wer.edit_distance(reference, heard(engine, rung))
    assert wrong / words < 0.1
    assert wrong_without / words > 0.4
