"""Renders a chat template through MNN in a child process: `python -m assistant.model_store.template_probe FOLDER`.

A child, because a template is a program by a stranger and MNN runs it without limits: it may crash, or never end. The
folder holds a tokenizer of two tokens and an empty graph. MNN reads the tokenizer and the template, then refuses the
graph, and renders all the same; so no weights are read, and it takes a tenth of a second and about 15 MiB.
Imports `errors`, `llm_tokenizer`, `mnn_tokenizer` and `mnn_tools`; MNN in the child alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from assistant.errors import ModelUnsupported
from assistant.model_store import mnn_tools
from assistant.model_store.llm_tokenizer import LlmTokenizer
from assistant.model_store.mnn_tokenizer import mtok

Conversation = list[tuple[str, str]]
"""(role, content) of each turn."""

_ORDER, _ANSWER = "conversations.json", "rendered.json"
_CONFIG = {"llm_model": "none.mnn", "llm_weight": "none.weight", "tokenizer_file": "tokenizer.mtok", "thread_num": 1}


def render(template: str, bos: str, eos: str, conversations: list[Conversation], timeout_s: float = 10) -> list[str]:
    """Each conversation as MNN writes it, ready for an answer. Raises `ModelUnsupported` when MNN dies or hangs."""
    with tempfile.TemporaryDirectory(prefix="assistant-template-") as temp:
        folder = Path(temp)
        _lay_out(folder, template, bos, eos)
        (folder / _ORDER).write_bytes(msgspec.json.encode(conversations))
        command = [sys.executable, "-m", "assistant.model_store.template_probe", temp]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise ModelUnsupported(f"MNN did not finish in {timeout_s:g} s") from None
        try:
            return msgspec.json.decode((folder / _ANSWER).read_bytes(), type=list[str])
        except (OSError, msgspec.MsgspecError):
            raise ModelUnsupported(f"MNN ended with code {done.returncode}") from None


def _lay_out(folder: Path, template: str, bos: str, eos: str) -> None:
    two = LlmTokenizer(
        pre="gpt-2", tokens=[bos.encode(), eos.encode()], merges=[], added_ids=[], special_ids=[], stop_ids=[1],
        bos_id=0, eos_id=1, add_bos=False, chat_template=template,
    )  # fmt: skip
    (folder / "tokenizer.mtok").write_bytes(mtok(two))
    (folder / "config.json").write_bytes(msgspec.json.encode(_CONFIG))
    jinja = {"chat_template": template, "bos": bos, "eos": eos}
    (folder / "llm_config.json").write_bytes(msgspec.json.encode({"hidden_size": 8, "jinja": jinja}))
    for name in ("none.mnn", "none.weight"):
        (folder / name).touch()


def _child(folder: Path) -> int:
    conversations = msgspec.json.decode((folder / _ORDER).read_bytes(), type=list[Conversation])
    rendered = mnn_tools.rendered(folder / "config.json", conversations)
    (folder / _ANSWER).write_bytes(msgspec.json.encode(rendered))
    return 0


if __name__ == "__main__":
    os._exit(_child(Path(sys.argv[1])))  # MNN's libraries may crash in their own exit handlers
