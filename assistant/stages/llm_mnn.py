"""LLM engine on MNN: our own token loop over `forward`, so that streaming, cancel and sampling are ours.

Weights are mapped from a guarded cache (`mnn_cache`), embedding rows are read from disk by MNN, the prompt goes in
chunks. The key-value cache is emptied at the start of each request. Only a worker imports this module.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.errors import BadText, ConfigError, EngineFailed, ModelDamaged
from assistant.messages import LlmDelta, LlmDone, LlmRequest, Progress, Turn
from assistant.model_store.derived import NOT_WRITABLE, Found, Free
from assistant.model_store.derived_check import Check
from assistant.model_store.vocabulary import Vocabulary
from assistant.stages import mnn_cache
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.llm_mnn_weights import forward, makes_sense, open_model
from assistant.stages.sampling import Sampler
from assistant.stages.token_text import TokenText, opens_thinking

log = logging.getLogger(__name__)

CACHE_DAMAGED = "cache-damaged"
_LEAST_ANSWER = 16
"""Tokens that must be left for the answer; a prompt that leaves fewer is refused."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    context_tokens: int = 1024
    """Of one conversation: prompt and answer together."""
    slots: int = 1
    """Conversations whose keys and values are kept at the same time."""
    attention_mode: int = 8
    kv_dir: str = ""
    """Where the folder for the files of keys and values is made; empty = MNN keeps them on its heap."""
    prefill_chunk: int = 128
    """Tokens of the prompt per step: bounds workspace, and how long a cancel can take."""


