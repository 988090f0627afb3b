"""What the LLM is really asked: the beginning token exactly once, and no thinking aloud in the answer."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from assistant.messages import LlmDelta, Stage
from assistant.model_store.convert_gguf import convert_gguf
from assistant.model_store.vocabulary import Vocabulary
from assistant.stages.base import EngineConfig
from tests.model_store import tiny_bpe
from tests.model_store.tiny_gguf import Tiny, write_model
from tests.stages.running import collect, done_of, question, running

pytestmark = pytest.mark.engine

SPECIAL = ("<|begin|>", "<|im_start|>", "<|im_end|>")
WITH_BOS = "{{ bos_token }}" + tiny_bpe.TEMPLATE


def model(path: Path, template: str, *, add_bos: bool) -> tuple[Path, int]:
    """A converted tiny model, and the id of its beginning token."""
    keys = tiny_bpe.metadata(special=SPECIAL, template=template)
    bos = keys["tokenizer.ggml.tokens"].index("<|begin|>")
    keys |= {"tokenizer.ggml.bos_token_id": bos, "tokenizer.ggml.add_bos_token": add_bos}
    report = convert_gguf(write_model(path / "x.gguf", Tiny(layers=1), keys), path / "model")
    assert report.chat_format == "the file's own"
    return path / "model", bos


def prompt(folder: Path, text: str) -> list[int]:
    command = [sys.executable, "-m", "tests.stages.prompt_ids", str(folder), str(folder.parent / "cache"), text]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("ids "))
    found: list[int] = json.loads(line.removeprefix("ids "))
    return found


@pytest.mark.parametrize(
    ("template", "add_bos", "times"),
    [(tiny_bpe.TEMPLATE, True, 1), (WITH_BOS, True, 1), (WITH_BOS, False, 1), (tiny_bpe.TEMPLATE, False, 0)],
)
def test_a_prompt_begins_with_bos_exactly_once_if_the_model_wants_it(
    template: str, add_bos: bool, times: int, tmp_path: Path
) -> None:
    folder, bos = model(tmp_path, template, add_bos=add_bos)
    ids = prompt(folder, "hello <|begin|> world")
    assert ids.count(bos) == times
    assert (ids[0] == bos) == bool(times)
    vocabulary = Vocabulary.open(folder)
    said = b"".join(vocabulary.bytes_of(i) for i in ids if i != bos).decode()
    assert said == "<|im_start|>user: hello   world<|im_end|><|im_start|>assistant: "


def test_a_template_that_opens_a_think_block_is_noticed(tmp_path: Path) -> None:
    """The tiny model speaks at random and never closes the block: nothing of it may be heard."""
    opened = tiny_bpe.TEMPLATE.replace("assistant: ", "assistant: <think>")
    heard = {}
    for name, template in (("plain", tiny_bpe.TEMPLATE), ("thinks", opened)):
        (tmp_path / name).mkdir()
        folder, _ = model(tmp_path / name, template, add_bos=False)
        config = EngineConfig(
            model="x", model_dir=folder, digest=name, cache_dir=tmp_path / "cache", threads=1,
            options={"context_tokens": 128},
        )  # fmt: skip

        async def ask(config: EngineConfig = config) -> tuple[str, int]:
            async with running(Stage.LLM, "mnn", config) as worker:
                outputs = await collect(worker, question("hello", max_new_tokens=12))
                return "".join(out.text for out in outputs if isinstance(out, LlmDelta)), done_of(outputs).new_tokens

        heard[name] = asyncio.run(ask())
    assert heard["plain"][0]
    assert heard["thinks"][0] == ""
    assert heard["thinks"][1] > 0
