"""The mixed queries that load benchmarks ask: spoken and typed, for the LLM and for a skill, answered aloud or not.

The same number of queries is always the same queries. Spoken ones are the shipped recording and what our own voice
says; that voice runs once, before anything is measured.
"""

from __future__ import annotations

import asyncio
import io
import random
import wave
from collections.abc import Iterator
from dataclasses import dataclass

from assistant import config as settings
from assistant import paths
from assistant.api import wire
from assistant.api.client import Client
from assistant.audio.formats import read_audio
from assistant.daemon_specs import stage_spec
from assistant.errors import AssistantError
from assistant.messages import Stage, TtsAudio, TtsRequest
from assistant.model_store.store import ModelStore
from assistant.stages.fork_client import ForkServer
from assistant.stages.process import Worker
from assistant.stages.registry import engine_path

QUESTIONS = (
    "What is the capital of France?",
    "Name three fruits that are red.",
    "Why is the sky blue?",
    "What do bees make?",
    "Tell me something about the ocean and the animals that live in it, and why it is salty.",
)
COMMANDS = ("What time is it?", "What's the date today?", "What time is it now?")
_SAID = ("Why is the sky blue?", "What time is it?")
"""A question and a command that our own voice says."""
KINDS = (
    "spoken question",
    "typed question, aloud",
    "typed question, silent",
    "spoken command",
    "typed command, aloud",
    "typed command, silent",
)
_SEED = 20


@dataclass(frozen=True, slots=True)
class Asked:
    kind: str
    text: str | None
    pcm: bytes
    """s16le mono 16 kHz, when there is no text."""
    speech: bool


@dataclass(frozen=True, slots=True)
class Told:
    """How one query ended."""

    kind: str
    code: str
    """Of its error; empty when it was answered."""
    message: str
    exit_code: int
    total_ms: float
    mode: str
    evicted_for: tuple[str, ...] = ()
    """Of each stage that was sent away while it ran: for which stage, or why. Known of a streamed query alone."""


@dataclass(frozen=True, slots=True)
class Voices:
    """Recordings, s16le mono 16 kHz."""

    questions: tuple[bytes, ...]
    commands: tuple[bytes, ...]


def voices() -> Voices:
    """The shipped question, and what our own voice says. Raises `ModelError`, `StageError`."""
    shipped = read_audio(paths.data_file("question.wav")).pcm
    question, command = asyncio.run(_said(_SAID))
    return Voices(questions=(shipped, question), commands=(command,))


async def _said(texts: tuple[str, ...]) -> list[bytes]:
    spec = stage_spec(Stage.TTS, settings.load(), ModelStore.default())
    spec.cache_dir.mkdir(parents=True, exist_ok=True)
    server = ForkServer()
    server.start()
    try:
        worker = Worker(Stage.TTS, server)
        try:
            await worker.prepare(engine_path(spec.stage, spec.engine), spec.start_timeout_s)
            await worker.load(spec.engine_config(spec.threads), spec.start_deadline_s)
            return [await _one(worker, text, spec.step_timeout_s) for text in texts]
        finally:
            await worker.stop()
    finally:
        await server.close()


async def _one(worker: Worker, text: str, step_timeout_s: float) -> bytes:
    pcm, rate = b"", 0
    async for out in worker.run(TtsRequest(text=text), step_timeout_s):
        if isinstance(out, TtsAudio):
            pcm, rate = pcm + out.pcm, out.sample_rate
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        quiet = bytes(2 * (rate // 4))  # a quarter of a second, as a microphone would have it
        sound.writeframes(quiet + pcm + quiet)
    file.seek(0)
    return read_audio(file).pcm


def queries(count: int, recorded: Voices) -> Iterator[Asked]:
    """`count` queries: every kind once in each six, in changing order."""
    order = random.Random(_SEED)
    kinds: list[str] = []
    for number in range(count):
        if not kinds:
            kinds = list(KINDS)
            order.shuffle(kinds)
        kind = kinds.pop()
        turn = number // len(KINDS)
        question = "question" in kind
        if kind.startswith("spoken"):
            sounds = recorded.questions if question else recorded.commands
            yield Asked(kind, None, sounds[turn % len(sounds)], True)
        else:
            texts = QUESTIONS if question else COMMANDS
            yield Asked(kind, texts[turn % len(texts)], b"", kind.endswith("aloud"))


def ask(client: Client, asked: Asked, *, stream: bool = False) -> Told:
    """One query to its end; its sound goes nowhere. Never raises `AssistantError`: that is one of the ends."""
    evicted: list[str] = []
    report = None
    try:
        sent = client.ask(wire.Ask(text=asked.text, speech=asked.speech, stream=stream), asked.pcm)
        for reply, _ in client.replies(sent):
            if isinstance(reply, wire.Report):
                report = reply
            elif isinstance(reply, wire.Event) and reply.name == "memory-evict":
                evicted.append(str(reply.data.get("for", "")))
    except AssistantError as error:
        return Told(asked.kind, error.code, error.message, int(error.exit_code), 0, "", tuple(evicted))
    assert report is not None  # it is the last reply, or `replies` has raised
    code, message = (report.error.code, report.error.message) if report.error else ("", "")
    total_ms, mode = report.timings_ms.total, report.memory.mode
    return Told(asked.kind, code, message, report.exit_code, total_ms, mode, tuple(evicted))
