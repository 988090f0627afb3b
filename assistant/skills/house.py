"""Lights, heating, music, weather: what other programs do. Said honestly when there is no such program.

Whoever registered the intent was asked before (`pipeline_handled`). Imports the room.
"""

from __future__ import annotations

from assistant.skills.context import Context
from assistant.skills.registry import Slots, skill
from assistant.skills.words import folded, text

OWN_NAMES = frozenset({"", "assistant", "you", "your", "yourself", "volume", "sound", "speaker", "your voice"})
"""Names of a device that are we ourselves."""
_MUSIC = "plays music"
_MUSIC_INTENTS = ("HassMediaNext", "HassMediaPrevious", "HassMediaPause", "HassMediaUnpause", "HassMediaSearchAndPlay")
_KINDS = {"light": "lights", "fan": "fans", "cover": "blinds and doors", "lock": "locks", "switch": "switches",
          "media_player": "players"}  # fmt: skip


def nobody(does: str) -> str:
    """ "No program is connected that controls lights." """
    return f"No program is connected that {does}."


def elsewhere(slots: Slots) -> str:
    """Which device or room other than ours is named: "the tv", "the kitchen"; "" = none."""
    name, area = text(slots, "name"), text(slots, "area")
    if folded(name) not in OWN_NAMES:
        return _the(name)
    return _the(area) if area else ""


def _the(name: str) -> str:
    return name if name.split()[0].lower() in ("the", "my", "our", "your") else f"the {name}"


def _absent(does: str, *intents: str) -> None:
    async def tell(slots: Slots, context: Context) -> str:
        del slots, context
        return nobody(does)

    skill(*intents)(tell)


_absent(_MUSIC, *_MUSIC_INTENTS)
_absent("controls lights", "HassLightSet")
_absent("controls the heating", "HassClimateSetTemperature")
_absent("measures the temperature", "HassClimateGetTemperature")
_absent("knows the weather", "HassGetWeather")


@skill("HassTurnOn", "HassTurnOff")
async def switch(slots: Slots, context: Context) -> str:
    del context
    return nobody(f"controls {_device(slots)}")


@skill("HassGetState")
async def state(slots: Slots, context: Context) -> str:
    del context
    return nobody(f"knows the state of {_device(slots)}")


def _device(slots: Slots) -> str:
    """As far as it was said: "the kettle", "lights"."""
    if name := text(slots, "name"):
        return _the(name)
    return _KINDS.get(text(slots, "domain"), "devices")
