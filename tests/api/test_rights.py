"""Every command has its right, and is refused without it: by the table, and at real sockets."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assistant.api import rights, wire
from assistant.api.rights import NEEDED, Right
from assistant.api.security import Place
from assistant.errors import UsageError
from tests.api.backend import Backend
from tests.api.network import Distant, House

ALL = {**wire.COMMANDS, **wire.CONTROLS}
SAMPLES: dict[type, Any] = {str: "asr", bool: True, float: 1.0, tuple[str, ...]: ()}


def sample(name: str) -> Any:
    """A command with what it must have."""
    kind = ALL[name]
    fields = {
        field.name: SAMPLES.get(field.type, "asr" if "Stage" in str(field.type) else 1.0)
        for field in msgspec.structs.fields(kind)
        if field.required
    }
    if name == "ask":
        fields["text"] = "hello"
    return kind(**fields)


def test_every_command_has_its_right_and_no_other_has() -> None:
    assert set(NEEDED) == set(ALL)
    assert {right for right in NEEDED.values() if right} == set(Right)


@pytest.mark.parametrize("name", ALL)
def test_a_command_needs_exactly_its_right(name: str) -> None:
    for size in range(len(Right) + 1):
        for given in itertools.combinations(Right, size):
            needed = NEEDED[name]
            allowed = needed is None or needed in given or (name == "cancel" and Right.ADMIN in given)
            if allowed:
                rights.check(given, sample(name))
                continue
            with pytest.raises(UsageError, match=f"`{name}` needs the right `{needed}`") as caught:
                rights.check(given, sample(name))
            assert (caught.value.code, caught.value.exit_code) == ("forbidden", 2)


def test_cancels_of_others_are_for_admin() -> None:
    rights.may_cancel([Right.ADMIN], None, owned=False)
    rights.may_cancel([Right.SPEAK], "mine", owned=True)
    for query_id, owned in (("theirs", False), (None, True), (None, False)):
        with pytest.raises(UsageError, match="admin"):
            rights.may_cancel([Right.SPEAK], query_id, owned)


def test_at_the_sockets_as_in_the_table(folder: Path) -> None:
    """Each client has one right, and sends everything."""
    house = House(folder)
    pairs = {right: house.client(right.value, right) for right in Right}

    async def scenario(backend: Backend) -> None:
        backend.go.set()
        for right, pair in pairs.items():
            for place, kinds in ((Place.COMMAND, wire.COMMANDS), (Place.CONTROL, wire.CONTROLS)):
                with Distant(house, place, pair) as client:
                    for name in kinds:
                        reply = await client.asked(name, msgspec.to_builtins(sample(name)))
                        assert reply is not None
                        forbidden = reply["type"] == "error" and reply["data"]["code"] == "forbidden"
                        # a `cancel` of whatever runs is one of somebody else's query
                        needed = Right.ADMIN if name == "cancel" else NEEDED[name]
                        assert forbidden == (needed not in (None, right)), name
                        while reply is not None and reply["type"] in ("accepted", "started", "event", "audio"):
                            reply = await client.reply()

    house.run(scenario)


def test_conversations_of_a_client_are_its_own(folder: Path) -> None:
    house = House(folder)
    pair = house.client("phone", Right.SPEAK)
    seen: list[str] = []

    async def scenario(backend: Backend) -> None:
        answer = backend._answer

        async def noting(query: Any) -> Any:
            seen.append(query.conversation)
            return await answer(query)

        backend._answer = noting  # type: ignore[method-assign]
        with Distant(house, Place.COMMAND, pair) as phone:
            for data in ({"conversation": "kitchen"}, {}):
                phone.send("ask", {"text": "hello", **data})
                names = []
                while (reply := await phone.reply()) is not None and reply["type"] != "report":
                    names += [reply["data"]["name"]] if reply["type"] == "event" else []
                # what goes on in the house is not for it
                assert names == ["run-start", "reply-delta", "reply-delta", "run-end"]

    house.run(scenario)
    assert seen == ["phone:kitchen", ""]
