"""The features are those that whisper was trained on, compared with an independent implementation."""

from __future__ import annotations

import numpy as np
import pytest
from faster_whisper.feature_extractor import FeatureExtractor

from assistant.stages.whisper_features import HOP, log_mel, mel_filters, samples_from

RATE = 16_000


@pytest.mark.parametrize("mels", [80, 128])
def test_filters_agree(mels: int) -> None:
    assert np.abs(mel_filters(mels) - FeatureExtractor(feature_size=mels).mel_filters).max() < 1e-6


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("seconds", [0.0, 0.013, 0.5, 3.0, 11.995, 12.0])
def test_features_agree(mels: int, seconds: float) -> None:
    frames = 1200
    audio = np.random.default_rng(1).normal(0, 0.1, int(seconds * RATE)).astype(np.float32)
    padded = np.zeros(frames * HOP, np.float32)
    padded[: len(audio)] = audio
    expected = FeatureExtractor(feature_size=mels)(padded)[:, :frames]
    features = log_mel(audio, mels, frames)
    assert features.shape == (mels, frames)
    assert features.dtype == np.float32
    assert np.abs(features - expected).max() < 1e-4


def test_audio_beyond_the_window_is_cut() -> None:
    audio = np.random.default_rng(2).normal(0, 0.1, 3 * RATE).astype(np.float32)
    assert log_mel(audio, 80, 100).shape == (80, 100)


def test_samples_are_scaled_and_half_a_sample_is_dropped() -> None:
    assert samples_from(b"\x00\x80\x00\x40\x01").tolist() == [-1.0, 0.5]
