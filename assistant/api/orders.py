"""What takes time and has one reply: loads, unloads, announcements. A few at a time, each answered exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from assistant.api import framing, wire
from assistant.api.endpoint import Peer, PeerGone
from assistant.api.replies import Replies, ours
from assistant.errors import AssistantError, BusyNow, Cancelled

log = logging.getLogger(__name__)

MOST = 8
"""At the same time."""
_BUSY_MS = 1000


@dataclass(slots=True)
class _Order:
    peer: Peer
    parent: str
    name: str
    told: bool = False


class Orders:
    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._orders: dict[asyncio.Task[None], _Order] = {}

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        return set(self._orders)

    def begin(
        self, peer: Peer, parent: str, name: str, work: Coroutine[Any, Any, wire.Reply], *, for_them: bool = False
    ) -> None:
        """`name`: what is cancelled, if it is. `for_them`: it ends when whoever asked has gone; a load stays for the
        next one. Raises `BusyNow` when there are too many."""
        if len(self._orders) >= MOST:
            work.close()
            raise BusyNow(f"{MOST} loads and unloads are under way", retry_after_ms=_BUSY_MS)
        order = _Order(peer, parent, name)
        doing = asyncio.ensure_future(work)
        task = asyncio.create_task(self._fulfil(order, doing))
        # a task that is cancelled before its first step takes none: what it waits for has to hear of it, too
        task.add_done_callback(lambda _: doing.cancel())
        self._orders[task] = order
        if for_them:

            def gone(_: object) -> None:
                task.cancel()

            peer.left.add_done_callback(gone)
            task.add_done_callback(lambda _: peer.left.remove_done_callback(gone))
        task.add_done_callback(lambda ended: self._orders.pop(ended))

    async def _fulfil(self, order: _Order, work: asyncio.Future[wire.Reply]) -> None:
        reply: wire.Reply
        try:
            reply = await work
        except AssistantError as error:
            reply = wire.failure(error)
        except asyncio.CancelledError:
            self._tell(order, wire.failure(Cancelled(f"{order.name} was cancelled")))
            raise
        except Exception as error:
            log.exception("%s ended with an error of ours", order.name)
            reply = wire.failure(ours(error))
        if not order.told:
            order.told = True
            with contextlib.suppress(PeerGone):
                await self._replies.send(order.peer, framing.encode(reply, parent=order.parent))

    def stop(self) -> None:
        """Tells first: what an order does may take longer to stop than anybody waits."""
        for task, order in self._orders.items():
            self._tell(order, wire.failure(Cancelled(f"the daemon is stopping; {order.name} was cancelled")))
            task.cancel()

    def _tell(self, order: _Order, reply: wire.Reply) -> None:
        """Once, and without a wait."""
        if not order.told:
            order.told = True
            self._replies.now(order.peer, reply, order.parent)
