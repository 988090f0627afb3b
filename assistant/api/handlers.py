"""Clients that carry out intents: who has registered which, and the way of one intent to such a client and back.

Of several clients with an intent the one is asked that has registered what was named (`name`, then `area`, `floor`);
among those that have, or where nobody has, the last one; the one before comes back when it leaves. Decides nothing
about what an intent means.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from assistant.api import framing, wire
from assistant.api.callers import Caller
from assistant.api.endpoint import Peer
from assistant.api.replies import Replies
from assistant.errors import BusyNow, HandlerFailed, UsageError
from assistant.messages import IntentMatch
from assistant.plain_text import plain
from assistant.query import Understood

log = logging.getLogger(__name__)

ANSWER_S = 3.0
"""What an answer may take, unless it is configured."""
MAX_CLIENTS = 32
MAX_INTENTS = 128
MAX_NAMES = 1000
"""Of one client, in all lists together: each is a sentence more to compare with."""
MOST_NAMES = 2000
MOST_LETTERS = 24 * 1024
"""Of the different names of all clients together. The sentence matcher keeps a tree of letters, with up to 350 bytes
for each, so these are 8 MiB: what its stage is promised beyond the sentences of all intents."""
MAX_SPEECH = 4000
LISTS = ("name", "area", "floor")
"""The lists of Home Assistant's sentences that a house fills."""
_BUSY_MS = 1000

_INTENT = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)
_NAME = re.compile(r"\w(?:[\w '’.-]{0,62}\w)?")
"""No signs that mean something in a template."""

Send = Callable[[wire.Handle], None]
"""To the client, at once; what it leaves no room for is lost."""


@dataclass(eq=False, slots=True)
class _Registration:
    caller: Caller
    intents: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]
    send: Send
    still: Callable[[], None]
    """Raises `UsageError` when the client may not do this any more."""


