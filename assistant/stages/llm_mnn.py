"""LLM engine on MNN: our own token loop over `forward`, so that streaming, cancel, pacing and sampling are ours.

Weights are mapped from a guarded cache (`mnn_cache`), rows of the word table are read from disk by MNN, keys and
values lie in files (`kv_files`), one slot for each conversation (`llm_slot`). A prompt goes in by pieces, and only what
its slot does not hold yet. Only a worker imports this module.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assistant.errors import ConfigError, EngineFailed, ModelDamaged
from assistant.messages import LlmDelta, LlmDone, LlmRequest, LlmVariant, Progress
from assistant.model_store.derived import NOT_WRITABLE, Found, Free
from assistant.model_store.derived_check import Check
from assistant.model_store.vocabulary import Vocabulary
from assistant.stages import mnn_cache
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.kv_files import KvFiles
from assistant.stages.llm_mnn_options import Options
from assistant.stages.llm_mnn_weights import makes_sense, open_model
from assistant.stages.llm_prompt import Prompts
from assistant.stages.llm_slot import ROWS, Logits, Slot, Slots, open_slot, pieces
from assistant.stages.llm_window import Fitted
from assistant.stages.pacing import Together, rest
from assistant.stages.prefault import prefault
from assistant.stages.sampling import Sampler
from assistant.stages.token_text import TokenText, opens_thinking

log = logging.getLogger(__name__)

CACHE_DAMAGED, REPLACED = "cache-damaged", "model-replaced"


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
        self._slots: dict[LlmVariant, Slots] = {}
        self._kv: KvFiles | None = None
        self._cache = mnn_cache.cache_of(config, free)
        self._mapped: Found | None = None
        self._exceptional = False
        self._check: Check | None = None
        self._context = self._options.context_tokens
        self._files: mnn_cache.Stamps = ()
        self._vocabulary: Vocabulary
        self._prompts: Prompts

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
        self._prompts = Prompts(self._vocabulary, self._context)
        self._files = mnn_cache.stamps(self._config.model_dir)
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
            self._open(None)
            return
        self._check = found.check(full=self._config.distrust_cache)
        self._exceptional = self._exceptional or self._check.pending
        self._open(found.path)
        self._mapped = found
        if not self._check.pending:
            self._note()  # MNN has just written its constants; otherwise the check is asked before the first word

    def _open(self, weights: Path | None, *, on_heap: bool = False) -> None:
        self._close()
        self._kv = None if on_heap else self._kv_files(weights)
        folder = self._kv.path if self._kv else weights
        self._llm = open_model(
            self._config.model_dir,
            folder,
            self._config.threads,
            use_mmap=weights is not None,
            kvcache_mmap=self._kv is not None,
            attention_mode=self._options.attention_mode,
        )
        if weights is not None:
            prefault(weights)
        more = [open_slot(self._llm, mnn_cache.GRAPHS["full"]) for _ in range(1, self._options.slots)]
        self._slots = {"full": Slots([self._slot(llm) for llm in (self._llm, *more)])}

    def _kv_share(self) -> float:
        """Of the room for keys and values, what the conversations of the whole model have taken."""
        return self._slots["full"].room / (self._options.slots * self._context)

    def _kv_files(self, weights: Path | None) -> KvFiles | None:
        if not self._options.kv_dir:
            return None
        try:
            return KvFiles(Path(self._options.kv_dir), weights)
        except OSError as error:
            log.warning("keys and values go on the heap: %s", error)
            return None

    def _slot(self, llm: Any) -> Slot:
        if self._kv is None:
            return Slot(llm, context=self._context)
        # in shared memory growing costs next to nothing, and what no conversation needs is not taken
        return Slot(llm, self._kv.hide, context=self._context if self._options.kv_home == "disk" else 0)

    # --- run --------------------------------------------------------------------------------------------------------
    def run(self, request: LlmRequest) -> Iterator[Progress | LlmDelta | LlmDone]:
        """Progress per piece of the prompt, a delta per token that completes text, and `LlmDone` at the end.

        Raises `BadText` code "text-empty" or "prompt-too-long" (the context leaves no room for an answer), and
        `ModelDamaged` code "model-replaced" when the model's files are no longer those that were loaded.
        """
        started = time.monotonic()
        if mnn_cache.stamps(self._config.model_dir) != self._files:
            raise ModelDamaged(f"the files of model {self._config.model!r} were replaced; ask again", code=REPLACED)
        if self._llm is None:  # the last request found the cache damaged
            self._start()
        fitted = self._beginning(request) if request.ahead else self._prompts.fitted(self._llm, request)
        yield Progress(done=0, total=len(fitted.prompt))
        if self._kv is not None and not self._kv.has_room(int(self._options.kv_bytes * (1 - self._kv_share()))):
            log.warning("no room is left in %s: keys and values go on the heap", self._kv.path)
            self._open(self._mapped.path if self._mapped else None, on_heap=True)
        slot, kept, logits = yield from self._trusted_prefill(request, fitted.prompt)
        if request.ahead:
            done = LlmDone(reason="length", prompt_tokens=len(fitted.prompt), new_tokens=0, prefill_ms=0, decode_ms=0)
        else:
            done = yield from self._decode(request, slot, logits, fitted.prompt)
        yield msgspec.structs.replace(
            done,
            reused_tokens=kept,
            kv_share=self._kv_share(),
            dropped_turns=fitted.dropped,
            prefill_ms=(time.monotonic() - started) * 1000 - done.decode_ms,
        )

    def _beginning(self, request: LlmRequest) -> Fitted:
        """In whole rows, so that nothing of the answer depends on whether it was computed ahead."""
        prompt = self._prompts.beginning(self._llm, request)
        return Fitted(prompt[: len(prompt) // ROWS * ROWS], dropped=0)

    def _trusted_prefill(
        self, request: LlmRequest, prompt: list[int]
    ) -> Generator[Progress, None, tuple[Slot, int, Logits]]:
        """Logits that whole weights have given: a cache that turns out damaged is made anew before anything is said."""
        try:
            found = yield from self._prefill(request, prompt)
            if self._check is None or self._check.good():
                self._note()
                return found
            self._forget()
        except EngineFailed as error:
            if error.code != CACHE_DAMAGED:
                raise
        log.warning("the weight cache %s was damaged and is made anew", self._cache.path)
        self._start()
        return (yield from self._prefill(request, prompt))

    def _prefill(self, request: LlmRequest, prompt: list[int]) -> Generator[Progress, None, tuple[Slot, int, Logits]]:
        slot, kept = self._slots_of(request.variant).take(request.conversation, prompt)
        chunk = min(self._options.prefill_chunk, request.prefill_chunk or self._options.prefill_chunk)
        logits = np.empty(0, np.float32)
        if begun := slot.begin(prompt):
            yield Progress(done=begun, total=len(prompt))
        for begin, end in pieces(len(prompt), begun, chunk):
            began = time.monotonic()
            logits = self._forward(slot, prompt[begin:end], prompt=True)
            told = Progress(done=end, total=len(prompt))
            yield told
            if end < len(prompt):
                yield from rest(time.monotonic() - began, request.duty, told)
        return slot, kept, logits

    def _slots_of(self, variant: LlmVariant) -> Slots:
        """One variant at a time has keys and values: the ledger has promised no more."""
        if variant == "full":
            self._slots.pop("emergency", None)
        elif variant not in self._slots:
            graph = mnn_cache.GRAPHS[variant]
            if not (self._config.model_dir / graph).is_file():
                raise EngineFailed(
                    f"model {self._config.model!r} has no {variant} form; convert it again", code="no-such-variant"
                )
            self._slots["full"].shrink()
            self._slots[variant] = Slots([self._slot(open_slot(self._llm, graph))])
        return self._slots[variant]

    def _decode(
        self, request: LlmRequest, slot: Slot, logits: Logits, prompt: list[int]
    ) -> Generator[Progress | LlmDelta, None, LlmDone]:
        began = time.monotonic()
        limit = min(self._context - len(prompt), request.max_new_tokens)
        sampler = Sampler(request.sampling)
        text = TokenText(self._vocabulary, request.stop, thinking=opens_thinking(self._vocabulary, prompt))
        answer: list[int] = []
        stopped, together = False, Together()
        while len(answer) < limit:
            step = time.monotonic()
            token = sampler.choose(logits, answer)
            if token in self._vocabulary.stop_ids:
                stopped = True
                break
            answer.append(token)
            told = Progress(done=len(answer), total=limit)
            if together.add(text.feed(token)):
                yield together.take() or told
            if text.stopped:
                stopped = True
                break
            if len(answer) < limit:
                logits = self._forward(slot, [token], prompt=False)
                yield from rest(time.monotonic() - step, request.duty, told)
        together.text += text.flush()
        if last := together.take():
            yield last
        return LlmDone(
            reason="stop" if stopped else "length",
            prompt_tokens=len(prompt),
            new_tokens=len(answer),
            variant=request.variant,
            prefill_ms=0,
            decode_ms=(time.monotonic() - began) * 1000,
        )

    def _forward(self, slot: Slot, ids: list[int], *, prompt: bool) -> Logits:
        """Logits of the last position, float32 [vocabulary]."""
        logits = slot.forward(ids, prompt=prompt)
        if makes_sense(logits):
            return logits
        if self._mapped is None:
            raise ModelDamaged(f"the model computed no numbers; run 'assistant models verify {self._config.model}'")
        self._forget()
        raise EngineFailed(
            "the model computed no numbers: its weight cache was damaged and is made anew; ask again",
            code=CACHE_DAMAGED,
        )

    # --- files ------------------------------------------------------------------------------------------------------
    def _note(self) -> None:
        """Once per start: the weights were compared and are in use."""
        if self._mapped is not None and self._check is not None:
            self._mapped.note()
        self._check = None

    def _forget(self) -> None:
        self._cache.drop(self._mapped)
        self._mapped = self._check = None
        self._close()

    def _close(self) -> None:
        self._slots.clear()  # before the model whose weights they share
        self._llm = None
        if self._kv is not None:
            self._kv.close()
            self._kv = None

    def close(self) -> None:
        self._close()
