"""The one vocabulary: what stages are asked, what they answer, what a query reports. Imports `errors` alone.

Frozen msgspec structs. Audio is always signed 16-bit little-endian mono PCM in a `bytes` field (never base64); its
sample rate stands beside it, or is 16 kHz where the docstring says so. Times are in milliseconds, memory in bytes
unless the field's name says MiB.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Literal

import msgspec

Mode = Literal["resident", "overlap", "sequential"]
"""All stages at once, two of them at once, or strictly one after another: what the budget allows."""

Level = Literal["normal", "elevated", "high", "critical"]
"""How hard the machine is pressed (memory, heat, supply)."""

Urgency = Literal["critical", "normal", "background"]
"""Of a query: somebody waits and must not wait longer, somebody waits, or nobody does."""

LlmVariant = Literal["full", "emergency"]
"""All layers of the model, or the graph that leaves some out: faster, worse, same weight file."""

KvHome = Literal["memory", "disk", "heap"]
"""Where the LLM's keys and values lie: files in shared memory, files on a disk, or MNN's own allocator."""

VoiceState = Literal["idle", "listening", "processing", "responding"]
FallbackFor = Literal["query", "pause", "next"]
"""What a local stage does in the place of a server: the rest of the query in which that failed; all of a query in the
pause after a failure; only the next queries, because this one has told half an answer already and fails."""
"""What the assistant is doing, as Home Assistant names it."""

Emit = Callable[[str, dict[str, object]], None]
"""Takes an event: its name and its data."""

ASR_RATE = 16_000
"""Sample rate in Hz of everything that a recogniser or a voice activity detector is given."""


class Stage(StrEnum):
    ASR = "asr"
    INTENT = "intent"
    LLM = "llm"
    TTS = "tts"


STAGE_ORDER = (Stage.ASR, Stage.INTENT, Stage.LLM, Stage.TTS)


class Outcome(StrEnum):
    ANSWERED = "answered"
    HANDLED = "handled"
    CANCELLED = "cancelled"
    FAILED = "failed"


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Tagged by its class name, so that a union of messages decodes to the right one."""


# --- requests to stages ---------------------------------------------------------------------------------------------
class AsrRequest(_Message, frozen=True, kw_only=True):
    pcm: bytes
    """s16le mono at 16 kHz; the caller has made sure that somebody speaks in it, or will."""
    live: bool = False
    """More sound follows while it is recognised; `pcm` is what there is of it so far. Only for engines that stream."""


class IntentMatch(_Message, frozen=True, kw_only=True):
    """One request of a sentence; most sentences have one."""

    name: str | None
    """None: no local command."""
    score: float = 0.0
    slots: dict[str, str | int | float] = {}
    source: Literal["none", "template", "classifier"] = "none"
    text: str = ""
    """The part of the sentence that it is; of no command, what the LLM shall be asked."""


class IntentRequest(_Message, frozen=True, kw_only=True):
    text: str
    pending: IntentMatch | None = None
    """A command that lacked something, which the user was asked for."""
    wanted: str = ""
    """The slot that it lacked: the text may be nothing but its value."""


class Turn(_Message, frozen=True, kw_only=True):
    role: Literal["system", "user", "assistant"]
    content: str


class Sampling(_Message, frozen=True, kw_only=True):
    temperature: float = 0.0
    """0 = greedy."""
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.1
    seed: int | None = None


class LlmRequest(_Message, frozen=True, kw_only=True):
    turns: tuple[Turn, ...]
    sampling: Sampling = Sampling()
    max_new_tokens: int = 96
    stop: tuple[str, ...] = ()
    prefill_chunk: int | None = None
    """The most prompt tokens at once; None = as the engine was configured. A smaller chunk leaves gaps for others."""
    conversation: str = ""
    """Whose key-value cache goes on; empty = nobody's. What the cache holds of the prompt already is not computed
    again, whoever asked for it."""
    variant: LlmVariant = "full"
    duty: float = 1.0
    """Share of the time in which the engine may compute, 0 < duty <= 1; it rests in between."""
    ahead: bool = False
    """Nothing is answered: the keys and values of what the prompt begins with, whatever follows the last words of the
    last turn, are computed ahead."""


class TtsRequest(_Message, frozen=True, kw_only=True):
    text: str
    """Speakable text: see `speech_text`."""


StageRequest = AsrRequest | IntentRequest | LlmRequest | TtsRequest


# --- what stages answer ---------------------------------------------------------------------------------------------
class Progress(_Message, frozen=True, kw_only=True):
    """Nothing to hand over yet, but work was done: keeps the watchdog quiet and lets a cancel in."""

    done: int
    total: int


class Transcript(_Message, frozen=True, kw_only=True):
    text: str
    final: bool
    confidence: float = 1.0
    """0..1; engines without a measure say 1."""
    segment_end: bool = False
    """The engine's own hint: the speaker has paused, and what it heard so far will not change any more."""


class LlmDelta(_Message, frozen=True, kw_only=True):
    text: str
    tokens: int


class LlmDone(_Message, frozen=True, kw_only=True):
    reason: Literal["stop", "length"]
    prompt_tokens: int
    reused_tokens: int = 0
    """Of the prompt: those that were in the key-value cache already."""
    dropped_turns: int = 0
    """Oldest turns (without the system's) that did not fit into the context any more, and need not be sent again."""
    variant: LlmVariant = "full"
    kv_share: float = 0.0
    """Of the room that is promised for keys and values, what has been taken."""
    new_tokens: int
    prefill_ms: float
    decode_ms: float


class TtsAudio(_Message, frozen=True, kw_only=True):
    pcm: bytes
    """s16le mono."""
    sample_rate: int


StageOutput = Progress | Transcript | IntentMatch | LlmDelta | LlmDone | TtsAudio


# --- what a query reports -------------------------------------------------------------------------------------------
class IntentReport(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None
    score: float = 0.0
    slots: dict[str, str | int | float] = {}
    source: Literal["none", "template", "classifier"] = "none"


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    stage: str | None = None
    retryable: bool = False
    retry_after_ms: int | None = None
    status: int | msgspec.UnsetType = msgspec.UNSET


class AudioReport(msgspec.Struct, frozen=True, kw_only=True):
    path: str | None
    sample_rate: int
    seconds: float


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds; a part that did not take place is 0."""

    asr: float = 0
    intent: float = 0
    llm_first_token: float = 0
    llm: float = 0
    tts_first_audio: float = 0
    speech_end_to_first_audio: float = 0
    total: float = 0


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    engine: str
    model: str
    load_ms: float
    run_ms: float
    anon_mib: float
    file_mib: float


class MemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    budget_mib: float
    margin_mib: float
    peak_mib: float
    peak_anon_mib: float
    mode: Mode


class QueryReport(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of `assistant ask`; fixed."""

    query_id: str
    transcript: str
    intent: IntentReport
    reply: str
    outcome: Outcome
    error: ErrorReport | None
    audio: AudioReport | None
    timings_ms: Timings
    stages: tuple[StageReport, ...]
    memory: MemoryReport
