"""Takes our cues out of the microphone's signal, and leaves the speech. Imports `cues` for their tones.

A loudspeaker, a room and a microphone change the strength and the phase of a pure tone, never its frequency. So
whatever the room, a filter with narrow notches at the tones of a cue removes it, without knowing how loud it arrives or
when; what somebody says at the same time loses a few hertz of its spectrum.

The filter has minimum phase: it holds nothing back, so it can be switched on and off in the middle of a sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from assistant.audio.cues import ALL_TONES

RATE = 16_000
STOP_HZ = 20.0
"""Half of a notch's floor: the envelopes of the cues widen their tones by 15 Hz."""
PASS_HZ = 60.0
"""Farther from a tone than this, nothing is changed by more than 1 dB."""
DEPTH_DB = 66.0
_TAPS = 1536
"""As many as an FFT of 2048 takes beside a block of 512."""
_FFT = 2048
_DESIGN_FFT = 1 << 16


class Notch:
    """`feed(block)` for s16le mono at 16 kHz, blocks of any length; gives as much back, without delay."""

    def __init__(self, tones: Sequence[float] = ALL_TONES) -> None:
        """`tones`: Hz, each more than `PASS_HZ` above 0 and below 8 kHz; others raise `ValueError`."""
        self._response = _response(tuple(sorted(set(tones))))
        self._past: NDArray[np.float32] = np.zeros(_TAPS - 1, np.float32)

    def feed(self, block: bytes, *, through: bool = False) -> bytes:
        """The block without the tones. `through`: unchanged, but remembered, as the past of the next one."""
        samples = np.frombuffer(block, "<i2").astype(np.float32)
        if through:
            self._remember(samples)
            return block
        step = _FFT - _TAPS + 1
        return b"".join(self._convolved(samples[at : at + step]).tobytes() for at in range(0, len(samples), step))

    __call__ = feed

    def _convolved(self, samples: NDArray[np.float32]) -> NDArray[np.int16]:
        """Overlap-save: of a cyclic convolution, what the end of the buffer did not reach around to."""
        window = np.concatenate([self._past, samples])
        full = np.fft.irfft(np.fft.rfft(window, _FFT) * self._response, _FFT)
        self._remember(samples)
        return np.rint(full[_TAPS - 1 : len(window)]).clip(-32768, 32767).astype("<i2")

    def _remember(self, samples: NDArray[np.float32]) -> None:
        self._past = np.concatenate([self._past, samples])[-(_TAPS - 1) :]


@lru_cache(maxsize=8)
def _response(tones: tuple[float, ...]) -> NDArray[np.complex64]:
    """Spectrum of the filter's taps, [_FFT // 2 + 1]."""
    if any(not PASS_HZ < tone < RATE / 2 - PASS_HZ for tone in tones):
        raise ValueError(f"{tones} Hz: a notch lies between {PASS_HZ:g} and {RATE / 2 - PASS_HZ:g} Hz")
    return np.fft.rfft(taps(tones), _FFT).astype(np.complex64)


def taps(tones: Sequence[float]) -> NDArray[np.float64]:
    """The impulse response, [_TAPS].

    A magnitude with raised-cosine flanks (in dB) between `STOP_HZ` and `PASS_HZ`, made causal with minimum phase
    through the real cepstrum (Oppenheim and Schafer, Discrete-Time Signal Processing: homomorphic design).
    """
    hz = np.fft.rfftfreq(_DESIGN_FFT, 1 / RATE)
    nearest = np.min([np.abs(hz - tone) for tone in tones], axis=0) if tones else np.full(len(hz), np.inf)
    flank = ((nearest - STOP_HZ) / (PASS_HZ - STOP_HZ)).clip(0.0, 1.0)
    log_magnitude = -DEPTH_DB / 20 * np.log(10) * (0.5 + 0.5 * np.cos(np.pi * flank))
    cepstrum = np.fft.irfft(log_magnitude, _DESIGN_FFT)
    cepstrum[1 : _DESIGN_FFT // 2] *= 2
    cepstrum[_DESIGN_FFT // 2 + 1 :] = 0
    response = np.fft.irfft(np.exp(np.fft.rfft(cepstrum)), _DESIGN_FFT)[:_TAPS]
    fade = _TAPS // 4
    response[-fade:] *= 0.5 + 0.5 * np.cos(np.pi * np.arange(fade) / fade)
    return response