class MnnLlm:
    """`Engine[LlmRequest, Progress | LlmDelta | LlmDone]`."""

    def __init__(self, config: EngineConfig, free: Free | None = None) -> None:
        """`free`: for tests, the bytes that the cache's disk is said to have. Raises `ConfigError`."""
        self._config = config
        try:
            self._options = msgspec.convert(dict(config.options), Options)
        except msgspec.ValidationError as error:
            raise ConfigError(f"stages.llm: {error}") from None
        self._llm: Any = None
        self._cache = mnn_cache.cache_of(config, free)
        self._mapped: Found | None = None
        self._exceptional = False
        self._check: Check | None = None
        self._context = self._options.context_tokens
        self._vocabulary: Vocabulary

    @property
    def info(self) -> EngineInfo:
        folder = str(self._mapped.path) if self._mapped else ""
        return EngineInfo(
            name="mnn", model=self._config.model, streaming=True, derived=folder, exceptional=self._exceptional
        )

    # --- load -------------------------------------------------------------------------------------------------------
    def load(self) -> None:
        """Raises `ModelDamaged` or `EngineFailed`; a missing cache is made first, which takes seconds per GB."""
        self._vocabulary = Vocabulary.open(self._config.model_dir)
        self._context = min(self._context, int(self._vocabulary.facts.shape["max_position"]))
        if self._config.distrust_cache:
            self._cache.drop()
        self._start()

    def _start(self) -> None:
        """Maps the cache. Where it cannot be written the weights go into memory: MNN maps its file for writing, and
        computes zeros without a word when it may not. The ledger has reserved the weights either way."""
        self._mapped = self._check = None
        try:
            found = self._cache.find()
            if found is None:
                found = mnn_cache.build(self._config.model_dir, self._cache, self._config.threads)
                self._exceptional = True
        except EngineFailed as error:
            if error.code != NOT_WRITABLE:
                raise
            log.warning("%s", error.message)
        if found is None or not found.writable():
            log.warning("%s is read-only: the weights go into memory", self._cache.root)
            self._llm = self._opened(None)
            return
        self._check = found.check(full=self._config.distrust_cache)
        self._exceptional = self._exceptional or self._check.pending
        self._llm = self._opened(found.path)
        self._mapped = found
        if not self._check.pending:
            self._note()  # MNN has just written its constants; otherwise the check is asked before the first word

    def _opened(self, folder: Path | None) -> Any:
        return open_model(self._config.model_dir, folder, self._config.threads, self._options.prefill_chunk)

    # --- run --------------------------------------------------------------------------------------------------------
    def run(self, request: LlmRequest) -> Iterator[Progress | LlmDelta | LlmDone]:
        """Progress per chunk of the prompt, a delta per token that completes text, and `LlmDone` at the end.

        Raises `BadText` code "prompt-too-long" when the context leaves no room for an answer.
        """
        if self._llm is None:  # the last request found the cache damaged
            self._start()
        prompt = self._encode(request.turns)
        room = self._context - len(prompt)
        if room < min(_LEAST_ANSWER, request.max_new_tokens):
            raise BadText(
                f"the prompt has {len(prompt)} tokens and the context {self._context}; say it shorter, or raise"
                " stages.llm.context_tokens",
                code="prompt-too-long",
            )
        started = time.monotonic()
        chunk = min(self._options.prefill_chunk, max(1, request.prefill_chunk or self._options.prefill_chunk))
        logits = yield from self._trusted_prefill(prompt, chunk)
        yield from self._decode(request, logits, prompt, min(room, request.max_new_tokens), started)

    def _trusted_prefill(self, prompt: list[int], chunk: int) -> Generator[Progress, None, NDArray[np.float32]]:
        """Logits that whole weights have given: a cache that turns out damaged is made anew before anything is said."""
        try:
            logits = yield from self._prefill(prompt, chunk)
            if self._check is None or self._check.good():
                self._note()
                return logits
            self._forget()
        except EngineFailed as error:
            if error.code != CACHE_DAMAGED:
                raise
        log.warning("the weight cache %s was damaged and is made anew", self._cache.path)
        self._start()
        return (yield from self._prefill(prompt, chunk))

    def _prefill(self, prompt: list[int], chunk: int) -> Generator[Progress, None, NDArray[np.float32]]:
        self._llm.reset()
        logits = np.empty(0, np.float32)
        for begin in range(0, len(prompt), chunk):
            piece = prompt[begin : begin + chunk]
            logits = self._forward(piece, first=True)
            yield Progress(done=begin + len(piece), total=len(prompt))
        return logits

    def _decode(
        self, request: LlmRequest, logits: NDArray[np.float32], prompt: list[int], limit: int, started: float
    ) -> Iterator[Progress | LlmDelta | LlmDone]:
        prefilled = time.monotonic()
        sampler = Sampler(request.sampling)
        text = TokenText(self._vocabulary, request.stop, thinking=opens_thinking(self._vocabulary, prompt))
        answer: list[int] = []
        reason = "length"
        while len(answer) < limit:
            token = sampler.choose(logits, answer)
            if token in self._vocabulary.stop_ids:
                reason = "stop"
                break
            answer.append(token)
            piece = text.feed(token)
            yield LlmDelta(text=piece, tokens=1) if piece else Progress(done=len(answer), total=limit)
            if text.stopped:
                reason = "stop"
                break
            if len(answer) < limit:
                logits = self._forward([token], first=False)
        if rest := text.flush():
            yield LlmDelta(text=rest, tokens=0)
        yield LlmDone(
            reason="stop" if reason == "stop" else "length",
            prompt_tokens=len(prompt),
            new_tokens=len(answer),
            prefill_ms=(prefilled - started) * 1000,
            decode_ms=(time.monotonic() - prefilled) * 1000,
        )

    def _encode(self, turns: tuple[Turn, ...]) -> list[int]:
        """Token ids of the conversation in the model's own chat format, ready for the answer."""
        messages = [{"role": turn.role, "content": self._harmless(turn.content)} for turn in turns]
        text = self._llm.apply_chat_template(messages)
        ids = [int(token) for token in self._llm.tokenizer_encode(text)]
        facts = self._vocabulary.facts
        if facts.add_bos and facts.bos_id is not None and ids[:1] != [facts.bos_id]:
            ids.insert(0, facts.bos_id)
        return ids

    def _harmless(self, text: str) -> str:
        """Without the model's control tokens (somebody could end his turn and speak as the system) and without NUL,
        which would cut the text short in MNN."""
        text = text.replace("\0", " ")
        for token in self._vocabulary.special_ids:
            text = text.replace(self._vocabulary.bytes_of(token).decode("utf-8", "replace") or "\0", " ")
        return text

    def _forward(self, ids: list[int], *, first: bool) -> NDArray[np.float32]:
        """Logits of the last position, float32 [vocabulary]. `first`: a piece of a prompt, not one token more."""
        logits = forward(self._llm, ids, first=first)
        if makes_sense(logits):
            return logits
        if self._mapped is None:
            raise ModelDamaged(
                f"the model computed no numbers; run 'assistant models verify {self._config.model}'",
            )
        self._forget()
        raise EngineFailed(
            "the model computed no numbers: its weight cache was damaged and is made anew; ask again",
            code=CACHE_DAMAGED,
        )

    def _note(self) -> None:
        """Once per start: the weights were compared and are in use."""
        if self._mapped is not None and self._check is not None:
            self._mapped.note()
        self._check = None

    def _forget(self) -> None:
        self._cache.drop(self._mapped)
        self._llm = self._mapped = self._check = None

    def close(self) -> None:
        self._llm = None
