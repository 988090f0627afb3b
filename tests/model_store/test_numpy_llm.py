"""The reference itself: its cache changes nothing, and its attention sees the past alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from assistant.model_store.gguf import GgufFile
from assistant.model_store.numpy_llm import NumpyLlm
from assistant.model_store.quant_blocks import dequantise
from tests.model_store import tiny_bpe
from tests.model_store.tiny_gguf import Tiny, write_model

IDS = [3, 141, 59, 26, 535, 89]


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def gguf(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = Tiny(architecture=request.param, bias=request.param == "qwen2")
    return write_model(tmp_path_factory.mktemp("numpy") / "x.gguf", tiny, tiny_bpe.metadata())


def test_one_by_one_equals_all_at_once(gguf: Path) -> None:
    with NumpyLlm(gguf) as llm:
        together = llm.forward(IDS)
        assert llm.position == len(IDS)
        llm.reset()
        apart = np.concatenate([llm.forward([token]) for token in IDS])
    assert together.shape == (len(IDS), tiny_bpe.vocab_size())
    np.testing.assert_allclose(apart, together, atol=1e-4)


def test_a_later_token_does_not_change_an_earlier_one(gguf: Path) -> None:
    with NumpyLlm(gguf) as llm:
        first = llm.forward(IDS)
        llm.reset()
        second = llm.forward([*IDS[:-1], 7])
    np.testing.assert_allclose(first[:-1], second[:-1], atol=1e-4)
    assert np.abs(first[-1] - second[-1]).max() > 0.1


def test_positions_matter(gguf: Path) -> None:
    """Without a rotation, attention could not tell the order of earlier tokens apart."""
    with NumpyLlm(gguf) as llm:
        first = llm.forward([11, 22, 33])[-1]
        llm.reset()
        swapped = llm.forward([22, 11, 33])[-1]
    assert np.abs(first - swapped).max() > 0.05


def test_a_model_of_one_token_is_its_formulas(tmp_path: Path) -> None:
    """With one token, attention is the value itself and the rotation does nothing: the whole model on ten lines."""
    tiny = Tiny(layers=1, heads=4, kv_heads=4)
    gguf = write_model(tmp_path / "x.gguf", tiny, tiny_bpe.metadata())
    with GgufFile(gguf) as file:
        w = {name: dequantise(file.read(t), t.format.name).astype(float) for name, t in file.tensors.items()}

    def norm(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        out: NDArray[np.float64] = x / np.sqrt((x**2).mean() + 1e-5) * w[f"{name}.weight"][0]
        return out

    x = w["token_embd.weight"][42]
    x = x + w["blk.0.attn_output.weight"] @ (w["blk.0.attn_v.weight"] @ norm(x, "blk.0.attn_norm"))
    n = norm(x, "blk.0.ffn_norm")
    gate = w["blk.0.ffn_gate.weight"] @ n
    x = x + w["blk.0.ffn_down.weight"] @ (gate / (1 + np.exp(-gate)) * (w["blk.0.ffn_up.weight"] @ n))
    wanted = w["token_embd.weight"] @ norm(x, "output_norm")
    with NumpyLlm(gguf) as llm:
        np.testing.assert_allclose(llm.forward([42])[0], wanted, atol=1e-4)
