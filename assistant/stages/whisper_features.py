"""What whisper hears: log-mel features of 16 kHz audio. Imports numpy alone; no engine, no files.

Formulas: Hann window of 25 ms every 10 ms; the mel scale of Slaney's Auditory Toolbox (linear below 1 kHz, logarithmic
above), triangles of equal area; log10, limited to 8 decades below the loudest value, then (x + 4) / 4 as the model was
trained (Radford et al. 2022, section 2.2).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from assistant.messages import ASR_RATE

N_FFT = 400
HOP = 160
FRAMES_PER_S = ASR_RATE // HOP

_LINEAR_HZ_PER_MEL = 200.0 / 3
_LOG_FROM_HZ = 1000.0
_LOG_STEP = np.log(6.4) / 27.0
_FLOOR = 1e-10


def samples_from(pcm: bytes) -> NDArray[np.float32]:
    """s16le to float32 in -1..1."""
    return np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2").astype(np.float32) / 32768.0


def log_mel(audio: NDArray[np.float32], n_mels: int, frames: int) -> NDArray[np.float32]:
    """Features of `audio` (float32, 16 kHz) followed by silence up to `frames` * 10 ms: float32 [n_mels, frames].

    The silence is added to the audio, not to the features: whisper was trained on the former and loops on the latter.
    """
    audio = audio[: frames * HOP]
    heard = min(frames, len(audio) // HOP + 3)  # the frames that touch sound; all later ones are the floor
    half = N_FFT // 2
    padded = np.zeros((heard + 3) * HOP + N_FFT, np.float32)
    padded[half : half + len(audio)] = audio
    mirror = padded[half + 1 : 2 * half + 1]
    padded[:half] = mirror[::-1]
    windows = np.lib.stride_tricks.sliding_window_view(padded, N_FFT)[: heard * HOP : HOP]
    spectrum = np.fft.rfft(windows * _hann(), axis=1)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    features = np.full((n_mels, frames), np.log10(_FLOOR), np.float32)
    features[:, :heard] = np.log10(np.maximum(mel_filters(n_mels) @ power.T, _FLOOR))
    np.maximum(features, features.max() - 8.0, out=features)
    features += 4.0
    features /= 4.0
    return features


@cache
def _hann() -> NDArray[np.float32]:
    """Periodic: its last point would be the first of the next period."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(N_FFT) / N_FFT)).astype(np.float32)


@cache
def mel_filters(n_mels: int) -> NDArray[np.float32]:
    """Weights float32 [n_mels, N_FFT / 2 + 1] that sum the bins of a power spectrum into mel bands up to 8 kHz."""
    top = _hz_to_mel(ASR_RATE / 2)
    corners = _mel_to_hz(np.linspace(0.0, top, n_mels + 2))
    left, centre, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    bins = np.fft.rfftfreq(N_FFT, 1 / ASR_RATE)[None, :]
    rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
    triangles = np.clip(np.minimum(rising, falling), 0.0, None)
    return np.asarray(triangles * (2.0 / (right - left)), dtype=np.float32)


def _hz_to_mel(hz: float) -> float:
    linear = hz / _LINEAR_HZ_PER_MEL
    if hz < _LOG_FROM_HZ:
        return linear
    return float(_LOG_FROM_HZ / _LINEAR_HZ_PER_MEL + np.log(hz / _LOG_FROM_HZ) / _LOG_STEP)


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    knee = _LOG_FROM_HZ / _LINEAR_HZ_PER_MEL
    above = _LOG_FROM_HZ * np.exp(_LOG_STEP * (mel - knee))
    return np.where(mel < knee, mel * _LINEAR_HZ_PER_MEL, above)