class Handlers:
    """Satisfies `query.IntentHandlers`."""

    def __init__(self, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._registered: list[_Registration] = []
        """In the order in which they came."""
        self._watched: set[Caller] = set()
        self._pending: dict[str, tuple[Caller, asyncio.Future[str]]] = {}

    @property
    def understood(self) -> Understood:
        """What all of them handle together; the same for the same registrations, in whatever order they came."""
        names = _together(one.names for one in self._registered)
        intents = sorted({intent for one in self._registered for intent in one.intents})
        return Understood(tuple(intents), {kind: tuple(sorted(names[kind])) for kind in sorted(names)})

    # --- what clients say -------------------------------------------------------------------------------------------
    def register(
        self, peer: Peer, message: framing.Received, replies: Replies, still: Callable[[], None] = lambda: None
    ) -> wire.Registered:
        """Replaces what the client registered before. `still` raises `UsageError` when it may not be asked any more.

        Raises `UsageError`, `BusyNow`."""
        intents, names = _checked(message.data)
        caller = peer.caller
        others = [one for one in self._registered if one.caller is not caller]
        if intents and len(others) >= MAX_CLIENTS:
            raise BusyNow(f"{MAX_CLIENTS} clients have registered intents already", retry_after_ms=_BUSY_MS)
        _check_room(names, [one.names for one in others])
        self._registered = others
        if intents:
            send = functools.partial(replies.now, peer, parent=message.id)
            self._registered.append(_Registration(caller, intents, names, send, still))
            if caller not in self._watched:
                self._watched.add(caller)
                peer.left.add_done_callback(lambda _: self._leave(caller))
        log.info("a client handles %d intents", len(intents))
        return wire.Registered(intents=intents)

    def _leave(self, caller: Caller) -> None:
        """It has gone; who waits for it is told so."""
        self._watched.discard(caller)
        self._registered = [one for one in self._registered if one.caller is not caller]
        for owner, answer in self._pending.values():
            if owner is caller and not answer.done():
                answer.set_exception(_failed("it has left"))

    def answer(self, caller: Caller, answered: wire.AnswerIntent) -> wire.Answered:
        """Raises `UsageError` for a query that does not wait for this client, or does not any more."""
        owner, answer = self._pending.get(answered.query_id, (None, None))
        if answer is None or owner is not caller or answer.done():
            raise UsageError(
                f"no query {answered.query_id[:64]!r} waits for an answer of yours; it may have come too late",
                code="query-unknown",
            )
        if len(answered.speech) > MAX_SPEECH:
            raise UsageError(f"`speech` has {len(answered.speech)} characters; at most {MAX_SPEECH} are taken")
        if answered.error is not None:
            answer.set_exception(_reported(answered.error))
        else:
            answer.set_result(plain(answered.speech).strip())
        return wire.Answered(query_id=answered.query_id)

    # --- what the pipeline asks -------------------------------------------------------------------------------------
    async def handle(self, query_id: str, match: IntentMatch, text: str) -> str | None:
        found = self._found(match)
        if found is None or match.name is None:
            return None
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pending[query_id] = found.caller, answer
        try:
            found.send(wire.Handle(query_id=query_id, intent=match.name, slots=match.slots, text=text))
            return await asyncio.wait_for(answer, self._answer_s)
        except TimeoutError:
            raise _failed(f"nothing came within {self._answer_s:g} s") from None
        finally:
            del self._pending[query_id]

    def _found(self, match: IntentMatch) -> _Registration | None:
        while able := [one for one in reversed(self._registered) if match.name in one.intents]:
            best = max(able, key=lambda one: _has_of(one.names, match.slots))  # the first one, so the newest, of equals
            try:
                best.still()
            except UsageError as error:
                log.warning("a client is not asked any more: %s", error.message)
                self._leave(best.caller)
                continue
            return best
        return None


def _has_of(names: Mapping[str, tuple[str, ...]], slots: Mapping[str, str | int | float]) -> tuple[bool, ...]:
    """Which of the things that were named somebody has registered; a name says more than an area."""
    return tuple(
        str(slots.get(kind, "")).casefold() in (name.casefold() for name in names.get(kind, ())) for kind in LISTS
    )


def _together(many: Iterable[Mapping[str, tuple[str, ...]]]) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for one in many:
        for kind, values in one.items():
            names.setdefault(kind, set()).update(values)
    return names


def _check_room(new: Mapping[str, tuple[str, ...]], others: list[Mapping[str, tuple[str, ...]]]) -> None:
    """Raises `UsageError` for names that have no room at all, `BusyNow` when those of others leave too little."""
    most = f"at most {MOST_NAMES} names with {MOST_LETTERS} letters"
    if _too_many(_together([new])):
        raise UsageError(f"{most} are taken; register the names of what can be said alone")
    if new and _too_many(_together([new, *others])):
        raise BusyNow(
            f"{most} are taken from all clients together, and those of others leave no room for these",
            retry_after_ms=_BUSY_MS,
        )


def _too_many(names: Mapping[str, set[str]]) -> bool:
    letters = sum(sum(map(len, values)) for values in names.values())
    return letters > MOST_LETTERS or sum(map(len, names.values())) > MOST_NAMES


def _failed(why: str) -> HandlerFailed:
    return HandlerFailed(f"The handler did not answer: {why}.")


def _reported(what: str) -> HandlerFailed:
    return HandlerFailed(plain(what).strip()[:MAX_SPEECH] or "The handler reports an error.", code="handler-failed")


def _checked(asked: wire.Register) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Names become part of templates: what could be more than a name is refused."""
    intents = tuple(dict.fromkeys(asked.intents))
    if len(intents) > MAX_INTENTS:
        raise UsageError(f"{len(intents)} intents are registered; at most {MAX_INTENTS} are taken")
    for intent in intents:
        if not _INTENT.fullmatch(intent):
            raise UsageError(f"{intent[:80]!a} is no name of an intent; one looks like HassTurnOn")
    if sum(map(len, asked.names.values())) > MAX_NAMES:
        raise UsageError(f"at most {MAX_NAMES} names are taken")
    for kind, names in asked.names.items():
        if kind not in LISTS:
            raise UsageError(f"`names` has the lists {', '.join(LISTS)}; {kind[:80]!a} is none of them")
        for name in names:
            if not _NAME.fullmatch(name):
                raise UsageError(f"{name[:80]!a} is no name: 1 to 64 letters, digits, spaces and ' . - are")
    return intents, dict(asked.names)
