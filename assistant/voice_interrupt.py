"""Hears somebody say "stop" while the assistant thinks or speaks, for words that no wake model knows.

A short utterance with silence around it is recognised aside from everything else, as far as memory allows. Where our
own voice comes back through the microphone there is no silence around anything: a wake word, or a stop word with a
model of its own, works there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from assistant.audio.front_messages import Attend, EndpointSettings
from assistant.errors import DeviceError
from assistant.tasks import uninterrupted
from assistant.voice_live import Utterance
from assistant.voice_stop import LONGEST_S, means_stop

log = logging.getLogger(__name__)

_ORDER = Attend(session=0, endpoint=EndpointSettings(end_silence_s=0.25, no_speech_s=0, max_s=4.0))


class StopListener:
    """`begin` and `end` as often as one likes; `stop` is called at most once in between."""

    def __init__(
        self,
        opened: Callable[[Attend], Utterance],
        closed: Callable[[int], None],
        transcribe: Callable[[bytes], Awaitable[str]],
        stop: Callable[[], object],
        ringing: Callable[[], bool],
    ) -> None:
        """`opened` gives a session of its own, `closed` ends it. While something is `ringing`, other words say to stop
        as well."""
        self._opened, self._closed, self._transcribe, self._stop = opened, closed, transcribe, stop
        self._ringing = ringing
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._listen())

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        task = self._task
        self.end()
        if task is not None:
            await uninterrupted(asyncio.gather(task, return_exceptions=True))

    async def _listen(self) -> None:
        utterance = self._opened(_ORDER)
        try:
            async for event in utterance.events():
                if event.what != "end":
                    continue
                if 0 < event.speech_s <= LONGEST_S and self._means_stop(await self._transcribe(utterance.pcm)):
                    log.info("told to stop")
                    self._stop()
                    return
                utterance.forget()
                utterance.go_on()
        except DeviceError as error:
            log.info("nobody can say stop: %s", error.message)
        finally:
            self._closed(utterance.session)

    def _means_stop(self, text: str) -> bool:
        return means_stop(text, ringing=self._ringing())
