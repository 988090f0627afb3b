"""Answers to the clients of one socket: at once or awaited, whatever a client does with them. Imports `framing`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from assistant.api import framing, wire
from assistant.api.endpoint import Endpoint, Peer, PeerGone, PeerSlow
from assistant.errors import AssistantError, EngineFailed

log = logging.getLogger(__name__)


class Replies:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def send(self, peer: Peer, frames: list[bytes]) -> None:
        """Waits for a client that does not read. Raises `PeerGone`."""
        await self._endpoint.send(peer, frames)

    def now(self, peer: Peer, reply: wire.Reply, parent: str | None) -> None:
        """A reply for which a client has left no room is lost: nobody waits for one that does not read."""
        try:
            self._endpoint.send_now(peer, framing.encode(reply, parent=parent))
        except PeerSlow:
            log.info("a client does not read; a reply to it is lost")
        except PeerGone:
            pass

    @contextlib.contextmanager
    def answering(self, peer: Peer, frames: list[bytes]) -> Iterator[None]:
        """Whatever is raised inside is the answer."""
        try:
            yield
        except AssistantError as error:
            told = error.with_traceback(None)  # which holds the frames, and by `told` itself, until the next collection
        except Exception as error:
            log.exception("a message ended with an error of ours")
            told = ours(error)
        else:
            return
        self.now(peer, wire.failure(told), framing.id_of(frames))


def ours(error: Exception) -> AssistantError:
    """What a client hears of a mistake of ours."""
    return EngineFailed(f"the daemon made a mistake ({type(error).__name__}); its log has more", code="internal")
