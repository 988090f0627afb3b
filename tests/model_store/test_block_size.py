"""4-bit weights in longer blocks: logits of MNN (`memory: high`) against the numpy reference, sizes on the disk."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from assistant.bench.mnn_logits import REFERENCE, Job, run
from assistant.model_store.choices import Block, Choices
from assistant.model_store.convert_gguf import convert_gguf
from assistant.model_store.llm_conversion import convert
from assistant.model_store.numpy_llm import NumpyLlm
from assistant.model_store.quant_blocks import dequantise
from assistant.model_store.synthetic_shapes import SHAPES
from assistant.model_store.synthetic_source import SyntheticSource
from tests.model_store import tiny_bpe
from tests.model_store.tiny_gguf import Tensor, Tiny, model_metadata, model_tensors, write

IDS = [300, 17, 256, 5, 99, 300, 2, 41]
SMALL = msgspec.structs.replace(
    SHAPES["llama-3.2-1b"], layers=3, hidden=384, heads=6, kv_heads=2, head_dim=64, ffn=512, vocab=1000,
    max_position=64, tied=False,
)  # fmt: skip


def difference(gguf: Path, model: Path) -> float:
    """Largest difference of a logit, relative to the largest logit."""
    with NumpyLlm(gguf) as llm:
        wanted = llm.forward(IDS)
    found = run(model, REFERENCE, [Job(prompt=IDS[:5], forced=IDS[5:])])[0].logits
    assert found.shape == wanted.shape
    assert wanted.std() > 0.3, "a model without contrast proves nothing"
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def in_blocks(tensor: Tensor, block: int) -> Tensor:
    """Plain floats that 4 bits hold exactly in such blocks and in no longer ones: each has a step of its own."""
    if tensor.data is not None:
        return tensor
    rng = np.random.default_rng(tensor.rows)
    shape = (tensor.rows, tensor.columns // block, block)
    levels = rng.integers(0, 16, shape)
    levels[:, :, 0], levels[:, :, 1] = 0, 15
    steps = 2.0 ** -rng.integers(6, 9, (*shape[:2], 1))
    values = ((levels - rng.integers(6, 10, (*shape[:2], 1))) * steps).astype("<f4")
    return Tensor(tensor.name, "F32", tensor.rows, tensor.columns, values.tobytes())


def model_in_blocks(path: Path, tiny: Tiny, block: int, narrow: int = 0) -> Path:
    """`narrow`: matrices with that many columns have blocks of 32."""
    tensors = [in_blocks(t, 32 if t.columns == narrow else block) for t in model_tensors(tiny, tiny_bpe.vocab_size())]
    return write(path / "tiny.gguf", model_metadata(tiny, tiny_bpe.metadata()), tensors)


@pytest.mark.engine
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("block", [64, 128])
def test_every_matrix_in_such_blocks(block: Block, tied: bool, tmp_path: Path) -> None:
    gguf = model_in_blocks(tmp_path, Tiny(weights="F32", tied=tied), block)
    report = convert_gguf(gguf, tmp_path / "model", bits=4, block=block)
    assert f"token_embd.weight (F32 to 4 bits in blocks of {block})" in report.requantised
    config = msgspec.json.decode((tmp_path / "model/llm_config.json").read_bytes())
    assert (config["tie_embeddings"]["quant_bit"], config["tie_embeddings"]["quant_block"]) == (4, block)
    assert report.notes == []
    assert difference(gguf, tmp_path / "model") < 2e-5
    shorter = convert_gguf(gguf, tmp_path / "shorter", bits=4)
    weights = 2 * (256 * 256 * 2 + 128 * 256 * 2 + 3 * 512 * 256) + (1 if tied else 2) * 256 * tiny_bpe.vocab_size()
    assert shorter.weight_bytes - report.weight_bytes == weights * 8 // 32 - weights * 8 // block


@pytest.mark.engine
def test_matrices_that_the_blocks_do_not_fit_keep_those_of_32_and_are_named(tmp_path: Path) -> None:
    tiny = Tiny(weights="F32", hidden=192, heads=3, kv_heads=1, ffn=256)
    gguf = model_in_blocks(tmp_path, tiny, 128, narrow=192)
    report = convert_gguf(gguf, tmp_path / "model", bits=4, block=128)
    (note,) = report.notes
    assert note.startswith("13 matrices have smaller blocks, as the chosen ones do not fit them: token_embd.weight, ")
    assert sum("blocks of 128" in name for name in report.requantised) == 2
    assert difference(gguf, tmp_path / "model") < 2e-5


def as_gguf(source: SyntheticSource, path: Path) -> Path:
    """The same weights as plain floats."""
    tensors = [
        Tensor(t.name, "F32", t.rows, t.columns, dequantise(source.read(t), t.format.name).tobytes())
        for t in source.tensors.values()
    ]
    plain = {key: item.tolist() if isinstance(item, np.ndarray) else item for key, item in source.metadata.items()}
    return write(path, plain, tensors)


@pytest.mark.engine
@pytest.mark.parametrize("block", [32, 64, 128])
def test_random_weights_are_laid_out_as_they_are_meant(block: Block, tmp_path: Path) -> None:
    source = SyntheticSource("llama-small", SMALL, block)
    report = convert(source, tmp_path / "model", sha256=source.sha256, choices=Choices(4, None, block))
    assert (report.requantised, report.notes) == ([], [])
    config = msgspec.json.decode((tmp_path / "model/llm_config.json").read_bytes())
    assert config["tie_embeddings"]["quant_block"] == block
    assert difference(as_gguf(source, tmp_path / "same.gguf"), tmp_path / "model") < 2e-5
