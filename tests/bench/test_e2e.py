"""`bench e2e`: its sums and targets, its turns, and one real question on both sides."""

from __future__ import annotations

import wave
from pathlib import Path

import msgspec
import pytest

from assistant import paths
from assistant.audio.front_messages import EndpointSettings
from assistant.bench import e2e, e2e_figures
from assistant.bench.e2e_runs import Processes, Taken, between, of_naive, of_ours, peak
from assistant.bench.e2e_speech import Utterance, utterances
from assistant.bench.e2e_table import table
from assistant.bench.naive import Told
from assistant.errors import EngineFailed
from assistant.messages import Outcome
from tests.bench.e2e_runs import SPOKEN, answered, seen, taken, timed, watched

LOCAL = taken(150, "handled")


# --- one run --------------------------------------------------------------------------------------------------------
def test_the_endpointing_silence_is_told_apart_and_not_counted() -> None:
    one = of_ours(SPOKEN, answered())
    assert (one.with_silence_ms, one.silence_ms, one.first_audio_ms) == (1100, 700, 400)
    assert one.outcome == "answered"
    assert (one.speculations, one.drafts) == ((True,), 1)
    assert one.tokens_per_s == 20
    assert one.stages == {"asr": 100, "intent": 20, "asr_load": 150, "llm_first_token": 80, "tts_first_audio": 60}


def test_an_answer_that_was_ready_before_the_decision_is_near_nothing() -> None:
    assert of_ours(SPOKEN, answered(first_audio_s=101.701)).first_audio_ms == 1


def test_a_query_without_sound_has_failed() -> None:
    silent = of_ours(SPOKEN, answered(first_audio_s=0))
    assert (silent.outcome, silent.code, silent.first_audio_ms) == ("failed", "no-sound", 0)


def test_a_local_command_has_no_first_token() -> None:
    one = of_ours(SPOKEN, answered(outcome=Outcome.HANDLED))
    assert one.outcome == "handled"
    assert "llm_first_token" not in one.stages


def test_memory_is_that_of_the_query_alone() -> None:
    readings = seen().readings
    assert peak(readings) == 300
    assert peak(between(readings, 102.0, 103.0)) == 140
    assert peak([]) == 0


# --- all of them ----------------------------------------------------------------------------------------------------
def test_llm_answers_and_local_commands_are_judged_apart() -> None:
    cold = [taken(400), taken(500), LOCAL, taken(600)]
    warm = [taken(200), taken(250), taken(50, "handled"), taken(300)]
    found = e2e_figures.judged(timed(cold, warm), watched())
    assert (found.queries, found.cold.queries, found.local.cold.queries) == (4, 3, 1)
    assert found.cold.first_audio_ms == e2e_figures.Spread(p50=500, p95=600)
    assert found.ratio == {
        "cold_p50": 0.25,
        "cold_p95": 0.3,
        "warm_p50": 0.125,
        "warm_to_naive_warm": 0.3125,
        "local_cold_p50": 0.075,
        "peak": 0.9677,
        "warm_peak": 0.7843,
    }
    assert found.reached
    assert set(found.targets) == set(e2e_figures.TARGETS)


@pytest.mark.parametrize(
    ("missed", "cold", "warm", "memory"),
    [
        ("cold_p50", [taken(501), taken(501)], [taken(200)] * 2, watched()),
        ("cold_p95", [taken(400), taken(400), taken(701)], [taken(200)] * 3, watched()),
        ("warm_p50", [taken(400)], [taken(301)], watched()),
        ("local_cold_p50", [taken(400), taken(301, "handled")], [taken(200), LOCAL], watched()),
        ("peak", [taken(400)], [taken(200)], watched(ours=311)),
    ],
)
def test_each_target_is_told(missed: str, cold: list[Taken], warm: list[Taken], memory: dict[str, list[Taken]]) -> None:
    found = e2e_figures.judged(timed(cold, warm), memory)
    assert [name for name, reached in found.targets.items() if reached is False] == [missed]
    assert not found.reached
    assert "MISSED" in table(found)


