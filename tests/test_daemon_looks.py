"""Models' files that a disk keeps: who needs them is told, and everything else goes on. Pipes in place of manifests."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assistant import config, paths
from assistant.daemon import Assistant
from assistant.daemon_looks import Looks
from assistant.daemon_stages import Stages
from assistant.disk import Disk
from assistant.errors import ModelUnknown, ModelUnreachable
from assistant.memory_orchestrator.calibration import Calibration
from assistant.messages import Outcome, Stage
from assistant.model_store import manifest
from assistant.model_store.store import ModelInfo, ModelStore
from assistant.query import Query
from assistant.stages.fork_client import ForkServer
from assistant.stages.spec import StageSpec
from assistant.stages.supervisor import Supervisor

LLM = "smollm2-135m-instruct"


class Shelf:
    """A store in which models can be silent: what they say of themselves is a pipe."""

    def __init__(self, tmp_path: Path) -> None:
        self.store = ModelStore(tmp_path / "models", paths.catalog_file())

    def silent(self, name: str) -> None:
        file = self.store.path(name) / manifest.FILE_NAME
        file.parent.mkdir(parents=True)
        os.mkfifo(file)

    def whole(self, name: str) -> None:
        """A voice of a few bytes."""
        folder = self.store.path(name)
        folder.mkdir(parents=True)
        (folder / f"{name}.onnx").write_bytes(b"weights")
        (folder / f"{name}.onnx.json").write_text(json.dumps({"language": {"code": "de"}}))
        manifest.write(
            folder,
            manifest.Manifest(
                name=name, kind="piper", stage=Stage.TTS, engine="piper", files=manifest.records_of(folder)
            ),
        )

    def answers(self, name: str) -> None:
        """With nothing that could be understood."""
        (self.store.path(name) / manifest.FILE_NAME).write_text("")


def looks_of(
    shelf: Shelf,
    tmp_path: Path,
    *sets: str,
    also: Callable[[StageSpec], None] = lambda spec: None,
    changed: Callable[[], None] = lambda: None,
) -> Looks:
    server, known = ForkServer(), Calibration(tmp_path / "measured.json")
    settings = config.load(sets, files=[], environ={})
    stages = Stages(settings, shelf.store, lambda spec: Supervisor(spec, server, known), lambda: "normal")
    return Looks(stages, Disk(0.1), also=also, changed=changed)


def test_a_stage_whose_disk_does_not_answer_is_told_and_others_are_found(tmp_path: Path) -> None:
    async def test() -> None:
        shelf, changes = Shelf(tmp_path), []
        shelf.silent(LLM)
        shelf.whole("mine")
        looks = looks_of(shelf, tmp_path, "stages.tts.model=mine", changed=lambda: changes.append(1))
        with pytest.raises(ModelUnreachable, match=f"{shelf.store.models_dir}") as caught:
            await looks(Stage.LLM)
        assert (caught.value.stage, caught.value.retryable) == ("llm", True)
        begun = time.monotonic()
        assert looks.known() == []
        voice = await looks(Stage.TTS)
        assert voice.spec.language == "de"
        assert (looks.known(), len(changes)) == ([voice], 1)
        assert await looks(Stage.TTS) is voice
        assert len(await looks.all()) == 2  # of the LLM and of the recogniser, which is missing
        assert time.monotonic() - begun < 2
        assert len(looks.needs()) == 2  # with the intents
        shelf.answers(LLM)

    asyncio.run(test())


def test_what_could_not_be_used_is_looked_at_again_behind_whoever_wants_to_know(tmp_path: Path) -> None:
    async def test() -> None:
        shelf = Shelf(tmp_path)
        looks = looks_of(shelf, tmp_path, "stages.tts.model=mine")
        with pytest.raises(ModelUnknown):
            await looks(Stage.TTS)
        shelf.whole("mine")
        assert Stage.TTS not in [one.spec.stage for one in looks.seen()]
        async with asyncio.timeout(5):
            while Stage.TTS not in [one.spec.stage for one in looks.seen()]:
                await asyncio.sleep(0.01)
        await looks.close()

    asyncio.run(test())


def test_commands_go_on_while_the_disk_with_the_sentences_is_silent(tmp_path: Path) -> None:
    async def test() -> None:
        looks, answers = looks_of(Shelf(tmp_path), tmp_path), threading.Event()
        before = await looks(Stage.INTENT)
        silent = asyncio.create_task(looks.ask(Stage.INTENT, lambda alive: answers.wait(5)))
        await asyncio.sleep(0)
        begun = time.monotonic()
        assert await looks(Stage.INTENT) is before
        assert time.monotonic() - begun < 1
        with pytest.raises(ModelUnreachable):
            await silent
        answers.set()

    asyncio.run(test())


def test_a_disk_that_fails_is_told_and_what_was_known_before_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        there = tmp_path / "there"
        looks = looks_of(Shelf(tmp_path), tmp_path, also=lambda spec: there.open().close())
        with pytest.raises(ModelUnreachable, match=f"cannot be read: .*{there}"):
            await looks(Stage.INTENT)
        there.touch()
        before = await looks(Stage.INTENT)
        there.unlink()
        assert await looks(Stage.INTENT) is before

    asyncio.run(test())


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_commands_and_status_need_no_disk_of_the_llm_and_questions_say_what_is_the_matter(
    tmp_path: Path, model: Callable[[str], ModelInfo]
) -> None:
    async def test() -> None:
        shelf = Shelf(tmp_path)
        settings = config.load(["memory.keep_alive_s=-1"], files=[], environ={})
        name = f"looks-{os.getpid()}"
        async with Assistant(settings, owner=name, store=shelf.store, disk=Disk(0.6)) as assistant:
            await assistant.load(Stage.INTENT)
            shelf.silent(LLM)
            begun = time.monotonic()
            command = await assistant.answer(Query(text="what time is it"))  # the LLM's disk is asked for a moment
            assert command.report.outcome is Outcome.HANDLED
            assert time.monotonic() - begun < 1
            question = asyncio.create_task(assistant.answer(Query(text="What is the capital of France?")))
            await asyncio.sleep(0.1)
            begun = time.monotonic()
            assert [row.name for row in assistant.status().stages] == ["intent"]
            assert time.monotonic() - begun < 0.1
            for answer in (await question, await assistant.answer(Query(text="What is the capital of Spain?"))):
                assert answer.report.error is not None
                assert (answer.report.error.code, answer.report.error.retryable) == ("model-unreachable", True)
            cancelled = asyncio.create_task(assistant.answer(Query(text="What is the capital of Italy?")))
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            shelf.answers(LLM)

    model("en_US-joe-medium")
    asyncio.run(test())
