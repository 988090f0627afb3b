"""More than the machine can answer: the arithmetic, and the bench on a real daemon for three seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from assistant.bench import load
from assistant.bench.load_clients import Asked
from assistant.bench.observer import Held, Reading
from assistant.model_store.store import ModelInfo

MIB = 2**20


def reading(at_s: float, mib: float) -> Reading:
    return Reading(int(at_s * 1e9), int(at_s * 1e9), {1: Held(anon=int(mib * MIB))})


def asked(ms: float, code: str = "", taken: bool = True) -> Asked:
    return Asked(sent=1.0, taken=taken, ended=1.0 + ms / 1000, code=code)


def test_everything_that_was_sent_is_answered_refused_or_lost() -> None:
    found = load.judged(
        [asked(100), asked(120), asked(1, "busy", taken=False), asked(3, "busy"), asked(5, "stage-died"), Asked(1.0)],
        [reading(0.5, 10), reading(11, 100), reading(12, 102), reading(13, 101)],
        began_ns=10 * 10**9,
        kills=0,
    )
    assert (found.sent, found.accepted, found.refused, found.lost) == (6, 2, 2, 2)
    assert (found.accepted_ms.p50, found.accepted_ms.p99) == (100, 120)
    assert (found.refusal_ms.p50, found.refusal_ms.p99) == (1, 3)
    memory = found.memory_mib
    assert (memory.start, memory.max, memory.end) == (100, 102, 101)
    assert not found.reached


@pytest.mark.parametrize(
    ("answers", "refusals", "held", "kills", "reached"),
    [
        ([100, 140], [1, 19], [100, 102.9, 98], 0, True),
        ([100, 151], [1], [100, 100], 0, False),
        ([100] * 28 + [200], [1], [100, 100], 0, True),  # few: the slowest in ten is judged
        ([100] * 29 + [200], [1], [100, 100], 0, False),
        ([100] * 25 + [200] * 4, [1], [100, 100], 0, False),
        ([100], [21], [100, 100], 0, False),
        ([100], [1], [100, 103.1, 100], 0, False),
        ([100], [1], [100, 96.9], 0, False),
        ([100], [1], [100, 100], 1, False),
        ([], [], [100], 0, True),
    ],
)
def test_the_targets(answers: list[float], refusals: list[float], held: list[float], kills: int, reached: bool) -> None:
    told = [asked(one) for one in answers] + [asked(one, "busy", taken=False) for one in refusals]
    found = load.judged(told, [reading(11 + at, mib) for at, mib in enumerate(held)], 10 * 10**9, kills)
    assert found.reached is found.met is reached
    assert [one.met for one in found.targets].count(False) == (not reached)
    assert ("p90 (fewer than 30)" in load.table(found)) == (len(answers) < 30)


def test_percentiles() -> None:
    assert [load.percentile(range(1, 101), one) for one in (50, 99, 100)] == [50, 99, 100]
    assert (load.percentile([7], 50), load.percentile([], 99)) == (7, 0)


def test_kills_are_the_kernels_count(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("pgfault 3\noom_kill 4\n")
    assert load.oom_kills(tmp_path / "vmstat") == 4
    (tmp_path / "vmstat").write_text("pgfault 3\n")
    assert load.oom_kills(tmp_path / "vmstat") == 0


@pytest.mark.parametrize("args", [["--clients", "0"], ["--rate", "-1"], ["--seconds", "nan"], ["--rate", "x"]])
def test_what_is_no_load_is_refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load.main(args)
    assert caught.value.code == 2
    assert args[0] in capsys.readouterr().err


@pytest.mark.alone("refuses within 100 ms")
@pytest.mark.engine
@pytest.mark.timeout(90)
def test_a_real_daemon_answers_or_refuses_every_question(
    model: Callable[[str], ModelInfo], capsys: pytest.CaptureFixture[str]
) -> None:
    model("smollm2-135m-instruct")
    # on a busy machine the targets may be missed
    load.main(["--seconds", "1.5", "--rate", "20", "--json", "--set", "stages.llm.max_new_tokens=24"])
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {
        "sent", "accepted", "refused", "lost", "refusal_ms", "accepted_ms", "memory_mib", "oom_kills", "met",
        "targets",
    }  # fmt: skip
    assert (found["sent"], found["lost"], found["oom_kills"]) == (30, 0, 0)
    assert found["accepted"] >= 9, "one that is answered, and eight that wait"
    assert found["accepted"] + found["refused"] == 30
    assert set(found["memory_mib"]) == {"start", "max", "end"}
    assert found["accepted_ms"]["p99"] >= found["accepted_ms"]["p50"] > 0
    assert found["refusal_ms"]["p50"] < 100


@pytest.mark.alone("within 50 ms")
@pytest.mark.engine
@pytest.mark.timeout(60)
def test_status_is_answered_while_the_model_writes(
    model: Callable[[str], ModelInfo], capsys: pytest.CaptureFixture[str]
) -> None:
    model("smollm2-135m-instruct")
    load.main(["--status", "--seconds", "3", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["samples"] > 50
    assert found["answers"] >= 1
    assert 0 < found["status_ms"]["p50"] < 50
