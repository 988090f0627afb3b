"""The error tree: complete in its own drawing, and stable on the wire."""

from __future__ import annotations

import re

import pytest

from assistant import errors
from assistant.errors import AssistantError, BusyNow, NeverFits, StageError, by_name

ALL = sorted(errors._tree(AssistantError).items())


def test_the_drawing_at_the_top_names_every_error() -> None:
    drawn = set(re.findall(r"^ +(?:[*x] )?([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE))
    assert {name for name, _ in ALL} == drawn


@pytest.mark.parametrize(("name", "kind"), ALL)
def test_an_error_survives_the_way_from_a_worker(name: str, kind: type[AssistantError]) -> None:
    assert by_name(name) is kind
    error = kind("what happened", stage="llm")
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", error.code)
    assert set(error.to_dict()) - {"status"} == {"code", "message", "stage", "retryable", "retry_after_ms"}


def test_names_that_are_not_ours_become_a_stage_error() -> None:
    assert by_name("SystemExit") is StageError


def test_busy_says_so_in_http_terms_and_never_fits_does_not() -> None:
    assert BusyNow("wait", retry_after_ms=5).to_dict()["status"] == 429
    assert "status" not in NeverFits("no").to_dict()
    assert (BusyNow.exit_code, NeverFits.exit_code) == (4, 5)
