"""What a block means, told by a slow decoder written from the format, and what MNN is given for it."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from assistant.model_store.gguf_types import FORMATS, WIDE_BLOCKS
from assistant.model_store.mnn_weights import unpermute
from assistant.model_store.quant_blocks import Packing, dequantise, packing_of, repack
from tests.model_store.tiny_gguf import random_rows

KINDS = {form.name: form for form in [*FORMATS.values(), *WIDE_BLOCKS.values()]}
NAMES = list(KINDS)
QUANTISED = [form.name for form in KINDS.values() if form.weights > 1]


def f16(raw: bytes, at: int) -> float:
    return float(struct.unpack_from("<e", raw, at)[0])


def nibble(raw: bytes, at: int, i: int) -> int:
    """Weight i of 32: the first half in the low nibbles."""
    return raw[at + i] & 15 if i < 16 else raw[at + i - 16] >> 4


def fifth(raw: bytes, at: int, i: int) -> int:
    return (int(struct.unpack_from("<I", raw, at)[0]) >> i & 1) << 4


def six_bits(scales: bytes, j: int) -> tuple[int, int]:
    if j < 4:
        return scales[j] & 63, scales[j + 4] & 63
    return (scales[j + 4] & 15) | (scales[j - 4] >> 6 << 4), (scales[j + 4] >> 4) | (scales[j] >> 6 << 4)


def k_weight(raw: bytes, i: int, qs: int, qh: int) -> float:
    scale, least = six_bits(raw[4:16], i // 32)
    byte = raw[qs + i // 64 * 32 + i % 32]
    q = byte >> 4 if i % 64 >= 32 else byte & 15
    if qh:
        q |= (raw[qh + i % 32] >> (i // 32) & 1) << 4
    return f16(raw, 0) * scale * q - f16(raw, 2) * least


def q6_weight(raw: bytes, i: int) -> float:
    half, quarter, at = i // 128, i % 128 // 32, i % 32
    low = raw[half * 64 + quarter % 2 * 32 + at]
    q = (low >> 4 if quarter >= 2 else low & 15) | (raw[128 + half * 32 + at] >> (2 * quarter) & 3) << 4
    return f16(raw, 208) * float(struct.unpack_from("<b", raw, 192 + i // 16)[0]) * (q - 32)


WEIGHT: dict[str, Callable[[bytes, int], float]] = {
    "F32": lambda raw, i: float(struct.unpack("<f", raw)[0]),
    "F16": lambda raw, i: f16(raw, 0),
    "BF16": lambda raw, i: float(struct.unpack("<f", b"\0\0" + raw)[0]),
    "Q4_0": lambda raw, i: f16(raw, 0) * (nibble(raw, 2, i) - 8),
    "Q4_1": lambda raw, i: f16(raw, 0) * nibble(raw, 4, i) + f16(raw, 2),
    "Q5_0": lambda raw, i: f16(raw, 0) * ((nibble(raw, 6, i) | fifth(raw, 2, i)) - 16),
    "Q5_1": lambda raw, i: f16(raw, 0) * (nibble(raw, 8, i) | fifth(raw, 4, i)) + f16(raw, 2),
    "Q8_0": lambda raw, i: f16(raw, 0) * struct.unpack_from("<b", raw, 2 + i)[0],
    "Q4_K": lambda raw, i: k_weight(raw, i, 16, 0),
    "Q5_K": lambda raw, i: k_weight(raw, i, 48, 16),
    "Q6_K": q6_weight,
    "M4_64": lambda raw, i: f16(raw, 0) * ((raw[2 + i // 2] >> (0 if i % 2 else 4) & 15) - 8),
    "M4_128": lambda raw, i: f16(raw, 0) * ((raw[2 + i // 2] >> (0 if i % 2 else 4) & 15) - 8),
}


def rows_of(form: str, rows: int = 3, columns: int = 512) -> NDArray[np.uint8]:
    return random_rows(KINDS[form], rows, columns, np.random.default_rng(5))


def unpacked(packed: NDArray[np.uint8], alphas: NDArray[np.floating], packing: Packing) -> NDArray[np.float32]:
    """The weights that MNN computes with."""
    rows = len(packed)
    integers = packed if packing.bits == 8 else np.stack([packed >> 4, packed & 15], axis=-1)
    codes = integers.reshape(rows, -1, packing.block).astype(np.float32) - (1 << (packing.bits - 1))
    pairs = alphas.astype(np.float32).reshape(rows, -1, packing.alphas)
    bias = pairs[..., :1] if packing.asymmetric else np.float32(0)
    out: NDArray[np.float32] = (codes * pairs[..., -1:] + bias).reshape(rows, -1)
    return out


@pytest.mark.parametrize("form", NAMES)
def test_dequantise_agrees_with_the_format(form: str) -> None:
    raw = rows_of(form)
    kind = KINDS[form]
    found = dequantise(raw, form)
    blocks = raw.reshape(3, -1, kind.bytes)
    slow = [[WEIGHT[form](bytes(b), i) for b in row for i in range(kind.weights)] for row in blocks]
    np.testing.assert_allclose(found, slow, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("form", QUANTISED)
def test_blocks_are_carried_over_without_loss(form: str) -> None:
    raw = rows_of(form)
    packing = packing_of(form, 512)
    assert packing is not None
    assert packing.exact
    packed, alphas = repack(raw, form, packing)
    assert packed.shape == (3, 512 * packing.bits // 8)
    assert alphas.shape == (3, 512 // packing.block * packing.alphas)
    np.testing.assert_allclose(unpacked(packed, alphas, packing), dequantise(raw, form), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["F32", "F16", "BF16"])
def test_plain_floats_are_quantised_to_eight_bits(form: str) -> None:
    raw = rows_of(form)
    packing = packing_of(form, 512)
    assert packing == Packing(8, 32, False, False, exact=False)
    packed, alphas = repack(raw, form, packing)
    values = dequantise(raw, form)
    largest = np.abs(values).reshape(3, -1, 32).max(axis=-1).repeat(32, axis=-1)
    assert (np.abs(unpacked(packed, alphas, packing) - values) <= largest / 127 * 0.501).all()


def test_a_block_of_zeros_stays_zero() -> None:
    packing = packing_of("F32", 32)
    assert packing is not None
    packed, alphas = repack(np.zeros((1, 128), np.uint8), "F32", packing)
    assert not unpacked(packed, alphas, packing).any()


def test_blocks_fit_the_row_or_there_are_none() -> None:
    assert [p and p.block for p in (packing_of("F16", n) for n in (64, 48, 40, 36))] == [32, 16, 8, None]


def test_unpermute_undoes_llamas_order_of_rows() -> None:
    """llama files hold row i of the first half beside row i of the second half, within each head."""
    rows = np.arange(16, dtype=np.uint8).reshape(16, 1)
    stored = rows.reshape(2, 2, 4, 1).swapaxes(1, 2).reshape(16, 1)
    assert stored[:4, 0].tolist() == [0, 4, 1, 5]
    assert (unpermute(stored, 8) == rows).all()


@pytest.mark.parametrize("form", QUANTISED)
def test_four_bits_are_the_same_weights_in_eight(form: str) -> None:
    raw = rows_of(form)
    packing = packing_of(form, 512, 8)
    assert packing is not None
    assert packing.bits == 8
    assert packing.block == {"M4_64": 64, "M4_128": 128}.get(form, 32)
    assert packing.exact == (form != "Q6_K"), "its blocks of 16 are the only ones that do not fit"
    values, found = dequantise(raw, form), unpacked(*repack(raw, form, packing), packing)
    near = {"rtol": 1e-5, "atol": 1e-6} if packing.exact else {"rtol": 0, "atol": np.abs(values).max() / 127}
    np.testing.assert_allclose(found, values, **near)


@pytest.mark.parametrize("form", NAMES)
def test_in_four_bits_only_what_has_more_is_changed(form: str) -> None:
    packing = packing_of(form, 512, 4)
    assert packing is not None
    assert (packing.bits, packing.block) == (4, 32)
    assert packing.exact == form.startswith("Q4")
    assert packing.exact or packing.asymmetric


@pytest.mark.parametrize("block", [64, 128])
@pytest.mark.parametrize("form", NAMES)
def test_blocks_of_a_chosen_size_fit_the_weights_as_well_as_they_can(form: str, block: int) -> None:
    packing = packing_of(form, 512, 4, block)
    assert packing is not None
    assert (packing.bits, packing.block, packing.exact) == (4, block, form == f"M4_{block}")
    raw = rows_of(form)
    values, found = dequantise(raw, form), unpacked(*repack(raw, form, packing), packing)
    assert np.square(found - values).mean() < 0.02 * np.square(values).mean()


def test_rows_that_are_no_multiple_of_the_block_stay_as_they_would_be_without_it() -> None:
    for form in ("F16", "Q4_1", "Q8_0"):
        assert packing_of(form, 576, 4, 128) == packing_of(form, 576, 4)
    assert packing_of("Q4_1", 576, 4, 64) == Packing(4, 64, True, False, exact=False)
    assert packing_of("Q4_1", 576, 4, 32) == packing_of("Q4_1", 576)
    assert packing_of("F16", 40, 4, 64) == Packing(4, 8, True, False, exact=False)


def test_what_sixteen_levels_can_say_is_said_exactly() -> None:
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 16, (6, 4, 32))
    levels[..., 0], levels[..., 1] = 0, 15
    values = (levels * 2.0**-5 - rng.integers(0, 16, (6, 4, 1)) * 2.0**-4).reshape(6, -1).astype("<f4")
    found = in_four_bits(values)
    np.testing.assert_allclose(found, values, atol=1e-6)


def in_four_bits(values: NDArray[np.float32]) -> NDArray[np.float32]:
    packing = packing_of("F32", values.shape[1], 4)
    assert packing is not None
    return unpacked(*repack(values.view(np.uint8).reshape(len(values), -1), "F32", packing), packing)


def test_four_bits_are_placed_better_than_by_the_range_alone() -> None:
    values = np.random.default_rng(1).standard_normal((512, 256)).astype("<f4")
    blocks = values.reshape(-1, 32)
    least = blocks.min(axis=1, keepdims=True)
    step = (blocks.max(axis=1, keepdims=True) - least) / 15
    plain = np.square(np.rint((blocks - least) / step) * step + least - blocks).sum()
    assert np.square(in_four_bits(values) - values).sum() < 0.87 * plain


@pytest.mark.parametrize("value", [0.0, -0.25, 3e4])
def test_a_block_of_one_value_keeps_it_in_four_bits(value: float) -> None:
    found = in_four_bits(np.full((2, 64), value, "<f4"))
    np.testing.assert_allclose(found, value, rtol=1e-6)


def test_a_weight_that_is_no_number_is_seen_in_the_scales() -> None:
    values = np.zeros((1, 64), "<f4")
    values[0, 40] = np.nan
    packing = packing_of("F32", 64, 4)
    assert packing is not None
    _, alphas = repack(values.view(np.uint8).reshape(1, -1), "F32", packing)
    assert np.isfinite(alphas[0, :2]).all()
    assert not np.isfinite(alphas[0, 2:]).all()


def test_a_slab_is_a_matter_of_memory_alone() -> None:
    values = np.random.default_rng(2).standard_normal((40, 2048)).astype("<f4")  # several slabs, the last one short
    np.testing.assert_array_equal(in_four_bits(values)[7], in_four_bits(values[7:8])[0])
