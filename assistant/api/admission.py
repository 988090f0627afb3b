"""Who gets a place in the line of queries, and where; who is refused, and for how long. Pure; imports `query`.

More urgent queries go first. Among equals the clients take turns: a query goes before those of clients that have more
of their own ahead. Within a conversation, and of one client, what was asked first is answered first. Places are few,
and the more clients wait, the fewer are left for each. What cannot be answered within the deadline, at the measured
pace of the model, is refused at once: whoever asks can then do something else.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from assistant.messages import Urgency
from assistant.query import URGENCIES

LEAST_RETRY_S = 0.1
KEPT = 1
"""Places that only a client may take that has nothing in the line."""
FOR_CRITICAL = 2
"""Places behind the last one, for `critical` alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    slots: int = 1
    """Queries that are answered at the same time."""
    waiting: int = 8
    of_one: int = 4
    """Of one client, of those that wait."""
    held_bytes: int = 32 * 2**20
    """Of the recordings of all queries in the line: they are the daemon's own memory."""
    deadline_s: float = 30.0
    """From its arrival to the end of its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A query, as far as its place depends on it."""

    client: Hashable
    conversation: str = ""
    urgency: Urgency = "normal"
    size: int = 0
    """Bytes of its recording."""
    work_s: float = 0.0
    """What it will take, or of one that runs what is left; a guess as long as nothing was measured."""
    leaving: bool = False
    """It runs, and is about to make room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    limits: Limits
    new: Claim
    running: tuple[Claim, ...] = ()
    waiting: tuple[Claim, ...] = ()
    """In the order in which they will begin."""
    measured: bool = False
    """Whether `work_s` is more than a guess."""


@dataclass(frozen=True, slots=True)
class Admit:
    place: int
    """Index among those that wait."""
    ahead: int
    """Queries that have to end before it begins."""
    preempts: int | None = None
    """Index of the running query that makes room for it."""


@dataclass(frozen=True, slots=True)
class Refuse:
    retry_after_ms: int
    why: str


def admit(seen: Snapshot) -> Admit | Refuse:
    """Whatever begins at once is taken: it waits for nobody, and how long it takes itself is its client's business."""
    limits, new, running, waiting = seen.limits, seen.new, seen.running, seen.waiting
    place = _place(new, running, waiting)
    preempts = _preempted(seen, place)
    stay = [one for index, one in enumerate(running) if index != preempts and not one.leaving]
    granted = Admit(place, max(0, len(stay) + place + 1 - limits.slots), preempts)
    line = [*running, *waiting]
    if not line:
        return granted
    if sum(one.size for one in line) + new.size > limits.held_bytes and new.size:
        return _refuse(
            _next_free_s(seen), f"{_queries(len(line))} ahead, with recordings that leave no room for this one"
        )
    if granted.ahead or waiting:
        if len(waiting) >= limits.waiting + (FOR_CRITICAL if new.urgency == "critical" else 0):
            return _refuse(_next_free_s(seen), f"{_queries(len(line))} ahead, which is all that there is room for")
        own, share = _own_and_share(seen)
        if own >= share:
            return _refuse(
                _next_free_s(seen), f"{_queries(own)} waiting for this client, which is its share of the line"
            )
    if seen.measured and not _begins_at_once(granted, new, running, waiting):
        ends_s = sum(one.work_s for one in [*stay, *waiting[:place], new])
        if ends_s > limits.deadline_s:
            return _refuse(
                ends_s - limits.deadline_s,
                f"it would be answered in {ends_s:.0f} s, and more than {limits.deadline_s:g} s are not waited for",
            )
    return granted


def _begins_at_once(granted: Admit, new: Claim, running: Sequence[Claim], waiting: Sequence[Claim]) -> bool:
    """There is a slot for it, and its conversation has nothing else to be answered first."""
    earlier = [*running, *waiting[: granted.place]]
    return not granted.ahead and not (new.conversation and any(one.conversation == new.conversation for one in earlier))


def _place(new: Claim, running: Sequence[Claim], waiting: Sequence[Claim]) -> int:
    place = len(waiting)
    as_urgent = [one for one in waiting if _rank(one) <= _rank(new)]
    turn = _count(new.client, [*running, *as_urgent])
    while place and _overtakes(new, turn, waiting[place - 1], _count_ahead(waiting, place - 1, running)):
        place -= 1
    return place


def _overtakes(new: Claim, turn: int, other: Claim, its_turn: int) -> bool:
    """`turn`: how many of the same client come before."""
    if new.conversation and new.conversation == other.conversation:
        return False
    if new.urgency != other.urgency:
        return _rank(new) < _rank(other)
    return new.client != other.client and turn < its_turn


def _rank(one: Claim) -> int:
    return URGENCIES.index(one.urgency)


def _count(client: Hashable, line: Sequence[Claim]) -> int:
    return sum(one.client == client for one in line)


def _count_ahead(waiting: Sequence[Claim], index: int, running: Sequence[Claim]) -> int:
    return _count(waiting[index].client, [*running, *waiting[:index]])


def _own_and_share(seen: Snapshot) -> tuple[int, int]:
    """What waits of the client, and how much of it may wait while others want to."""
    limits, waiting = seen.limits, seen.waiting
    own = _count(seen.new.client, waiting)
    clients = len({one.client for one in waiting} | {seen.new.client})
    share = min(limits.of_one, max(1, limits.waiting // clients))
    if own and seen.new.urgency != "critical" and len(waiting) >= limits.waiting - KEPT:
        share = own
    return own, share


def _preempted(seen: Snapshot, place: int) -> int | None:
    """The background query that gives its slot to a critical one, which would else have to wait: the one that began
    last, because it loses least. Never one of the same conversation, which has to be answered first."""
    new, running = seen.new, seen.running
    free = seen.limits.slots - sum(not one.leaving for one in running)
    if new.urgency != "critical" or place < free:
        return None
    if new.conversation and any(one.conversation == new.conversation for one in (*running, *seen.waiting)):
        return None
    able = [index for index, one in enumerate(running) if one.urgency == "background" and not one.leaving]
    return able[-1] if able else None


def _next_free_s(seen: Snapshot) -> float:
    return min((one.work_s for one in seen.running), default=0.0)


def _refuse(after_s: float, why: str) -> Refuse:
    return Refuse(round(max(LEAST_RETRY_S, after_s) * 1000), f"{why}; ask again later")


def _queries(count: int) -> str:
    return "1 query is" if count == 1 else f"{count} queries are"
