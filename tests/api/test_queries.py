"""The line of queries: order, refusal, cancels; one last reply for each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from assistant.api import wire
from assistant.api.admission import Limits
from assistant.api.jobs import Job
from assistant.api.queries import Queries, QueryEvents
from assistant.errors import BadText, BusyNow, Cancelled, UsageError
from tests.api.backend import Backend

FOUR = Limits(waiting=4)


class Caller:
    """What one client is told."""

    def __init__(self, text: str, pcm: bytes = b"", client: str | None = None, **ask: Any) -> None:
        self.replies: list[Any] = []
        self.pcm: list[bytes] = []
        self.job = Job(wire.Ask(text=text, **ask), pcm, self._tell, client=client)

    def _tell(self, reply: wire.Reply, pcm: bytes) -> None:
        self.replies.append(reply)
        self.pcm.append(pcm)

    @property
    def names(self) -> list[str]:
        return [reply.name if isinstance(reply, wire.Event) else type(reply).__name__ for reply in self.replies]

    @property
    def last(self) -> Any:
        return self.replies[-1]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def until_idle(queries: Queries) -> None:
    for _ in range(200):
        await asyncio.sleep(0)
    await queries.close()


def test_a_query_is_told_in_order_and_ends_with_its_report() -> None:
    async def scenario() -> None:
        events = QueryEvents()
        queries = Queries(Backend(events).answer, events)
        caller = Caller("hello", speech=True)
        queries.submit(caller.job)
        await until_idle(queries)
        assert caller.names == [
            "Accepted", "Started", "run-start", "memory-admit",
            "reply-delta", "Audio", "reply-delta", "Audio", "run-end", "Report",
        ]  # fmt: skip
        assert [pcm[:4] for pcm in caller.pcm if pcm] == [b"one ", b"twot"]
        assert caller.replies[-2].data == {"query_id": caller.job.id, "outcome": "answered"}
        assert (caller.last.reply, caller.last.exit_code) == ("one two", 0)

    asyncio.run(scenario())


def test_without_stream_there_are_no_events_and_one_sound() -> None:
    async def scenario() -> None:
        events = QueryEvents()
        queries = Queries(Backend(events).answer, events)
        caller = Caller("hello", speech=True, stream=False)
        queries.submit(caller.job)
        await until_idle(queries)
        assert caller.names == ["Accepted", "Started", "Audio", "Report"]
        assert len(caller.pcm[2]) == 700

    asyncio.run(scenario())


def test_queries_are_answered_one_after_another_and_too_many_are_refused() -> None:
    async def scenario() -> None:
        events, clock = QueryEvents(), Clock()
        backend = Backend(events)
        queries = Queries(backend.answer, events, clock, FOUR)
        callers = [Caller(f"wait {number}") for number in range(1 + FOUR.waiting)]
        for caller in callers:
            queries.submit(caller.job)
        assert [caller.replies[0].ahead for caller in callers] == [0, 1, 2, 3, 4]
        clock.now = 0.5
        refused = Caller("late")
        with pytest.raises(BusyNow) as caught:
            queries.submit(refused.job)
        assert caught.value.retry_after_ms == 1500  # 2 s are the guess without a history
        assert caught.value.to_dict()["status"] == 429
        assert refused.replies == []
        backend.go.set()
        await until_idle(queries)
        assert backend.order == [f"wait {number}" for number in range(5)]
        assert all(isinstance(caller.last, wire.Report) for caller in callers)

    asyncio.run(scenario())


def test_the_more_urgent_goes_first_and_never_before_its_own_conversation() -> None:
    async def scenario() -> None:
        events = QueryEvents()
        backend = Backend(events)
        queries = Queries(backend.answer, events)
        running = Caller("wait")
        queries.submit(running.job)
        await asyncio.sleep(0.01)
        later = Caller("1 background", urgency="background")
        normal = Caller("2 normal", conversation="c")
        urgent = Caller("3 critical", urgency="critical")
        same = Caller("4 critical of c", urgency="critical", conversation="c")
        for caller in (later, normal, urgent, same):
            queries.submit(caller.job)
        assert [caller.replies[0].ahead for caller in (later, normal, urgent, same)] == [1, 1, 1, 3]
        backend.go.set()
        await until_idle(queries)
        assert backend.order == ["wait", "3 critical", "2 normal", "4 critical of c", "1 background"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("ask", "code", "words"),
    [
        ({"urgency": "urgent"}, "bad-urgency", "critical, normal, background"),
        ({"urgency": ""}, "bad-urgency", "critical, normal, background"),
        ({"conversation": ""}, "bad-conversation", "1 to 64"),
        ({"conversation": "a b"}, "bad-conversation", "A-Z"),
        ({"conversation": "x" * 65}, "bad-conversation", "A-Z"),
        ({"conversation": "k\u00fcche \udc80"}, "bad-conversation", r"k\xfcche \udc80"),
    ],
)
def test_what_is_no_conversation_or_urgency_is_refused_by_its_own_code(
    ask: dict[str, Any], code: str, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Caller("hello", **ask)
    assert caught.value.code == code
    assert words in caught.value.message


def test_conversation_and_urgency_reach_the_query() -> None:
    query = Caller("hello", conversation="Kitchen.2_a:b-c", urgency="background", stream=False).job.query
    assert (query.conversation, query.urgency, query.sink_waits) == ("Kitchen.2_a:b-c", "background", True)
    plain = Caller("hello").job.query
    assert (plain.conversation, plain.urgency, plain.sink_waits) == ("", "normal", False)


def test_the_retry_hint_learns_from_the_last_queries() -> None:
    async def scenario() -> None:
        events, clock = QueryEvents(), Clock()
        backend = Backend(events)
        queries = Queries(backend.answer, events, clock, Limits(waiting=4, deadline_s=60))
        queries.submit(Caller("wait").job)
        for _ in range(5):
            await asyncio.sleep(0)
        clock.now = 10.0
        backend.go.set()
        for _ in range(50):
            await asyncio.sleep(0)
        backend.go.clear()
        for _ in range(1 + FOUR.waiting):
            queries.submit(Caller("wait").job)
            await asyncio.sleep(0)
        clock.now = 13.0
        with pytest.raises(BusyNow) as caught:
            queries.submit(Caller("late").job)
        assert caught.value.retry_after_ms == 7000
        await queries.close()

    asyncio.run(scenario())


def test_cancel_takes_the_running_query_or_the_named_one() -> None:
    async def scenario() -> None:
        events = QueryEvents()
        backend = Backend(events)
        queries = Queries(backend.answer, events)
        assert queries.cancel(None) == ()
        first, second, third = Caller("wait 1"), Caller("wait 2"), Caller("wait 3")
        for caller in (first, second, third):
            queries.submit(caller.job)
        await asyncio.sleep(0.01)
        assert queries.cancel("nobody") == ()
        assert queries.cancel(second.job.id) == (second.job.id,)
        assert isinstance(second.last, wire.Failure)
        assert (second.last.code, second.last.exit_code) == ("cancelled", 130)
        assert queries.cancel(None) == (first.job.id,)
        await asyncio.sleep(0.01)
        assert isinstance(first.last, wire.Report)
        assert (first.last.outcome, first.last.exit_code) == ("cancelled", 130)
        backend.go.set()
        await until_idle(queries)
        assert backend.order == ["wait 1", "wait 3"]
        assert (third.last.outcome, second.names) == ("answered", ["Accepted", "Failure"])

    asyncio.run(scenario())


def test_closing_ends_everything_as_cancelled() -> None:
    async def scenario() -> None:
        events = QueryEvents()
        queries = Queries(Backend(events).answer, events)
        callers = [Caller("wait"), Caller("wait")]
        for caller in callers:
            queries.submit(caller.job)
        await asyncio.sleep(0.01)
        await queries.close()
        assert [caller.last.exit_code for caller in callers] == [130, 130]

    asyncio.run(scenario())


def test_an_error_ends_one_query_and_not_the_line() -> None:
    async def scenario() -> None:
        events = QueryEvents()
        queries = Queries(Backend(events).answer, events)
        wrong, crash, good = Caller("wrong"), Caller("crash"), Caller("good")
        for caller in (wrong, crash, good):
            queries.submit(caller.job)
        await until_idle(queries)
        assert (wrong.last.code, wrong.last.exit_code) == ("bad-arguments", 2)
        assert (crash.last.code, crash.last.exit_code) == ("internal", 1)
        assert "RuntimeError" in crash.last.message
        assert good.last.outcome == "answered"

    asyncio.run(scenario())


def test_large_recordings_fill_the_line_sooner() -> None:
    async def scenario() -> None:
        events = QueryEvents()
        queries = Queries(Backend(events).answer, events)
        large = bytes(30 * 2**20)
        queries.submit(Caller("wait", large).job)
        with pytest.raises(BusyNow, match="1 query is ahead"):
            queries.submit(Caller("wait", large).job)
        queries.submit(Caller("small").job)
        await queries.close()

    asyncio.run(scenario())


def test_what_happens_to_stages_and_memory_is_told_to_those_whose_query_runs(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        events = QueryEvents()
        backend = Backend(events)
        queries = Queries(backend.answer, events)
        running, waiting, quiet = Caller("wait"), Caller("wait"), Caller("wait", stream=False)
        for caller in (running, waiting):
            queries.submit(caller.job)
        await asyncio.sleep(0.01)
        told = ["stage-load-start", "stage-load-end", "memory-evict", "memory-deny", "throttled"]
        for name in told:
            events(name, {"stage": "llm"})
        events("stt-end", {"text": "a secret"})
        events("stt-end", {"query_id": "somebody else", "text": "a secret"})
        assert running.names[-len(told) :] == told
        assert running.last.data == {"stage": "llm"}
        assert waiting.names == ["Accepted"]
        queries.cancel(waiting.job.id)
        queries.cancel(running.job.id)
        queries.submit(quiet.job)
        await asyncio.sleep(0.01)
        events("throttled", {"level": "high"})
        assert quiet.names == ["Accepted", "Started"]
        await queries.close()
        events("throttled", {"level": "normal"})
        assert quiet.names[-1] == "Report"

    with caplog.at_level("INFO", "assistant.api.queries"):
        asyncio.run(scenario())
    for word in ("stage-load-start", "memory-evict", "throttled"):
        assert word in caplog.messages
    assert caplog.records[-1].__dict__["fields"] == {"level": "normal"}
    assert "secret" not in caplog.text


def test_a_closed_line_takes_nothing_more() -> None:
    async def scenario() -> None:
        events = QueryEvents()
        backend = Backend(events)
        queries = Queries(backend.answer, events)
        queries.submit(Caller("wait").job)
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(queries.close())
        await asyncio.sleep(0)
        with pytest.raises(Cancelled, match="stopping"):
            queries.submit(Caller("late").job)
        await closing
        assert backend.order == ["wait"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "text-empty"), (" \n", "text-empty"), ("x" * 4001, "text-too-long"), ("a\0", "text-has-nul")],
)
def test_a_text_that_is_no_question_is_refused_at_the_door(text: str, code: str) -> None:
    with pytest.raises(BadText) as caught:
        Caller(text)
    assert caught.value.code == code


def test_as_many_run_as_there_are_slots_but_one_of_a_conversation() -> None:
    async def scenario() -> None:
        events = QueryEvents()
        backend = Backend(events)
        queries = Queries(backend.answer, events, limits=Limits(slots=2))
        first, same = Caller("wait 1", conversation="c"), Caller("wait 2", conversation="c")
        other, last = Caller("wait 3"), Caller("wait 4")
        for caller in (first, same, other, last):
            queries.submit(caller.job)
        await asyncio.sleep(0.01)
        assert backend.order == ["wait 1", "wait 3"]
        assert (queries.running, queries.waiting) == (2, 2)
        assert [caller.replies[0].ahead for caller in (first, same, other, last)] == [0, 0, 1, 2]
        assert set(queries.cancel(None)) == {first.job.id, other.job.id}
        backend.go.set()
        await until_idle(queries)
        assert backend.order == ["wait 1", "wait 3", "wait 2", "wait 4"]
        assert [caller.last.outcome for caller in (first, other, same, last)] == ["cancelled"] * 2 + ["answered"] * 2

    asyncio.run(scenario())


def test_clients_take_turns() -> None:
    async def scenario() -> None:
        events = QueryEvents()
        backend = Backend(events)
        queries = Queries(backend.answer, events)
        for text, client in (("wait", "a"), ("a 1", "a"), ("a 2", "a"), ("a 3", "a"), ("b 1", "b"), ("b 2", "b")):
            queries.submit(Caller(text, client=client).job)
        backend.go.set()
        await until_idle(queries)
        assert backend.order == ["wait", "b 1", "a 1", "b 2", "a 2", "a 3"]

    asyncio.run(scenario())


def test_a_critical_query_takes_the_place_of_a_background_one_which_is_answered_after_it() -> None:
    async def scenario() -> None:
        events = QueryEvents()
        backend = Backend(events)
        queries = Queries(backend.answer, events)
        heard: list[str] = []
        events.listeners.append(lambda name, data: heard.append(name))
        background, waiting, quiet = (
            Caller("wait b", urgency="background", speech=True),
            Caller("normal"),
            Caller("critical", urgency="critical"),
        )
        queries.submit(background.job)
        queries.submit(waiting.job)
        await asyncio.sleep(0.01)
        queries.submit(quiet.job)
        assert quiet.replies[0].ahead == 0
        await asyncio.sleep(0.01)
        assert backend.order == ["wait b", "critical", "wait b"]
        assert background.names == [
            "Accepted",
            "Started",
            "run-start",
            "memory-admit",
            "preempted",
            "Started",
            "run-start",
            "memory-admit",
        ]
        assert "preempted" in heard
        # the second time it is told to come again
        second = Caller("critical 2", urgency="critical")
        queries.submit(second.job)
        await asyncio.sleep(0.01)
        assert (background.last.code, background.last.retryable, background.last.status) == ("busy", True, 429)
        assert background.last.retry_after_ms > 0
        await until_idle(queries)
        assert backend.order == ["wait b", "critical", "wait b", "critical 2", "normal"]
        assert [caller.last.outcome for caller in (waiting, quiet, second)] == ["answered"] * 3

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("ask", "again"),
    [
        ({"stream": True}, False),
        ({"stream": False}, True),
        ({"stream": False, "conversation": "c"}, False),  # in which its half answer is remembered
    ],
)
def test_an_answer_of_which_something_is_known_does_not_begin_anew(ask: dict[str, Any], again: bool) -> None:
    async def scenario() -> None:
        events = QueryEvents()
        backend = Backend(events)
        queries = Queries(backend.answer, events)
        background = Caller("wait", urgency="background", **ask)
        queries.submit(background.job)
        await asyncio.sleep(0.01)
        events("reply-delta", {"query_id": background.job.id, "text": "half"})
        queries.submit(Caller("now", urgency="critical").job)
        await asyncio.sleep(0.01)
        assert background.job.ended is not again
        assert queries.running == int(again)
        await queries.close()

    asyncio.run(scenario())


def test_a_cancel_reaches_a_query_that_is_about_to_make_room() -> None:
    async def scenario() -> None:
        events = QueryEvents()
        backend = Backend(events)
        queries = Queries(backend.answer, events)
        background, critical = Caller("wait", urgency="background"), Caller("now", urgency="critical")
        queries.submit(background.job)
        await asyncio.sleep(0.01)
        queries.submit(critical.job)
        assert queries.cancel(background.job.id) == (background.job.id,)
        await until_idle(queries)
        assert (background.last.exit_code, critical.last.outcome) == (130, "answered")
        assert backend.order == ["wait", "now"]

    asyncio.run(scenario())


def test_what_cannot_be_answered_in_time_at_the_measured_pace_is_refused() -> None:
    async def scenario() -> None:
        events, clock = QueryEvents(), Clock()
        backend = Backend(events)
        queries = Queries(backend.answer, events, clock, Limits(deadline_s=20))
        first = Caller("wait")
        queries.submit(first.job)
        await asyncio.sleep(0.01)
        figures = {"prompt_tokens": 40, "reused_tokens": 20, "new_tokens": 60, "prefill_ms": 200.0, "decode_ms": 3000.0}
        events("llm-end", {"query_id": first.job.id, **figures})
        clock.now = 4.0
        backend.go.set()
        await asyncio.sleep(0.01)
        assert first.last.outcome == "answered"
        assert (queries.pace.prefill_per_s, queries.pace.decode_per_s) == (100, 20)
        backend.go.clear()
        for _ in range(2):
            queries.submit(Caller("wait").job)
        with pytest.raises(BusyNow, match="more than 20 s") as caught:
            queries.submit(Caller("wait").job)
        work_ms = (4 + 0.2 + 3) * 1000  # the report of this backend says nothing of the time at the model
        assert caught.value.retry_after_ms == pytest.approx(3 * work_ms - 20_000)
        assert (queries.accepted, queries.refused) == (3, 1)
        await queries.close()

    asyncio.run(scenario())
