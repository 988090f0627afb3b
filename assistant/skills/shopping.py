"""The shopping list, and its file. Imports the room and `disk`.

The file is read and written anew for every change, under a lock: a query without a daemon may change it beside one.
A disk that stands still is an error after `DISK_S`, and then at once as long as it does.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from assistant.disk import Disk
from assistant.skills.context import Context, TooMany
from assistant.skills.registry import Missing, Slots, skill
from assistant.skills.state_file import StateFile
from assistant.skills.words import folded, listed, of_name, text

log = logging.getLogger(__name__)

T = TypeVar("T")

DISK_S = 5.0
MOST_ITEMS = 200
MOST_LENGTH = 120
"""Characters of one item."""
_MOST_SAID = 12
NO_LIST = "The shopping list cannot be kept here."
_UNREADABLE = "The shopping list cannot be read or written; "


class FileList:
    """A `ShoppingList` in a file."""

    def __init__(self, path: Path, disk_s: float = DISK_S) -> None:
        """`disk_s`: without an answer of the disk; a seam."""
        self._file = StateFile(path)
        self._disk = Disk(disk_s)

    async def items(self) -> tuple[str, ...]:
        return await self._soon(lambda: tuple(self._file.load(_read) or ()))

    async def add(self, item: str) -> bool:
        def change(items: list[str]) -> bool:
            if any(folded(item) == folded(one) for one in items):
                return False
            if len(items) >= MOST_ITEMS:
                raise TooMany
            items.append(item)
            return True

        return await self._soon(functools.partial(self._changed, change))

    async def complete(self, item: str) -> str | None:
        def change(items: list[str]) -> str | None:
            found = _found(items, item)
            if found is not None:
                items.remove(found)
            return found

        return await self._soon(functools.partial(self._changed, change))

    async def clear(self) -> int:
        def change(items: list[str]) -> int:
            count = len(items)
            items.clear()
            return count

        return await self._soon(functools.partial(self._changed, change))

    async def _soon(self, work: Callable[[], T]) -> T:
        """In a thread. Raises `OSError` (`TimeoutError` is one, at once while the disk still keeps an earlier one)."""
        return await self._disk.ask("shopping", lambda alive: work())

    def _changed(self, change: Callable[[list[str]], T]) -> T:
        lock = self._file.lock(wait=True)
        try:
            before = list(self._file.load(_read) or ())
            after = list(before)
            result = change(after)
            if after != before:
                self._file.save({"version": 1, "items": after})
            return result
        finally:
            os.close(lock)


def _read(data: Any) -> list[str]:
    """Raises `ValueError`."""
    items = data.get("items") if isinstance(data, dict) and data.get("version") == 1 else None
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items) or len(items) > MOST_ITEMS:
        raise ValueError("it holds no shopping list")
    return items


def _found(items: list[str], item: str) -> str | None:
    """The same words, else the only item that they are a part of."""
    found = of_name(items, item, str)
    return found[0] if found and (len(found) == 1 or folded(found[0]) == folded(item)) else None


_PAIRS = re.compile(r"\b(?:mac(?:aroni)?|fish|salt|peanut butter|gin|franks|half|bangers|pork) and \w+", re.I)
"""One thing of two names."""
_AND = re.compile(r"\s*,\s*(?:and\s+)?|\s+(?:and|plus)\s+(?:also\s+)?(?:some\s+)?", re.I)


def each(item: str) -> list[str]:
    """ "eggs and some bacon" -> eggs, bacon: things are taken off one by one."""
    whole = _PAIRS.sub(lambda pair: pair[0].replace(" and ", "\0"), item)
    found = [one.replace("\0", " and ").strip() for one in _AND.split(whole)]
    return list(dict.fromkeys(one for one in found if one)) or [item]


_NO_THING = re.compile(
    r"(?:\W*\b(?:an?|the|my|our|your|some|any|more|another|few|of|and|on|off|to|please|it|them|that|those|this|these|ones?"
    r"|add|put|get|buy|need|take|remove|check|tick|cross|delete|(?:some|any)?things?|items?|stuff)\b)+\W*",
    re.I,
)
"""Words that name nothing one could buy, alone or together: what is heard of "add a [milk] to my list"."""


def _named(item: str) -> list[str]:
    """The things of an item, one by one; none where nothing is named."""
    return [one for one in each(item) if one and not _NO_THING.fullmatch(one)]


@skill("HassShoppingListAddItem")
async def add(slots: Slots, context: Context) -> str:
    """ "Milk is on your shopping list." """
    items = _named(text(slots, "item", MOST_LENGTH))
    if context.shopping is None:
        return NO_LIST
    if not items:
        raise Missing("item", "What shall I put on the list?")
    fresh = False
    try:
        for one in items:
            fresh |= await context.shopping.add(one)
    except TooMany:
        return f"There are {MOST_ITEMS} things on your shopping list already."
    except OSError as error:
        return _wrong(error)
    said, many = listed(items), "are" if len(items) > 1 else "is"
    return f"{said[:1].upper()}{said[1:]} {many} on your shopping list{'' if fresh else ' already'}."


@skill("HassShoppingListCompleteItem")
async def complete(slots: Slots, context: Context) -> str:
    """ "Took milk off your shopping list." """
    items = _named(text(slots, "item", MOST_LENGTH))
    if context.shopping is None:
        return NO_LIST
    if not items:
        raise Missing("item", "What shall I take off the list?")
    taken: list[str] = []
    absent: list[str] = []
    try:
        for one in items:
            found = await context.shopping.complete(one)
            (taken if found else absent).append(found or one)
    except OSError as error:
        return _wrong(error)
    told = [f"Took {listed(taken)} off your shopping list."] if taken else []
    told += [f"There is no {listed(absent)} on your shopping list."] if absent else []
    return " ".join(told)


@skill("AssistantShoppingListRead")
async def read(slots: Slots, context: Context) -> str:
    """ "On your shopping list: milk, eggs and bread." """
    del slots
    if context.shopping is None:
        return NO_LIST
    try:
        items = await context.shopping.items()
    except OSError as error:
        return _wrong(error)
    if not items:
        return "Your shopping list is empty."
    more = len(items) - _MOST_SAID
    said = [*items[:_MOST_SAID], f"{more} more"] if more > 1 else items
    return f"On your shopping list: {listed(said)}."


@skill("AssistantShoppingListClear", confirm="Shall I really clear the whole shopping list?")
async def clear(slots: Slots, context: Context) -> str:
    """ "Your shopping list is empty now." """
    del slots
    if context.shopping is None:
        return NO_LIST
    try:
        count = await context.shopping.clear()
    except OSError as error:
        return _wrong(error)
    return "Your shopping list is empty now." if count else "Your shopping list was empty already."


def _wrong(error: OSError) -> str:
    log.error("the shopping list: %s", error)
    if isinstance(error, TimeoutError):
        return _UNREADABLE + "its disk does not answer."
    return _UNREADABLE + ("its disk is full." if error.errno in (errno.ENOSPC, errno.EDQUOT) else "the log says why.")
