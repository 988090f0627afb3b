"""What the speaker is given comes back with its times, and our own voice does not wake us."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.audio.echo import AFTER_S, BLOCK, MAX_S, OwnVoice, Reference
from assistant.audio.mixer import Mixer
from assistant.audio.wake import WakeWords
from assistant.audio.wake_micro import MicroWake
from tests.audio.rooms import RATE, Sound, in_room, s16, samples, with_room_around
from tests.speech_corpus import clip_pcm


# --- the reference --------------------------------------------------------------------------------------------------
@given(st.sampled_from([16_000, 22_050, 44_100, 48_000]), st.lists(st.integers(1, 3000), min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_what_was_given_comes_back_at_16_khz_with_its_times(rate: int, sizes: list[int]) -> None:
    reference = Reference()
    total = sum(sizes)
    sound = s16(8000 * np.sin(2 * np.pi * 400 * np.arange(1, total + 1) / rate))
    at, blocks = 0, []
    for size in sizes:
        reference.given(10 + at / rate, rate, sound[at * 2 : (at + size) * 2])
        at += size
        blocks += reference.blocks()
    assert all(len(block) == BLOCK for _, block in blocks)
    expected = total / rate / 0.032
    # a resampler holds up to 40 ms back
    assert expected - 3.5 <= len(blocks) <= expected
    # its pace is that of the device, within what the resampler gives in one go
    for number, (end, _) in enumerate(blocks):
        assert end == pytest.approx(10 + (number + 1) * 0.032, abs=0.06)
    if rate == 16_000:
        assert b"".join(block for _, block in blocks) == sound[: len(blocks) * BLOCK]


def test_silence_is_kept_for_a_second_only() -> None:
    reference = Reference()
    quiet = bytes(3200)
    reference.given(0.0, RATE, quiet)
    assert reference.blocks() == []
    reference.given(0.1, RATE, s16(np.full(1600, 100.0)))
    kept = []
    for step in range(30):
        reference.given(0.2 + step / 10, RATE, quiet)
        kept += reference.blocks()
    assert len(kept) * 0.032 == pytest.approx(AFTER_S, abs=0.1)


def test_what_nobody_asks_for_is_forgotten() -> None:
    reference = Reference()
    for step in range(100):
        reference.given(step / 10, RATE, s16(np.full(1600, 100.0 + step)))
    blocks = reference.blocks()
    assert len(blocks) * 0.032 == pytest.approx(MAX_S, abs=0.13)
    assert blocks[-1][0] == pytest.approx(10, abs=0.04)
    assert reference.blocks() == []


def test_after_a_gap_the_old_rest_is_not_joined_to_the_new_sound() -> None:
    reference = Reference()
    reference.given(1.0, RATE, s16(np.full(700, 1.0)))
    reference.given(9.0, RATE, s16(np.full(600, 2.0)))
    (_, first), (end, second) = reference.blocks()
    assert set(samples(first)) == {1}
    assert set(samples(second)) == {2}
    assert end == pytest.approx(9.032)


def test_the_mixer_tells_when_its_sound_is_heard() -> None:
    mixer = Mixer(clock=lambda: 50.0)
    mixer.latency_s = 0.2
    mixer.play("r", s16(np.full(512, 1000.0)), RATE)
    mixer.fill(512, RATE)
    ((end, block),) = mixer.reference()
    assert end == pytest.approx(50.232)
    assert block == s16(np.full(512, 1000.0))


# --- whose voice it was ---------------------------------------------------------------------------------------------
def test_a_detection_near_our_own_word_is_ours() -> None:
    own = OwnVoice(threshold=0.3, lead_s=0.2, tail_s=1.0)
    for step in range(100):
        own.detected(step * 0.1, 0.9 if 50 <= step < 55 else 0.29)
    assert [own.explains(at) for at in (4.7, 4.81, 5.0, 5.4, 6.39, 6.41)] == [False, True, True, True, True, False]


def test_without_a_detector_or_a_sound_nothing_is_ours() -> None:
    own = OwnVoice()
    own.played(1.0, bytes(BLOCK))
    assert own.explains(1.0) is False
    heard: list[bytes] = []

    def detector(block: bytes) -> float:
        heard.append(block)
        return 0.5

    listening = OwnVoice(detector)
    listening.played(1.0, bytes(BLOCK))
    assert heard == [bytes(BLOCK)]
    assert listening.explains(1.1) is True


@given(st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 1)), max_size=200), st.floats(0, 100))
def test_it_is_ours_exactly_when_a_firing_was_near(steps: list[tuple[float, float]], at: float) -> None:
    own, now, fired = OwnVoice(threshold=0.5), 0.0, []
    for step, probability in steps:
        now += step
        own.detected(now, probability)
        fired += [now] if probability >= 0.5 else []
    last = fired[-50:]
    if own.explains(at):
        assert any(time - 0.3 <= at <= time + 1.0 for time in fired)
    elif last:
        assert not any(time - 0.3 <= at <= time + 1.0 for time in last[-15:])


WORDS = {
    "wake_hey_jarvis_1.wav": "hey_jarvis",
    "wake_hey_jarvis_2.wav": "hey_jarvis",
    "wake_okay_nabu_2.wav": "okay_nabu",
    "wake_alexa_3.wav": "alexa",
}


def own_voice(word: str) -> OwnVoice:
    words = WakeWords(MicroWake(), [word], thresholds={word: 0.1}, refractory_s=0)
    return OwnVoice(lambda block: max((found.score for found in words.feed(block)), default=0.0))


def woken(word: str, microphone: Sound, own: OwnVoice, reference: Sound) -> list[bool]:
    """For each detection at the microphone, whether it was explained; the speaker's sound is known 0.1 s ahead."""
    words, out = WakeWords(MicroWake(), [word]), []
    ahead = int(0.1 * RATE)
    reference = np.concatenate([reference, np.zeros(ahead + 512)])
    for at in range(0, len(microphone) - 511, 512):
        begin = 0 if at == 0 else at + ahead
        for part in range(begin, at + 512 + ahead - 511, 512):
            own.played((part + 512) / RATE, s16(reference[part : part + 512]))
        out += [own.explains((at + 512) / RATE) for _ in words.feed(s16(microphone[at : at + 512]))]
    return out


@pytest.mark.parametrize("file", WORDS)
def test_our_own_word_is_explained_in_any_room(speech: Path, file: str) -> None:
    word = WORDS[file]
    said = with_room_around(samples(clip_pcm(speech, file)))
    detections = []
    for seed in (1, 2, 3):
        echo = 0.3 * in_room(said, seed, 0.2) + np.random.default_rng(seed).normal(0, 20, len(said) + RATE // 5 - 1)
        detections += woken(word, echo, own_voice(word), said)
    assert detections
    assert all(detections)


@pytest.mark.parametrize("file", ["wake_hey_jarvis_1.wav", "wake_hey_jarvis_2.wav"])
def test_a_user_is_heard_while_we_speak_of_something_else(speech: Path, file: str) -> None:
    user = with_room_around(samples(clip_pcm(speech, file)))
    ours = np.resize(samples(clip_pcm(speech, "cmd_rhino_out_of_context.wav")), len(user))
    echo = in_room(ours)[: len(user)]
    # 15 dB below the user: louder than this, and the word is not heard at all (that is what echo cancellation is for)
    echo *= np.std(user[RATE:-RATE]) / np.std(echo) * 10 ** (-15 / 20)
    both = 0.5 * (user + echo)
    assert woken("hey_jarvis", both, own_voice("hey_jarvis"), ours) == [False]
