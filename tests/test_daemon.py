"""What the composition root makes of settings and models."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from assistant import config, machine
from assistant.daemon_specs import stage_spec
from assistant.errors import ConfigError, ModelUnknown
from assistant.memory_orchestrator.estimate import slot_tokens
from assistant.messages import STAGE_ORDER, Stage
from assistant.model_store.store import ModelInfo, ModelStore
from assistant.stages.placement import placement, threads_for


def settings(*sets: str) -> config.Config:
    return config.load(sets, files=[], environ={})


@pytest.mark.engine
def test_every_stage_of_the_default_settings_has_a_spec(model: Callable[[str], ModelInfo]) -> None:
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium"):
        model(name)
    specs = {stage: stage_spec(stage, settings(), ModelStore.default()) for stage in STAGE_ORDER}
    llm = specs[Stage.LLM]
    assert llm.kv_token_bytes == 2 * 30 * 3 * 64 * 4
    assert llm.kv_bytes == llm.kv_token_bytes * slot_tokens(1024)
    wanted = {"context_tokens": 1024, "slots": 1, "prefill_chunk": 128, "attention_mode": 8}
    assert wanted.items() <= (llm.options or {}).items()
    cpus = machine.usable_cpus()
    assert llm.threads == threads_for(placement(Stage.LLM, cpus), cpus)
    assert "HassGetCurrentTime" in (specs[Stage.INTENT].options or {})["intents"]
    assert len({spec.calibration_key(spec.threads) for spec in specs.values()}) == 4
    longer = stage_spec(Stage.LLM, settings("stages.llm.context_tokens=2048"), ModelStore.default())
    assert longer.calibration_key(1) != llm.calibration_key(1)
    same = stage_spec(Stage.LLM, settings(), ModelStore.default())
    assert same.calibration_key(1) == llm.calibration_key(1) != llm.calibration_key(2)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ("stages.tts.model=whisper-tiny.en", "stage asr"),
        ("stages.asr.engine=vosk", "engine 'whisper'"),
    ],
)
def test_a_model_of_another_stage_or_engine_is_a_config_error(
    model: Callable[[str], ModelInfo], sets: str, words: str
) -> None:
    model("whisper-tiny.en")
    with pytest.raises(ConfigError, match=words):
        stage_spec(Stage(sets.split(".")[1]), settings(sets), ModelStore.default())


def test_a_model_that_nobody_knows_is_named() -> None:
    with pytest.raises(ModelUnknown, match="nothing-of-the-kind"):
        stage_spec(Stage.LLM, settings("stages.llm.model=nothing-of-the-kind"), ModelStore.default())


def test_this_process_has_an_age() -> None:
    assert 0 < machine.process_age_s() < 3600 * 24
