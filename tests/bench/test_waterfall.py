"""The plot of a query: spans from its events, one panel for each, and no way out of the document."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from assistant.bench import waterfall
from assistant.bench.e2e_child import Work
from assistant.bench.waterfall import Span
from assistant.errors import UsageError
from tests.bench.e2e_runs import seen


def test_spans_count_from_the_end_of_speech() -> None:
    assert waterfall.spans_of(seen()) == [
        Span("speech", "speech", -1000, 0),
        Span("silence", "silence", 0, 700),
        Span("ASR load", "asr", -1000, -800, is_load=True),
        Span("ASR", "asr", 300, 600),
        Span("intent", "intent", 600, 620),
        Span("LLM load", "llm", -1000, -500, is_load=True),
        Span("LLM reads ahead", "llm", -500, -100),
        Span("LLM first token", "llm", 800, 900),
        Span("LLM goes on", "llm", 900, 1000),
        Span("TTS first audio", "tts", 1000, 1100),  # its load never ended
        Span("TTS goes on", "tts", 1100, 1600),
        Span("playing", "playing", 1100, 1600),
    ]


def test_guesses_that_were_dropped_are_drawn_in_the_same_rows() -> None:
    one = seen()
    dropped = Work(stage="asr", begun_s=100.7, first_s=0, ended_s=100.8)
    again = msgspec.structs.replace(one.answered, work=[*one.answered.work, dropped])
    asr = [span for span in waterfall.spans_of(msgspec.structs.replace(one, answered=again)) if span.row == "ASR"]
    assert [(span.begin_ms, span.end_ms) for span in asr] == [(-300, -200), (300, 600)]


def test_a_query_that_failed_early_is_drawn_as_far_as_it_came() -> None:
    one = seen()
    cut = msgspec.structs.replace(one.answered, events=one.answered.events[:3], work=[], first_audio_s=0)
    rows = [span.row for span in waterfall.spans_of(msgspec.structs.replace(one, answered=cut))]
    assert rows == ["speech", "silence", "ASR load"]


def test_the_document_has_bars_marks_and_the_memory_of_each_stage() -> None:
    root = ElementTree.fromstring(waterfall.plot([seen(), seen("warm")]))
    tags = [node.tag.rpartition("}")[2] for node in root.iter()]
    words = " ".join(node.text or "" for node in root.iter())
    assert "script" not in tags
    assert tags.count("polygon") == 6  # base, asr, llm; twice
    assert "first audio +400 ms" in words
    assert "peak 300 MiB" in words
    assert "cold: " in words
    assert "warm: " in words
    assert float(root.get("height", "0")) > 500


def test_bars_stay_inside_the_page() -> None:
    root = ElementTree.fromstring(waterfall.plot([seen()]))
    for bar in root.iter("{http://www.w3.org/2000/svg}rect"):
        if bar.get("x"):
            assert 150 <= float(bar.get("x", "0")) <= 960 - 20
            assert float(bar.get("x", "0")) + float(bar.get("width", "0")) <= 960 - 19


def test_few_queries_are_drawn_those_with_nothing_loaded_first() -> None:
    picked = waterfall.chosen([seen(state) for state in ("cold", "warm") * 5])
    assert [one.state for one in picked] == ["cold", "cold", "cold", "warm"]


def test_a_plot_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        waterfall.write_plot(tmp_path / "none/plot.svg", [seen()])
