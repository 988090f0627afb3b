"""Conversations with the real model and at a real daemon: facts that are used later, and what a cancel leaves."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assistant import config
from assistant.api import sockets, wire
from assistant.api.client import Client
from assistant.api.queries import QueryEvents
from assistant.api.server import Server
from assistant.conversations import Conversations
from assistant.daemon import Assistant
from assistant.messages import Outcome, Stage
from assistant.model_store.store import ModelInfo
from assistant.query import Query
from tests.api.daemon_process import STORY, Place
from tests.api.talking import with_client

pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]

PROMPT = "stages.llm.system_prompt=Answer in one sentence."
SHORT = "stages.llm.max_new_tokens=24"
FACTS = [
    ("My dog is called Rex.", "What is the name of my dog?", "Rex"),
    ("The code word is banana.", "What is the code word?", "banana"),
]


@pytest.fixture(scope="module", autouse=True)
def models(model: Callable[[str], ModelInfo]) -> None:
    for name in ("smollm2-135m-instruct", "en_US-joe-medium"):
        model(name)


# --- the real model -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("unloads", [False, True])
@pytest.mark.parametrize(("told", "question", "fact"), FACTS)
def test_a_fact_that_was_told_is_used_later(told: str, question: str, fact: str, unloads: bool) -> None:
    async def scenario() -> None:
        settings = config.load([PROMPT, SHORT], files=[], environ={})
        async with Assistant(settings, owner=f"conversations-{os.getpid()}") as assistant:

            async def reply(text: str, conversation: str) -> str:
                report = (await assistant.answer(Query(text=text, conversation=conversation))).report
                assert report.outcome is Outcome.ANSWERED
                return report.reply

            await reply(told, "c")
            if unloads:
                assert await assistant.unload(Stage.LLM)
            assert fact in await reply(question, "c")
            assert fact not in await reply(question, "another")
            assert fact not in await reply(question, "")

    asyncio.run(scenario())


# --- a real daemon --------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with Place() as one:
        one.daemon("--set", PROMPT, "--set", SHORT)
        yield one


def test_the_command_line_goes_on_with_a_conversation(place: Place) -> None:
    told, question, fact = FACTS[0]
    name = ("--no-speech", "--conversation", "my-dog")
    place.run("ask", told, *name)
    assert fact in place.run("ask", question, *name, "--urgency", "critical").stdout
    assert fact not in place.run("ask", question, "--no-speech", "--urgency", "background").stdout


def test_two_at_once_in_one_conversation_are_answered_in_order(place: Place) -> None:
    told, question, fact = FACTS[0]
    with Client(place.runtime) as client:
        first = client.ask(wire.Ask(text=told, conversation="two"))
        second = client.ask(wire.Ask(text=question, conversation="two", urgency="critical"))
        [*_, (report, _)] = client.replies(first)
        assert report.outcome == "answered"
        [*_, (report, _)] = client.replies(second)
        assert fact in report.reply


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--conversation", "a b"], "bad-conversation"),
        (["--conversation", ""], "bad-conversation"),
        (["--urgency", "now"], "bad-urgency"),
    ],
)
def test_what_is_no_conversation_or_urgency_is_a_usage_error(place: Place, args: list[str], code: str) -> None:
    for how in ([], ["--standalone"]):
        assert place.json("ask", "hello", "--no-speech", *how, *args, code=2)["error"]["code"] == code


def test_a_pipeline_of_its_own_says_that_there_is_nothing_to_go_on_with(place: Place) -> None:
    alone = ("--standalone", "--set", "log.level=error", "--no-speech", "--json")
    done = place.run("ask", "what time is it", "--conversation", "c", *alone)
    assert json.loads(done.stdout)["outcome"] == "handled"
    assert "only a daemon" in done.stderr
    assert "'c'" in done.stderr


# --- interruptions --------------------------------------------------------------------------------------------------
Test = Callable[[Client], None]


LONG = ("stages.llm.max_new_tokens=300", "stages.llm.system_prompt=Write a long text.")


def at_daemon(memory: Conversations, test: Test, sets: tuple[str, ...] = LONG) -> None:
    """Runs `test` as a client of a daemon, by default of one that tells long stories, whose memory can be looked
    into."""

    async def scenario() -> None:
        events = QueryEvents()
        settings, owner = config.load(sets, files=[], environ={}), f"stories-{os.getpid()}"
        with tempfile.TemporaryDirectory(prefix="va-") as made:
            folder = sockets.prepared(Path(made) / "assistant")
            async with (
                Assistant(settings, owner=owner, conversations=memory, emit=events) as assistant,
                Server(assistant, events, folder, lambda: None),
            ):
                await with_client(folder, test)

    asyncio.run(scenario())


def test_a_conversation_is_over_some_time_after_its_last_turn() -> None:
    now = [0.0]
    told, question, fact = FACTS[0]

    def test(client: Client) -> None:
        def reply(text: str) -> str:
            [*_, (report, _)] = client.replies(client.ask(wire.Ask(text=text, conversation="c")))
            return str(report.reply)

        reply(told)
        now[0] = 299
        assert fact in reply(question)
        now[0] = 299 + 300
        assert fact not in reply(question)

    at_daemon(Conversations(300, clock=lambda: now[0]), test, (PROMPT, SHORT))


class Told:
    """What a client was told of a query that it cancels once `enough` says so."""

    def __init__(self, client: Client, ask: wire.Ask, enough: Callable[[Told], bool]) -> None:
        self.text, self.sounds, self.report = "", 0, None
        query_id, cancelled = "", False
        for reply, _ in client.replies(client.ask(ask)):
            match reply:
                case wire.Started():
                    query_id = reply.query_id
                case wire.Event(name="reply-delta"):
                    self.text += reply.data["text"]
                case wire.Audio():
                    self.sounds += 1
                case wire.Report():
                    self.report = reply
            if query_id and not cancelled and self.report is None and enough(self):
                client.cancel(query_id)
                cancelled = True
        assert isinstance(self.report, wire.Report)
        assert self.report.outcome == "cancelled"


def contents(memory: Conversations, name: str) -> list[str]:
    return [turn.content for turn in memory.history(name)]


def test_of_a_spoken_answer_that_is_cancelled_the_history_keeps_what_was_spoken() -> None:
    memory = Conversations()

    def test(client: Client) -> None:
        ask = wire.Ask(text=STORY, speech=True, conversation="c")
        told = Told(client, ask, lambda told: told.sounds >= 3)
        user, spoken = contents(memory, "c")
        assert user == STORY
        assert told.text.strip().startswith(spoken)
        assert 0 < len(spoken) < len(told.text.strip())
        assert spoken[-1] in '.,!?:;"' or told.text.strip()[len(spoken)].isspace()  # whole pieces, no half words
        # and the next turn goes on from there
        [*_, (report, _)] = client.replies(client.ask(wire.Ask(text="what time is it", conversation="c")))
        assert contents(memory, "c") == [STORY, spoken, "what time is it", report.reply]

    at_daemon(memory, test)


def test_of_a_written_answer_that_is_cancelled_the_history_keeps_what_was_given_out() -> None:
    memory = Conversations()

    def test(client: Client) -> None:
        told = Told(client, wire.Ask(text=STORY, conversation="c"), lambda told: len(told.text) > 60)
        user, given = contents(memory, "c")
        assert (user, given) == (STORY, told.text.strip())

    at_daemon(memory, test)


def test_a_cancel_before_the_first_word_leaves_neither_turn() -> None:
    memory = Conversations()

    def test(client: Client) -> None:
        for speech in (True, False):
            ask = wire.Ask(text=STORY, speech=speech, conversation="c")
            Told(client, ask, lambda told: not told.text)
        # sound that is kept until the end has not been heard
        sent = client.ask(wire.Ask(text=STORY, speech=True, stream=False, conversation="c"))
        for reply, _ in client.replies(sent):
            if isinstance(reply, wire.Started):
                time.sleep(1.5)
                client.cancel(reply.query_id)
        assert contents(memory, "c") == []

    at_daemon(memory, test)
