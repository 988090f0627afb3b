"""What a client may ask for, one coroutine each: takes the request, sends the events of the answer.

Imports `wyoming`'s events, `messages` and `query`; knows no socket. Raises the assistant's errors; whoever runs a job
makes an `error` event of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from wyoming.asr import Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.event import Eventable
from wyoming.handle import Handled, HandledChunk, HandledStart, HandledStop, NotHandled
from wyoming.intent import Entity, Intent, NotRecognized
from wyoming.tts import SynthesizeStopped

from assistant.api import wire
from assistant.api.queries import Queries
from assistant.api.wyoming.asking import replies_of
from assistant.api.wyoming.backend import Services
from assistant.errors import AssistantError, BadText, NoSpeech, UsageError
from assistant.messages import ASR_RATE, ErrorReport
from assistant.query import checked_conversation

Send = Callable[[Eventable], Awaitable[None]]

MAX_SPOKEN = 20_000
"""Characters of a text that is only spoken: twenty minutes."""
_CHUNK_BYTES = 16_384


class Texts:
    """A text that comes in pieces."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self._characters = 0

    def feed(self, text: str) -> None:
        """Raises `BadText` code "text-too-long"."""
        self._characters += len(text)
        if self._characters > MAX_SPOKEN:
            raise BadText(f"the text is too long; at most {MAX_SPOKEN} characters are spoken", code="text-too-long")
        if text:
            self._pieces.put_nowait(text.replace("\0", " "))

    def end(self) -> None:
        self._pieces.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[str]:
        while (piece := await self._pieces.get()) is not None:
            yield piece


async def transcribe(services: Services, pcm: bytes, send: Send) -> None:
    """What will not change any more, as it is known; the whole at the end. Silence is an empty transcript."""
    told = text = ""
    await send(TranscriptStart())
    try:
        async with aclosing(services.transcribe(pcm)) as results:
            async for out in results:
                text = out.text.strip()
                if len(text) > len(told) and text.startswith(told):
                    await send(TranscriptChunk(text[len(told) :]))
                    told = text
    except NoSpeech:
        text = ""
    await send(Transcript(text))
    await send(TranscriptStop())


async def speak(services: Services, texts: Texts, send: Send, *, streamed: bool) -> None:
    """Sound as it is made; a text that no voice can say is no sound."""
    rate = 0
    async with aclosing(services.synthesize(aiter(texts))) as sounds:
        async for out in sounds:
            if not rate:
                rate = out.sample_rate
                await send(AudioStart(rate=rate, width=2, channels=1))
            for at in range(0, len(out.pcm), _CHUNK_BYTES):
                piece = out.pcm[at : at + _CHUNK_BYTES]
                await send(AudioChunk(rate=out.sample_rate, width=2, channels=1, audio=piece))
    if not rate:
        await send(AudioStart(rate=ASR_RATE, width=2, channels=1))
    await send(AudioStop())
    if streamed:
        await send(SynthesizeStopped())


async def recognise(services: Services, text: str, context: Any, send: Send) -> None:
    match = await services.recognise(text)
    if match.name is None:
        await send(NotRecognized(text="no local command", context=context))
        return
    entities = [Entity(name=name, value=value) for name, value in match.slots.items()]
    await send(Intent(name=match.name, entities=entities, context=context))


async def ask(queries: Queries, client: Hashable, text: str, context: Any, send: Send) -> None:
    """A question, answered by a local command or the LLM, in the conversation that the context names, if it does. Tells
    why it is not handled before it raises an error, whatever it is."""
    async with not_handled(context, send):
        await _answered(queries, client, text, context, send)


@asynccontextmanager
async def not_handled(context: Any, send: Send) -> AsyncIterator[None]:
    """Tells a client, which waits for an answer to its question, why there is none."""
    try:
        yield
    except AssistantError as error:
        await send(NotHandled(text=error.message, context=context))
        raise


async def _answered(queries: Queries, client: Hashable, text: str, context: Any, send: Send) -> None:
    told = False
    async with aclosing(replies_of(queries, text, _conversation(context), client)) as replies:
        async for reply in replies:
            match reply:
                case wire.Event(name="reply-delta", data={"text": str(delta)}):
                    if not told:
                        await send(HandledStart(context=context))
                    told = True
                    await send(HandledChunk(delta))
                case wire.Report(error=None):
                    if not told:
                        await send(HandledStart(context=context))
                        await send(HandledChunk(reply.reply))
                    await send(Handled(text=reply.reply, context=context))
                    await send(HandledStop())
                case wire.Report(error=ErrorReport() as error) | (wire.Failure() as error):
                    raise AssistantError(error.message, code=error.code)


def _conversation(context: Any) -> str | None:
    """Of Home Assistant's context; a name that is none of ours is no conversation."""
    name = context.get("conversation_id") if isinstance(context, dict) else None
    try:
        return checked_conversation(f"wyoming:{name}") if isinstance(name, str) else None
    except UsageError:
        return None
