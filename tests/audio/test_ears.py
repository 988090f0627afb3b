"""What the ears tell the daemon of each block: of human recordings, and with words recognised at set times."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.audio.ears import BLOCK_BYTES, PIECE_BYTES, SAME_UTTERANCE_S, Ears
from assistant.audio.front_messages import (
    MAX_PCM,
    Attend,
    EndpointSettings,
    FromFront,
    FrontSettings,
    Sound,
    Spoke,
    WakeSettings,
    Woke,
)
from assistant.audio.notch import Notch
from assistant.audio.wake import Frame, WakeWords
from assistant.audio.wake_trial import in_its_room
from tests.speech_corpus import clip_pcm, coloured_noise, to_pcm

BLOCK_S = BLOCK_BYTES / 32_000
JARVIS = FrontSettings(wake=WakeSettings(words=("hey_jarvis",)))
WORDS = FrontSettings(wake=WakeSettings(words=("wake", "other"), stop_words=("stop",)))


class AtBlocks:
    """An engine that recognises words in blocks of these numbers, counted from 0 over what it is given."""

    names: tuple[str, ...] = ("wake", "other", "stop")

    def __init__(self, heard: Iterable[tuple[str, int]]) -> None:
        self.heard = set(heard)
        self.blocks = 0

    def phrase(self, word: str) -> str:
        return word

    def features(self) -> AtBlocks:
        return self

    def feed(self, pcm: bytes) -> list[Frame]:
        frames = []
        for _ in range(len(pcm) // BLOCK_BYTES):
            frames.append(Frame([self.blocks], (self.blocks + 1) * 512))
            self.blocks += 1
        return frames

    def open(self, word: str, threshold: float | None = None) -> AtBlocksDetector:
        return AtBlocksDetector(self, word)


class AtBlocksDetector:
    threshold = 0.5

    def __init__(self, owner: AtBlocks, word: str) -> None:
        self._owner, self._word = owner, word

    def feed(self, frame: Frame) -> float | None:
        return float((self._word, frame.values[0]) in self._owner.heard)

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass


def ears_that_hear(
    *heard: tuple[str, int], front: FrontSettings = WORDS, refractory_s: float = 0.0, **more: object
) -> Ears:
    words = WakeWords(AtBlocks(heard), ("wake", "other", "stop"), refractory_s=refractory_s)
    return Ears(front, words=(words, ("stop",)), **more)  # type: ignore[arg-type]


class Listener:
    """Hands sound to ears in blocks, on a clock that runs with the sound."""

    def __init__(self, ears: Ears) -> None:
        self.ears = ears
        self.now_s = 100.0

    def hear(self, pcm: bytes) -> list[FromFront]:
        told: list[FromFront] = []
        for at in range(0, len(pcm) // BLOCK_BYTES * BLOCK_BYTES, BLOCK_BYTES):
            self.now_s += BLOCK_S
            told += self.ears.hear(pcm[at : at + BLOCK_BYTES], self.now_s)
        return told


def noise(blocks: int, seed: int = 0) -> bytes:
    samples = np.random.default_rng(seed).integers(-300, 300, blocks * BLOCK_BYTES // 2)
    return bytes(samples.astype("<i2").tobytes())


def sound_of(told: Iterable[FromFront], session: int) -> bytes:
    return b"".join(one.pcm for one in told if isinstance(one, Sound) and one.session == session)


def spoken(told: Iterable[FromFront]) -> list[str]:
    names = []
    for one in told:
        if isinstance(one, Spoke):
            names.append(f"end:{one.reason}" if one.what == "end" else one.what)
    return names


def woken(told: Iterable[FromFront]) -> list[tuple[str, str, int]]:
    return [(one.word, one.kind, one.session) for one in told if isinstance(one, Woke)]


# --- on human recordings --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("word", "clip"),
    [
        ("hey_jarvis", "hey_jarvis_1"),
        ("okay_nabu", "okay_nabu_2"),
        ("hey_mycroft", "hey_mycroft_short"),
        ("alexa", "alexa_3"),
    ],
)
def test_a_wake_word_and_then_nothing(word: str, clip: str, speech: Path) -> None:
    """Some are recognised before they are over: their last sound is no command, however the blocks fall."""
    pcm = in_its_room(clip_pcm(speech, f"wake_{clip}.wav")) + clip_pcm(speech, "sil_room_1s.wav") * 7
    for shift in range(0, 3 * BLOCK_BYTES, BLOCK_BYTES):
        told = Listener(Ears(FrontSettings(wake=WakeSettings(words=(word,))))).hear(pcm[shift:])
        woke = told[0]
        assert isinstance(woke, Woke)
        assert (woke.word, woke.phrase, woke.kind, woke.session) == (word, word.replace("_", " "), "wake", 2)
        assert 0.85 < woke.score <= 1
        assert spoken(told) == ["end:no-speech"]


def test_wake_word_and_question_in_one_breath(speech: Path) -> None:
    """The question follows without a gap: its first sounds lie in the pre-roll."""
    word = in_its_room(clip_pcm(speech, "wake_hey_jarvis_2.wav"))[: int(2.45 * 32_000)]
    question = clip_pcm(speech, "cmd_r3_what_time_is_it.wav")[int(0.35 * 32_000) :]
    pcm = word + question + noise(100)
    told = Listener(Ears(JARVIS)).hear(pcm)
    assert woken(told) == [("hey_jarvis", "wake", 2)]
    assert spoken(told) == ["speech", "pause", "resumed", "pause", "end:silence"]
    assert sound_of(told, 2) in pcm


@pytest.mark.parametrize("command", ["stop", "r3_turn_on_the_lamp", "whats_the_date"])
def test_a_command_after_the_wake_word(command: str, speech: Path) -> None:
    pcm = in_its_room(clip_pcm(speech, "wake_hey_jarvis_2.wav")) + clip_pcm(speech, f"cmd_{command}.wav") + noise(60)
    told = Listener(Ears(JARVIS)).hear(pcm)
    assert spoken(told)[0] == "speech"
    assert spoken(told)[-1] == "end:silence"


def test_two_wake_words_in_a_row_are_two_sessions(speech: Path) -> None:
    one = in_its_room(clip_pcm(speech, "wake_hey_jarvis_1.wav"))
    told = Listener(Ears(JARVIS)).hear(one + one)
    assert woken(told) == [("hey_jarvis", "wake", 2), ("hey_jarvis", "wake", 4)]
    second = told.index(next(one for one in told if isinstance(one, Woke) and one.session == 4))
    assert sound_of(told[second:], 2) == b""


def test_the_gate_asks_for_speech_and_a_real_wake_word_has_it(speech: Path) -> None:
    gated = FrontSettings(wake=WakeSettings(words=("hey_jarvis",), vad_gate=True))
    pcm = in_its_room(clip_pcm(speech, "wake_hey_jarvis_1.wav"))
    assert woken(Listener(Ears(gated)).hear(pcm)) == [("hey_jarvis", "wake", 2)]
    scripted = FrontSettings(wake=WakeSettings(words=("wake",), vad_gate=True))
    assert Listener(ears_that_hear(("wake", 40), front=scripted)).hear(noise(60)) == []


def test_the_shipped_words_are_told() -> None:
    with Ears(JARVIS) as ears:
        assert (ears.words, ears.stop_words) == (("hey_jarvis",), ())


# --- no sample lost or doubled --------------------------------------------------------------------------------------
@pytest.mark.parametrize("pre_roll_s", [0.0, 0.5, 1.0, 1.5, 3.0])
def test_pre_roll_and_what_follows_are_one_piece_of_the_microphones_sound(pre_roll_s: float) -> None:
    pcm = noise(200)
    front = FrontSettings(pre_roll_s=pre_roll_s)
    told = Listener(ears_that_hear(("wake", 119), front=front)).hear(pcm)
    heard = sound_of(told, 2)
    begin = 120 * BLOCK_BYTES - round(pre_roll_s * 32_000)
    assert heard == pcm[begin : begin + len(heard)]
    assert 0 <= len(pcm) - begin - len(heard) < PIECE_BYTES
    assert all(len(one.pcm) <= MAX_PCM for one in told if isinstance(one, Sound))


def test_a_wake_word_in_the_first_moment_has_what_there_is() -> None:
    pcm = noise(50)
    told = Listener(ears_that_hear(("wake", 2))).hear(pcm)
    assert pcm.startswith(sound_of(told, 2))
    assert len(sound_of(told, 2)) > 45 * BLOCK_BYTES


def test_all_sound_is_there_before_something_is_told_of_it(speech: Path) -> None:
    pcm = clip_pcm(speech, "cmd_r3_turn_on_the_lamp.wav") + noise(60)
    listener = Listener(ears_that_hear())
    listener.ears.attend(Attend(session=1))
    heard = b""
    for at in range(0, len(pcm) // BLOCK_BYTES * BLOCK_BYTES, BLOCK_BYTES):
        for one in listener.hear(pcm[at : at + BLOCK_BYTES]):
            if isinstance(one, Sound):
                heard += one.pcm
            else:
                assert heard == pcm[: at + BLOCK_BYTES]
    assert heard


@given(st.integers(32, 90), st.integers(0, 40), st.sampled_from([0.0, 0.25, 1.0]))
@settings(max_examples=15, deadline=None)
def test_a_session_of_the_daemon_begins_where_it_asked(before: int, after: int, pre_roll_s: float) -> None:
    pcm = noise(before + after)
    listener = Listener(ears_that_hear())
    told = listener.hear(pcm[: before * BLOCK_BYTES])
    told += listener.ears.attend(Attend(session=1, pre_roll_s=pre_roll_s))
    told += listener.hear(pcm[before * BLOCK_BYTES :])
    heard = sound_of(told, 1)
    begin = before * BLOCK_BYTES - round(pre_roll_s * 32_000)
    assert heard == pcm[begin : begin + len(heard)]
    assert len(pcm) - begin - len(heard) < PIECE_BYTES + round(pre_roll_s * 32_000) * (not after)


# --- sessions -------------------------------------------------------------------------------------------------------
def test_the_daemons_endpointing_replaces_the_configured_one() -> None:
    listener = Listener(ears_that_hear())
    listener.ears.attend(Attend(session=7, endpoint=EndpointSettings(no_speech_s=0.5)))
    assert spoken(listener.hear(noise(20))) == ["end:no-speech"]


def test_sound_goes_on_after_the_end_until_the_session_is_released() -> None:
    listener = Listener(ears_that_hear())
    listener.ears.attend(Attend(session=7, endpoint=EndpointSettings(no_speech_s=0.5)))
    listener.hear(noise(20))
    assert len(sound_of(listener.hear(noise(30)), 7)) >= 27 * BLOCK_BYTES
    listener.ears.release(5)
    assert sound_of(listener.hear(noise(30)), 7)
    listener.ears.release(7)
    assert listener.hear(noise(30)) == []


def test_going_on_waits_anew() -> None:
    listener = Listener(ears_that_hear())
    listener.ears.attend(Attend(session=7, endpoint=EndpointSettings(no_speech_s=0.5)))
    assert spoken(listener.hear(noise(100))) == ["end:no-speech"]
    listener.ears.go_on(5)
    assert spoken(listener.hear(noise(20))) == []
    listener.ears.go_on(7)
    assert spoken(listener.hear(noise(100))) == ["end:no-speech"]


def test_a_session_of_the_daemon_replaces_a_running_one_and_a_wake_word_replaces_that() -> None:
    listener = Listener(ears_that_hear(("wake", 40), ("wake", 120)))
    assert woken(listener.hear(noise(60))) == [("wake", "wake", 2)]
    listener.ears.attend(Attend(session=3))
    told = listener.hear(noise(40))
    assert (sound_of(told, 2), len(sound_of(told, 3)) > 0) == (b"", True)
    told = listener.hear(noise(40))
    assert woken(told) == [("wake", "wake", 4)]
    assert sound_of(told, 4)


def test_two_models_that_know_one_utterance_begin_one_session() -> None:
    near = 40 + int(SAME_UTTERANCE_S / BLOCK_S) - 2
    assert woken(Listener(ears_that_hear(("wake", 40), ("other", 40), ("other", near))).hear(noise(90))) == [
        ("wake", "wake", 2)
    ]
    assert len(woken(Listener(ears_that_hear(("wake", 40), ("other", near + 5))).hear(noise(90)))) == 2


# --- our own sound --------------------------------------------------------------------------------------------------
def test_a_stop_word_counts_only_while_we_sound_and_begins_no_session() -> None:
    listener = Listener(ears_that_hear(("stop", 10), ("stop", 50)))
    assert listener.hear(noise(40)) == []
    listener.ears.playing = True
    told = listener.hear(noise(40))
    assert woken(told) == [("stop", "stop", 0)]
    assert len(told) == 1


@pytest.mark.parametrize(("playing", "latest"), [(False, 3), (True, 1)])
def test_a_word_is_told_at_once_while_we_sound_and_in_a_tenth_of_a_second_otherwise(playing: bool, latest: int) -> None:
    after = []
    for block in range(30, 36):
        listener = Listener(ears_that_hear(("wake", block)))
        listener.ears.playing = playing
        assert listener.hear(noise(block)) == []
        after.append(next(blocks for blocks in range(1, 9) if woken(listener.hear(noise(1)))))
    assert max(after) == latest


def test_what_our_own_voice_explains_does_not_count() -> None:
    asked: list[float] = []

    def explained(now_s: float) -> bool:
        asked.append(now_s)
        return now_s < 102

    listener = Listener(ears_that_hear(("wake", 40), ("stop", 50), ("wake", 90), explained=explained))
    listener.ears.playing = True
    assert woken(listener.hear(noise(100))) == [("wake", "wake", 2)]
    assert asked == pytest.approx([100 + 41 * BLOCK_S, 100 + 51 * BLOCK_S, 100 + 91 * BLOCK_S])


def test_a_cue_is_taken_out_of_a_session_and_nothing_else_is(speech: Path) -> None:
    tones = (1046.5, 1568.0)
    at = np.arange(16_000 * 3) / 16_000
    cue = sum(0.1 * np.sin(2 * np.pi * hz * at) for hz in tones)
    pcm = to_pcm(cue + coloured_noise(3, 0, 0.003))
    plain, notched = Listener(ears_that_hear()), Listener(ears_that_hear(notch=Notch(tones)))
    notched.ears.cue(0.5)
    heard = {}
    for name, listener in (("plain", plain), ("notched", notched)):
        listener.hear(pcm[:32_768])
        listener.ears.attend(Attend(session=1))
        samples = np.frombuffer(sound_of(listener.hear(pcm[32_768:]), 1), "<i2").astype(float)
        heard[name] = [np.sqrt((part**2).mean()) for part in (samples[:6000], samples[-6000:])]
    # for the cue's length and what the room may add to it, and not for longer
    assert heard["notched"][0] < heard["plain"][0] / 20
    assert heard["notched"][1] == pytest.approx(heard["plain"][1])


# --- muted, and gaps ------------------------------------------------------------------------------------------------
def test_muting_ends_the_session_and_nothing_is_heard() -> None:
    listener = Listener(ears_that_hear(("wake", 40), ("wake", 70)))
    assert woken(listener.hear(noise(60))) == [("wake", "wake", 2)]
    assert listener.ears.mute(True) == [Spoke(session=2, what="end", reason="no-speech")]
    assert listener.ears.mute(True) == []
    assert listener.hear(noise(60)) == []
    assert listener.ears.attend(Attend(session=1)) == [Spoke(session=1, what="end", reason="no-speech")]
    assert listener.ears.mute(False) == []
    assert woken(listener.hear(noise(20))) == [("wake", "wake", 4)]


def test_nothing_of_before_is_in_the_pre_roll_after_muting() -> None:
    listener = Listener(ears_that_hear(("wake", 44)))
    listener.hear(noise(40, seed=1))
    listener.ears.mute(True)
    listener.ears.mute(False)
    told = listener.hear(noise(10, seed=2))
    assert noise(10, seed=2).startswith(sound_of(told, 2))
    assert sound_of(told, 2)


def test_sound_of_before_is_not_searched_for_words_after_muting() -> None:
    listener = Listener(ears_that_hear(("wake", 39)))
    listener.hear(noise(40))  # the last one waits for two more
    listener.ears.mute(True)
    listener.ears.mute(False)
    assert [len(woken(listener.hear(noise(1)))) for _ in range(4)] == [0, 0, 1, 0]


def test_a_microphone_that_was_away_begins_anew() -> None:
    listener = Listener(ears_that_hear(("wake", 44)))
    listener.hear(noise(40, seed=1))
    listener.now_s += 30
    told = listener.hear(noise(10, seed=2))
    assert noise(10, seed=2).startswith(sound_of(told, 2))


def test_ears_may_be_muted_from_the_start() -> None:
    listener = Listener(ears_that_hear(("wake", 5), front=FrontSettings(muted=True)))
    assert listener.hear(noise(20)) == []
