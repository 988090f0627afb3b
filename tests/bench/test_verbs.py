"""What all benchmarks have in common: help under their own names, wrong options refused; the smallest, run."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable

import pytest

from assistant.bench import llm_start
from assistant.cli_bench import BENCHES
from assistant.model_store.store import ModelInfo

NAMES = sorted(BENCHES)


@pytest.mark.parametrize("name", NAMES)
def test_help_names_the_verb(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main = importlib.import_module(f"assistant.bench.{BENCHES[name][0]}").main
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr()
    assert told.out.startswith(f"usage: assistant bench {name} ")
    assert told.err == ""


@pytest.mark.parametrize("name", NAMES)
def test_an_option_that_there_is_not_is_a_wrong_call(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main = importlib.import_module(f"assistant.bench.{BENCHES[name][0]}").main
    with pytest.raises(SystemExit) as ended:
        main(["--no-such-option"])
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "usage: assistant bench" in told.err


@pytest.mark.engine
def test_the_start_of_the_llm_is_measured(
    model: Callable[[str], ModelInfo], capsys: pytest.CaptureFixture[str]
) -> None:
    model("smollm2-135m-instruct")
    llm_start.main(["--runs", "1", "--json"])  # how fast this machine is decides the exit status
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["fork_and_import_ms"] < found["first_logits_ms"]
    assert 0 < found["load_ms"] < found["first_logits_ms"]
    assert found["anon_mib"] > 10
