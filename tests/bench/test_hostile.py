"""The hostile benchmark on a real daemon, with a few hundred messages."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from assistant.bench import hostile
from assistant.bench.hostile import Hostile
from assistant.model_store.store import ModelInfo


@pytest.mark.parametrize(
    "wrong", [{"unanswered": 1}, {"handled": False}, {"errors": {"internal": 1}}, {"growth_mib": 4.0}]
)
def test_each_target_counts(wrong: dict[str, object]) -> None:
    good: dict[str, object] = {
        "messages": 32, "errors": {"bad-message": 32}, "unanswered": 0, "handled": True, "seconds": 1.0,
        "status_p50_ms": 1.0, "status_p99_ms": 2.0, "growth_mib": 0.5,
    }  # fmt: skip
    assert Hostile(**good).reached  # type: ignore[arg-type]
    assert not Hostile(**(good | wrong)).reached  # type: ignore[arg-type]


@pytest.mark.engine
@pytest.mark.timeout(90)
def test_each_message_gets_its_error(model: Callable[[str], ModelInfo], capsys: pytest.CaptureFixture[str]) -> None:
    model("smollm2-135m-instruct")  # not asked, but looked for
    hostile.main(["--messages", "640", "--json"])  # so few say nothing of memory: any exit status
    found = json.loads(capsys.readouterr().out)
    assert (found["messages"], found["unanswered"], found["handled"]) == (640, 0, True)
    assert sum(found["errors"].values()) == 640
    assert {"bad-message", "unknown-command"} <= set(found["errors"])
    assert found["status_p50_ms"] > 0
