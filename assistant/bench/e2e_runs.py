"""Runs one question of `bench e2e` on either side, each in a fresh process, and makes the same figures of both.

Imports `observer`: memory is the sum of PSS over a side's process tree, read from outside, for both alike. An observer
takes time from what it observes, so it looks at runs that are not timed.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from assistant import paths
from assistant.bench.e2e_child import Answered, Answers, Order
from assistant.bench.e2e_speech import Utterance, written
from assistant.bench.naive import Told
from assistant.bench.observer import Reading, TreeLog
from assistant.errors import EngineFailed

_TIMEOUT_S = 240
_MIB = 2**20
Outcome = str
"""answered | handled | failed"""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What one question took on one side. Milliseconds."""

    file: str
    outcome: Outcome
    code: str = ""
    """Of the error."""
    first_audio_ms: float = 0.0
    """From the end of speech, the endpointing silence not counted."""
    with_silence_ms: float = 0.0
    """The same, counted."""
    silence_ms: float = 0.0
    stages: dict[str, float] = {}
    tokens_per_s: float = 0.0
    """Of the LLM, after its first token; 0 = unknown."""
    peak_mib: float = 0.0
    """0 = nobody looked."""
    mode: str = ""
    """resident | overlap | sequential"""
    speculations: tuple[bool, ...] = ()
    """For each guess that the speaker had finished, made before that was known: whether he had."""
    drafts: int = 0
    """Of the guesses that were right, those with an answer begun when it was known."""
    pressed: tuple[str, ...] = ()
    """Why the machine was slowed down meanwhile."""
    transcript: str = ""
    reply: str = ""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One query of ours with everything that is drawn of it."""

    state: str
    utterance: Utterance
    answered: Answered
    readings: list[Reading]


class Sides(Protocol):
    """What `e2e.measure` runs. `observed`: for its memory, not for its times."""

    def ours(self, one: Utterance, *, observed: bool = False) -> dict[str, Taken]:
        """By state: cold, warm."""

    def naive(self, one: Utterance, state: str, *, observed: bool = False) -> Taken: ...


class Processes:
    """The real `Sides`."""

    def __init__(self, folder: Path, sets: Sequence[str] = (), states: Sequence[str] = ("cold", "warm")) -> None:
        """`folder`: for files that nobody needs afterwards."""
        self._folder, self._sets, self._states = folder, tuple(sets), tuple(states)
        self._environment = {**paths.environment_of_ours(), "XDG_STATE_HOME": str(folder / "state")}
        self.seen: list[Seen] = []
        """Of observed runs."""
        # what was measured on this machine is known; timers and lists of the user are left alone
        (folder / "state/assistant").mkdir(parents=True)
        with contextlib.suppress(OSError):
            shutil.copy(paths.state_dir() / "measured.json", folder / "state/assistant")

    def ours(self, one: Utterance, *, observed: bool = False) -> dict[str, Taken]:
        """Raises `EngineFailed`."""
        files = written(one, self._folder)
        order = Order(question=str(files.whole), before=str(files.half), sets=self._sets, states=self._states)
        told, readings = self._run("assistant.bench.e2e_child", [msgspec.json.encode(order).decode()], observed)
        answers = msgspec.json.decode(told, type=Answers)
        found = {}
        for state, answered in answers.states.items():
            during = between(readings, answered.began_s, answered.ended_s)
            if observed:
                self.seen.append(Seen(state=state, utterance=one, answered=answered, readings=during))
            found[state] = of_ours(one, answered, answers.pressed, peak(during))
        return found

    def naive(self, one: Utterance, state: str, *, observed: bool = False) -> Taken:
        """Raises `EngineFailed`."""
        files = written(one, self._folder)
        warm = ["--warm", str(files.half)] if state == "warm" else []
        told, readings = self._run("assistant.bench.naive", [str(files.cut), *warm], observed)
        naive = msgspec.json.decode(told, type=Told)
        return of_naive(one, naive, peak(between(readings, naive["began_ns"] / 1e9, naive["ended_ns"] / 1e9)))

    def _run(self, module: str, arguments: Sequence[str], observed: bool) -> tuple[str, list[Reading]]:
        command = [sys.executable, "-m", module, *arguments]
        readings: list[Reading] = []
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self._environment, cwd=paths.checkout(),
        ) as child:  # fmt: skip
            try:
                with TreeLog(child.pid) if observed else contextlib.nullcontext() as log:
                    out, errors = child.communicate(timeout=_TIMEOUT_S)
            except BaseException as error:
                child.kill()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise EngineFailed(f"{module} did not answer within {_TIMEOUT_S} s") from None
                raise
            readings = log.readings if log is not None else []
        last = out.strip().rpartition("\n")[2]
        if child.returncode != 0 or not last.startswith("{"):
            said = errors.strip().rpartition("\n")[2] or last or "no output"
            raise EngineFailed(f"{module} failed ({child.returncode}): {said.removeprefix('error: ')}")
        return last, readings


def of_ours(one: Utterance, answered: Answered, pressed: Sequence[str] = (), peak_mib: float = 0.0) -> Taken:
    """Counts from when the silence had been spoken, whether we noticed it in time or not."""
    report = answered.report
    silence_ms = (one.decided_s - one.speech_end_s) * 1000
    after_speech_ms = (answered.first_audio_s - answered.began_s - one.speech_end_s) * 1000
    failed = report.error is not None or not answered.first_audio_s
    timings, guesses = report.timings_ms, [event for event in answered.events if event.name == "stt-speculation"]
    loads = {f"{stage.name}_load": stage.load_ms for stage in report.stages if stage.load_ms}
    stages = {"asr": timings.asr, "intent": timings.intent, **loads}
    if report.outcome == "answered":
        stages["llm_first_token"] = timings.llm_first_token
    stages["tts_first_audio"] = timings.tts_first_audio
    return Taken(
        file=one.file.name,
        outcome="failed" if failed else str(report.outcome),
        code=report.error.code if report.error is not None else "no-sound" if failed else "",
        first_audio_ms=0.0 if failed else round(after_speech_ms - silence_ms, 1),
        with_silence_ms=0.0 if failed else round(after_speech_ms, 1),
        silence_ms=round(silence_ms, 1),
        stages=stages,
        tokens_per_s=_tokens_per_s(answered),
        peak_mib=peak_mib,
        mode=report.memory.mode,
        speculations=tuple(bool(event.data["hit"]) for event in guesses),
        drafts=sum(bool(event.data["hit"] and event.data.get("answer")) for event in guesses),
        pressed=tuple(pressed),
        transcript=report.transcript,
        reply=report.reply,
    )


def of_naive(one: Utterance, told: Told, peak_mib: float = 0.0) -> Taken:
    """It is handed the recording when speech ends, without a silence."""
    spoke = told["first_audio_ms"] > 0
    return Taken(
        file=one.file.name,
        outcome="answered" if spoke else "failed",
        code="" if spoke else "no-sound",
        first_audio_ms=told["first_audio_ms"],
        with_silence_ms=told["first_audio_ms"],
        stages=told["stages"],
        peak_mib=peak_mib,
        transcript=told["transcript"],
        reply=told["reply"],
    )


def _tokens_per_s(answered: Answered) -> float:
    for event in answered.events:
        if event.name == "llm-end" and event.data.get("decode_ms") and event.data.get("new_tokens", 0) > 1:
            return round(float((event.data["new_tokens"] - 1) / event.data["decode_ms"] * 1000), 1)
    return 0.0


def between(readings: Sequence[Reading], began_s: float, ended_s: float) -> list[Reading]:
    """Those that were made, in part at least, between two moments (monotonic seconds)."""
    return [one for one in readings if one.end_ns >= began_s * 1e9 and one.begin_ns <= ended_s * 1e9]


def peak(readings: Sequence[Reading]) -> float:
    """MiB of PSS, all processes together; 0 of none."""
    return round(max((one.total for one in readings), default=0) / _MIB, 1)
