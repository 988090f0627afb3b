"""Who is taken, where, and who is refused: a table, and what holds for any line. And the pace that it is judged by."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as any_of

from assistant.api.admission import FOR_CRITICAL, Admit, Claim, Limits, Refuse, Snapshot, admit
from assistant.api.pace import FIRST_GUESS_S, LlmWork, Pace
from assistant.query import URGENCIES

MIB = 2**20


def claim(text: str) -> Claim:
    """ "a" = of client a; "!" critical, "-" background; ":c" in conversation c; "~" on its way out; "=8" takes 8 s."""
    text, _, work = text.partition("=")
    text, _, conversation = text.partition(":")
    urgency: Any = "critical" if "!" in text else "background" if "-" in text else "normal"
    return Claim(
        client=text.strip("!-~"), conversation=conversation, urgency=urgency, leaving="~" in text,
        work_s=float(work or 2),
    )  # fmt: skip


def seen(new: str, running: str = "", waiting: str = "", measured: bool = False, **limits: Any) -> Snapshot:
    return Snapshot(
        limits=Limits(**limits), new=claim(new), running=tuple(map(claim, running.split())),
        waiting=tuple(map(claim, waiting.split())), measured=measured,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "place", "ahead", "preempts"),
    [
        (seen("a"), 0, 0, None),
        (seen("a", "b"), 0, 1, None),
        (seen("a", "b", slots=2), 0, 0, None),
        (seen("a", "b c", slots=2), 0, 1, None),
        (seen("a", "b", "c d"), 2, 3, None),
        # clients take turns
        (seen("b", "x", "a a a"), 1, 2, None),
        (seen("b", "a", "a a"), 0, 1, None),
        (seen("b", "x", "a b a"), 3, 4, None),
        (seen("b", "x", "a b a a"), 3, 4, None),
        # the more urgent first
        (seen("a!", "x", "b! b c-"), 1, 2, None),
        (seen("a", "x", "b c- d-"), 1, 2, None),
        (seen("a-", "x", "b c- d-"), 3, 4, None),
        (seen("a!", "x", "a a a"), 0, 1, None),
        # never before its own conversation
        (seen("a!:k", "x", "b:k c"), 1, 2, None),
        (seen("a!:k", "b-:k"), 0, 1, None),
        (seen("a!:k", "z-", "b:k"), 1, 2, None),
        # in the place of what may wait
        (seen("a!", "b-"), 0, 0, 0),
        (seen("a!", "b"), 0, 1, None),
        (seen("a", "b-"), 0, 1, None),
        (seen("a!", "b- c", slots=2), 0, 0, 0),
        (seen("a!", "b- c-", slots=2), 0, 0, 1),
        (seen("a!", "b- ", slots=2), 0, 0, None),
        (seen("a!", "b-~"), 0, 0, None),
        (seen("a!", "b-~", "c!"), 1, 1, None),
        (seen("a!", "b- c-~", "d!", slots=2), 1, 0, 0),
        # in time
        (seen("a=10", "b=10", "c=10", measured=True), 1, 2, None),
        (seen("a!=10", "b=10", "c=15 d=15", measured=True), 0, 1, None),
        (seen("a!=10", "b-=99", measured=True), 0, 0, 0),
        (seen("a=10", "b=10", "c=15 d=15", measured=False), 2, 3, None),
        (seen("a=99", measured=True), 0, 0, None),  # else it would never be measured again
        (seen("a=10", "b-=99", slots=2, measured=True), 0, 0, None),  # there is a slot: it waits for nobody
        (seen("a!=10", "b-=99", slots=2, measured=True), 0, 0, None),
        (seen("a=99", "b=1", slots=2, measured=True), 0, 0, None),
        # the last places
        (seen("h", "x", "a b c d e f g"), 7, 8, None),
        (seen("z!", "x", "a b c d e f g h"), 0, 1, None),
    ],
)  # fmt: skip
def test_it_is_taken(line: Snapshot, place: int, ahead: int, preempts: int | None) -> None:
    assert admit(line) == Admit(place, ahead, preempts)


@pytest.mark.parametrize(
    ("line", "after_ms", "words"),
    [
        (seen("z", "x=1", "a b c d e f g h"), 1000, "9 queries are ahead"),
        (seen("z", "x=0", "a b c d e f g h"), 100, "9 queries"),
        (seen("z!", "x y!=1", "a! b! c d e f g h i j", slots=2), 1000, "12 queries"),
        (seen("a", "x=3", "a a a a"), 3000, "4 queries are waiting for this client"),
        (seen("a", "x", "a b c d e"), 2000, "1 query is waiting for this client"),  # its share
        (seen("a", "x", "a a a b b b b"), 2000, "3 queries are waiting"),  # the last place is for a newcomer
        (seen("a=10", "b=10", "c=15", measured=True), 5000, "answered in 35 s, and more than 30 s"),
        (seen("a!=10", "b=10", "c!=15", measured=True), 5000, "35 s"),
        (seen("a=2", "b=1", deadline_s=1, measured=True), 2000, "3 s"),
        (seen("a:k=9", "b:k=30", slots=2, measured=True), 9000, "39 s"),  # a slot is free, its conversation is not
    ],
)
def test_it_is_refused(line: Snapshot, after_ms: int, words: str) -> None:
    found = admit(line)
    assert isinstance(found, Refuse)
    assert found.retry_after_ms == after_ms
    assert words in found.why


def test_recordings_have_a_bound_together_and_questions_in_words_none() -> None:
    large = Claim(client="a", size=20 * MIB)
    found = admit(Snapshot(limits=Limits(), new=Claim(client="b", size=20 * MIB), running=(large,)))
    assert isinstance(found, Refuse)
    assert "1 query is ahead, with recordings" in found.why
    full = Claim(client="a", size=32 * MIB)
    assert isinstance(admit(Snapshot(limits=Limits(), new=Claim(client="b"), running=(full,))), Admit)
    assert isinstance(admit(Snapshot(limits=Limits(), new=Claim(client="b", size=99 * MIB))), Admit)


CLAIMS = any_of.builds(
    Claim,
    client=any_of.sampled_from("abcdefgh"),
    conversation=any_of.sampled_from(["", "", "k", "m"]),
    urgency=any_of.sampled_from(URGENCIES),
    work_s=any_of.floats(0.01, 20),
)


@settings(max_examples=150, deadline=None)
@given(
    arrivals=any_of.lists(any_of.one_of(CLAIMS, any_of.none()), max_size=40),
    slots=any_of.integers(1, 3),
    measured=any_of.booleans(),
)
def test_whatever_comes_the_line_stays_fair_bounded_and_in_order(
    arrivals: list[Claim | None], slots: int, measured: bool
) -> None:
    """None: the query that runs longest ends, and the next one begins."""
    limits = Limits(slots=slots)
    running: list[Claim] = []
    waiting: list[Claim] = []
    for new in arrivals:
        if new is None:
            running = running[1:]
        else:
            snapshot = Snapshot(
                limits=limits, new=new, running=tuple(running), waiting=tuple(waiting), measured=measured
            )  # fmt: skip
            found = admit(snapshot)
            assert found == admit(snapshot)
            if isinstance(found, Refuse):
                assert running or waiting, "an empty line takes whatever comes"
                assert found.retry_after_ms >= 100
            else:
                assert 0 <= found.place <= len(waiting)
                before, behind = waiting[: found.place], waiting[found.place :]
                for one in behind:  # whom it goes before
                    assert not (new.conversation and one.conversation == new.conversation)
                    assert URGENCIES.index(new.urgency) <= URGENCIES.index(one.urgency)
                    assert (new.urgency, new.client) != (one.urgency, one.client)
                if measured and found.ahead:
                    stay = [one for index, one in enumerate(running) if index != found.preempts]
                    ends_s = sum(one.work_s for one in [*stay, *before, new])
                    assert ends_s <= limits.deadline_s + 1e-6
                if found.preempts is not None:
                    assert new.urgency == "critical"
                    assert len(running) == slots
                    assert running[found.preempts].urgency == "background"
                    del running[found.preempts]
                waiting.insert(found.place, new)
        while waiting and len(running) < slots:
            running.append(waiting.pop(0))
        assert len(waiting) <= limits.waiting + FOR_CRITICAL
        assert all(sum(one.client == name for one in waiting) <= limits.of_one for name in "abcdefgh")


@given(count=any_of.integers(0, 30))
def test_a_greedy_client_leaves_room_for_others(count: int) -> None:
    greedy = Claim(client="greedy")
    waiting: list[Claim] = []
    for _ in range(count):
        if isinstance(admit(Snapshot(limits=Limits(), new=greedy, running=(greedy,), waiting=tuple(waiting))), Admit):
            waiting.append(greedy)
    found = admit(Snapshot(limits=Limits(), new=Claim(client="b"), running=(greedy,), waiting=tuple(waiting)))
    assert found == Admit(0, 1)


# --- the pace -------------------------------------------------------------------------------------------------------
def work(prompt: int = 20, new: int = 40, prefill_s: float = 0.1, decode_s: float = 2.0) -> LlmWork:
    return LlmWork(prompt_tokens=prompt, new_tokens=new, prefill_s=prefill_s, decode_s=decode_s)


def test_without_an_answer_there_is_a_guess() -> None:
    pace = Pace()
    assert (pace.measured, pace.work_s(100, "normal")) == (False, FIRST_GUESS_S)


def test_a_query_takes_as_long_as_its_tokens_and_what_else_there_is() -> None:
    pace = Pace()
    pace.learn(2.6, 40, "normal", work(), at_llm_s=2.1)
    assert (pace.measured, pace.prefill_per_s, pace.decode_per_s) == (True, 200, 20)
    assert pace.work_s(40, "normal") == pytest.approx(0.5 + 0.1 + 2.0)
    assert pace.work_s(4040, "normal") == pytest.approx(0.5 + 0.1 + 5.0 + 2.0)  # 1,000 tokens more
    assert pace.work_s(40, "background") == pytest.approx(0.5 + 2 * 2.1)


def test_a_machine_that_becomes_slower_is_believed() -> None:
    pace = Pace()
    for _ in range(3):
        pace.learn(2.1, 40, "normal", work(), at_llm_s=2.1)
    for _ in range(8):
        pace.learn(8.4, 40, "normal", work(prefill_s=0.4, decode_s=8.0), at_llm_s=8.4)
    assert 7 < pace.work_s(40, "normal") < 8.4


def test_what_the_model_was_not_asked_takes_little() -> None:
    pace = Pace()
    for _ in range(30):
        pace.learn(0.05, 15, "normal", None, at_llm_s=0)
    assert pace.work_s(15, "normal") == pytest.approx(0.05)
    pace.learn(2.1, 15, "background", work(), at_llm_s=2.1)
    assert pace.decode_per_s == 0, "what computes half of the time says nothing of the rate"


def test_the_event_of_the_model_is_understood() -> None:
    data = {"query_id": "q", "prompt_tokens": 50, "reused_tokens": 30, "new_tokens": 8, "prefill_ms": 90.0,
            "decode_ms": 400.0}  # fmt: skip
    assert LlmWork.of_event(data) == LlmWork(prompt_tokens=20, new_tokens=8, prefill_s=0.09, decode_s=0.4)
