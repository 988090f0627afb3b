"""Somebody speaks, and the query hears it: streamed or begun early, without the wake phrase, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import DeviceError
from assistant.messages import Outcome
from assistant.model_store.store import ModelInfo
from assistant.query import Answer, Query
from tests.house import Asr, House, house, run
from tests.live_speech import END, NOBODY, PAUSE, RESUMED, SPEECH, Speaker, Step, sound
from tests.speech_corpus import clip_pcm
from tests.test_pipeline import speech

QUIET = bytes(32_000)
TIME = "what time is it"


def told(*texts: str, **options: Any) -> Asr:
    return Asr("tests.stages.listeners:Told", {"texts": list(texts), **options})


async def ask(one: House, live: Speaker) -> Answer:
    async with asyncio.timeout(15):
        return await one.pipeline.answer(Query(live=live))


def data_of(one: House, name: str, key: str) -> list[Any]:
    return [data[key] for event, data in one.events if event == name]


def loaded(one: House) -> Callable[[], bool]:
    return lambda: {"asr", "intent"} <= set(data_of(one, "stage-load-end", "stage"))


def attempted(one: House, times: int, *, done: bool = False) -> Callable[[], bool]:
    return lambda: sum((line == "done") == done for line in one.attempts()) >= times


def idle(one: House) -> bool:
    return not any(entry.users for entry in one.memory.holdings.entries.values())


# --- the order of things --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("streams", [True, False])
def test_everything_is_loaded_while_the_speaker_speaks_and_no_sound_is_lost(tmp_path: Path, streams: bool) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told(TIME, streams=streams)) as one:
            live = Speaker(*sound(QUIET), SPEECH, loaded(one), *sound(speech()), END)
            report = (await ask(one, live)).report
            assert (report.outcome, report.transcript, report.reply) == (Outcome.HANDLED, TIME, "It is 5:05 PM.")
            (heard, done) = one.attempts()
            assert done == "done"
            whole = len(QUIET + speech())
            assert int(heard) == whole if streams else 0.5 * whole < int(heard) < whole  # trimmed
            order = [name for name in one.names() if name.startswith(("run", "stt", "intent"))]
            assert [name for name in order if name != "stt-partial"] == [
                "run-start", "stt-start", "stt-vad-start", "stt-vad-end", "stt-end", "intent-start", "intent-end",
                "run-end",
            ]  # fmt: skip
            assert live.closed

    run(test)


def test_partial_results_come_as_the_sound_does(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told(TIME, streams=True)) as one:

            def ten_are_told() -> bool:
                return len(data_of(one, "stt-partial", "text")) >= 10

            pieces = sound(speech())
            live = Speaker(*pieces[:10], SPEECH, ten_are_told, *pieces[10:], END)
            assert (await ask(one, live)).report.transcript == TIME
            texts = data_of(one, "stt-partial", "text")
            assert texts == [f"{count} pieces" for count in range(1, len(pieces) + 1)]

    run(test)


def test_the_timings_count_from_when_the_speaker_had_finished(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told(TIME)) as one:
            ended = []

            def finished() -> bool:
                ended.append(time.monotonic())
                return True

            report = (await ask(one, Speaker(*sound(speech()), SPEECH, 1.0, finished, END))).report
            since = (time.monotonic() - ended[0]) * 1000
            assert 0 < report.timings_ms.asr <= report.timings_ms.total <= since

    run(test)


# --- begun early ----------------------------------------------------------------------------------------------------
def test_an_attempt_at_the_pause_is_the_result_when_nobody_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told(TIME)) as one:
            live = Speaker(*sound(speech()), SPEECH, PAUSE, attempted(one, 1, done=True), *sound(QUIET), END)
            report = (await ask(one, live)).report
            assert report.transcript == TIME
            assert len(one.attempts()) == 2
            assert data_of(one, "stt-speculation", "hit") == [True]
            assert report.timings_ms.asr < 20  # it was there already

    run(test)


@pytest.mark.parametrize("done", [True, False])
def test_an_attempt_is_forgotten_when_somebody_goes_on(tmp_path: Path, done: bool) -> None:
    """Whether it has ended already or is cancelled in the middle."""

    async def test() -> None:
        texts = ["what", TIME] if done else [TIME]
        async with house(tmp_path, asr=told(*texts, seconds=0 if done else 0.4)) as one:
            pieces = sound(speech())
            live = Speaker(*pieces[:15], SPEECH, PAUSE, attempted(one, 1, done=done), RESUMED, *pieces[15:], END)
            report = (await ask(one, live)).report
            assert (report.transcript, report.outcome) == (TIME, Outcome.HANDLED)
            first, *more = [line for line in one.attempts() if line != "done"]
            assert len(more) == 1
            assert int(more[0]) > int(first)
            assert one.attempts().count("done") == 1 + done
            assert data_of(one, "stt-speculation", "hit") == [False]
            assert data_of(one, "stt-end", "text") == [TIME]

    run(test)


def test_after_two_pauses_the_second_attempt_counts(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told(TIME, seconds=0.2)) as one:
            pieces = sound(speech())
            live = Speaker(
                *pieces[:15], SPEECH, PAUSE, attempted(one, 1), RESUMED, *pieces[15:], PAUSE, attempted(one, 2), END,
            )  # fmt: skip
            assert (await ask(one, live)).report.transcript == TIME
            assert one.attempts().count("done") == 1
            assert data_of(one, "stt-speculation", "hit") == [False, True]

    run(test)


def test_pauses_from_before_the_recogniser_was_there_start_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told(TIME)) as one:
            pieces = sound(speech())
            live = Speaker(*pieces[:15], SPEECH, PAUSE, RESUMED, *pieces[15:], PAUSE, *sound(QUIET), END)
            assert (await ask(one, live)).report.transcript == TIME
            assert len(one.attempts()) == 2
            assert data_of(one, "stt-speculation", "hit") == []

    run(test)


# --- nothing to answer ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("streams", [True, False])
def test_it_goes_on_listening_with_what_comes_then(tmp_path: Path, streams: bool) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told("Hey, Jarvis?", "", f"{TIME}?", streams=streams)) as one:
            pieces = sound(speech())
            live = Speaker(
                *pieces, SPEECH, END, *pieces, *pieces, SPEECH, END, *pieces, SPEECH, END,
                wake_phrase="hey jarvis", patience=2,
            )  # fmt: skip
            report = (await ask(one, live)).report
            assert (report.transcript, report.outcome) == (f"{TIME}?", Outcome.HANDLED)
            first, second, third = (int(line) for line in one.attempts() if line != "done")
            assert first == third
            assert second > 1.5 * first
            assert live.asked_to_go_on == 2
            assert data_of(one, "stt-end", "text") == [f"{TIME}?"]

    run(test)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("heard", "end", "patience", "asked"), [("", END, 1, 2), ("Hey, Jarvis.", END, 0, 1), ("you", NOBODY, 5, 0)]
)
def test_when_nothing_was_said_the_query_says_so(
    tmp_path: Path, streams: bool, heard: str, end: Any, patience: int, asked: int
) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told(heard, streams=streams)) as one:
            pieces = sound(speech())
            live = Speaker(
                *pieces, SPEECH, end, *pieces, SPEECH, end, *pieces, end, wake_phrase="hey jarvis", patience=patience
            )
            report = (await ask(one, live)).report
            assert report.error is not None
            assert (report.error.code, report.error.stage) == ("stt-no-text-recognized", "asr")
            assert live.asked_to_go_on == asked
            assert live.closed
            assert "intent-start" not in one.names()
            if end is NOBODY and not streams:
                assert one.attempts() == []

    run(test)


@pytest.mark.parametrize("streams", [True, False])
def test_of_sound_without_speech_no_words_are_believed(tmp_path: Path, streams: bool) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told(TIME, streams=streams)) as one:
            live = Speaker(*sound(QUIET * 2), SPEECH, PAUSE, 0.1, END)
            report = (await ask(one, live)).report
            assert report.error is not None
            assert report.error.code == "stt-no-text-recognized"
            assert streams or one.attempts() == []

    run(test)


@pytest.mark.parametrize("live", [True, False])
def test_what_the_recogniser_is_not_sure_of_goes_nowhere(tmp_path: Path, live: bool) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told("I was quite tired", confidence=0.34)) as one:
            speaker = Speaker(*sound(speech()), SPEECH, END, wake_phrase="hey jarvis", patience=1)
            query = Query(live=speaker) if live else Query(pcm=speech)
            report = (await one.pipeline.answer(query)).report
            assert report.error is not None
            assert (report.error.code, report.transcript) == ("stt-low-confidence", "")
            assert not {"intent-start", "stt-end", "reply-delta"} & set(one.names())

    run(test)


def test_a_single_word_needs_no_confidence_and_a_misheard_wake_phrase_is_no_question(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told("Thank you, Rose.", "Never mind.", confidence=0.2)) as one:
            pieces = sound(speech())
            live = Speaker(*pieces, SPEECH, END, *pieces, SPEECH, END, wake_phrase="hey jarvis", patience=1)
            assert (await ask(one, live)).report.transcript == "Never mind."

    run(test)


OF_A_QUERY = ("hear()", "follow()", "_recognised", "record()", "_feed()")
"""Coroutines that may not outlive it."""


# --- faults ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("how", ["lost", "broken off"])
def test_a_lost_microphone_fails_the_query_and_leaves_nothing_running(tmp_path: Path, streams: bool, how: str) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told(TIME, streams=streams, seconds=5)) as one:
            fault: list[Step] = [DeviceError("unplugged")] if how == "lost" else []
            begun = loaded(one) if streams else attempted(one, 1)
            live = Speaker(*sound(speech()), SPEECH, PAUSE, begun, 0.1, *fault)
            report = (await ask(one, live)).report
            assert report.error is not None
            assert (report.error.code, report.outcome) == ("audio-device" + "-lost" * (not fault), Outcome.FAILED)
            assert one.attempts().count("done") == 0
            assert idle(one)
            assert live.closed
            assert not [task for task in asyncio.all_tasks() if any(name in repr(task) for name in OF_A_QUERY)]

    run(test)


def test_a_worker_that_dies_while_somebody_speaks_is_replaced_and_hears_it_all(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told(TIME, streams=True, how="die-once")) as one:
            live = Speaker(*sound(speech()), SPEECH, 0.2, *sound(QUIET), END)
            report = (await ask(one, live)).report
            assert (report.transcript, report.error) == (TIME, None)
            assert one.attempts() == [str(len(speech() + QUIET)), "done"]
            assert data_of(one, "stage-load-end", "stage").count("asr") == 2

    run(test)


@pytest.mark.alone("within 150 ms")
@pytest.mark.parametrize("streams", [True, False])
def test_a_cancel_while_somebody_speaks_ends_at_once_and_the_recogniser_serves_on(
    tmp_path: Path, streams: bool
) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=told(TIME, streams=streams, seconds=0.4)) as one:
            live = Speaker(*sound(speech()), SPEECH, PAUSE, 60)
            task = asyncio.create_task(one.pipeline.answer(Query(live=live)))
            async with asyncio.timeout(10):
                while not ("stt-partial" in one.names() if streams else one.attempts()):
                    await asyncio.sleep(0.01)
            started = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - started < 0.15
            assert idle(one)
            assert live.closed
            assert data_of(one, "run-end", "outcome") == ["cancelled"]
            loads = data_of(one, "stage-load-end", "stage").count("asr")
            assert (await ask(one, Speaker(*sound(speech()), SPEECH, END))).report.transcript == TIME
            assert data_of(one, "stage-load-end", "stage").count("asr") == loads

    run(test)


def test_a_recogniser_that_cannot_start_fails_the_query_while_the_speaker_speaks(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=Asr("tests.stages.misbehaving:Misbehaving", {"how": "damaged"})) as one:
            live = Speaker(*sound(speech()), SPEECH, 60)
            report = (await ask(one, live)).report
            assert report.error is not None
            assert (report.error.code, report.error.stage) == ("model-damaged", "asr")
            assert live.closed

    run(test)


# --- real recognisers -----------------------------------------------------------------------------------------------
@pytest.mark.engine
@pytest.mark.timeout(60)
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(("wake", "phrase"), [("wake_hey_jarvis_2", "hey jarvis"), ("wake_okay_nabu_2", "okay nabu")])
def test_whisper_hears_a_question_said_in_one_breath_with_the_wake_word(
    tmp_path: Path, model: Callable[[str], ModelInfo], speech: Path, wake: str, phrase: str, early: bool
) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=Asr(model=model("whisper-tiny.en"))) as one:
            pcm = clip_pcm(speech, f"{wake}.wav")[:54_000] + clip_pcm(speech, "cmd_r3_turn_on_the_lamp.wav")[16_000:]
            pause: list[Step] = [PAUSE, 2.0] if early else []
            live = Speaker(*sound(pcm), SPEECH, loaded(one), *pause, *sound(QUIET), END, wake_phrase=phrase)
            report = (await ask(one, live)).report
            assert report.transcript.lower().rstrip(".") == "turn on the lamp"
            assert data_of(one, "stt-speculation", "hit") == [True] * early

    run(test)


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_vosk_writes_while_it_is_spoken_to(tmp_path: Path, model: Callable[[str], ModelInfo], speech: Path) -> None:
    async def test() -> None:
        async with house(tmp_path, asr=Asr(engine="vosk", model=model("vosk-ko"))) as one:

            def first_word() -> bool:
                return "컴퓨터" in data_of(one, "stt-partial", "text")

            pieces = sound(clip_pcm(speech, "lang_ko_multi_keywords.wav"))
            live = Speaker(*pieces[:35], SPEECH, loaded(one), first_word, *pieces[35:], END)
            report = (await ask(one, live)).report
            assert report.transcript.startswith("컴퓨터 빅스비")
            assert any(data_of(one, "stt-partial", "segment_end"))

    run(test)
