"""How a model is judged: temperature, threshold, figures; and the labelled sentences that the tests measure with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from assistant.nlu.vocabulary import INTENTS
from assistant.training import labelled
from assistant.training.corpora import NONE, Labelled
from assistant.training.judge import best_temperature, confusions, decided, figures, probabilities, threshold_for

CLASSES = (NONE, "light", "timer")
LINES = [Labelled("on", "light"), Labelled("ten minutes", "timer"), Labelled("why", NONE), Labelled("who", NONE)]
ODDS = np.array([[0.1, 0.8, 0.1], [0.2, 0.5, 0.3], [0.3, 0.1, 0.6], [0.9, 0.05, 0.05]], np.float32)


def test_probabilities_are_shares_and_a_higher_temperature_levels_them() -> None:
    logits = np.array([[4.0, 0.0, 0.0], [0.0, 1.0, 0.0]], np.float32)
    sharp, level = probabilities(logits, 0.5), probabilities(logits, 2.0)
    assert sharp.sum(1) == pytest.approx(1)
    assert level.sum(1) == pytest.approx(1)
    assert sharp[0, 0] > level[0, 0] > 1 / 3


def test_the_temperature_follows_how_often_it_is_right() -> None:
    logits = np.array([[3.0, 0.0, 0.0]] * 10, np.float32)
    sure = best_temperature(logits, np.zeros(10, np.int64))
    doubtful = best_temperature(logits, np.array([0] * 6 + [1] * 4, np.int64))
    assert sure < 0.5 < 1.5 < doubtful


def test_below_the_threshold_it_is_no_command() -> None:
    assert decided(ODDS, CLASSES, 0.4) == ["light", "light", "timer", NONE]
    assert decided(ODDS, CLASSES, 0.7) == ["light", NONE, NONE, NONE]


def test_figures_tell_commands_from_others() -> None:
    found = figures(LINES, ODDS, CLASSES, 0.4)
    assert found == {"commands": 2, "intent_acc": 0.5, "others": 2, "false_accept": 0.5}
    assert figures([], ODDS[:0], CLASSES, 0.4)["intent_acc"] == 0
    assert confusions(LINES, ODDS, CLASSES, 0.4) == ["1 x timer -> light", f"1 x {NONE} -> timer"]


def test_the_threshold_lets_no_more_others_through_than_are_accepted() -> None:
    none_allowed = threshold_for(LINES, ODDS, CLASSES, 0.0)
    assert figures(LINES, ODDS, CLASSES, none_allowed)["false_accept"] == 0
    assert none_allowed == pytest.approx(0.605)
    assert threshold_for(LINES, ODDS, CLASSES, 0.5) == 0.3  # half of them may pass: nothing stands in the way


def test_labelled_sentences_have_an_intent_and_slots_and_are_the_same_each_time(tmp_path: Path) -> None:
    written, again = tmp_path / "templates.tsv", tmp_path / "again.tsv"
    assert labelled.main([str(written)]) == 0
    assert labelled.main([str(again)]) == 0
    text = written.read_text("utf-8")
    assert text == again.read_text("utf-8")
    # what is measured with is what the templates say today: write it anew when this fails
    assert text == (Path(__file__).parents[1] / "intents/templates.tsv").read_text("utf-8")
    comment, *lines = text.splitlines()
    assert comment.startswith("# By assistant.training.labelled")
    parts = [line.split("\t") for line in lines]
    assert {intent for _, intent, _ in parts} == set(INTENTS)
    assert len({sentence for sentence, _, _ in parts}) == len(parts)
    assert all(isinstance(json.loads(slots), dict) for _, _, slots in parts)
    started = [json.loads(slots) for _, intent, slots in parts if intent == "HassStartTimer"]
    assert any("minutes" in slots or "hours" in slots or "seconds" in slots for slots in started)