def test_half_of_the_naive_way_is_a_target_when_that_is_resident() -> None:
    found = e2e_figures.judged(timed([taken(400)], [taken(290)], naive_warm=500), watched())
    assert [name for name, reached in found.targets.items() if reached is False] == ["warm_to_naive_warm"]


def test_with_a_budget_the_memory_alone_is_judged() -> None:
    slow = timed([taken(4000, mode="sequential")], [taken(4000, mode="sequential")])
    found = e2e_figures.judged(slow, watched(ours=250, naive=310), budget=True)
    assert (found.mode, found.targets, found.reached) == ("sequential", {"peak": False}, False)
    assert e2e_figures.judged(slow, watched(ours=240, naive=310), budget=True).reached
    roomy = timed([taken(4000)], [taken(4000)])
    assert e2e_figures.judged(roomy, watched(ours=300, naive=310), budget=True).reached


def test_a_recording_that_failed_anywhere_is_in_no_figure_and_told() -> None:
    failed = taken(0, "failed", code="stt-low-confidence", file="bad.wav")
    found = e2e_figures.judged(timed([taken(400), taken(9000)], [taken(200), failed]), watched())
    assert found.cold.first_audio_ms.p95 == 400
    assert found.naive.cold.queries == 1
    assert [(one.file, one.side, one.code) for one in found.failed] == [("bad.wav", "ours warm", "stt-low-confidence")]
    assert "bad.wav (ours warm: stt-low-confidence)" in table(found)


def test_nothing_measured_is_nothing_reached() -> None:
    failed = [taken(0, "failed", code="no-speech")]
    found = e2e_figures.judged(timed(failed, failed), {})
    assert not found.reached
    assert set(found.targets.values()) == {None}
    assert "not measured" in table(found)


def test_a_slow_machine_and_speculations_are_told() -> None:
    hot = taken(400, pressed=("temperature 84 °C of 80",), speculations=(False, True), drafts=1)
    found = e2e_figures.judged(timed([hot], [taken(200, speculations=(True,))]), watched())
    assert found.throttled
    assert (found.speculation.attempts, found.speculation.hits, found.speculation.hit_rate) == (3, 2, 0.667)
    told = table(found)
    assert "temperature 84 °C of 80" in told
    assert "2 of 3 were right, 1 with an answer begun" in told
    assert "ASR 280 ms" in told


def test_the_json_has_the_names_that_others_read() -> None:
    document = msgspec.to_builtins(e2e_figures.judged(timed([taken(400)], [taken(200)]), watched()))
    for state in (document["cold"], document["warm"], document["naive"]["cold"], document["naive"]["warm"]):
        assert {"p50", "p95"} == set(state["first_audio_ms"])
        assert {"peak_mib", "silence_ms", "stages"} <= set(state)
    assert {"ratio", "throttled", "speculation", "local"} <= set(document)


# --- turns ----------------------------------------------------------------------------------------------------------
class Scripted:
    """`Sides` that answer at once, and remember who was asked."""

    def __init__(self, breaks: str = "") -> None:
        self.asked: list[str] = []
        self._breaks = breaks

    def ours(self, one: Utterance, *, observed: bool = False) -> dict[str, Taken]:
        self._note("ours", one, observed)
        kind = "handled" if one.file.name == "b.wav" else "answered"
        return {"cold": taken(400, kind, 300.0 * observed), "warm": taken(200, kind, 400.0 * observed)}

    def naive(self, one: Utterance, state: str, *, observed: bool = False) -> Taken:
        self._note(f"naive {state}", one, observed)
        return taken(2000, peak_mib=310.0 * observed)

    def _note(self, side: str, one: Utterance, observed: bool) -> None:
        self.asked.append(f"{side} {one.file.stem}{' observed' if observed else ''}")
        if len(self.asked) > 3 and self.asked[-1] == self._breaks:
            raise EngineFailed("it broke")


