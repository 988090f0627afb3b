"""The shopping list: what is said of it, and its file."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assistant import skills
from assistant.skills import Context, Missing
from assistant.skills.shopping import MOST_ITEMS, FileList


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "shopping.json"


def said(path: Path, intent: str, **slots: Any) -> str:
    """By a list of its own each time: the file is all there is."""
    context = Context(now=datetime(2026, 11, 29), shopping=FileList(path))
    reply = asyncio.run(skills.answer(intent, slots, context))
    assert reply is not None
    return reply


def test_a_list_from_the_first_item_to_the_last(path: Path) -> None:
    assert said(path, "AssistantShoppingListRead") == "Your shopping list is empty."
    assert said(path, "HassShoppingListAddItem", item="milk") == "Milk is on your shopping list."
    assert said(path, "HassShoppingListAddItem", item="the Milk") == "The Milk is on your shopping list already."
    assert said(path, "HassShoppingListAddItem", item="a dozen eggs and some bacon") == (
        "A dozen eggs and bacon are on your shopping list."
    )
    said(path, "HassShoppingListAddItem", item="bread")
    assert said(path, "AssistantShoppingListRead") == ("On your shopping list: milk, a dozen eggs, bacon and bread.")
    assert said(path, "HassShoppingListCompleteItem", item="eggs") == ("Took a dozen eggs off your shopping list.")
    assert said(path, "HassShoppingListCompleteItem", item="butter") == "There is no butter on your shopping list."
    assert said(path, "AssistantShoppingListClear") == "Your shopping list is empty now."
    assert said(path, "AssistantShoppingListClear") == "Your shopping list was empty already."


def test_words_that_fit_two_items_take_none_off(path: Path) -> None:
    said(path, "HassShoppingListAddItem", item="oat milk")
    said(path, "HassShoppingListAddItem", item="soy milk")
    assert said(path, "HassShoppingListCompleteItem", item="milk") == "There is no milk on your shopping list."
    assert said(path, "HassShoppingListCompleteItem", item="soy milk") == "Took soy milk off your shopping list."


@pytest.mark.parametrize("intent", ["HassShoppingListAddItem", "HassShoppingListCompleteItem"])
@pytest.mark.parametrize("slots", [{}, {"item": "  "}, {"item": "\x00"}, {"item": 5}])
def test_what_is_asked_for(path: Path, intent: str, slots: dict[str, Any]) -> None:
    with pytest.raises(Missing) as caught:
        said(path, intent, **slots)
    assert caught.value.slot == "item"


@pytest.mark.parametrize("intent", ["HassShoppingListAddItem", "HassShoppingListCompleteItem"])
@pytest.mark.parametrize("item", ["a", "add a", "The", "put it", "take a", "some more", "add an item", "those"])
def test_words_that_name_nothing_are_no_item(path: Path, intent: str, item: str) -> None:
    with pytest.raises(Missing):
        said(path, intent, item=item)
    assert said(path, "AssistantShoppingListRead") == "Your shopping list is empty."


def test_of_several_things_those_that_are_named_are_taken(path: Path) -> None:
    assert said(path, "HassShoppingListAddItem", item="milk and a") == "Milk is on your shopping list."


@pytest.mark.parametrize("item", ["a one litre bottle", "7 up", "thé", "some of the good stuff", "우유"])
def test_words_that_name_something_among_them_are(path: Path, item: str) -> None:
    assert "on your shopping list" in said(path, "HassShoppingListAddItem", item=item)


def test_a_long_list_is_not_read_to_its_end(path: Path) -> None:
    for number in range(MOST_ITEMS):
        asyncio.run(FileList(path).add(f"thing {number}"))
    assert said(path, "AssistantShoppingListRead").endswith("thing 11 and 188 more.")
    assert said(path, "HassShoppingListAddItem", item="bread").startswith(f"There are {MOST_ITEMS} things")


def test_a_damaged_file_is_kept_and_the_list_begins_anew(path: Path) -> None:
    said(path, "HassShoppingListAddItem", item="milk")
    path.write_text('{"version": 1, "items": [5]}')
    assert said(path, "AssistantShoppingListRead") == "Your shopping list is empty."
    assert path.with_name("shopping.json.damaged-1").exists()
    assert said(path, "HassShoppingListAddItem", item="bread") == "Bread is on your shopping list."


def test_a_disk_that_takes_nothing_is_told(tmp_path: Path) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    for intent in ("HassShoppingListAddItem", "HassShoppingListCompleteItem", "AssistantShoppingListClear"):
        assert said(blocked / "list.json", intent, item="milk") == (
            "The shopping list cannot be read or written; the log says why."
        )


def test_a_disk_that_does_not_answer_is_waited_for_once(path: Path) -> None:
    async def test() -> None:
        shopping = FileList(path, disk_s=0.2)
        context = Context(now=datetime(2026, 11, 29), shopping=shopping)
        told, waited = [], []
        for intent in ("HassShoppingListAddItem", "HassShoppingListAddItem", "AssistantShoppingListRead"):
            begun = time.monotonic()
            told.append(await skills.answer(intent, {"item": "milk"}, context))
            waited.append(time.monotonic() - begun)
        assert {*told} == {"The shopping list cannot be read or written; its disk does not answer."}
        assert waited[0] > 0.15
        assert sum(waited[1:]) < 0.1
        path.write_text('{"version": 1, "items": ["eggs"]}')  # whoever waits has an end of the pipe
        await asyncio.sleep(0.1)
        assert await shopping.items()

    path.parent.mkdir()
    os.mkfifo(path)
    asyncio.run(test())


def _many(path: Path, who: int) -> None:
    for number in range(10):
        asyncio.run(FileList(path).add(f"{who} and {number}"))


def test_two_processes_lose_nothing_of_each_other(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ours = [context.Process(target=_many, args=(path, who)) for who in range(2)]
    for one in ours:
        one.start()
    for one in ours:
        one.join(15)
    assert len(asyncio.run(FileList(path).items())) == 20
