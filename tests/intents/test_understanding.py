"""The intent stage on the labelled sentences, and on recordings of commands: the figures that it has to reach."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from assistant import config as settings
from assistant.bench import intents, intents_speech
from assistant.nlu.vocabulary import INTENTS

HERE = Path(__file__).parent
TRAINING = HERE.parents[1] / "assistant/training/data"
pytestmark = [pytest.mark.engine, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def seen() -> dict[str, list[intents.Seen]]:
    """By file of sentences."""
    engine = intents.loaded(intents.spec_of(settings.load(), intents.house_of(HERE)))
    try:
        return {
            name: intents.measured(intents.read_lines(HERE / name), engine) for name in ("templates.tsv", *intents.FREE)
        }
    finally:
        engine.close()


def plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w ]", "", text.lower()).split())


def unknown(found: list[intents.Seen]) -> list[intents.Seen]:
    """Without those that the sentences to train with have word for word: "lights out" comes to many minds."""
    files = [path for path in TRAINING.iterdir() if path.suffix in (".tsv", ".txt")]
    trained = {plain(row.partition("\t")[0]) for path in files for row in path.read_text("utf-8").splitlines()}
    assert len(trained) > 5000
    return [one for one in found if plain(one.line.text) not in trained]


def wrong(found: list[intents.Seen]) -> list[str]:
    """What to look at when a figure is not reached."""
    return [f"{one.line.text} -> {one.match.name} {one.match.slots}" for one in found if not one.slots]


def test_sentences_of_the_templates(seen: dict[str, list[intents.Seen]]) -> None:
    figures = intents.intent_figures(seen["templates.tsv"])
    assert figures["n"] >= 500
    assert figures["intent_acc"] >= 0.99, wrong(seen["templates.tsv"])
    assert figures["slot_acc"] >= 0.99, wrong(seen["templates.tsv"])


def test_what_people_say_in_their_own_words(seen: dict[str, list[intents.Seen]]) -> None:
    found = seen["paraphrases.tsv"]
    figures = intents.intent_figures(found)
    assert figures["n"] >= 400
    assert set(INTENTS) == {one.line.intent for one in found}
    assert figures["intent_acc"] >= 0.95, wrong(found)
    assert figures["slot_acc"] >= 0.90, wrong(found)


def test_the_figures_hold_without_what_training_has_word_for_word(seen: dict[str, list[intents.Seen]]) -> None:
    commands, others = unknown(seen["paraphrases.tsv"]), unknown(seen["out_of_domain.tsv"])
    figures = intents.intent_figures(commands)
    assert figures["n"] >= 400
    assert figures["intent_acc"] >= 0.95, wrong(commands)
    assert figures["slot_acc"] >= 0.90, wrong(commands)
    assert sum(not one.intent for one in others) <= 0.02 * len(others), wrong(others)


def test_no_intent_is_left_behind(seen: dict[str, list[intents.Seen]]) -> None:
    found = seen["paraphrases.tsv"]
    right = Counter(one.line.intent for one in found if one.intent)
    of = Counter(one.line.intent for one in found)
    assert {intent: right[intent] / of[intent] for intent in of if right[intent] / of[intent] < 0.7} == {}


def test_questions_full_of_the_words_of_commands_are_no_commands(seen: dict[str, list[intents.Seen]]) -> None:
    found = seen["out_of_domain.tsv"]
    assert len(found) >= 300
    assert {one.line.intent for one in found} == {intents_speech.OUT_OF_DOMAIN}
    taken = [one for one in found if not one.intent]
    assert len(taken) / len(found) <= 0.02, wrong(found)


def test_after_real_speech_recognition(speech: Path) -> None:
    found = intents.by_ear(speech)
    figures = intents_speech.figures(found)
    missed = [(one.meant.file, one.text) for one in found if not one.acted]
    assert figures["n"] >= 25
    assert figures["acted"] >= 0.85, missed
    others = [one for one in found if one.meant.intent == intents_speech.OUT_OF_DOMAIN]
    assert len(others) >= 5
    assert all(one.acted for one in others)