def spoken(*names: str) -> list[Utterance]:
    return [msgspec.structs.replace(SPOKEN, file=Path(name)) for name in names]


def test_both_sides_take_turns_and_memory_is_looked_at_apart() -> None:
    sides = Scripted()
    found = e2e.measure(sides, spoken("a.wav", "b.wav"))
    assert sides.asked == [
        *("ours a", "naive cold a", "naive warm a"),
        *("ours a", "naive cold a", "naive warm a"),
        *("naive cold b", "naive warm b", "ours b"),
        *("ours a observed", "naive cold a observed", "naive warm a observed"),
    ]
    assert (found.cold.queries, found.local.cold.queries) == (1, 1)
    assert (found.cold.peak_mib, found.naive.warm.peak_mib) == (300, 310)


def test_a_run_that_breaks_does_not_end_the_others() -> None:
    found = e2e.measure(Scripted(breaks="naive warm a"), spoken("a.wav", "c.wav"))
    assert found.cold.queries == 1
    assert {(one.side, one.code) for one in found.failed} == {("naive warm", "engine-failed")}


def test_what_cannot_work_at_all_is_told_at_once() -> None:
    class Broken(Scripted):
        def naive(self, one: Utterance, state: str, *, observed: bool = False) -> Taken:
            raise EngineFailed("no model")

    with pytest.raises(EngineFailed, match="no model"):
        e2e.measure(Broken(), spoken("a.wav"))


def test_a_folder_without_recordings_is_an_error_of_the_caller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert e2e.main(["--wavs", str(tmp_path)]) == 2
    assert "--wavs names a folder" in capsys.readouterr().err


# --- for real -------------------------------------------------------------------------------------------------------
@pytest.mark.engine
@pytest.mark.timeout(90)
def test_a_real_question_with_nothing_loaded(tmp_path: Path) -> None:
    (one,) = utterances(paths.data_file("question.wav"), 1, EndpointSettings())
    sides = Processes(tmp_path, states=("cold",))
    found = sides.ours(one, observed=True)["cold"]
    assert (found.outcome, found.code) == ("answered", "")
    assert "capital of France" in found.transcript
    assert 690 < found.silence_ms < 750
    assert found.first_audio_ms > -50
    assert found.peak_mib > 100
    assert {"asr_load", "asr", "llm_first_token", "tts_first_audio"} <= set(found.stages)
    (drawn,) = sides.seen
    assert set(drawn.answered.pids.values()) >= {"asr", "llm", "tts"}
    # speech was spoken at its own pace, not handed over at once
    assert drawn.answered.first_audio_s - drawn.answered.began_s >= one.decided_s


@pytest.mark.engine
@pytest.mark.timeout(90)
def test_the_naive_way_hears_the_same_question(tmp_path: Path) -> None:
    (one,) = utterances(paths.data_file("question.wav"), 1, EndpointSettings())
    found = Processes(tmp_path).naive(one, "cold")
    assert found.outcome == "answered"
    assert "capital of France" in found.transcript
    assert found.first_audio_ms > found.stages["asr_load"] + found.stages["llm_load"] + found.stages["tts_load"]
    with wave.open(str(tmp_path / "cut.wav")) as cut:
        assert cut.getnframes() == round(one.speech_end_s * 16000)


def test_a_side_that_ends_badly_says_why(tmp_path: Path) -> None:
    sides = Processes(tmp_path, ["no.such=setting"])
    with pytest.raises(EngineFailed, match=r"e2e_child failed .*no.such"):
        sides.ours(SPOKEN)


def test_a_naive_run_without_sound_has_failed() -> None:
    told = Told(first_audio_ms=0, total_ms=10, began_ns=0, ended_ns=1, stages={}, transcript="", reply="")
    assert of_naive(SPOKEN, told).outcome == "failed"
