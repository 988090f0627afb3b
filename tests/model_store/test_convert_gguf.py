"""A converted model computes what its source says: logits of MNN (`memory: high`) against the numpy reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from assistant.bench.mnn_logits import REFERENCE, Job, run
from assistant.errors import AssistantError, ModelDamaged, ModelError, ModelMissing, ModelUnsupported
from assistant.model_store.convert_gguf import ConversionReport, convert_gguf
from assistant.model_store.llm_plan import head_slices_for
from assistant.model_store.numpy_llm import NumpyLlm
from assistant.model_store.vocabulary import Vocabulary
from tests.model_store import tiny_bpe
from tests.model_store.tiny_gguf import Tensor, Tiny, bf16, model_metadata, model_tensors, write, write_model

FILES = ["config.json", "llm.mnn", "llm.mnn.weight", "llm_config.json", "tokenizer.mtok", "vocabulary.bin"]
IDS = [int(i) for i in np.random.default_rng(0).integers(0, tiny_bpe.vocab_size(), 14)]
PREFILL = 10
"""The rest is fed one by one, so that the key-value cache and the positions are in the test."""


def tiny_model(path: Path, **shape: Any) -> Path:
    return write_model(path / "tiny.gguf", Tiny(**shape), tiny_bpe.metadata())


def difference(gguf: Path, model: Path) -> float:
    """Largest difference of a logit, relative to the largest logit."""
    with NumpyLlm(gguf) as llm:
        wanted = np.concatenate([llm.forward(IDS[:PREFILL]), *[llm.forward([i]) for i in IDS[PREFILL:]]])
    found = run(model, REFERENCE, [Job(prompt=IDS[:PREFILL], forced=IDS[PREFILL:])])[0].logits
    assert found.shape == wanted.shape == (len(IDS), tiny_bpe.vocab_size())
    assert wanted.std() > 0.3, "a model without contrast proves nothing"
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def config_of(model: Path) -> Any:
    return msgspec.json.decode((model / "llm_config.json").read_bytes())


def converted(gguf: Path, **options: Any) -> tuple[Path, ConversionReport]:
    model = gguf.parent / "model"
    return model, convert_gguf(gguf, model, **options)


@pytest.mark.engine
@pytest.mark.parametrize("form", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"])
def test_every_quantised_type_is_carried_over_exactly(form: str, tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, weights=form)
    model, report = converted(gguf)
    assert report.requantised == []
    assert difference(gguf, model) < 2e-5


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama-untied-rope_freqs": {"tied": False, "rope_freqs": True},
    "llama-bias": {"bias": True},
    "llama-one-kv-head": {"kv_heads": 1},
    "llama-no-gqa": {"kv_heads": 4},
    "llama-linear-scaling": {"extra": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}},
    "llama-mixed": {"weights": "Q4_K", "head": "Q6_K"},
    "qwen2-tied": {"architecture": "qwen2", "bias": True, "heads": 8, "kv_heads": 2},
    "qwen2-untied": {"architecture": "qwen2", "bias": True, "tied": False, "head": "Q8_0"},
    "qwen3-wide-heads": {"architecture": "qwen3", "qk_norm": True, "head_dim": 128, "weights": "Q4_K", "head": "Q6_K"},
    "qwen3-narrow-heads": {"architecture": "qwen3", "qk_norm": True, "head_dim": 32, "tied": False},
    "llama-wide-heads": {"head_dim": 128},
}


@pytest.mark.engine
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture(name: str, tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, **ARCHITECTURES[name])
    model, _ = converted(gguf)
    assert difference(gguf, model) < 2e-5


@pytest.mark.engine
@pytest.mark.parametrize("tied", [True, False])
def test_a_head_in_slices_gives_the_same_logits(tied: bool, tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, tied=tied)
    whole, report = converted(gguf)
    assert report.head_slices == 1
    sliced = tmp_path / "sliced"
    assert convert_gguf(gguf, sliced, head_slices=5).head_slices == 5
    job = [Job(prompt=IDS)]
    assert (run(whole, REFERENCE, job)[0].logits == run(sliced, REFERENCE, job)[0].logits).all()


def eight_bit_floats(tensor: Tensor, form: str) -> Tensor:
    """A matrix of plain floats that 8 bits hold exactly: integers of which the largest in each block is 127."""
    rng = np.random.default_rng(tensor.rows)
    integers = rng.integers(-127, 128, (tensor.rows, tensor.columns // 32, 32))
    integers[:, :, 0] = 127
    values = (integers * 2.0**-10).astype("<f4").reshape(tensor.rows, -1)
    raw = {"F32": values.tobytes, "F16": values.astype("<f2").tobytes, "BF16": bf16(values).tobytes}[form]()
    return Tensor(tensor.name, form, tensor.rows, tensor.columns, raw)


@pytest.mark.engine
@pytest.mark.parametrize("form", ["F32", "F16", "BF16"])
def test_plain_floats_are_requantised_and_said_so(form: str, tmp_path: Path) -> None:
    tiny = Tiny(weights=form)
    tensors = [
        t if t.data is not None else eight_bit_floats(t, form) for t in model_tensors(tiny, tiny_bpe.vocab_size())
    ]
    gguf = write(tmp_path / "tiny.gguf", model_metadata(tiny, tiny_bpe.metadata()), tensors)
    model, report = converted(gguf)
    assert len(report.requantised) == 15
    assert f"blk.1.ffn_down.weight ({form} to 8 bits)" in report.requantised
    assert Vocabulary.open(model).facts.requantised == report.requantised
    assert difference(gguf, model) < 2e-5


def four_bit_floats(tensor: Tensor) -> Tensor:
    """A matrix of plain floats that 4 bits hold exactly: 16 levels, of which the first and the last are in use."""
    rng = np.random.default_rng(tensor.rows)
    levels = rng.integers(0, 16, (tensor.rows, tensor.columns // 32, 32))
    levels[:, :, 0], levels[:, :, 1] = 0, 15
    values = ((levels - 7) * 2.0**-7).astype("<f4").reshape(tensor.rows, -1)
    return Tensor(tensor.name, "F32", tensor.rows, tensor.columns, values.tobytes())


@pytest.mark.engine
@pytest.mark.parametrize("tied", [True, False])
def test_every_matrix_in_four_bits(tied: bool, tmp_path: Path) -> None:
    """The word table and a tied head are one block of 4 bits, which the logits prove."""
    tiny = Tiny(weights="F32", tied=tied)
    tensors = [t if t.data is not None else four_bit_floats(t) for t in model_tensors(tiny, tiny_bpe.vocab_size())]
    gguf = write(tmp_path / "tiny.gguf", model_metadata(tiny, tiny_bpe.metadata()), tensors)
    model, report = converted(gguf, bits=4)
    assert (report.bits, len(report.requantised)) == (4, 15 if tied else 16)
    assert "token_embd.weight (F32 to 4 bits)" in report.requantised
    assert config_of(model)["tie_embeddings"]["quant_bit"] == 4
    assert difference(gguf, model) < 2e-5


@pytest.mark.engine
@pytest.mark.parametrize("form", ["Q4_0", "Q4_1", "Q4_K", "Q5_1"])
def test_every_matrix_in_eight_bits_is_the_same_model(form: str, tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, weights=form)
    model, report = converted(gguf, bits=8)
    assert (report.bits, report.requantised) == (8, [])
    assert config_of(model)["tie_embeddings"]["quant_bit"] == 8
    assert difference(gguf, model) < 2e-5


def test_in_four_bits_only_the_wider_head_of_a_mixed_model_changes(tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, layers=1, weights="Q4_1", head="Q8_0")
    _, report = converted(gguf, bits=4)
    assert report.requantised == ["token_embd.weight (Q8_0 to 4 bits)"]


def test_the_report_and_the_directory(tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, layers=1)
    told: list[tuple[int, int]] = []
    model, report = converted(gguf, progress=lambda done, total: told.append((done, total)))
    assert sorted(p.name for p in model.iterdir()) == FILES
    vocab = tiny_bpe.vocab_size()
    assert report.shape == {
        "layers": 1, "hidden": 256, "heads": 4, "kv_heads": 2, "head_dim": 64, "ffn": 512,
        "vocab": vocab, "max_position": 128, "tied": True,
    }  # fmt: skip
    assert (report.chat_format, report.notes, config_of(model)["jinja"]["chat_template"]) == (
        "the file's own", [], tiny_bpe.TEMPLATE,
    )  # fmt: skip
    assert report.weight_bytes == (model / "llm.mnn.weight").stat().st_size
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert (report.bos_id, report.eos_id, report.stop_ids) == (vocab - 3, vocab - 2, [vocab - 4, vocab - 2])
    config = config_of(model)
    assert config["jinja"]["eos"] == "<|im_end|>"
    assert config["assistant"]["source_sha256"] == report.source_sha256


@pytest.mark.parametrize("tags", [("<think>", "</think>"), ("</think>", "<think>"), ("<think>",)])
def test_think_tags_are_noted_opening_first_or_not_at_all(tags: tuple[str, ...], tmp_path: Path) -> None:
    keys = tiny_bpe.metadata(special=(*tiny_bpe.SPECIAL, *tags))
    gguf = write_model(tmp_path / "tiny.gguf", Tiny(layers=1), keys)
    model, _ = converted(gguf)
    ids = [keys["tokenizer.ggml.tokens"].index(tag) for tag in ("<think>", "</think>") if len(tags) == 2]
    vocabulary = Vocabulary.open(model)
    assert vocabulary.facts.think_ids == ids
    assert vocabulary.think_ids == set(ids)


def test_a_conversion_replaces_the_old_directory(tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, layers=1)
    model, _ = converted(gguf)
    (model / "stray").touch()
    converted(gguf)
    assert sorted(p.name for p in model.iterdir()) == FILES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "tiny.gguf"]


@pytest.mark.parametrize(
    ("packed", "tied", "slices"),
    [(28 << 20, True, 1), (48 << 20, True, 1), (130 << 20, True, 16), (4 << 20, False, 1), (20 << 20, False, 3)],
)
def test_only_heads_that_cost_are_split(packed: int, tied: bool, slices: int) -> None:
    assert head_slices_for(packed, tied) == slices


REFUSED: dict[str, tuple[dict[str, Any], type[AssistantError], str]] = {
    "architecture": ({"general.architecture": "mamba"}, ModelUnsupported, "mamba"),
    "no architecture": ({"general.architecture": 5}, ModelUnsupported, "5"),
    "experts": ({"llama.expert_count": 8}, ModelUnsupported, "expert_count"),
    "yarn": ({"llama.rope.scaling.type": "yarn"}, ModelUnsupported, "yarn"),
    "partial rotation": ({"llama.rope.dimension_count": 32}, ModelUnsupported, "rope.dimension_count"),
    "heads per layer": ({"llama.attention.head_count": [4, 4]}, ModelUnsupported, "head_count"),
    "sentencepiece": ({"tokenizer.ggml.model": "llama"}, ModelUnsupported, "tokenizer"),
    "pre-tokenizer": ({"tokenizer.ggml.pre": "tekken"}, ModelUnsupported, "tekken"),
    "no layers": ({"llama.block_count": 0}, ModelDamaged, "block_count"),
    "too many layers": ({"llama.block_count": 3}, ModelDamaged, "blk.2"),
    "odd heads": ({"llama.attention.head_count_kv": 3}, ModelDamaged, "heads"),
    "shape": ({"llama.feed_forward_length": 256}, ModelDamaged, "ffn"),
    "negative epsilon": ({"llama.attention.layer_norm_rms_epsilon": -1.0}, ModelDamaged, "epsilon"),
    "not a number": ({"llama.rope.freq_base": float("nan")}, ModelDamaged, "freq_base"),
    "token types": ({"tokenizer.ggml.token_type": [1, 1]}, ModelDamaged, "token_type"),
    "end token": ({"tokenizer.ggml.eos_token_id": 1 << 20}, ModelDamaged, "eos"),
    "merges": ({"tokenizer.ggml.merges": ["nobody knows"]}, ModelDamaged, "merge 0"),
    "no tokens": ({"tokenizer.ggml.tokens": 5}, ModelDamaged, "vocabulary"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_converted_is_refused_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    extra, kind, said = REFUSED[name]
    gguf = tiny_model(tmp_path, layers=2, extra=extra)
    with pytest.raises(kind, match=said):
        convert_gguf(gguf, tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.gguf"]


def test_weights_that_are_no_numbers_are_damaged(tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, layers=1)
    raw = bytearray(gguf.read_bytes())
    raw[-18 * 8 - 32 : -32] = b"\xff" * (18 * 8)  # the last tensor's last blocks: float16 0xffff is nan
    gguf.write_bytes(raw)
    with pytest.raises(ModelDamaged, match="no numbers"):
        convert_gguf(gguf, tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.gguf"]


def test_an_unknown_tensor_is_unsupported(tmp_path: Path) -> None:
    tiny = Tiny(layers=1)
    tensors = [*model_tensors(tiny, tiny_bpe.vocab_size()), Tensor("blk.0.attn_q_norm.weight", "F32", 1, 64)]
    gguf = write(tmp_path / "tiny.gguf", model_metadata(tiny, tiny_bpe.metadata()), tensors)
    with pytest.raises(ModelUnsupported, match="attn_q_norm"):
        convert_gguf(gguf, tmp_path / "model")


def test_qwen3_without_its_norms_is_damaged(tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, architecture="qwen3", layers=1)
    with pytest.raises(ModelDamaged, match=r"blk\.0\.attn_q_norm\.weight is missing"):
        convert_gguf(gguf, tmp_path / "model")


def test_no_source_and_no_place_to_write(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing):
        convert_gguf(tmp_path / "none.gguf", tmp_path / "model")
    gguf = tiny_model(tmp_path, layers=1)
    with pytest.raises(ModelError, match="cannot be written"):
        convert_gguf(gguf, gguf / "model")


def test_a_full_disk_is_noticed_beforehand(tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, layers=1)
    with pytest.raises(ModelError, match="make room") as caught:
        convert_gguf(gguf, tmp_path / "model", free_bytes=lambda _: 1 << 20)
    assert caught.value.code == "disk-full"
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.gguf"]


def test_what_progress_raises_leaves_nothing(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    gguf = tiny_model(tmp_path, layers=1)
    with pytest.raises(KeyboardInterrupt):
        convert_gguf(gguf, tmp_path / "model", stop)
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.gguf"]
