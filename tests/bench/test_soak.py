"""Growth: the arithmetic, and the bench on a real daemon with a few queries."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from assistant.bench import soak
from assistant.bench.soak import Point, slope
from assistant.model_store.store import ModelInfo


def points(*totals: float) -> list[Point]:
    return [Point(queries=50 * n, processes={"daemon": one}, total_mib=one) for n, one in enumerate(totals, 1)]


def test_the_slope_is_told_for_100_queries() -> None:
    assert slope(points(40, 41, 42)) == pytest.approx(2)
    assert slope(points(40, 40, 40)) == 0
    assert slope(points(40)) == 0


@pytest.mark.alone("of pages that others map too, a part is counted")
@pytest.mark.engine
@pytest.mark.timeout(90)
def test_a_daemon_is_read_idle_and_loaded(
    model: Callable[[str], ModelInfo], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium"):
        model(name)
    soak.main(["--queries", "10", "--every", "10", "--json"])  # ten queries say nothing of growth: any exit status
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == {}
    assert [one["queries"] for one in found["idle"]] == [0, 10]
    for one in found["idle"]:
        assert set(one["processes"]) == {"daemon", "fork server"}
        assert 20 < one["total_mib"] <= soak.IDLE_TARGET_MIB
    (loaded,) = found["loaded"]
    assert set(loaded["processes"]) == {"daemon", "fork server", "asr", "intent", "llm", "tts"}
    assert loaded["total_mib"] == pytest.approx(sum(loaded["processes"].values()), abs=0.1)
    assert loaded["total_mib"] > found["idle"][1]["total_mib"] + 150
