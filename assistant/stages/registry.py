"""The registry: one row per engine. A row names `module:Class`; only `worker` imports it.

A newcomer adds an engine with one file in this folder, one row here, one in `memory_orchestrator.estimate.SHAPES`, and
one entry in `models/catalog.toml`. One whose work is done by a server (`REMOTE`) needs no such entry.
"""

from __future__ import annotations

from assistant.errors import ConfigError
from assistant.messages import Stage

ENGINES: dict[tuple[Stage, str], str] = {
    (Stage.ASR, "vosk"): "assistant.stages.asr_vosk:VoskAsr",
    (Stage.ASR, "whisper"): "assistant.stages.asr_whisper:WhisperAsr",
    (Stage.ASR, "wyoming"): "assistant.stages.asr_wyoming:WyomingAsr",
    (Stage.INTENT, "classifier"): "assistant.stages.intent_classifier:ClassifierIntent",
    (Stage.INTENT, "templates"): "assistant.stages.intent_templates:TemplateIntent",
    (Stage.LLM, "mnn"): "assistant.stages.llm_mnn:MnnLlm",
    (Stage.LLM, "openai"): "assistant.stages.llm_openai:OpenAiLlm",
    (Stage.TTS, "piper"): "assistant.stages.tts_piper:PiperTts",
    (Stage.TTS, "piper-mnn"): "assistant.stages.tts_piper_mnn:PiperMnnTts",
    (Stage.TTS, "wyoming"): "assistant.stages.tts_wyoming:WyomingTts",
}
REMOTE = frozenset({"openai", "wyoming"})
"""Engines without model files: their work is done by a server that the user has named."""


def engine_path(stage: Stage, engine: str) -> str:
    """`module:Class` of an engine. Raises `ConfigError` naming the engines that the stage has."""
    try:
        return ENGINES[stage, engine]
    except KeyError:
        known = ", ".join(sorted(name for where, name in ENGINES if where is stage))
        raise ConfigError(f"stages.{stage}.engine: there is no engine {engine!r}; choose one of: {known}") from None
