"""`ask`: from a message to a query in the line, and its replies in order to whoever asked.

Imports `queries` and `live`.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from assistant.api import framing, wire
from assistant.api.callers import Caller
from assistant.api.endpoint import Peer, PeerGone
from assistant.api.jobs import Job
from assistant.api.live import MAX_BYTES, SentSpeech
from assistant.api.queries import Queries
from assistant.api.replies import Replies
from assistant.audio.front_messages import EndpointSettings
from assistant.errors import UsageError

log = logging.getLogger(__name__)


class Asking:
    def __init__(self, queries: Queries, replies: Replies, endpoint: EndpointSettings) -> None:
        """`endpoint`: when somebody has finished speaking whose sound a client sends."""
        self._queries, self._replies, self._endpoint = queries, replies, endpoint
        self._sent: dict[tuple[Caller, str], SentSpeech] = {}
        """What is being spoken, by its client and the id of its `ask`."""
        self._askers: dict[str | None, str] = {}
        """Queries of clients from the network: who asked, by the public key."""
        self.deliveries: set[asyncio.Task[None]] = set()
        """Replies on their way."""

    def ask(self, peer: Peer, message: framing.Received) -> None:
        """Raises `UsageError`, `BusyNow`, `Cancelled`; what comes later is told as replies."""
        ask: wire.Ask = message.data
        sound = bool(message.pcm or ask.more)
        if ask.text is None and not sound:
            raise UsageError(
                "`ask` has neither a `text`, nor PCM frames behind the header, nor `more` with sound that follows",
                code="bad-message",
            )
        if ask.text is not None and sound:
            raise UsageError("`ask` has a `text` and sound (PCM frames or `more`); it takes one", code="bad-message")
        _check_samples(message.pcm)
        key = (peer.caller, message.id)
        if key in self._sent:
            raise UsageError(f"sound for an `ask` with the id {message.id[:64]!r} is still coming", code="bad-message")
        outbox: asyncio.Queue[list[bytes]] = asyncio.Queue()

        def tell(reply: wire.Reply, pcm: bytes) -> None:
            if peer.user is not None and isinstance(reply, wire.Event) and "query_id" not in reply.data:
                return  # what goes on in the house is for those who may observe, at the socket of the events
            outbox.put_nowait(framing.encode(reply, parent=message.id, pcm=pcm))

        sent = SentSpeech(self._endpoint, endpointing=ask.endpointing) if ask.more else None
        job = Job(_theirs(ask, peer), message.pcm, tell, client=peer.user or peer.caller, live=sent)
        if sent is not None:
            job.size = MAX_BYTES  # what it may become
            sent.put(message.pcm, False)
        self._queries.submit(job)

        def abandoned(_: object) -> None:
            self._abandoned(job)

        # at once, not when there is something to tell: a load or a long recording may be silent for a while
        peer.left.add_done_callback(abandoned)
        task = asyncio.create_task(self._deliver(peer, outbox, job))
        self.deliveries.add(task)
        task.add_done_callback(self.deliveries.discard)
        # a client may stay for years: nothing of its queries stays with it
        task.add_done_callback(lambda _: peer.left.remove_done_callback(abandoned))
        if peer.user is not None:
            self._askers[job.id] = peer.user.key
            task.add_done_callback(lambda _: self._askers.pop(job.id))
        if sent is not None:
            self._sent[key] = sent
            task.add_done_callback(lambda _: self._sent.pop(key))

    def asked_by(self, query_id: str | None) -> str | None:
        """The public key of the client from the network that asked it and waits for its answer."""
        return self._askers.get(query_id)

    def sound(self, peer: Peer, message: framing.Received) -> None:
        """The next sound of an `ask` with `more`. Raises `UsageError`."""
        told: wire.AskSound = message.data
        _check_samples(message.pcm)
        sent = self._sent.get((peer.caller, told.ask))
        if sent is None:
            raise UsageError(f"no `ask` of yours with the id {told.ask[:64]!r} takes sound", code="query-unknown")
        sent.put(message.pcm, told.last)

    def _abandoned(self, job: Job) -> None:
        if not job.ended:
            log.info("the caller of query %s has gone", job.id)
            self._queries.cancel(job.id)

    async def _deliver(self, peer: Peer, outbox: asyncio.Queue[list[bytes]], job: Job) -> None:
        """Sends what the query tells, in order, up to its last reply. A caller that has gone needs no answer."""
        while True:
            frames = await outbox.get()
            try:
                await self._replies.send(peer, frames)
            except PeerGone:
                return self._abandoned(job)
            if job.ended and outbox.empty():
                return


def _theirs(ask: wire.Ask, peer: Peer) -> wire.Ask:
    """A client from the network goes on with its own conversations, and with nobody else's whose names it knows."""
    if peer.user is None or ask.conversation is None:
        return ask
    return msgspec.structs.replace(ask, conversation=f"{peer.user.name}:{ask.conversation}")


def _check_samples(pcm: bytes) -> None:
    if len(pcm) % 2:
        raise UsageError("the PCM frames hold half a sample; s16le mono at 16 kHz is expected", code="bad-message")
