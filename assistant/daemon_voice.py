"""Puts the voice of a daemon together from the settings: what the audio process is told, and who takes what it says."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from assistant.audio.front_messages import CueSettings, EndpointSettings, FrontSettings, WakeSettings
from assistant.config import Config
from assistant.config_checks import SILENCES_S, thresholds_of
from assistant.errors import ConfigError, ModelError
from assistant.messages import Emit
from assistant.model_store.store import ModelStore
from assistant.query import Answer, Query
from assistant.recordings import Recordings
from assistant.stages.fork_client import ForkServer
from assistant.voice import Voice
from assistant.voice_duck import Ducker
from assistant.voice_front import Front

log = logging.getLogger(__name__)


def voice_of(
    config: Config,
    settings: FrontSettings,
    server: ForkServer,
    answer: Callable[[Query], Awaitable[Answer]],
    transcribe: Callable[[bytes], Awaitable[str]],
    emit: Emit,
) -> Voice:
    return Voice(
        front=lambda take: Front(server, settings, take),
        answer=answer,
        transcribe=transcribe,
        emit=emit,
        ducker=Ducker(config.audio.duck_command, config.audio.unduck_command),
        recordings=_recordings(config),
        thinking_after_s=config.cues.thinking_after_s,
    )


def front_settings(config: Config, store: ModelStore) -> FrontSettings:
    """Asks the disk. Raises `ConfigError` for what would be without effect."""
    audio, wake, cues, listen = config.audio, config.wake, config.cues, config.listen
    _check(config)
    return FrontSettings(
        input=audio.input,
        output=audio.output,
        volume_percent=audio.volume_percent,
        cues=CueSettings(awake=cues.awake, done=cues.done, error=cues.error, thinking=cues.thinking, timer=cues.timer),
        wake=WakeSettings(
            engine=wake.engine,
            words=wake.words,
            stop_words=wake.stop_words,
            thresholds=thresholds_of(wake.thresholds),
            models_dirs=tuple(str(folder) for folder in (*_own(wake.models_dir), *_models(store))),
            refractory_s=wake.refractory_s,
            vad_gate=wake.vad_gate,
        ),
        endpoint=endpoint_settings(config),
        pre_roll_s=listen.pre_roll_s,
    )


def endpoint_settings(config: Config) -> EndpointSettings:
    """When somebody has begun and finished speaking."""
    listen, silence_s = config.listen, SILENCES_S[config.listen.silence]
    return EndpointSettings(
        speech_start_s=listen.speech_start_s,
        end_silence_s=silence_s,
        pause_s=min(EndpointSettings().pause_s, silence_s),
        no_speech_s=listen.no_speech_s,
        max_s=listen.max_s,
    )


def _check(config: Config) -> None:
    """Raises `ConfigError` for what would be without effect, and warns of what may come yet."""
    wake = config.wake
    if wake.models_dir and not Path(wake.models_dir).is_dir():
        raise ConfigError(f"wake.models_dir = {wake.models_dir!r} is no folder")
    for word in thresholds_of(wake.thresholds):
        if word not in (*wake.words, *wake.stop_words):
            raise ConfigError(f"wake.thresholds names {word!r}, which is neither in wake.words nor in wake.stop_words")
    for key, command in (("duck", config.audio.duck_command), ("unduck", config.audio.unduck_command)):
        if command and not shutil.which(command[0]):
            log.warning("audio.%s_command: there is no program %s", key, command[0])


def _own(folder: str) -> tuple[str, ...]:
    return (folder,) if folder else ()


def _models(store: ModelStore) -> Iterator[Path]:
    """Folders of wake words that were fetched, and are whole."""
    for name in store.installed():
        with contextlib.suppress(ModelError):
            if (found := store.open(name)).kind == "wake":
                yield found.path


def _recordings(config: Config) -> Recordings | None:
    debug = config.debug
    if not debug.recordings:
        return None
    return Recordings(max_mib=debug.recordings_max_mib, max_age_days=debug.recordings_max_age_days)
