"""The sampler: each filter does what its paper says, and it is cheap enough for a token loop."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.messages import Sampling
from assistant.stages.sampling import Sampler


def logits(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(values, dtype=np.float32)


def test_temperature_zero_is_greedy() -> None:
    assert Sampler(Sampling(temperature=0)).choose(logits(1, 5, 3), []) == 1


def test_the_penalty_weakens_what_was_said_whatever_its_sign() -> None:
    sampler = Sampler(Sampling(temperature=0, repetition_penalty=2.0))
    assert sampler.choose(logits(1, 5, 3), [1, 1]) == 2
    assert sampler.choose(logits(-1, -0.9, -3), [1]) == 0


def test_a_seed_repeats_itself_and_another_differs() -> None:
    flat = np.zeros(1000, dtype=np.float32)

    def answer(seed: int) -> list[int]:
        sampler = Sampler(Sampling(temperature=1, top_k=0, top_p=1, seed=seed))
        return [sampler.choose(flat.copy(), []) for _ in range(20)]

    assert answer(1) == answer(1)
    assert answer(1) != answer(2)


@pytest.mark.parametrize(
    ("sampling", "allowed"),
    [
        (Sampling(temperature=1, top_k=1, top_p=1, seed=0), {0}),
        (Sampling(temperature=1, top_k=2, top_p=1, seed=0), {0, 1}),
        (Sampling(temperature=1, top_k=0, top_p=0.5, seed=0), {0}),
        (Sampling(temperature=1, top_k=0, top_p=0.8, seed=0), {0, 1}),
        (Sampling(temperature=1, top_k=0, top_p=1, min_p=0.25, seed=0), {0, 1}),
        (Sampling(temperature=0.01, top_k=0, top_p=1, seed=0), {0}),
    ],
)
def test_filters_keep_exactly_what_they_should(sampling: Sampling, allowed: set[int]) -> None:
    # probabilities 0.6, 0.3, 0.1
    values = np.log(np.array([0.6, 0.3, 0.1], dtype=np.float32))
    sampler = Sampler(sampling)
    assert {sampler.choose(values.copy(), []) for _ in range(300)} == allowed


def test_samples_follow_the_distribution() -> None:
    values = np.log(np.array([0.6, 0.3, 0.1], dtype=np.float32))
    sampler = Sampler(Sampling(temperature=1, top_k=0, top_p=1, seed=3))
    counts = np.bincount([sampler.choose(values.copy(), []) for _ in range(4000)], minlength=3) / 4000
    assert np.abs(counts - [0.6, 0.3, 0.1]).max() < 0.03


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=400),
    st.floats(0, 3) | st.sampled_from([2.2e-311, 1e-3, 9.99e-4]),
    st.integers(0, 50),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_any_settings_give_a_token_of_the_vocabulary(
    values: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    sampler = Sampler(Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=1))
    assert 0 <= sampler.choose(logits(*values), [0]) < len(values)


@pytest.mark.alone("within a millisecond")
def test_a_token_of_a_50k_vocabulary_costs_at_most_a_millisecond() -> None:
    values = np.random.default_rng(0).normal(size=50_000).astype(np.float32)
    sampler = Sampler(Sampling(temperature=0.8, seed=1))
    times = []
    for _ in range(50):
        copy = values.copy()
        started = time.perf_counter()
        sampler.choose(copy, list(range(64)))
        times.append(time.perf_counter() - started)
    assert sorted(times)[len(times) // 2] < 0.001
