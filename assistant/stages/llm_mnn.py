"""LLM engine on MNN: our own token loop over `forward`, so that streaming, cancel and sampling are ours.

Weights are mapped from a guarded cache (`mnn_cache`), embedding rows are read from disk by MNN, the prompt goes in
chunks. The key-value cache is emptied at the start of each request. Only a worker imports this module.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import MNN.llm as mnn_llm  # not `from MNN import llm`: that is the C module of the same name
import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.errors import BadText, ConfigError, EngineFailed, ModelDamaged
from assistant.messages import LlmDelta, LlmDone, LlmRequest, Progress, Turn
from assistant.model_store.versions import mnn_version
from assistant.model_store.vocabulary import Vocabulary
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.mnn_cache import MnnCache
from assistant.stages.sampling import Sampler
from assistant.stages.token_text import TokenText, opens_thinking

log = logging.getLogger(__name__)

_LEAST_ANSWER = 16
"""Tokens that must be left for the answer; a prompt that leaves fewer is refused."""
_CACHE_LAYOUT = {"memory": "low", "dynamic_option": 2}
"""The settings that the cache's layout depends on. `low` computes with 4-bit weights and int8 activations;
dynamic_option 2 scales activations per weight block, ten times closer to the exact model."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    context_tokens: int = 1024
    """Prompt and answer together."""
    prefill_chunk: int = 128
    """Tokens of the prompt per step: bounds workspace, and how long a cancel can take."""


class MnnLlm:
    """`Engine[LlmRequest, Progress | LlmDelta | LlmDone]`."""

    def __init__(self, config: EngineConfig) -> None:
        """Raises `ConfigError` for options that do not fit."""
        self._config = config
        try:
            self._options = msgspec.convert(dict(config.options), Options)
        except msgspec.ValidationError as error:
            raise ConfigError(f"stages.llm: {error}") from None
        self._llm: Any = None
        self._cache = MnnCache(config.cache_dir, config.digest, _CACHE_LAYOUT, mnn_version())
        self._context = self._options.context_tokens
        self._vocabulary: Vocabulary

    @property
    def info(self) -> EngineInfo:
        kv = 0
        if self._llm is not None:
            shape = self._vocabulary.facts.shape
            # K and V, fp32 (attention mode 8 keeps both as they are computed)
            kv = 2 * int(shape["layers"]) * int(shape["kv_heads"]) * int(shape["head_dim"]) * 4 * self._context
        return EngineInfo(name="mnn", model=self._config.model, streaming=True, kv_bytes=kv)

    # --- load -------------------------------------------------------------------------------------------------------
    def load(self) -> None:
        """Raises `ModelDamaged` or `EngineFailed`; a doubtful cache is built anew, which takes seconds per GB."""
        self._vocabulary = Vocabulary.open(self._config.model_dir)
        self._context = min(self._context, int(self._vocabulary.facts.shape["max_position"]))
        if self._config.distrust_cache:
            self._cache.drop()
        if self._cache.usable():
            self._open(str(self._cache.path))
        else:
            self._build()

    def _build(self) -> None:
        weights = (self._config.model_dir / "llm.mnn.weight").stat().st_size
        try:
            self._open(str(self._cache.begin(weights)))
            # MNN marks its own cache complete at the first forward; ours is complete when that gave numbers
            self._forward([0], first=True)
            self._cache.complete()
        except BaseException:
            self._llm = None
            self._cache.abandon()
            raise

    def _open(self, cache_folder: str) -> None:
        llm = mnn_llm.create(str(self._config.model_dir / "config.json"))
        llm.set_config(
            {
                **_CACHE_LAYOUT,
                "use_mmap": True,
                "tmp_path": cache_folder,
                "thread_num": self._config.threads,
                "chunk": self._options.prefill_chunk,
                # keeps the cache of keys and values when a prompt comes in several pieces
                "reuse_kv": True,
                "sampler_type": "greedy",
                "all_logits": False,
            }
        )
        # the inner object: the wrapper's load() drops the only sign of failure
        if not llm._c_obj.load():
            raise ModelDamaged(
                f"MNN cannot load {self._config.model}; run 'assistant models verify {self._config.model}'"
            )
        self._llm = llm

    # --- run --------------------------------------------------------------------------------------------------------
    def run(self, request: LlmRequest) -> Iterator[Progress | LlmDelta | LlmDone]:
        """Progress per chunk of the prompt, a delta per token that completes text, and `LlmDone` at the end.

        Raises `BadText` code "prompt-too-long" when the context leaves no room for an answer.
        """
        prompt = self._encode(request.turns)
        room = self._context - len(prompt)
        if room < min(_LEAST_ANSWER, request.max_new_tokens):
            raise BadText(
                f"the prompt has {len(prompt)} tokens and the context {self._context}; say it shorter, or raise"
                " stages.llm.context_tokens",
                code="prompt-too-long",
            )
        started = time.monotonic()
        self._llm.reset()
        logits: NDArray[np.float32] | None = None
        for begin in range(0, len(prompt), self._options.prefill_chunk):
            piece = prompt[begin : begin + self._options.prefill_chunk]
            logits = self._forward(piece, first=True)
            yield Progress(done=begin + len(piece), total=len(prompt))
        assert logits is not None
        yield from self._decode(request, logits, prompt, min(room, request.max_new_tokens), started)

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
        if first:
            # without it MNN takes several tokens for decoding and clones a module for each new length
            self._llm.generate_init()
        logits = np.array(self._llm.forward(ids).read(), dtype=np.float32).reshape(-1)
        if not np.isfinite(logits).all():
            self._cache.drop()
            raise EngineFailed(
                "the model computed no numbers: its weight cache is damaged and was removed; ask again",
                code="cache-damaged",
            )
        return logits

    def close(self) -> None:
        self._llm = None
        self._cache.abandon()
