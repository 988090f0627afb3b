"""What a running assistant reports of itself. Imports `messages` alone."""

from __future__ import annotations

from typing import Literal

import msgspec

from assistant.messages import Level, Mode, Stage, VoiceState


class StageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the ledger, for people: `assistant ps`."""

    name: str
    engine: str
    model: str
    state: Literal["reserved", "prepared", "loading", "idle", "in-use", "leaving"]
    pid: int
    reserved_mib: float
    anon_mib: float
    """Measured, anonymous PSS."""
    file_mib: float
    """Measured, file-backed PSS."""
    kv_mib: float
    until_s: float | None = None
    """Seconds until it is unloaded unless somebody uses it; None = not by itself."""


class ProgramStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A stage that can be used, loaded or not."""

    stage: Stage
    engine: str
    model: str
    language: str = ""
    """As configured; empty = the model decides."""


class MemoryStatus(msgspec.Struct, frozen=True, kw_only=True):
    budget_mib: float
    margin_mib: float
    base_mib: float
    """What the daemon and its fork server hold."""
    used_mib: float
    """What all processes hold, measured."""
    peak_mib: float
    peak_anon_mib: float
    mode: Mode


class PressureStatus(msgspec.Struct, frozen=True, kw_only=True):
    level: Level = "normal"
    reasons: tuple[str, ...] = ()
    """What presses, in words: "cpu 84 °C of 85", "memory 12 % stalled"."""


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Of a microphone or a speaker."""

    state: Literal["ok", "lost", "off"]
    name: str = ""
    sample_rate: int = 0
    """Hz at which it is open; 0 = it is not."""
    channels: int = 0
    message: str = ""


class VoiceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Microphone, speaker, and how often things happened since the start."""

    muted: bool
    volume_percent: float
    words: tuple[str, ...]
    stop_words: tuple[str, ...]
    input: DeviceStatus
    output: DeviceStatus
    wakes: int
    interruptions: int
    unheard: int
    """Woken, and then nothing was said or understood."""
    devices_lost: int
    overflows: int
    restarts: int
    """Of the audio process."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of `assistant status`."""

    version: str
    pid: int
    uptime_s: float
    state: VoiceState
    queries: int
    """Answered since the start, whatever their outcome."""
    memory: MemoryStatus
    pressure: PressureStatus
    stages: tuple[StageStatus, ...]
    voice: VoiceStatus | None = None
    """None: it runs without microphone and speaker (`audio.enabled = false`)."""
