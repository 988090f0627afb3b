"""How loud we speak. Of other devices somebody else would have to: see `house`. Imports the room."""

from __future__ import annotations

from assistant.skills.context import Context
from assistant.skills.house import elsewhere, nobody
from assistant.skills.registry import Missing, Slots, skill
from assistant.skills.words import number

STEP = 10.0
"""Percent points of "louder"."""
NO_SPEAKER = "I have no speaker here, so there is no volume to change."


@skill("HassSetVolume")
async def set_volume(slots: Slots, context: Context) -> str:
    """ "Volume 40 percent." """
    if device := elsewhere(slots):
        return nobody(f"controls the volume of {device}")
    if context.speaker is None:
        return NO_SPEAKER
    level = number(slots, "volume_level")
    if level is None:
        raise Missing("volume_level", "How loud, from 0 to 100?")
    if not 0 <= level <= 100:
        return f"The volume goes from 0 to 100; it stays at {_percent(context.speaker.percent)}."
    context.speaker.set(level)
    return f"Volume {_percent(level)}."


@skill("HassSetVolumeRelative")
async def change_volume(slots: Slots, context: Context) -> str:
    """ "Volume 50 percent." `volume_step`: up, down, or percent points."""
    if device := elsewhere(slots):
        return nobody(f"controls the volume of {device}")
    speaker = context.speaker
    if speaker is None:
        return NO_SPEAKER
    step = {"up": STEP, "down": -STEP}.get(str(slots.get("volume_step")), number(slots, "volume_step"))
    if not step:
        raise Missing("volume_step", "Louder or quieter?")
    if not -100 <= step <= 100:
        return f"The volume goes from 0 to 100; it stays at {_percent(speaker.percent)}."
    before = speaker.unmute() if speaker.muted and step > 0 else speaker.percent
    if before == (100 if step > 0 else 0):
        return f"I am as {'loud' if step > 0 else 'quiet'} as can be."
    speaker.set(min(100.0, max(0.0, before + step)))
    return f"Volume {_percent(speaker.percent)}."


@skill("HassMediaPlayerMute")
async def mute(slots: Slots, context: Context) -> str:
    """ "The sound is off." """
    if device := elsewhere(slots):
        return nobody(f"controls the sound of {device}")
    if context.speaker is None:
        return NO_SPEAKER
    context.speaker.mute()
    return "The sound is off."


@skill("HassMediaPlayerUnmute")
async def unmute(slots: Slots, context: Context) -> str:
    """ "The sound is on, at 60 percent." """
    if device := elsewhere(slots):
        return nobody(f"controls the sound of {device}")
    if context.speaker is None:
        return NO_SPEAKER
    return f"The sound is on, at {_percent(context.speaker.unmute())}."


def _percent(level: float) -> str:
    return f"{round(level)} percent"
