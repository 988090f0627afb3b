"""What a stage is made of: its settings, and what the model store says of its model.

Part of the composition root. Asks the disk; starts nothing.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from assistant import paths
from assistant.config import Config
from assistant.daemon_intents import intent_spec
from assistant.daemon_remote import remote_spec
from assistant.disk import Alive
from assistant.errors import ConfigError, ModelDamaged
from assistant.machine import usable_cpus
from assistant.memory_orchestrator.estimate import cache_of
from assistant.messages import KvHome, Sampling, Stage
from assistant.model_store import reach
from assistant.model_store.choices import EMERGENCY_GRAPH
from assistant.model_store.store import ModelStore
from assistant.pipeline_llm import LlmSettings
from assistant.query import Understood
from assistant.speech_language import of_voice
from assistant.stages import kv_files
from assistant.stages.placement import placement, threads_for
from assistant.stages.registry import REMOTE, engine_path
from assistant.stages.spec import StageSpec

log = logging.getLogger(__name__)


def stage_spec(
    stage: Stage,
    config: Config,
    store: ModelStore,
    beyond: Understood = Understood(),  # noqa: B008 - it is frozen
    alive: Alive = lambda: None,
) -> StageSpec:
    """What the settings and the store say of a stage. `beyond`: intents that are no skills of ours.

    Raises `ModelError`, or `ConfigError` for a model of another stage.
    """
    settings: Any = config.stage(stage)
    engine: str = settings.engine
    cpus = usable_cpus()
    placed = placement(stage, cpus)
    if getattr(settings, "threads", 0) > threads_for(placed, cpus):  # as many as the user wants, wherever there is room
        placed = msgspec.structs.replace(placed, cpus=())
    common: dict[str, Any] = {
        "placement": placed,
        "stage": stage,
        "engine": engine,
        "cache_dir": paths.cache_dir() / engine,
        "start_timeout_s": settings.start_timeout_s,
        "step_timeout_s": settings.step_timeout_s,
        "language": settings.language if stage is Stage.TTS else "",
    }
    engine_path(stage, engine)  # an engine that does not exist is told before a model that does not fit it
    if engine in REMOTE:
        return remote_spec(stage, settings, common)
    if stage is Stage.INTENT:
        return intent_spec(config, beyond, common)
    model = store.open(settings.model, alive)
    if (model.stage, model.engine) != (stage, engine):
        raise ConfigError(
            f"stages.{stage}.engine is {engine!r}, but stages.{stage}.model {model.name!r} is made for stage"
            f" {model.stage}, engine {model.engine!r}; set both ('assistant models list' shows what there is)"
        )
    options: dict[str, Any] = {}
    kv_token, kv_all = 0, 0
    kv_home: KvHome = "memory"
    match stage:
        case Stage.LLM:
            context, kv_token, kv_all, files = cache_of(model.shape, settings.context_tokens, settings.slots)
            if context < settings.context_tokens:
                log.warning("stages.llm.context_tokens: model %r has a context of %d", model.name, context)
            kv_home, kv_dir = kv_files.home_of(settings.kv_cache, kv_all, paths.cache_dir() / engine, files=files)
            options = {
                "context_tokens": context,
                "slots": settings.slots,
                "prefill_chunk": settings.prefill_chunk,
                "attention_mode": settings.attention_mode,
                "kv_home": kv_home,
                "kv_bytes": kv_all,
                "kv_dir": str(kv_dir or ""),
            }
        case Stage.ASR if engine == "whisper" and settings.language:
            options = {"language": settings.language}
        case Stage.TTS if settings.length_scale != 1:
            options = {"length_scale": settings.length_scale}
    if stage is Stage.TTS:  # asked of the file beside the voice here, and not while somebody waits
        try:
            common["language"] = of_voice(model.name, model.path, settings.language)
        except OSError as error:
            reach.check(error, model.path)
            raise ModelDamaged(f"Model {model.name!r} cannot be read: {error}") from None
    return StageSpec(
        **common, model=model.name, model_dir=model.path, digest=model.digest, weight_bytes=model.bytes,
        threads=settings.threads or threads_for(placed, cpus), options=options,
        kv_token_bytes=kv_token, kv_bytes=kv_all, kv_home=kv_home,
        emergency=stage is Stage.LLM and (model.path / EMERGENCY_GRAPH).is_file(),
    )  # fmt: skip


def llm_settings(config: Config) -> LlmSettings:
    llm = config.stages.llm
    return LlmSettings(
        system_prompt=llm.system_prompt,
        max_new_tokens=llm.max_new_tokens,
        prefill_chunk=llm.prefill_chunk,
        slots=llm.slots,
        sampling=Sampling(
            temperature=llm.temperature,
            top_k=llm.top_k,
            top_p=llm.top_p,
            min_p=llm.min_p,
            repetition_penalty=llm.repetition_penalty,
            seed=None if llm.seed < 0 else llm.seed,
        ),
    )
