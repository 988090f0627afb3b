"""How a conversation is written down for a model: the file's own template when MNN renders it, or a known format.

MNN has a small Jinja of its own. It complains of nothing: what it does not understand it leaves out, and without a
template it joins the contents. So a template is tried out before a model is converted (`template_probe`, which runs
MNN in a child), and what comes out must look like a conversation that is the model's turn to continue. Imports
`errors`, `llm_tokenizer` and `template_probe`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from assistant.errors import ModelUnsupported
from assistant.model_store.llm_tokenizer import LlmTokenizer
from assistant.model_store.template_probe import Conversation, render

Render = Callable[[str, str, str], list[str]]
"""(template, bos, eos) -> each of `CONVERSATIONS` as text. Raises `ModelUnsupported` when MNN dies or hangs of it."""

_SYSTEM, _USER, _ANSWER, _AGAIN = "Xqsystemqx", "Xquserqx", "Xqanswerqx", "Xqagainqx"
CONVERSATIONS: list[Conversation] = [
    [("user", _USER)],
    [("system", _SYSTEM), ("user", _USER)],
    [("system", _SYSTEM), ("user", _USER), ("assistant", _ANSWER), ("user", _AGAIN)],
]
"""What the pipeline asks: with and without instructions, and in the middle of a talk."""


class ChatFormat(msgspec.Struct, frozen=True):
    name: str
    tokens: tuple[bytes, ...]
    """A vocabulary that has all of them as tokens of their own was trained for this format."""
    template: str


FORMATS = (
    ChatFormat(
        "ChatML",
        (b"<|im_start|>", b"<|im_end|>"),
        "{% for turn in messages %}"
        "<|im_start|>{{ turn['role'] }}{{ '\\n' }}{{ turn['content'] }}<|im_end|>{{ '\\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant{{ '\\n' }}{% endif %}",
    ),
    ChatFormat(
        "Llama 3",
        (b"<|start_header_id|>", b"<|end_header_id|>", b"<|eot_id|>"),
        "{% for turn in messages %}"
        "<|start_header_id|>{{ turn['role'] }}<|end_header_id|>{{ '\\n\\n' }}{{ turn['content'] }}<|eot_id|>"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}{% endif %}",
    ),
)
"""Without bos: `add_bos` tells our token loop whether a prompt begins with it."""


def flaw(rendered: Sequence[str]) -> str:
    """Why the rendered `CONVERSATIONS` are not what a chat model can continue; empty when they are."""
    for conversation, text in zip(CONVERSATIONS, rendered, strict=True):
        said = [marker for _, marker in conversation]
        if any(text.count(marker) != 1 for marker in said):
            return "not every turn appears exactly once"
        places = [text.find(marker) for marker in said]
        # In a talk some formats move the instructions to the last question.
        ordered = places[1:] if len(places) > 2 else places
        if ordered != sorted(ordered) or places[-1] != max(places):
            return "the turns are out of order"
        if not text.partition(said[-1])[2].strip():
            return "nothing after the last question asks for an answer"
    _, instructed, talk = rendered
    if _SYSTEM + _USER in instructed:
        return "nothing separates the instructions from the question"
    # The answer that is asked for must begin like the one in the history; the prompt may add to that (`<think>`).
    # White space between a template's own lines differs inside and outside its loop.
    before = "".join(talk.partition(_USER)[2].partition(_ANSWER)[0].split())
    after = "".join(talk.partition(_AGAIN)[2].split())
    if not before or not after.startswith(before):
        return "the answer that is asked for does not begin like the one before"
    return ""


def choose(tokenizer: LlmTokenizer, source: Path, rendered: Render | None = None) -> tuple[LlmTokenizer, str, str]:
    """The tokenizer with a template that MNN renders, where that comes from, and a remark for the user or nothing.

    Control tokens of a format that is not the file's own become special, so that they are neither shown nor forged.
    Raises `ModelUnsupported` when there is no usable template and no format to take its place.
    """
    why = ""
    if tokenizer.chat_template:
        bos, eos = (tokenizer.text_of(i) for i in (tokenizer.bos_id, tokenizer.eos_id))
        try:
            why = flaw((rendered or _render)(tokenizer.chat_template, bos, eos))
        except ModelUnsupported as error:
            why = error.message
        if not why:
            return tokenizer, "the file's own", ""
    added = {tokenizer.tokens[i]: i for i in tokenizer.added_ids}
    fitting = next((form for form in FORMATS if all(token in added for token in form.tokens)), None)
    if fitting is None and not why:
        raise ModelUnsupported(f"{source}: a base model without chat template; use the instruct variant")
    if fitting is None:
        raise ModelUnsupported(
            f"{source}: MNN cannot use its chat template ({why}), and its tokens are of no known chat format;"
            " use another model, or a file with a simpler template"
        )
    special = sorted({*tokenizer.special_ids, *(added[token] for token in fitting.tokens)})
    kept = msgspec.structs.replace(tokenizer, chat_template=fitting.template, special_ids=special)
    reason = f"MNN cannot use the file's chat template ({why})" if why else "the file has no chat template"
    return kept, fitting.name, f"{reason}; its tokens are those of {fitting.name}, which is used"


def _render(template: str, bos: str, eos: str) -> list[str]:
    return render(template, bos, eos, CONVERSATIONS)
