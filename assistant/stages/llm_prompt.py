"""Turns to token ids in the model's own chat format. Knows MNN's object, imports no MNN."""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import msgspec

from assistant.errors import BadText, ModelDamaged
from assistant.messages import LlmRequest, Turn
from assistant.model_store.vocabulary import Vocabulary
from assistant.stages.llm_window import Fitted, fit

_LETTERS_PER_TOKEN = 16
"""Hardly any text has longer tokens on average; what is longer than a context of them is refused unread, because MNN's
tokenizer would take minutes for a megabyte."""


class Prompts:
    def __init__(self, vocabulary: Vocabulary, context: int) -> None:
        self._facts = vocabulary.facts
        self._context = context
        controls = {vocabulary.bytes_of(token).decode("utf-8", "replace") for token in vocabulary.special_ids}
        # NUL would cut the text short in MNN
        longest_first = sorted({*controls, "\0"} - {""}, key=len, reverse=True)
        self._forbidden = re.compile("|".join(map(re.escape, longest_first)))

    def fitted(self, llm: Any, request: LlmRequest) -> Fitted:
        """What of the conversation goes to the model. Raises `BadText` for what it cannot answer, and what `encode`
        raises."""
        self._check(request.turns)
        return fit(request.turns, functools.partial(self.encode, llm), self._context, request.max_new_tokens)

    def beginning(self, llm: Any, request: LlmRequest) -> list[int]:
        """What the prompt will begin with, whatever follows the last words of the last turn. Raises like `encode`."""
        *turns, last = request.turns
        endings = [(*turns, msgspec.structs.replace(last, content=f"{last.content}{more}")) for more in (" and", "?")]
        one, other = (self.encode(llm, ending) for ending in endings)
        pairs = zip(one, other, strict=False)
        return [token for token, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)][: self._context]

    def _check(self, turns: tuple[Turn, ...]) -> None:
        if not turns or turns[-1].role != "user" or not self._harmless(turns[-1].content).strip():
            raise BadText("the question is empty", code="text-empty")
        letters = len(turns[-1].content)
        if letters > max(1, self._context) * _LETTERS_PER_TOKEN:
            raise BadText(
                f"the question has {letters} characters, far more than the context holds; say it shorter, or raise"
                " stages.llm.context_tokens",
                code="prompt-too-long",
            )

    def encode(self, llm: Any, turns: tuple[Turn, ...]) -> list[int]:
        """Token ids of the conversation, ready for the answer. `llm`: MNN's inner object, loaded. Raises `ModelDamaged`
        for a template that MNN cannot render."""
        messages = [{"role": turn.role, "content": self._harmless(turn.content)} for turn in turns]
        text = llm.apply_chat_template(messages)
        if messages[-1]["content"].strip() not in text:
            raise ModelDamaged("the model's chat template leaves out the question; convert the model again")
        ids = [int(token) for token in llm.tokenizer_encode(text)]
        if self._facts.add_bos and self._facts.bos_id is not None and ids[:1] != [self._facts.bos_id]:
            ids.insert(0, self._facts.bos_id)
        return ids

    def _harmless(self, text: str) -> str:
        """Without the model's control tokens: somebody could end his turn and speak as the system."""
        return self._forbidden.sub(" ", text)
