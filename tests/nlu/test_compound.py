"""Where a sentence is cut into requests, and where it is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.messages import IntentMatch
from assistant.nlu.compound import MAX_CUTS, requests

COMMANDS: dict[str, tuple[str, float, dict[str, str | int | float]]] = {
    "play some jazz": ("HassMediaSearchAndPlay", 0.9, {"search_query": "jazz"}),
    "play rock and roll": ("HassMediaSearchAndPlay", 0.9, {"search_query": "rock and roll"}),
    "play rock": ("HassMediaSearchAndPlay", 0.9, {"search_query": "rock"}),
    "turn on the lamp": ("HassTurnOn", 1.0, {"name": "lamp"}),
    "lock the door": ("HassTurnOn", 0.95, {"name": "door"}),
    "add eggs": ("HassShoppingListAddItem", 0.9, {"item": "eggs"}),
    "set a timer for one hour and thirty minutes": ("HassStartTimer", 1.0, {"hours": 1, "minutes": 30}),
    "set a timer for one hour": ("HassStartTimer", 1.0, {"hours": 1}),
    "it is dark in the hall, make it brighter": ("HassLightSet", 0.9, {"brightness_step": "up", "area": "hall"}),
    "it is dark in the hall": ("HassLightSet", 0.9, {"brightness_step": "up", "area": "hall"}),
    "make it brighter": ("HassLightSet", 0.95, {"brightness_step": "up"}),
    "next song": ("HassMediaNext", 1.0, {}),
    "no eggs are left, add them": ("HassShoppingListAddItem", 0.9, {"item": "eggs"}),
    "no eggs are left": ("HassShoppingListCompleteItem", 0.9, {"item": "eggs"}),
    "add them": ("HassShoppingListAddItem", 0.9, {"item": "them"}),
    "thirty minutes": ("HassStartTimer", 0.8, {"minutes": 30}),
    "播放周杰伦的七里香": ("HassMediaSearchAndPlay", 0.9, {"search_query": "周杰伦的七里香"}),
    "아이유 노래 틀어줘": ("HassMediaSearchAndPlay", 0.9, {"search_query": "아이유 노래"}),
}


def one(text: str) -> IntentMatch:
    if text not in COMMANDS:
        return IntentMatch(name=None, text=text)
    name, score, slots = COMMANDS[text]
    return IntentMatch(
        name=name,
        score=score,
        slots=dict(slots),
        source="template" if score in (0.9, 1.0) else "classifier",
        text=text,
    )


def cut(text: str, language: str = "en") -> list[str]:
    return [part.text for part in requests(text, one, language)]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("play some jazz and tell me who invented it", ["play some jazz", "tell me who invented jazz"]),
        ("turn on the lamp and then play some jazz", ["turn on the lamp", "play some jazz"]),
        ("turn on the lamp, lock the door and play some jazz", ["turn on the lamp", "lock the door", "play some jazz"]),
        ("tell me a joke and turn on the lamp", ["turn on the lamp", "tell me a joke"]),
        ("turn on the lamp. What is the capital of France?", ["turn on the lamp", "What is the capital of France"]),
        ("turn on the lamp and what is two and two", ["turn on the lamp", "what is two and two"]),
        ("play rock and roll and turn on the lamp", ["play rock and roll", "turn on the lamp"]),
        (
            "play some jazz and tell me its story and who made it",
            ["play some jazz", "tell me its story and who made jazz"],
        ),
    ],
)
def test_two_requests_are_two(text: str, parts: list[str]) -> None:
    assert cut(text) == parts


@pytest.mark.parametrize(
    "text",
    [
        "set a timer for one hour and thirty minutes",
        "play rock and roll",
        "add eggs and bacon",
        "what happens if i turn on the lamp and lock the door",
        "who are simon and garfunkel",
        "should i lock the door and turn on the lamp",
        "and",
        "and and and",
        "turn on the lamp and",
        "",
        "fish and chips " * 2000,
    ],
)
def test_one_request_stays_one(text: str) -> None:
    assert cut(text) == [text]


def test_requests_in_other_languages() -> None:
    assert cut("播放周杰伦的七里香并告诉我这首歌的创作背景", "zh-CN") == [
        "播放周杰伦的七里香",
        "告诉我周杰伦的七里香的创作背景",
    ]
    assert cut("아이유 노래 틀고 이 노래 이야기 알려줘", "ko") == ["아이유 노래 틀어줘", "아이유 노래 이야기 알려줘"]
    assert cut("turn on the lamp and lock the door", "xx") == ["turn on the lamp and lock the door"]


def test_a_question_comes_last_and_has_no_name() -> None:
    *commands, question = requests("tell me a joke and turn on the lamp", one)
    assert [part.name for part in commands] == ["HassTurnOn"]
    assert question.name is None


def test_it_stays_where_two_things_were_named() -> None:
    text = "play some jazz and play rock and tell me who made it"
    assert cut(text)[-1] == "tell me who made it"


def test_a_long_row_of_commands_costs_little() -> None:
    asked = 0

    def counted(text: str) -> IntentMatch:
        nonlocal asked
        asked += 1
        return one(text)

    requests(" and ".join(["fish and chips"] * 12), counted)
    assert asked <= 1 + 2 * 2 * MAX_CUTS


@given(
    st.lists(st.sampled_from([*COMMANDS, "and", ",", "tell me", "what is", "then", "并", "."]), max_size=8).map(
        " ".join
    )
)
def test_nothing_is_lost(text: str) -> None:
    found = requests(text, one)
    assert found
    assert sum(part.name is None for part in found) <= 1


def test_a_wish_with_its_reason_is_done_once_and_what_is_said_plainly_twice_is_done_twice() -> None:
    assert cut("it is dark in the hall, make it brighter") == ["it is dark in the hall, make it brighter"]
    assert cut("next song and next song") == ["next song", "next song"]
    assert cut("it is dark in the hall, turn on the lamp") == ["it is dark in the hall", "turn on the lamp"]


def test_what_only_points_back_is_no_request_of_its_own() -> None:
    assert cut("no eggs are left, add them") == ["no eggs are left, add them"]
    assert cut("turn on the lamp and add them") == ["turn on the lamp", "add them"]


def test_no_sentence_is_looked_at_twice() -> None:
    asked: list[str] = []

    def counted(text: str) -> IntentMatch:
        asked.append(text)
        return one(text)

    for text in ("it is dark in the hall", "who was that", "play some jazz and lock the door"):
        asked.clear()
        requests(text, counted)
        assert sorted(asked) == sorted(set(asked))
        assert text in asked
