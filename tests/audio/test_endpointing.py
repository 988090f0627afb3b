"""Where an utterance begins and ends, told in durations; and on human recordings, through the real detector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.audio.endpointing import TAIL_S, Endpointer, Turn
from assistant.audio.front_messages import EndpointSettings
from assistant.audio.vad import WINDOW_S, speech_probabilities
from tests.speech_corpus import SYNTHETIC, clip_pcm, to_pcm

NORMAL = EndpointSettings(pause_s=0.3)
RELAXED = EndpointSettings(pause_s=0.3, end_silence_s=1.25)
AGGRESSIVE = EndpointSettings(pause_s=0.3, end_silence_s=0.25)
STEP = 0.01


def fed(machine: Endpointer, *parts: tuple[float, float | bool], step: float = STEP) -> list[tuple[str, float]]:
    """Events of (seconds, probability) parts, each with the time at which it was told; `end` with its reason."""
    told = []
    at = 0.0
    for seconds, probability in parts:
        for _ in range(round(seconds / step)):
            at += step
            for turn in machine.feed(step, probability):
                name = f"end:{turn.reason}" if turn.what == "end" else turn.what
                told.append((name, round(at, 3)))
    return told


def events(*parts: tuple[float, float | bool], settings: EndpointSettings = NORMAL, **more: Any) -> list[Any]:
    return fed(Endpointer(settings, **more), *parts)


# --- one utterance --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("settings", "silence"), [(NORMAL, 0.7), (RELAXED, 1.25)])
def test_a_sentence_begins_pauses_and_ends(settings: EndpointSettings, silence: float) -> None:
    told = events((0.5, 0.0), (1.0, 0.9), (3.0, 0.0), settings=settings)
    assert told == [("speech", 0.8), ("pause", 1.8), ("end:silence", round(1.5 + silence, 3))]


def test_recognition_begins_after_a_fifth_of_a_second() -> None:
    told = events((0.5, 0.0), (1.0, 0.9), (3.0, 0.0), settings=EndpointSettings())
    assert told == [("speech", 0.8), ("pause", 1.7), ("end:silence", 2.2)]


def test_an_end_that_comes_before_a_pause_needs_none() -> None:
    assert events((1.0, 0.9), (3.0, 0.0), settings=AGGRESSIVE) == [("speech", 0.3), ("end:silence", 1.25)]


def test_a_pause_in_the_middle_of_a_sentence_does_not_end_it() -> None:
    told = events((1.0, 0.9), (0.5, 0.0), (1.0, 0.9), (2.0, 0.0))
    assert told == [("speech", 0.3), ("pause", 1.3), ("resumed", 1.59), ("pause", 2.8), ("end:silence", 3.2)]


def test_gaps_between_words_are_no_pauses() -> None:
    told = events((0.4, 0.9), (0.2, 0.0), (0.4, 0.9), (0.29, 0.0), (0.4, 0.9), (1.0, 0.0))
    assert [name for name, _ in told] == ["speech", "pause", "end:silence"]


def test_true_and_false_will_do() -> None:
    assert events((1.0, True), (1.0, False)) == events((1.0, 1.0), (1.0, 0.0))


def test_a_short_command_is_told_once_silence_follows() -> None:
    assert events((0.2, 0.0), (0.13, 0.7), (2.0, 0.0)) == [
        ("speech", 0.63), ("pause", 0.63), ("end:silence", 1.03),
    ]  # fmt: skip


@pytest.mark.parametrize("length", [0.03, 0.08])
def test_a_click_is_no_command(length: float) -> None:
    assert events((1.0, 0.0), (length, 1.0), (5.0, 0.0)) == [("end:no-speech", 5.0)]


def test_a_click_does_not_keep_a_sentence_from_ending() -> None:
    told = events((1.0, 0.9), (0.5, 0.0), (0.05, 0.9), (1.0, 0.0))
    assert told[-1] == ("end:silence", 1.7)


def test_a_word_that_begins_in_the_last_moment_is_not_cut_off() -> None:
    told = events((1.0, 0.9), (0.65, 0.0), (1.0, 0.9), (1.0, 0.0))
    assert [name for name, _ in told] == ["speech", "pause", "resumed", "pause", "end:silence"]
    told = events((4.95, 0.0), (1.0, 0.9), (1.0, 0.0))
    assert [name for name, _ in told] == ["speech", "pause", "end:silence"]


def test_what_is_never_clearly_speech_is_none() -> None:
    assert events((6.0, 0.55)) == [("end:no-speech", 5.0)]


def test_soft_sounds_belong_to_the_word_they_touch_but_are_no_sign_that_somebody_speaks_on() -> None:
    assert events((0.2, 0.2), (0.4, 0.9), (2.0, 0.2))[-1] == ("end:silence", 1.3)


# --- limits ---------------------------------------------------------------------------------------------------------
def test_nobody_speaks() -> None:
    assert events((9.0, 0.0)) == [("end:no-speech", 5.0)]
    assert events((60.0, 0.0), settings=EndpointSettings(no_speech_s=0)) == []


def test_endless_talk_is_capped_and_waiting_for_it_does_not_count() -> None:
    assert events((60.0, 0.9)) == [("speech", 0.3), ("end:cap", 15.0)]
    assert events((4.0, 0.0), (60.0, 0.9))[-1] == ("end:cap", 19.0)


# --- after a wake word ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tail", [0.0, 0.1, 0.25, TAIL_S])
def test_the_end_of_the_wake_word_is_no_command(tail: float) -> None:
    assert events((tail, 0.95), (6.0, 0.0), after_wake=True) == [("end:no-speech", pytest.approx(5.0))]


def test_a_question_in_one_breath_is_one() -> None:
    told = events((1.2, 0.95), (2.0, 0.0), after_wake=True)
    assert [name for name, _ in told] == ["speech", "pause", "end:silence"]
    assert told[0][1] == pytest.approx(TAIL_S + STEP)


def test_a_short_command_after_the_wake_word_counts() -> None:
    told = events((0.2, 0.95), (0.1, 0.0), (0.13, 0.8), (2.0, 0.0), after_wake=True)
    assert [name for name, _ in told] == ["speech", "pause", "end:silence"]


def test_without_a_wake_word_speech_counts_from_the_start() -> None:
    assert events((0.2, 0.95), (2.0, 0.0))[-1] == ("end:silence", 0.9)


# --- going on -------------------------------------------------------------------------------------------------------
def test_nothing_is_told_after_the_end() -> None:
    machine = Endpointer(NORMAL)
    assert fed(machine, (1.0, 0.9), (1.0, 0.0))[-1][0] == "end:silence"
    assert machine.ended
    assert fed(machine, (2.0, 0.9), (9.0, 0.0)) == []


def test_what_was_said_between_the_end_and_going_on_counts() -> None:
    machine = Endpointer(NORMAL)
    fed(machine, (1.0, 0.9), (0.8, 0.0), (0.5, 0.9))
    machine.go_on()
    assert fed(machine, (0.5, 0.9), (1.0, 0.0)) == [("speech", 0.01), ("pause", 0.8), ("end:silence", 1.2)]


def test_a_sentence_that_was_over_before_going_on_is_told_at_once() -> None:
    machine = Endpointer(NORMAL)
    fed(machine, (1.0, 0.9), (0.8, 0.0), (0.5, 0.9), (2.0, 0.0))
    machine.go_on()
    assert fed(machine, (0.1, 0.0)) == [("speech", 0.01), ("end:silence", 0.01)]


def test_the_wait_for_speech_begins_anew() -> None:
    machine = Endpointer(NORMAL)
    fed(machine, (1.0, 0.9), (4.0, 0.0))
    machine.go_on()
    assert fed(machine, (9.0, 0.0)) == [("end:no-speech", 5.0)]


def test_after_a_cap_the_same_breath_is_a_new_utterance() -> None:
    machine = Endpointer(NORMAL)
    assert fed(machine, (16.0, 0.9))[-1] == ("end:cap", 15.0)
    machine.go_on()
    assert fed(machine, (20.0, 0.9))[-1] == ("end:cap", 14.0)


def test_going_on_before_the_end_changes_nothing() -> None:
    machine = Endpointer(NORMAL)
    fed(machine, (1.0, 0.9), (0.5, 0.0))
    machine.go_on()
    assert fed(machine, (1.0, 0.0)) == [("end:silence", 0.2)]


def test_durations_are_told() -> None:
    machine = Endpointer(NORMAL)
    turns = [turn for _ in range(100) for turn in machine.feed(0.01, 0.9)]
    turns += [turn for _ in range(100) for turn in machine.feed(0.01, 0.0)]
    told = {turn.what: (round(turn.speech_s, 2), round(turn.silence_s, 2)) for turn in turns}
    assert told == {"speech": (0.3, 0.0), "pause": (1.0, 0.3), "end": (1.0, 0.7)}


# --- whatever comes -------------------------------------------------------------------------------------------------
STEPS = st.lists(st.tuples(st.floats(0.001, 0.8), st.floats(0, 1)), max_size=200)
SETTINGS = st.builds(
    EndpointSettings,
    speech_start_s=st.sampled_from([0.1, 0.3]),
    end_silence_s=st.sampled_from([0.25, 0.7, 1.25]),
    pause_s=st.sampled_from([0.2, 0.3]),
    no_speech_s=st.sampled_from([0.0, 1.0, 5.0]),
    max_s=st.sampled_from([1.0, 15.0]),
)
FOLLOWS = {
    "": {"speech", "end"},
    "speech": {"pause", "end"},
    "pause": {"resumed", "end"},
    "resumed": {"pause", "end"},
    "end": {""},
}


@given(STEPS, SETTINGS, st.booleans(), st.sets(st.integers(0, 199)))
def test_events_come_in_legal_order(
    steps: list[tuple[float, float]], settings: EndpointSettings, after_wake: bool, going_on: set[int]
) -> None:
    machine, last = Endpointer(settings, after_wake=after_wake), ""
    for number, (seconds, probability) in enumerate(steps):
        if number in going_on and machine.ended:
            machine.go_on()
            last = ""
        for turn in machine.feed(seconds, probability):
            assert turn.what in FOLLOWS[last]
            if turn.what == "end":
                assert (turn.reason == "no-speech") == (not last)
            assert turn.speech_s >= 0
            assert turn.silence_s >= 0
            last = turn.what
        assert machine.ended == (last == "end")


@given(STEPS, SETTINGS, st.booleans())
def test_it_always_ends(steps: list[tuple[float, float]], settings: EndpointSettings, after_wake: bool) -> None:
    """Whatever was heard: in time for the waits and the cap together, and what a beginning word adds to them."""
    machine = Endpointer(settings, after_wake=after_wake)
    ended: list[Turn] = []
    at = 0.0
    longest = max((seconds for seconds, _ in steps), default=0.0)
    for seconds, probability in [*steps, *[(0.05, 0.9)] * 400]:
        at += seconds
        ended += [turn for turn in machine.feed(seconds, probability) if turn.what == "end"]
        if ended:
            break
    assert len(ended) == 1
    if settings.no_speech_s:
        assert at <= settings.no_speech_s + settings.max_s + TAIL_S + settings.least_speech_s + 2 * longest + 0.1


# --- on human recordings --------------------------------------------------------------------------------------------
def heard(pcm: bytes, settings: EndpointSettings = NORMAL) -> list[tuple[str, float]]:
    machine = Endpointer(settings)
    told = []
    for number, probability in enumerate(speech_probabilities(pcm + bytes(64_000)), 1):
        for turn in machine.feed(WINDOW_S, probability):
            told.append((turn.what if turn.what != "end" else f"end:{turn.reason}", number * WINDOW_S))
    return told


@pytest.mark.parametrize(
    "word", ["stop", "pause", "record", "resume", "nevermind", "r3_what_time_is_it", "cancel_all_timers"]
)
def test_commands_of_people_end_by_silence(word: str, speech: Path) -> None:
    told = heard(clip_pcm(speech, f"cmd_{word}.wav"))
    assert told[0][0] == "speech"
    assert told[-1][0] == "end:silence"


def test_the_silence_around_a_question_is_not_it(speech: Path) -> None:
    told = heard(clip_pcm(speech, "cmd_brooklyn_silence_padding.wav"))
    assert told[0][1] == pytest.approx(2.5, abs=0.3)
    assert told[-1][0] == "end:silence"
    assert told[-1][1] == pytest.approx(4.6, abs=0.3)


def test_a_relaxed_end_waits_longer_and_an_aggressive_one_less(speech: Path) -> None:
    pcm = clip_pcm(speech, "cmd_r3_turn_on_the_lamp.wav")
    ends = [heard(pcm, settings)[-1][1] for settings in (AGGRESSIVE, NORMAL, RELAXED)]
    assert ends[1] - ends[0] == pytest.approx(0.45, abs=0.07)
    assert ends[2] - ends[1] == pytest.approx(0.55, abs=0.07)


@pytest.mark.parametrize("name", ["pink noise", "telephone keys", "chords", "one click"])
def test_nobody_speaks_in_what_no_throat_made(name: str) -> None:
    pcm = to_pcm(SYNTHETIC[name])
    assert {event for event, _ in heard(pcm * (160_000 // len(pcm) + 1))} <= {"end:no-speech"}


def test_two_people_who_talk_on_are_capped(speech: Path) -> None:
    told = heard(clip_pcm(speech, "two_enroll_katie.wav"), EndpointSettings(end_silence_s=3.0))
    assert told[-1][0] == "end:cap"
    assert told[-1][1] == pytest.approx(15, abs=1.5)
