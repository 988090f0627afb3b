"""What the LLM is asked for a query, and what stays of its answer in the conversation. Pure; runs nothing.

Imports `memory_orchestrator.elastic`, `messages` and `pipeline_run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from assistant.memory_orchestrator.elastic import Available, Configured, effort
from assistant.messages import Level, LlmDone, LlmRequest, Sampling, Turn
from assistant.pipeline_run import Run

CUT = " …"
"""Behind an answer that ended at its longest: nobody shall take it for the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmSettings:
    system_prompt: str
    sampling: Sampling
    max_new_tokens: int
    prefill_chunk: int = 128
    slots: int = 1
    """Queries that may be at the LLM at the same time."""


def request_of(run: Run, settings: LlmSettings, level: Level, *, emergency: bool) -> LlmRequest:
    """The system's turn, what was said before, and the user's.

    `emergency`: whether the model has such a graph. Raises `BusyNow`: see `effort`.
    """
    turns = [*run.history, Turn(role="user", content=run.question or run.transcript)]
    if settings.system_prompt:
        turns.insert(0, Turn(role="system", content=settings.system_prompt))
    configured = Configured(
        prefill_chunk=settings.prefill_chunk, max_new_tokens=settings.max_new_tokens, threads=1
    )  # the threads are the engine's
    wanted = effort(run.query.urgency, level, configured, Available(emergency=emergency))
    return LlmRequest(
        turns=tuple(turns),
        sampling=settings.sampling,
        max_new_tokens=wanted.max_new_tokens,
        prefill_chunk=wanted.prefill_chunk,
        conversation=run.query.conversation,
        variant=wanted.variant,
        duty=wanted.duty,
    )


def begun_request(run: Run, text: str, settings: LlmSettings, level: Level) -> LlmRequest:
    """Of the beginning of the prompt, as far as the question is known: `text`, which may be empty."""
    request = request_of(run, settings, level, emergency=False)
    return msgspec.structs.replace(request, turns=(*request.turns[:-1], Turn(role="user", content=text)), ahead=True)


def llm_figures(done: LlmDone) -> dict[str, object]:
    """What the event `llm-end` tells of the work: tokens and milliseconds."""
    return {
        "prompt_tokens": done.prompt_tokens,
        "reused_tokens": done.reused_tokens,
        "new_tokens": done.new_tokens,
        "prefill_ms": round(done.prefill_ms, 1),
        "decode_ms": round(done.decode_ms, 1),
    }


def heard(run: Run, *, whole: bool) -> str:
    """What the user knows of the answer: all of it when the query ended well (`whole`); of an interrupted one the
    sentences of which he has heard something, or without a voice the text that was given out so far."""
    known = run.reply
    if not whole and run.query.sink is not None:
        known = "" if run.query.sink_waits else _up_to(run.reply, run.spoken)
    return known.removesuffix(CUT).strip()


def _up_to(reply: str, spoken: Sequence[str]) -> str:
    """The reply as far as the last of the pieces, which lie in it in order."""
    end = 0
    for piece in spoken:
        found = reply.find(piece, end)
        end = found + len(piece) if found >= 0 else end
    return reply[:end]
