"""The names of the intents that we understand: Home Assistant's where it has one, so that its handlers fit; and what
their slots hold. Pure.
"""

from __future__ import annotations

Slots = dict[str, str | int | float]
"""By their names."""

INTENTS: tuple[str, ...] = (
    "HassStartTimer", "HassIncreaseTimer", "HassDecreaseTimer", "HassPauseTimer", "HassUnpauseTimer",
    "HassCancelTimer", "HassCancelAllTimers", "HassTimerStatus",
    "HassSetVolume", "HassSetVolumeRelative", "HassMediaPlayerMute", "HassMediaPlayerUnmute",
    "HassMediaNext", "HassMediaPrevious", "HassMediaPause", "HassMediaUnpause", "HassMediaSearchAndPlay",
    "HassLightSet", "HassTurnOn", "HassTurnOff", "HassGetState",
    "HassClimateGetTemperature", "HassClimateSetTemperature", "HassGetWeather",
    "HassGetCurrentTime", "HassGetCurrentDate", "HassNevermind",
    "HassShoppingListAddItem", "HassShoppingListCompleteItem",
    "AssistantShoppingListRead", "AssistantShoppingListClear", "AssistantHelp", "AssistantRepeat",
)  # fmt: skip
