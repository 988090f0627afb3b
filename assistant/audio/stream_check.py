"""What a short recording says of a microphone: level, clipping, silence, whether a tone was in it. Pure.

Imports `messages`. Levels are in dBFS: 0 is the loudest that 16 bit can hold; digital silence is -120.
"""

from __future__ import annotations

import msgspec
import numpy as np

from assistant.messages import ASR_RATE

TONE_HZ = 880.0
TONE_S = 0.5
TONE_PEAK = 0.1
"""Of full scale: -20 dBFS, as loud as calm speech."""
FLOOR_DBFS = -120.0
QUIET_DBFS = -65.0
"""Of the loudest sample: quieter than any room with a working microphone."""
LOUD_DBFS = -1.0
HEARD_DB = 10.0
"""Over what was there before, at the tone's frequency."""


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    peak_dbfs: float
    rms_dbfs: float
    clipped: int
    """Samples at full scale."""
    silent: bool
    """Not one sample differs from the others."""
    tone_heard: bool | None = None
    """None: none was played, or there is too little of the recording."""


def tone(rate: int, begin: int, frames: int) -> bytes:
    """Frames of the test tone from frame `begin` on, s16le mono, faded at both ends; nothing behind its end."""
    length = round(TONE_S * rate)
    at = np.arange(begin, min(begin + frames, length))
    fade = np.minimum(1, np.minimum(at, length - at) / (0.01 * rate))
    sound = np.sin(2 * np.pi * TONE_HZ * at / rate) * fade * TONE_PEAK * 32767
    return bytes(np.rint(sound).astype("<i2").tobytes())


def dbfs(amplitude: float) -> float:
    """Of an amplitude of 0..32768."""
    return max(FLOOR_DBFS, round(20 * float(np.log10(amplitude / 32768)), 1)) if amplitude > 0 else FLOOR_DBFS


def measure(pcm: bytes, tone_s: float | None = None) -> Levels:
    """Of s16le mono at 16 kHz. `tone_s`: when the tone was begun, seconds from the start of the recording."""
    sound = np.frombuffer(pcm, "<i2").astype(np.float64)
    if not len(sound):
        return Levels(seconds=0, peak_dbfs=FLOOR_DBFS, rms_dbfs=FLOOR_DBFS, clipped=0, silent=True)
    varying = sound - sound.mean()  # a converter's offset is no sound
    return Levels(
        seconds=len(sound) / ASR_RATE,
        peak_dbfs=dbfs(float(np.abs(varying).max())),
        rms_dbfs=dbfs(float(np.sqrt(np.mean(varying**2)))),
        clipped=int((np.abs(sound) >= 32767).sum()),
        silent=bool(sound.min() == sound.max()),
        tone_heard=None if tone_s is None else _heard(varying, tone_s),
    )


def _heard(sound: np.ndarray, tone_s: float) -> bool | None:
    """Whether any tenth of a second behind the tone's begin has clearly more of it than the median one before."""
    block = ASR_RATE // 10
    parts = sound[: len(sound) // block * block].reshape(-1, block)
    wave = np.exp(-2j * np.pi * TONE_HZ * np.arange(block) / ASR_RATE) * np.hanning(block)
    power = np.abs(parts @ wave) ** 2 + 1
    border = int(tone_s * 10)
    if border < 2 or len(power) - border < 5:
        return None
    return bool(10 * np.log10(power[border:].max() / np.median(power[:border])) >= HEARD_DB)


def advice(levels: Levels, overflows: int) -> tuple[str, ...]:
    """What to do about it, in sentences; nothing where all is well."""
    told = []
    if levels.seconds == 0:
        told.append("The microphone gave no sound at all: unplug it and plug it in again.")
    elif levels.silent:
        told.append(
            "The microphone gives pure silence, so it is muted or not connected: look at its switch, and at"
            " 'pactl set-source-mute @DEFAULT_SOURCE@ 0' or alsamixer (F4)."
        )
    elif levels.peak_dbfs < QUIET_DBFS:
        told.append("Hardly any sound: raise the level of recording (pavucontrol, or alsamixer with F4), or go nearer.")
    elif levels.clipped or levels.peak_dbfs > LOUD_DBFS:
        told.append("Too loud, it is clipped: lower the level of recording, or switch off its boost.")
    if overflows:
        told.append("Sound was lost on the way: the machine is too busy.")
    if levels.tone_heard is False:
        told.append("The tone was not heard back, which is as it should be with headphones; did you hear it?")
    return tuple(told)
