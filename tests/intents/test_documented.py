"""What docs/intents.md promises: every sentence of its table, its settings, its file of the user's own."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assistant import config as settings
from assistant.bench import intents
from assistant.config_sections import House
from assistant.messages import IntentMatch, IntentRequest
from assistant.nlu.vocabulary import INTENTS

TEXT = (Path(__file__).parents[2] / "docs/intents.md").read_text("utf-8")
ROWS: dict[str, list[str]] = {
    name: re.findall(r'"([^"]+)"', rest) for name, rest in re.findall(r"^\| `(\w+)` \|(.*)\|$", TEXT, re.M)
}
pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]


def block(kind: str) -> str:
    (found,) = re.findall(rf"```{kind}\n(.*?)```", TEXT, re.S)
    return str(found)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """With the house and the file of the page."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "en").mkdir()
    (folder / "en/own.yaml").write_text(block("yaml"))
    house = msgspec.convert(tomllib.loads(block("toml"))["house"], House)
    spec = intents.spec_of(settings.load(), house)
    loaded = intents.loaded(replace(spec, options={**(spec.options or {}), "folders": [str(folder)]}))
    yield loaded
    loaded.close()


def ask(engine: Any, text: str) -> list[IntentMatch]:
    return list(engine.run(IntentRequest(text=text)))


def test_every_intent_has_two_sentences_and_each_of_them_is_understood(engine: Any) -> None:
    assert set(ROWS) == set(INTENTS)
    assert {len(sentences) for sentences in ROWS.values()} == {2}
    understood = {text: [one.name for one in ask(engine, text)] for texts in ROWS.values() for text in texts}
    assert understood == {text: [name] for name, texts in ROWS.items() for text in texts}


def test_a_file_of_the_users_own_does_what_the_page_says(engine: Any) -> None:
    assert engine.info.notes == ()
    for text, name, slots in (
        ("let there be coffee", "HassTurnOn", {"name": "coffee machine"}),
        ("feed the kitty a little", "FeedCat", {"portion": "a little"}),
        ("give the cat a lot", "FeedCat", {"portion": "a lot"}),
        ("the dog needs a walk", "WalkDog", {}),
        ("take the dog out", "WalkDog", {}),
        ("can somebody walk the dog", "WalkDog", {}),
    ):
        (match,) = ask(engine, text)
        assert (text, match.name, match.slots) == (text, name, slots)
    for text in ("how many legs has a dog", "what do cats eat", "what is coffee"):
        assert [one.name for one in ask(engine, text)] == [None]


def test_the_requests_of_the_page_are_told_apart(engine: Any) -> None:
    first, second = ask(engine, "turn on the desk lamp and play some jazz")
    assert (first.name, second.name) == ("HassTurnOn", "HassMediaSearchAndPlay")
    play, question = ask(engine, "play some jazz and tell me who invented it")
    assert (play.slots, question.name, question.text) == ({"search_query": "jazz"}, None, "tell me who invented jazz")
