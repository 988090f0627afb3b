"""The registry: one row per engine. A row names `module:Class`; only `worker` imports it.

A newcomer adds an engine with one file in this folder, one row here, one in `memory_orchestrator.estimate.SHAPES`, and
one entry in `models/catalog.toml`.
"""

from __future__ import annotations

from assistant.errors import ConfigError
from assistant.messages import Stage

ENGINES: dict[tuple[Stage, str], str] = {
    (Stage.ASR, "vosk"): "assistant.stages.asr_vosk:VoskAsr",
    (Stage.ASR, "whisper"): "assistant.stages.asr_whisper:WhisperAsr",
    (Stage.INTENT, "templates"): "assistant.stages.intent_templates:TemplateIntent",
    (Stage.LLM, "mnn"): "assistant.stages.llm_mnn:MnnLlm",
    (Stage.TTS, "piper"): "assistant.stages.tts_piper:PiperTts",
}


def engine_path(stage: Stage, engine: str) -> str:
    """`module:Class` of an engine. Raises `ConfigError` naming the engines that the stage has."""
    try:
        return ENGINES[stage, engine]
    except KeyError:
        known = ", ".join(sorted(name for where, name in ENGINES if where is stage))
        raise ConfigError(f"stages.{stage}.engine: there is no engine {engine!r}; choose one of: {known}") from None
