"""Runs of `bench e2e` that nobody has made: figures for its sums, and a query with its events for its plot."""

from __future__ import annotations

from pathlib import Path

from assistant.bench.e2e_child import Answered, Event, Work
from assistant.bench.e2e_runs import Seen, Taken
from assistant.bench.e2e_speech import Utterance
from assistant.bench.observer import Held, Reading
from assistant.messages import IntentReport, MemoryReport, Outcome, QueryReport, StageReport, Timings

MIB = 2**20
SPOKEN = Utterance(file=Path("question.wav"), pcm=b"\0\0" * 16000, speech_end_s=1.0, decided_s=1.7)


def taken(ms: float, outcome: str = "answered", peak_mib: float = 0, **more: object) -> Taken:
    figures = {
        "file": "one.wav",
        "outcome": outcome,
        "first_audio_ms": ms,
        "with_silence_ms": ms + 700,
        "silence_ms": 700.0,
        "peak_mib": peak_mib,
        "mode": "resident",
    }
    return Taken(**{**figures, **more})  # type: ignore[arg-type]


def timed(ours: list[Taken], warm: list[Taken], naive: float = 2000, naive_warm: float = 800) -> dict[str, list[Taken]]:
    return {
        "ours cold": ours,
        "ours warm": warm,
        "naive cold": [taken(naive, mode="", silence_ms=0)] * len(ours),
        "naive warm": [taken(naive_warm, mode="", silence_ms=0)] * len(ours),
    }


def watched(ours: float = 300, naive: float = 310, mode: str = "resident") -> dict[str, list[Taken]]:
    """Runs whose memory was looked at, MiB."""
    return {
        "ours cold": [taken(1, peak_mib=ours, mode=mode), taken(1, peak_mib=ours - 50, mode=mode)],
        "ours warm": [taken(1, peak_mib=ours + 100, mode=mode)],
        "naive cold": [taken(1, peak_mib=naive)],
        "naive warm": [taken(1, peak_mib=naive + 200)],
    }


def report(outcome: Outcome = Outcome.ANSWERED) -> QueryReport:
    return QueryReport(
        query_id="1", transcript="What is the capital of France?", intent=IntentReport(), reply="Paris.",
        outcome=outcome, error=None, audio=None,
        timings_ms=Timings(asr=100, intent=20, llm_first_token=80, llm=200, tts_first_audio=60),
        stages=(
            StageReport(name="asr", engine="whisper", model="m", load_ms=150, run_ms=300, anon_mib=90, file_mib=10),
            StageReport(name="llm", engine="mnn", model="m", load_ms=0, run_ms=300, anon_mib=30, file_mib=90),
        ),
        memory=MemoryReport(budget_mib=2048, margin_mib=300, peak_mib=300, peak_anon_mib=200, mode="overlap"),
    )  # fmt: skip


def answered(first_audio_s: float = 102.1, outcome: Outcome = Outcome.ANSWERED) -> Answered:
    """Begun at 100 s: speech until 101, decided at 101.7, first audio 0.4 s later."""
    events = [
        Event(at_s=100.0, name="stage-load-start", data={"stage": "asr"}),
        Event(at_s=100.0, name="stage-load-start", data={"stage": "llm"}),
        Event(at_s=100.2, name="stage-load-end", data={"stage": "asr", "load_ms": 200.0}),
        Event(at_s=100.5, name="stage-load-end", data={"stage": "llm", "load_ms": 500.0}),
        Event(at_s=100.6, name="stage-load-start", data={"stage": "tts"}),
        Event(at_s=101.3, name="live-pause"),
        Event(at_s=101.7, name="live-end"),
        Event(at_s=101.7, name="stt-speculation", data={"hit": True, "answer": True}),
        Event(at_s=101.75, name="stt-end", data={"text": "What is the capital of France?"}),
        Event(at_s=102.0, name="llm-end", data={"new_tokens": 3, "prefill_ms": 100.0, "decode_ms": 100.0}),
        Event(at_s=102.3, name="run-end"),
    ]
    work = [
        Work(stage="llm", begun_s=100.5, first_s=0, ended_s=100.9, ahead=True),
        Work(stage="asr", begun_s=101.3, first_s=101.55, ended_s=101.6),
        Work(stage="intent", begun_s=101.6, first_s=101.62, ended_s=101.62),
        Work(stage="tts", begun_s=102.0, first_s=102.1, ended_s=104.0),
        Work(stage="llm", begun_s=101.8, first_s=101.9, ended_s=102.0),
    ]
    return Answered(
        began_s=100.0, first_audio_s=first_audio_s, ended_s=102.3, audio_s=1.5, events=events, work=work,
        report=report(outcome), pids={11: "asr", 12: "llm"},
    )  # fmt: skip


def seen(state: str = "cold") -> Seen:
    readings = [
        Reading(
            begin_ns=int(at * 1e9),
            end_ns=int((at + 0.01) * 1e9),
            processes={10: Held(anon=40 * MIB), 11: Held(anon=asr * MIB), 12: Held(file=100 * MIB)},
        )
        for at, asr in ((100.1, 20), (101.5, 160), (102.2, 0))
    ]
    return Seen(state=state, utterance=SPOKEN, answered=answered(), readings=readings)
