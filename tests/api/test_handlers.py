"""Clients that carry out intents, over real sockets: who is asked, what comes back, and what if nothing does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from assistant.api import handlers as room
from assistant.api import security, sockets, wire
from assistant.api.addresses import Remote
from assistant.api.async_client import AsyncClient
from assistant.api.handlers import Handlers
from assistant.api.queries import QueryEvents
from assistant.api.rights import Right
from assistant.api.server import Server
from assistant.errors import AssistantError, BusyNow, ConfigError, HandlerFailed, UsageError
from assistant.messages import IntentMatch
from tests.api.backend import Backend
from tests.api.network import House

ON, OFF = IntentMatch(name="HassTurnOn", slots={"name": "lamp", "brightness": 5}), IntentMatch(name="HassTurnOff")
Answer = Callable[[AsyncClient, wire.Handle], Awaitable[object]]


@contextlib.asynccontextmanager
async def served(folder: Path, answer_s: float = 3) -> AsyncIterator[Handlers]:
    events, handlers = QueryEvents(), Handlers(answer_s)
    async with Server(Backend(events), events, sockets.prepared(folder), lambda: None, handlers):
        yield handlers


@contextlib.asynccontextmanager
async def handling(
    folder: Path, answer: Answer, *intents: str, names: dict[str, list[str]] | None = None
) -> AsyncIterator[AsyncClient]:
    """A client that has registered, and answers what it is asked."""
    registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work(client: AsyncClient) -> None:
        async for told in client.handle(intents, names or {"name": ["lamp"]}):
            if isinstance(told, wire.Registered):
                registered.set_result(None)
            else:
                await answer(client, told)

    async with AsyncClient(folder) as client:
        task = asyncio.create_task(work(client))
        await asyncio.wait([registered, task], return_when=asyncio.FIRST_COMPLETED)
        try:
            yield client
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def says(speech: str) -> Answer:
    async def answer(client: AsyncClient, told: wire.Handle) -> None:
        await client.answer_intent(told.query_id, f"{speech} {told.intent} {dict(told.slots)} {told.text}")

    return answer


async def silence(client: AsyncClient, told: wire.Handle) -> None:
    assert told.intent == "HassTurnOn"


def test_an_intent_goes_to_whoever_registered_it_and_its_answer_comes_back(folder: Path) -> None:
    async def test() -> None:
        async with served(folder) as handlers:
            assert await handlers.handle("q", ON, "lamp on") is None
            async with handling(folder, says("Done"), "HassTurnOn"):
                found = await handlers.handle("q", ON, "lamp on")
                assert found == "Done HassTurnOn {'name': 'lamp', 'brightness': 5} lamp on"
                assert await handlers.handle("q", OFF, "lamp off") is None
                assert handlers.understood.intents == ("HassTurnOn",)
                assert handlers.understood.names == {"name": ("lamp",)}

    asyncio.run(test())


def test_the_last_one_wins_and_the_one_before_comes_back(folder: Path) -> None:
    async def test() -> None:
        async with served(folder) as handlers, handling(folder, says("first"), "HassTurnOn", "HassTurnOff"):
            async with handling(folder, says("second"), "HassTurnOn"):
                assert str(await handlers.handle("a", ON, "")).startswith("second")
                assert str(await handlers.handle("b", OFF, "")).startswith("first")
            spoke = ""
            async with asyncio.timeout(3):
                while not spoke.startswith("first"):
                    with contextlib.suppress(HandlerFailed):  # the second is still on its way out
                        spoke = str(await handlers.handle("c", ON, ""))
                    await asyncio.sleep(0.01)

    asyncio.run(test())


def test_of_several_the_one_is_asked_that_has_what_was_named(folder: Path) -> None:
    lamps = {"name": ["Kitchen lamp", "desk lamp"], "area": ["kitchen"]}
    fan = {"name": ["fan", "desk lamp"], "area": ["hall"]}

    async def test() -> None:
        async with (
            served(folder) as handlers,
            handling(folder, says("lamps"), "HassTurnOn", names=lamps),
            handling(folder, says("fan"), "HassTurnOn", names=fan),
        ):

            async def asked(**slots: str | int | float) -> str:
                return str(await handlers.handle("q", IntentMatch(name="HassTurnOn", slots=slots), "")).split()[0]

            assert await asked(name="kitchen lamp") == "lamps"
            assert await asked(name="fan") == "fan"
            assert await asked(area="kitchen", brightness=5) == "lamps"
            assert await asked(name="fan", area="kitchen") == "fan"  # the name says more
            assert await asked(name="desk lamp", area="kitchen") == "lamps"  # both have the name
            assert await asked(name="desk lamp") == await asked(name="stove") == await asked() == "fan"  # the newest

    asyncio.run(test())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(3):
        while not condition():
            await asyncio.sleep(0.01)


def test_whoever_has_left_or_registers_nothing_is_not_asked_any_more(folder: Path) -> None:
    async def test() -> None:
        async with served(folder) as handlers:
            async with handling(folder, says("")) as client:
                async for told in client.handle(["HassTurnOn"]):
                    assert isinstance(told, wire.Registered)
                    assert handlers.understood.intents == ("HassTurnOn",)
                    break
                await until(lambda: not handlers.understood.intents)
            async with handling(folder, says(""), "HassTurnOn"):
                pass
            await until(lambda: not handlers.understood.intents)
            assert await handlers.handle("q", ON, "") is None

    asyncio.run(test())


def test_no_answer_in_time_is_a_typed_error_and_a_late_one_is_refused(folder: Path) -> None:
    async def late(client: AsyncClient, told: wire.Handle) -> None:
        await asyncio.sleep(0.3)
        with pytest.raises(UsageError, match="too late") as caught:
            await client.answer_intent(told.query_id, "Done")
        late_codes.append(caught.value.code)

    late_codes: list[str] = []

    async def test() -> None:
        async with served(folder, answer_s=0.1) as handlers, handling(folder, late, "HassTurnOn"):
            with pytest.raises(HandlerFailed, match=r"did not answer.*within 0\.1 s") as caught:
                await handlers.handle("q", ON, "")
            assert (caught.value.code, caught.value.retryable) == ("handler-no-answer", True)
            await until(lambda: late_codes == ["query-unknown"])

    asyncio.run(test())


def test_one_that_vanishes_meanwhile_is_noticed_at_once(folder: Path) -> None:
    async def test() -> None:
        async with served(folder, answer_s=10) as handlers:
            async with handling(folder, silence, "HassTurnOn"):
                asked = asyncio.create_task(handlers.handle("q", ON, ""))
                await asyncio.sleep(0.1)
                assert not asked.done()
            left = time.monotonic()
            with pytest.raises(HandlerFailed, match="did not answer: it has left"):
                await asked
            assert time.monotonic() - left < 1

    asyncio.run(test())


@pytest.mark.parametrize(("said", "told"), [("The bulb is broken.", "bulb is broken"), (" ", "reports an error")])
def test_its_own_error_is_told(folder: Path, said: str, told: str) -> None:
    async def fails(client: AsyncClient, asked: wire.Handle) -> None:
        await client.answer_intent(asked.query_id, error=said)

    async def test() -> None:
        async with served(folder) as handlers, handling(folder, fails, "HassTurnOn"):
            with pytest.raises(HandlerFailed, match=told) as caught:
                await handlers.handle("q", ON, "")
            assert caught.value.code == "handler-failed"

    asyncio.run(test())


def test_nobody_answers_for_somebody_else(folder: Path) -> None:
    async def test() -> None:
        async with (
            served(folder, answer_s=0.3) as handlers,
            handling(folder, silence, "HassTurnOn"),
            AsyncClient(folder) as stranger,
        ):
            asked = asyncio.create_task(handlers.handle("q", ON, ""))
            await asyncio.sleep(0.05)
            with pytest.raises(UsageError, match="of yours"):
                await stranger.answer_intent("q", "Done")
            with pytest.raises(HandlerFailed):
                await asked

    asyncio.run(test())


@pytest.mark.parametrize(
    ("intents", "names"),
    [
        (["Hass TurnOn"], {}),
        (["HassTurnOn\n"], {}),
        (["x" * 65], {}),
        ([f"I{n}" for n in range(room.MAX_INTENTS + 1)], {}),
        (["HassTurnOn"], {"colour": ["red"]}),
        (["HassTurnOn"], {"name": ["lamp | {area}"]}),
        (["HassTurnOn"], {"name": ["[lamp]"]}),
        (["HassTurnOn"], {"name": [""]}),
        (["HassTurnOn"], {"name": ["lamp\n"]}),
        (["HassTurnOn"], {"area": ["x" * 65]}),
        (["HassTurnOn"], {"area": ["a"] * (room.MAX_NAMES + 1)}),
    ],
)
def test_what_is_no_name_is_refused(folder: Path, intents: list[str], names: dict[str, list[str]]) -> None:
    async def test() -> None:
        async with served(folder) as handlers, AsyncClient(folder) as client:
            with pytest.raises(UsageError):
                await anext(client.handle(intents, names))
            assert handlers.understood.intents == ()

    asyncio.run(test())


def test_there_is_room_for_so_many_and_no_more(folder: Path) -> None:
    async def test() -> None:
        async with served(folder) as handlers, contextlib.AsyncExitStack() as stack:
            for number in range(room.MAX_CLIENTS):
                await stack.enter_async_context(handling(folder, silence, f"I{number}"))
            assert len(handlers.understood.intents) == room.MAX_CLIENTS
            async with AsyncClient(folder) as client:
                with pytest.raises(BusyNow) as caught:
                    await anext(client.handle(["HassTurnOn"]))
                assert caught.value.retry_after_ms

    asyncio.run(test())


@pytest.mark.parametrize("failing", [False, True])
def test_what_a_terminal_would_obey_is_left_out_of_what_a_handler_says(folder: Path, failing: bool) -> None:
    said = "\0The \x1b[31mlamp\x9b\u202e\u2066 is\n\ton\x7f."

    async def answer(client: AsyncClient, told: wire.Handle) -> None:
        await client.answer_intent(told.query_id, "" if failing else said, error=said if failing else None)

    async def test() -> str | None:
        async with served(folder) as handlers, handling(folder, answer, "HassTurnOn"):
            try:
                return await handlers.handle("q", ON, "lamp on")
            except HandlerFailed as error:
                return error.message

    assert asyncio.run(test()) == "The [31mlamp is\n\ton."


def test_names_have_a_bound_over_all_clients_and_refused_ones_change_nothing(folder: Path) -> None:
    def names(first: int, count: int, letters: int) -> dict[str, list[str]]:
        return {"name": [f"{number:05}".rjust(letters, "x") for number in range(first, first + count)]}

    share = room.MOST_LETTERS // 3 // 60

    async def test() -> None:
        async with served(folder) as handlers, contextlib.AsyncExitStack() as stack:
            for number in range(3):
                await stack.enter_async_context(
                    handling(folder, silence, "HassTurnOn", names=names(number * share, share, 60))
                )
            before = handlers.understood
            async with AsyncClient(folder) as client:
                with pytest.raises(BusyNow, match="those of others"):
                    await anext(client.handle(["HassTurnOn"], names(9_000, share, 60)))
            assert handlers.understood == before
            # the same names once more take no room
            await stack.enter_async_context(handling(folder, silence, "HassTurnOff", names=names(0, share, 60)))
            await stack.enter_async_context(handling(folder, silence, "HassLightSet", names={"area": ["den"]}))
        async with served(folder) as handlers, AsyncClient(folder) as client:
            with pytest.raises(UsageError, match=str(room.MOST_LETTERS)):
                await anext(client.handle(["HassTurnOn"], names(0, room.MAX_NAMES, 60)))
            assert handlers.understood.names == {}
        async with served(folder) as handlers, contextlib.AsyncExitStack() as stack:
            for number in range(room.MOST_NAMES // room.MAX_NAMES):
                await stack.enter_async_context(
                    handling(folder, silence, "HassTurnOn", names=names(number * room.MAX_NAMES, room.MAX_NAMES, 8))
                )
            async with AsyncClient(folder) as client:
                with pytest.raises(BusyNow, match=f"at most {room.MOST_NAMES} names"):
                    await anext(client.handle(["HassTurnOn"], {"name": ["lamp"]}))

    asyncio.run(test())


def test_what_all_understand_together_does_not_depend_on_who_came_first(folder: Path) -> None:
    async def test() -> None:
        async with served(folder) as handlers:
            seen = []
            for one, other in (("A", "B"), ("B", "A")):
                async with handling(folder, silence, one), handling(folder, silence, other):
                    seen.append(handlers.understood)
                await until(lambda: not handlers.understood.intents)
            assert seen[0] == seen[1]
            assert seen[0].intents == ("A", "B")

    asyncio.run(test())


def test_from_the_network_whoever_loses_its_right_is_not_asked_any_more(folder: Path) -> None:
    house = House(folder)
    for name, right in (("home", Right.ADMIN), ("phone", Right.SPEAK)):
        house.client(name, right)

    def address(name: str) -> Remote:
        pair, file = house.pairs[name], folder / f"{name}.key"
        lines = {"server_public_key": house.server.public, "public_key": pair.public, "secret_key": pair.secret}
        file.write_text("".join(f'{key} = "{value}"\n' for key, value in lines.items()))
        return Remote.of(file, "127.0.0.1", house.port)

    async def test() -> None:
        events, handlers = QueryEvents(), Handlers(1)
        network = security.network(("127.0.0.1", house.port), house.keys)
        runtime = sockets.prepared(house.runtime)
        async with Server(Backend(events), events, runtime, lambda: None, handlers, network=network):
            async with AsyncClient(address=address("phone")) as phone:
                with pytest.raises(UsageError, match="needs the right `admin`"):
                    await anext(phone.handle(["HassTurnOn"]))
            async with AsyncClient(address=address("home")) as home:
                told = home.handle(["HassTurnOn"])
                assert isinstance(await anext(told), wire.Registered)
                asked = asyncio.create_task(handlers.handle("q", ON, "lamp on"))
                assert (await anext(told)).text == "lamp on"
                await home.answer_intent("q", "Done")
                assert await asked == "Done"
                house.revoke("home")
                assert await handlers.handle("q", ON, "lamp on") is None
                assert handlers.understood.intents == ()

    asyncio.run(test())


def test_a_key_file_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Remote.of(tmp_path / "none.key", "host", 5123)
    (tmp_path / "half.key").write_text('public_key = "x"\n')
    with pytest.raises(ConfigError, match="server_public_key"):
        Remote.of(tmp_path / "half.key", "host", 5123)


def test_every_error_of_it_is_typed() -> None:
    assert issubclass(HandlerFailed, AssistantError)
    assert HandlerFailed("x").to_dict()["code"] == "handler-no-answer"
