"""What settings make of remote engines: off by default, one line each, no models, a pause after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from assistant import config, paths
from assistant.daemon import Assistant
from assistant.daemon_looks import Looks
from assistant.daemon_remote import check_api_key
from assistant.daemon_specs import stage_spec
from assistant.daemon_stages import Stages
from assistant.disk import Disk
from assistant.errors import ConfigError, EngineFailed, RemoteFailed, StageError
from assistant.memory_orchestrator.calibration import Calibration
from assistant.memory_orchestrator.probe import MIB
from assistant.messages import Stage
from assistant.model_store.store import ModelInfo, ModelStore
from assistant.stages.fork_client import ForkServer
from assistant.stages.registry import REMOTE
from assistant.stages.supervisor import Supervisor


def settings(*sets: str) -> config.Config:
    return config.load(sets, files=[], environ={})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def stages_of(tmp_path: Path, clock: Clock, *sets: str, store: ModelStore | None = None) -> Stages:
    server, known = ForkServer(), Calibration(tmp_path / "measured.json")
    return Stages(
        settings(*sets), store or ModelStore.default(), lambda spec: Supervisor(spec, server, known), lambda: "normal",
        clock=clock,
    )  # fmt: skip


def now(stages: Stages, stage: Stage) -> Supervisor:
    return asyncio.run(Looks(stages, Disk())(stage))


def instead(stages: Stages, failed: Supervisor, error: StageError) -> Supervisor | None:
    return asyncio.run(Looks(stages, Disk()).instead(failed, error))


def empty(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "no-models", paths.catalog_file())


def test_by_default_nothing_leaves_this_machine() -> None:
    default = settings()
    assert not {default.stage(stage).engine for stage in Stage} & REMOTE


@pytest.mark.parametrize(
    ("line", "stage", "model"),
    [
        ("stages.asr.engine=wyoming", Stage.ASR, "127.0.0.1:10300"),
        ("stages.tts.engine=wyoming", Stage.TTS, "127.0.0.1:10200"),
        ("stages.llm.engine=openai", Stage.LLM, "127.0.0.1:8080"),
    ],
)
def test_one_line_chooses_a_server_and_needs_no_model(tmp_path: Path, line: str, stage: Stage, model: str) -> None:
    one = now(stages_of(tmp_path, Clock(), line, store=empty(tmp_path)), stage)
    assert (one.engine in REMOTE, one.model) == (True, model)
    assert one.need().usage.total <= 24 * MIB


def test_the_key_is_in_no_spec_and_no_calibration(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-do-not-tell")
    sets = ("stages.llm.engine=openai", f"stages.llm.api_key_file={file}", "stages.llm.remote_model=gpt")
    spec = stage_spec(Stage.LLM, settings(*sets), empty(tmp_path))
    assert spec.model == "gpt"
    assert "do-not-tell" not in repr(spec) + spec.calibration_key(1)


@pytest.mark.parametrize(
    "line", ["stages.llm.url=ftp://x", "stages.llm.url=http://me:secret@x/v1", "stages.llm.deadline_s=0"]
)
def test_a_bad_address_is_told_at_the_start(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=r"stages\.llm\.") as caught:
        now(stages_of(tmp_path, Clock(), "stages.llm.engine=openai", line), Stage.LLM)
    assert "secret" not in caught.value.message


@pytest.mark.engine
def test_the_installed_model_takes_the_place_for_30_s_with_the_engine_that_it_is_made_for(
    tmp_path: Path, model: Callable[[str], ModelInfo]
) -> None:
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium"):
        model(name)
    clock = Clock()
    lines = ("stages.asr.engine=wyoming", "stages.tts.engine=wyoming", "stages.llm.engine=openai")
    stages = stages_of(tmp_path, clock, *lines)
    error = RemoteFailed("away", code="remote-unreachable")
    for stage, engine in ((Stage.ASR, "whisper"), (Stage.TTS, "piper"), (Stage.LLM, "mnn")):
        remote = now(stages, stage)
        local = instead(stages, remote, error)
        assert local is not None
        assert (local.engine, local.spec.weight_bytes > 0) == (engine, True)
        assert now(stages, stage) is local
        why = stages.away(local)
        assert why is not None
        assert (why.code, why.message, stages.away(remote)) == (error.code, error.message, None)
        assert instead(stages, local, EngineFailed("bad day")) is None
        clock.now += 29
        assert now(stages, stage) is local
        clock.now += 2
        assert now(stages, stage) is remote
        stages.note(stage, EngineFailed("bad day"))
        assert now(stages, stage) is remote
        stages.note(stage, error)
        assert now(stages, stage) is local
        clock.now += 31


@pytest.mark.parametrize("more", [[], ["stages.llm.fallback=false"]])
def test_without_an_installed_model_or_a_wish_for_it_nothing_takes_the_place(tmp_path: Path, more: list[str]) -> None:
    store = empty(tmp_path) if not more else ModelStore.default()
    stages = stages_of(tmp_path, Clock(), "stages.llm.engine=openai", *more, store=store)
    assert stages.away(now(stages, Stage.INTENT)) is None
    remote = now(stages, Stage.LLM)
    assert instead(stages, remote, RemoteFailed("away")) is None
    assert now(stages, Stage.LLM) is remote


def test_read_ahead_of_a_remote_stage_reads_none_of_the_users_files(tmp_path: Path) -> None:
    spec = stage_spec(Stage.LLM, settings("stages.llm.engine=openai"), empty(tmp_path))
    assert spec.model_dir == paths.data_file("")


def test_the_key_of_a_server_is_looked_at_before_anybody_asks(tmp_path: Path) -> None:
    key = tmp_path / "key"
    asks = settings("stages.llm.engine=openai", f"stages.llm.api_key_file={key}")
    with pytest.raises(ConfigError, match=r"api_key_file: .*key: No such file"):
        check_api_key(asks)
    key.write_text("sk-secret\n")
    key.chmod(0o644)
    with pytest.raises(ConfigError, match="others may use it") as caught:
        check_api_key(asks)
    assert "sk-secret" not in caught.value.message
    key.chmod(0o600)
    check_api_key(asks)
    (tmp_path / "link").symlink_to(key)
    check_api_key(settings("stages.llm.engine=openai", f"stages.llm.api_key_file={tmp_path / 'link'}"))
    key.write_text(" \n")
    with pytest.raises(ConfigError, match="is empty"):
        check_api_key(asks)
    check_api_key(settings(f"stages.llm.api_key_file={key}"))  # the local model needs none


def test_an_assistant_does_not_start_without_the_key_of_its_server(tmp_path: Path) -> None:
    async def test() -> None:
        config = settings("stages.llm.engine=openai", f"stages.llm.api_key_file={tmp_path / 'none'}")
        with pytest.raises(ConfigError, match="api_key_file"):
            async with Assistant(config, store=empty(tmp_path)):
                raise AssertionError("it has started")

    asyncio.run(test())
