"""What the assistant can do, in Wyoming's words. Pure; imports `wyoming.info` and `messages`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from wyoming.info import (
    AsrModel,
    AsrProgram,
    Attribution,
    HandleModel,
    HandleProgram,
    Info,
    IntentModel,
    IntentProgram,
    TtsProgram,
    TtsVoice,
    WakeModel,
    WakeProgram,
)

from assistant.messages import Stage
from assistant.messages_status import ProgramStatus

_AUTHORS = {
    "whisper": Attribution("OpenAI", "https://github.com/openai/whisper"),
    "vosk": Attribution("Alpha Cephei", "https://alphacephei.com/vosk"),
    "piper": Attribution("Piper", "https://github.com/OHF-Voice/piper1-gpl"),
    "piper-mnn": Attribution("Piper", "https://github.com/OHF-Voice/piper1-gpl"),
    "templates": Attribution("Home Assistant", "https://github.com/OHF-Voice/intents"),
    "micro": Attribution("microWakeWord", "https://github.com/kahrendt/microWakeWord"),
}
_OURS = Attribution("Local Voice Assistant", "")
_WHISPER_CODES = (
    "af am ar as az ba be bg bn bo br bs ca cs cy da de el en es et eu fa fi fo fr gl gu ha haw he hi hr ht hu hy id is"
    " it ja jw ka kk km kn ko la lb ln lo lt lv mg mi mk ml mn mr ms mt my ne nl nn no oc pa pl ps pt ro ru sa sd si sk"
    " sl sn so sq sr su sv sw ta te tg th tk tl tr tt uk ur uz vi yi yo zh"
)
"""What its multilingual models know, by the codes that it uses itself."""
_LOCALE = re.compile(r"([a-z]{2,3}_[A-Z]{2})-")
_IN_NAME = re.compile(r"-([a-z]{2})(?=-|$)")


def languages_of(program: ProgramStatus) -> list[str]:
    """As configured, else as the model's name says."""
    if program.language:
        return [program.language]
    if program.engine == "whisper":
        return ["en"] if program.model.endswith(".en") else _WHISPER_CODES.split()
    if found := _LOCALE.match(program.model):
        return [found[1]]
    found = _IN_NAME.search(program.model)
    return [found[1] if found else "en"]


def described(programs: Iterable[ProgramStatus], words: Iterable[str], version: str) -> Info:
    """`words`: the wake words that the daemon's microphone listens for."""
    info = Info()
    spoken = [language for one in programs if one.stage is Stage.INTENT for language in languages_of(one)] or ["en"]
    for one in programs:
        author = _AUTHORS.get(one.engine, _OURS)
        model: dict[str, Any] = {
            "name": one.model or one.engine,
            "attribution": author,
            "installed": True,
            "description": f"{one.model or one.engine} ({one.engine})",
            "version": None,
        }
        program = {**model, "name": one.engine, "description": one.engine, "version": version}
        languages = languages_of(one)
        match one.stage:
            case Stage.ASR:
                models = [AsrModel(**model, languages=languages)]
                info.asr.append(AsrProgram(**program, models=models, supports_transcript_streaming=True))
            case Stage.TTS:
                voices = [TtsVoice(**model, languages=languages)]
                info.tts.append(TtsProgram(**program, voices=voices, supports_synthesize_streaming=True))
            case Stage.INTENT:
                info.intent.append(IntentProgram(**program, models=[IntentModel(**model, languages=languages)]))
            case Stage.LLM:
                answers = [HandleModel(**model, languages=spoken)]
                info.handle.append(HandleProgram(**program, models=answers, supports_handled_streaming=True))
    if words := tuple(words):
        info.wake.append(_wake(words, version))
    return info


def _wake(words: tuple[str, ...], version: str) -> WakeProgram:
    author = _AUTHORS["micro"]
    models = [
        WakeModel(name=word, attribution=author, installed=True, description=word, version=None, languages=["en"],
                  phrase=word.replace("_", " "))
        for word in words
    ]  # fmt: skip
    return WakeProgram(
        name="micro", attribution=author, installed=True, description="heard by the daemon's own microphone",
        version=version, models=models,
    )  # fmt: skip
