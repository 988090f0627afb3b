"""A model that is replaced while it is loaded: the next query is answered by the new one, or told what is wrong."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assistant import config, paths
from assistant.daemon import Assistant
from assistant.errors import ConfigError
from assistant.memory_orchestrator.pressure import RELIEF
from assistant.messages import Outcome, QueryReport, Stage
from assistant.model_store import manifest
from assistant.model_store.convert_gguf import convert_gguf
from assistant.model_store.store import ModelInfo, ModelStore
from assistant.query import Query
from tests.model_store.tiny_bpe import metadata
from tests.model_store.tiny_gguf import Tiny, write_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]

REAL, WEIGHTS = "smollm2-135m-instruct", "llm.mnn.weight"
QUESTION = Query(text="What is the capital of France?")


class Shelf:
    """A store with a copy of the real model under the name "mine"."""

    def __init__(self, folder: Path, real: ModelInfo) -> None:
        self.store = ModelStore(folder / "models", paths.catalog_file())
        self.mine = self.store.path("mine")
        self._real, self._folder = real, folder
        self.put_real()

    def put_real(self) -> None:
        self._swap(lambda new: shutil.copytree(self._real.path, new))

    def put_tiny(self, name: str = "mine") -> None:
        def make(new: Path) -> None:
            gguf = write_model(self._folder / "tiny.gguf", Tiny(architecture="qwen2", bias=True), metadata("qwen2"))
            report = convert_gguf(gguf, new)
            told = manifest.Manifest(
                name=name, kind="mnn-llm", stage=Stage.LLM, engine="mnn", files=manifest.records_of(new),
                shape=report.shape,
            )  # fmt: skip
            manifest.write(new, told)

        self._swap(make, name)

    def _swap(self, make: Callable[[Path], Any], name: str = "mine") -> None:
        """As the store installs: the new folder takes the place of the old one."""
        target, new = self.store.path(name), self.store.models_dir / ".new"
        make(new)
        shutil.rmtree(target, ignore_errors=True)
        new.rename(target)


@pytest.fixture
def shelf(tmp_path: Path, model: Callable[[str], ModelInfo]) -> Shelf:
    return Shelf(tmp_path, model(REAL))


class House:
    def __init__(self, shelf: Shelf, *sets: str) -> None:
        self.during: dict[str, Callable[[], None]] = {}
        """What happens at an event, once."""
        settings = config.load(["stages.llm.model=mine", *sets], files=[], environ={})
        owner = f"replaced-{os.getpid()}"
        self.assistant = Assistant(settings, owner=owner, store=shelf.store, emit=self._emit)

    def _emit(self, name: str, data: dict[str, Any]) -> None:
        del data
        self.during.pop(name, lambda: None)()

    async def ask(self) -> QueryReport:
        return (await self.assistant.answer(Query(text=QUESTION.text))).report

    def llm(self) -> tuple[int, str]:
        """Its process and its model."""
        entry = self.assistant.memory.holdings.entries.get("llm")
        return (entry.thing.pid, entry.thing.model) if entry is not None else (0, "")


def test_another_model_of_the_same_name_answers_the_next_query(shelf: Shelf) -> None:
    async def scenario() -> None:
        house = House(shelf, "stages.llm.max_new_tokens=16", "stages.llm.context_tokens=128")
        async with house.assistant:
            assert "Paris" in (await house.ask()).reply
            first = house.llm()
            assert "Paris" in (await house.ask()).reply
            assert house.llm() == first
            shelf.put_tiny()
            report = await house.ask()
            assert (report.outcome, report.error) == (Outcome.ANSWERED, None)
            assert "Paris" not in report.reply
            assert house.llm()[0] not in (0, first[0])
            shelf.put_real()
            assert "Paris" in (await house.ask()).reply

    asyncio.run(scenario())


def test_the_same_model_installed_again_is_loaded_again_and_its_conversation_goes_on(shelf: Shelf) -> None:
    async def scenario() -> None:
        house = House(shelf, "stages.llm.system_prompt=Answer in one sentence.", "stages.llm.max_new_tokens=24")
        async with house.assistant as assistant:
            await assistant.answer(Query(text="My dog is called Rex.", conversation="c"))
            first = house.llm()
            shelf.put_real()
            answer = await assistant.answer(Query(text="What is the name of my dog?", conversation="c"))
            assert "Rex" in answer.report.reply
            assert house.llm()[0] != first[0]

    asyncio.run(scenario())


def test_files_that_change_under_a_query_fail_it_and_the_next_one_is_answered(shelf: Shelf) -> None:
    def touch() -> None:
        """Other files with the same content, after the store was asked and before the LLM is."""
        for name in (WEIGHTS, "llm.emergency.mnn"):
            if (shelf.mine / name).exists():
                shutil.copy(shelf.mine / name, shelf.mine / ".other")
                (shelf.mine / ".other").rename(shelf.mine / name)

    async def scenario() -> None:
        house = House(shelf, "stages.llm.max_new_tokens=16")
        async with house.assistant:
            assert "Paris" in (await house.ask()).reply
            first = house.llm()
            house.during["intent-end"] = touch
            report = await house.ask()
            assert report.error is not None
            assert report.error.code == "model-replaced"
            report = await house.ask()
            assert report.error is None
            assert "Paris" in report.reply
            assert house.llm()[0] != first[0]
            second = house.llm()
            assert "Paris" in (await house.ask()).reply
            assert house.llm() == second  # and that was all

    asyncio.run(scenario())


def test_weights_that_are_damaged_while_loaded_are_told_with_the_command_that_mends_them(shelf: Shelf) -> None:
    async def scenario() -> None:
        house = House(shelf, "stages.llm.max_new_tokens=16")
        async with house.assistant:
            assert "Paris" in (await house.ask()).reply
            with (shelf.mine / WEIGHTS).open("r+b") as file:
                file.seek(1000)
                byte = file.read(1)
                file.seek(1000)
                file.write(bytes([byte[0] ^ 1]))
            report = await house.ask()
            assert report.error is not None
            assert report.error.code == "model-damaged"
            assert "assistant models" in report.error.message
            shelf.put_real()
            assert "Paris" in (await house.ask()).reply

    asyncio.run(scenario())


def test_a_model_that_was_removed_is_missing_and_one_that_comes_back_is_used(shelf: Shelf) -> None:
    async def scenario() -> None:
        house = House(shelf, "stages.llm.max_new_tokens=16")
        async with house.assistant:
            assert "Paris" in (await house.ask()).reply
            shutil.rmtree(shelf.mine)
            report = await house.ask()
            assert report.error is not None
            assert report.error.code in ("model-missing", "model-unknown")
            shelf.put_real()
            assert "Paris" in (await house.ask()).reply

    asyncio.run(scenario())


# --- smaller ones under pressure ------------------------------------------------------------------------------------
@pytest.mark.parametrize("small", ["", "tiny"])
def test_under_pressure_a_smaller_model_answers_and_afterwards_the_usual_one(shelf: Shelf, small: str) -> None:
    async def scenario() -> None:
        house = House(shelf, "stages.llm.max_new_tokens=16", f"stages.llm.small_model={small}")
        async with house.assistant as assistant:
            seen = []
            for level in ("normal", "elevated", "high", "normal"):
                assistant.memory.holdings.relieve(RELIEF[level])
                assert (await house.ask()).error is None
                seen.append(house.llm()[1])
            other = small or "mine"  # a tiny model by the name mine-w4 is no variant: it has another shape
            assert seen == ["mine", "mine", other, "mine"]

    shelf.put_tiny("tiny")
    shelf.put_tiny("mine-w4")
    asyncio.run(scenario())


def test_the_variant_with_fewer_bits_is_taken_when_it_is_the_same_model_and_smaller(shelf: Shelf) -> None:
    """Here "mine" is made larger by a file that nobody reads, and "mine-w4" is what it was."""
    shutil.copytree(shelf.mine, shelf.store.path("mine-w4"))
    (shelf.mine / "ballast").write_bytes(b"x")
    told = manifest.read(shelf.mine)
    assert told is not None
    manifest.write(shelf.mine, manifest.Manifest(
        name="mine", kind=told.kind, stage=told.stage, engine=told.engine, shape=told.shape,
        files={**told.files, "ballast": manifest.record_of(shelf.mine / "ballast")},
    ))  # fmt: skip

    async def scenario() -> None:
        house = House(shelf)
        async with house.assistant as assistant:
            seen = []
            for level in ("normal", "high", "critical"):
                assistant.memory.holdings.relieve(RELIEF[level])
                await assistant.load(Stage.LLM, -1)
                seen.append(house.llm()[1])
            assert seen == ["mine", "mine-w4", "mine-w4"]

    asyncio.run(scenario())


def test_a_small_model_that_is_none_is_told_at_the_start_and_one_that_is_missing_is_not_used(
    shelf: Shelf, model: Callable[[str], ModelInfo], caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(model("whisper-tiny.en").path, shelf.store.path("whisper-tiny.en"))

    async def start(small: str) -> None:
        house = House(shelf, f"stages.llm.small_model={small}")
        async with house.assistant as assistant:
            assistant.memory.holdings.relieve(RELIEF["high"])
            await assistant.load(Stage.LLM, -1)
            assert house.llm()[1] == "mine"

    asyncio.run(start("no-such-model"))
    assert caplog.text.count("stages.llm.small_model") == 1
    with pytest.raises(ConfigError, match="stage asr"):
        asyncio.run(start("whisper-tiny.en"))
