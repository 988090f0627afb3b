"""Single stages for programs that want no whole query: words of a recording, sound of a text, the intent of a sentence.

Each holds its stage for as long as it works, under the same ledger as the queries, and ends with whoever asked for it.
Imports the memory orchestrator and `pipeline_speech`; knows no protocol. What each costs is told as event
`service-end`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager

from assistant.errors import AssistantError
from assistant.memory_orchestrator.orchestrator import MemoryOrchestrator
from assistant.messages import (
    AsrRequest,
    Emit,
    IntentMatch,
    IntentRequest,
    Stage,
    Transcript,
    TtsAudio,
    TtsRequest,
)
from assistant.messages_status import ProgramStatus
from assistant.pipeline_speech import speech_of
from assistant.query import checked_text
from assistant.sentences import SentenceSplitter, spoken_parts
from assistant.speech_language import of_voice
from assistant.speech_text import SpeechText
from assistant.stages.supervisor import Supervisor
from assistant.tasks import in_own_thread


class Services:
    def __init__(
        self,
        *,
        memory: MemoryOrchestrator,
        stages: Callable[[Stage], Awaitable[Supervisor]],
        known: Callable[[], Iterable[Supervisor]] = tuple,
        languages: Callable[[Stage], str] = lambda stage: "",
        failed: Callable[[Stage, Exception], None] = lambda stage, error: None,
        emit: Emit = lambda name, data: None,
        lease_deadline_s: float = 30,
    ) -> None:
        """`stages` looks up the supervisor of a stage, or raises `ModelError`; `known`: what was found last, without
        a look. `languages`: as configured; empty = the model decides. `failed` is told what a stage raised."""
        self._memory, self._stages, self._known = memory, stages, known
        self._languages, self._failed = languages, failed
        self._emit = emit
        self._lease_deadline_s = lease_deadline_s

    def programs(self) -> tuple[ProgramStatus, ...]:
        """The stages whose models can be used."""
        return tuple(
            ProgramStatus(
                stage=one.spec.stage, engine=one.engine, model=one.model, language=self._languages(one.spec.stage)
            )
            for one in self._known()
        )

    def ahead(self, stage: Stage) -> None:
        """Somebody will need it soon: loaded if there is room."""
        for one in self._known():
            if one.spec.stage is stage:
                self._memory.prefetch(one)

    async def transcribe(self, pcm: bytes) -> AsyncGenerator[Transcript]:
        """What is said in s16le mono 16 kHz: what will not change any more, and at the end a final one. Raises
        `NoSpeech`, `MemoryRefused`, `ModelError`, `StageError`."""
        recogniser = await self._stages(Stage.ASR)
        with self._told("transcribe", Stage.ASR):
            speech = await in_own_thread(functools.partial(speech_of, lambda: pcm))
            request = AsrRequest(pcm=speech)
            async with (
                self._memory.lease(recogniser, deadline_s=self._lease_deadline_s),
                aclosing(recogniser.run(request)) as results,
            ):
                async for out in results:
                    # of an engine that streams, words may still change until their segment is closed
                    if isinstance(out, Transcript) and (out.final or out.segment_end or not recogniser.streaming):
                        yield out

    async def synthesize(self, texts: AsyncIterator[str]) -> AsyncGenerator[TtsAudio]:
        """The sound of a text that comes in pieces, sentence by sentence. Nothing for what no voice can say. The voice
        is taken with the first sentence. Raises `MemoryRefused`, `ModelError`, `StageError` and what `texts` raises."""
        voice = await self._stages(Stage.TTS)
        spec = voice.spec
        sentences = _sentences(texts, of_voice(spec.model, configured=spec.language))
        async with aclosing(sentences):
            first = await anext(sentences, None)
            if first is None:
                return
            with self._told("synthesize", Stage.TTS):
                async with self._memory.lease(voice, deadline_s=self._lease_deadline_s):
                    sentence: str | None = first
                    while sentence is not None:
                        async with aclosing(_said(voice, sentence)) as sounds:
                            async for out in sounds:
                                yield out
                        sentence = await anext(sentences, None)

    async def recognise(self, text: str) -> IntentMatch:
        """Which local command it is; `name` None for none. Raises `BadText`, `MemoryRefused`, `StageError`."""
        request = IntentRequest(text=checked_text(text, "sentence"))
        recogniser = await self._stages(Stage.INTENT)
        match = IntentMatch(name=None)
        with self._told("recognise", Stage.INTENT):
            async with (
                self._memory.lease(recogniser, deadline_s=self._lease_deadline_s),
                aclosing(recogniser.run(request)) as results,
            ):
                async for out in results:
                    if isinstance(out, IntentMatch):
                        match = out
        return match

    @contextmanager
    def _told(self, service: str, stage: Stage) -> Iterator[None]:
        started, code = time.monotonic(), ""
        try:
            yield
        except AssistantError as error:
            code = error.code
            self._failed(stage, error)
            raise
        except BaseException:
            code = "cancelled"
            raise
        finally:
            took_ms = round((time.monotonic() - started) * 1000, 1)
            self._emit("service-end", {"service": service, "stage": stage.value, "ms": took_ms, "code": code})


async def _sentences(texts: AsyncIterator[str], language: str) -> AsyncGenerator[str]:
    """Of a text in pieces, as a voice of this language says them."""
    splitter, speech = SentenceSplitter(), SpeechText(language)
    async for text in texts:
        for piece in splitter.feed(text):
            for said in spoken_parts(speech.say(piece)):
                yield said
    for piece in splitter.flush():
        for said in spoken_parts(speech.say(piece)):
            yield said


async def _said(voice: Supervisor, text: str) -> AsyncGenerator[TtsAudio]:
    async with aclosing(voice.run(TtsRequest(text=text))) as results:
        async for out in results:
            if isinstance(out, TtsAudio):
                yield out
