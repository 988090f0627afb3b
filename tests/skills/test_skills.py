"""The registry, and the clock's skills: what is said to reach them, and what they reply."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant import skills
from assistant.messages import IntentMatch, IntentRequest
from assistant.nlu.vocabulary import INTENTS
from assistant.skills import Context, Slots
from assistant.skills.registry import skill
from assistant.speech_text import speakable
from assistant.stages.base import EngineConfig
from assistant.stages.intent_templates import TemplateIntent

NOW = datetime(2026, 11, 29, 20, 5, 30)

# intent -> (what somebody says, when, what is replied)
CASES: dict[str, list[tuple[str, datetime, str]]] = {
    "HassGetCurrentTime": [
        ("What time is it?", NOW, "It is 8:05 PM."),
        ("tell me the time", NOW.replace(hour=0, minute=0), "It is 12:00 AM."),
        ("what's the time", NOW.replace(hour=12, minute=0), "It is 12:00 PM."),
        ("what time is it right now", NOW.replace(hour=9, minute=59), "It is 9:59 AM."),
    ],
    "HassGetCurrentDate": [
        ("What's the date?", NOW, "Today is Sunday, November 29."),
        ("what day is it today", NOW + timedelta(days=93), "Today is Tuesday, March 2."),
        ("what month is it", NOW, "It is November 2026."),
        ("what year is it", NOW, "It is the year 2026."),
        ("what's the date tomorrow", NOW, "Tomorrow is Monday, November 30."),
        ("what day was it yesterday", NOW, "Yesterday was Saturday, November 28."),
        ("What day is the day after tomorrow?", NOW, "The day after tomorrow is Tuesday, December 1."),
        ("the day before yesterday", NOW, "The day before yesterday was Friday, November 27."),
        ("tomorrow's date", NOW + timedelta(days=32), "Tomorrow is Friday, January 1."),
        ("what time and date is it", NOW, "It is 8:05 PM on Sunday, November 29."),
    ],
    "HassNevermind": [("never mind", NOW, "Okay."), ("Forget it.", NOW, "Okay.")],
}


@pytest.fixture(scope="module")
def engine() -> TemplateIntent:
    options = {"language": "en", "intents": list(skills.handled_intents())}
    engine = TemplateIntent(
        EngineConfig(model="en", model_dir=Path("/"), cache_dir=Path("/"), threads=1, options=options)
    )
    engine.load()
    return engine


def answer(intent: str, slots: Slots, now: datetime = NOW) -> str | None:
    return asyncio.run(skills.answer(intent, slots, Context(now=now)))


def test_every_intent_that_is_understood_has_an_answer() -> None:
    assert set(INTENTS) == set(skills.handled_intents())


@pytest.mark.parametrize(
    ("intent", "said", "now", "reply"), [(intent, *case) for intent, cases in CASES.items() for case in cases]
)
def test_what_is_said_reaches_its_skill(
    engine: TemplateIntent, intent: str, said: str, now: datetime, reply: str
) -> None:
    (match,) = engine.run(IntentRequest(text=said))
    assert isinstance(match, IntentMatch)
    assert match.name == intent
    assert answer(match.name, match.slots, now) == reply


def test_an_intent_without_a_skill_has_no_answer() -> None:
    assert answer("SomebodyElses", {"name": "lamp"}) is None


def test_an_intent_has_one_skill() -> None:
    async def other(slots: Slots, context: Context) -> str:
        return ""

    with pytest.raises(ValueError, match="HassNevermind"):
        skill("HassNevermind")(other)


@given(
    st.datetimes(datetime(1970, 1, 3), datetime(9999, 12, 29)),
    st.sampled_from(sorted(CASES)),
    st.dictionaries(
        st.sampled_from(["part", "offset_days"]), st.sampled_from(["time"]) | st.text() | st.integers(-3, 3)
    ),
)
def test_a_reply_is_a_short_sentence_at_any_time(
    now: datetime, intent: str, slots: dict[str, str | int | float]
) -> None:
    reply = answer(intent, slots, now)
    assert reply is not None
    assert reply.endswith(".")
    assert len(reply) < 60
    assert speakable(reply)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("It is 8:05 PM.", "It is 8 oh 5 PM."),
        ("It is 8:00 AM.", "It is 8 AM."),
        ("It is 12:30 PM.", "It is 12 30 PM."),
        ("Today is Sunday, November 29.", "Today is Sunday, November 29th."),
        ("It is 8:05 PM on Sunday, November 29.", "It is 8 oh 5 PM on Sunday, November 29th."),
        ("It is the year 2026.", "It is the year twenty twenty-six."),
        ("It is November 2026.", "It is November twenty twenty-six."),
    ],
)
def test_replies_are_made_for_the_voice(reply: str, said: str) -> None:
    assert speakable(reply) == said
