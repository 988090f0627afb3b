"""Which microphone or speaker is meant, and at what rate it opens. Imports `errors, front_messages`; pure.

Devices are meant by name, never by number: numbers change when something is plugged in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assistant.audio.front_messages import DeviceKind
from assistant.errors import ConfigError, DeviceError

RATES = (48_000, 16_000, 32_000, 96_000)
"""Hz, the best first: multiples of the 16 kHz that is heard. 48 kHz is what nearly all hardware does itself; what ALSA
converts to another rate, it converts without a filter."""
FALLBACK_RATES = (44_100, 22_050, 8_000, 88_200, 192_000)
"""After a device's own default rate."""

NOUN: dict[DeviceKind, str] = {"input": "microphone", "output": "speaker"}
_HELP = "; plug one in, or start the sound server"
"""Where there is none at all."""


@dataclass(frozen=True, slots=True)
class SoundDevice:
    """As PortAudio tells it, which promises channels and rates that a device may not take: see `opening_format`."""

    index: int
    """Valid until PortAudio is initialised again; of no meaning to a user."""
    name: str
    host_api: str
    inputs: int
    """Channels at most; 0 = it is no microphone."""
    outputs: int
    default_rate: int
    """Hz."""
    default_input: bool = False
    default_output: bool = False

    def channels(self, kind: DeviceKind) -> int:
        return self.inputs if kind == "input" else self.outputs

    def is_default(self, kind: DeviceKind) -> bool:
        return self.default_input if kind == "input" else self.default_output


@dataclass(frozen=True, slots=True)
class Format:
    """Of a device's samples, which are s16le, channels interleaved."""

    rate: int
    """Hz."""
    channels: int


def checked_pattern(pattern: str, kind: DeviceKind) -> re.Pattern[str]:
    """Raises `ConfigError` for what is no regular expression."""
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise ConfigError(
            f"audio.{kind} = {pattern!r} is no regular expression: {error}; 'assistant devices list' shows the names"
        ) from None


def choose(devices: Sequence[SoundDevice], kind: DeviceKind, pattern: str = "") -> SoundDevice:
    """The device of exactly this name, else the first whose name the regular expression is found in (any case).

    An empty pattern is the system's default. Raises `ConfigError` for what is no regular expression, `DeviceError`
    (code "audio-device-missing") that lists the names there are.
    """
    noun, able = NOUN[kind], [one for one in devices if one.channels(kind) > 0]
    expression = checked_pattern(pattern, kind)
    if not pattern:
        found = [one for one in able if one.is_default(kind)]
    else:
        found = [one for one in able if one.name == pattern] or [one for one in able if expression.search(one.name)]
    if found:
        return found[0]
    names = "; there are: " + ", ".join(dict.fromkeys(one.name for one in able)) if able else _HELP
    wanted = f"no {noun} matches audio.{kind} = {pattern!r}" if pattern else f"no {noun} was found"
    raise DeviceError(f"{wanted}{names}", code="audio-device-missing")


def opening_format(device: SoundDevice, kind: DeviceKind, takes: Callable[[Format], bool]) -> Format:
    """The first format that `takes` says yes to: good rates first, with one channel, then two, then all.

    Raises `DeviceError` that names the device and what it claims.
    """
    rates = dict.fromkeys((*RATES, device.default_rate, *FALLBACK_RATES))
    most = device.channels(kind)
    counts = [count for count in dict.fromkeys((1, 2, most)) if count <= most]
    for rate in rates:
        for count in counts:
            if takes(Format(rate, count)):
                return Format(rate, count)
    raise DeviceError(
        f"{NOUN[kind]} {device.name!r} opens at none of {', '.join(map(str, rates))} Hz with"
        f" {' or '.join(map(str, counts))} channels of 16 bit, though it claims {device.default_rate} Hz and {most}"
        f" channels; another program may hold it. Choose another one with audio.{kind} ('assistant devices list')"
    )
