"""The GGUF reader takes what is whole, and refuses everything else with a typed error and without memory."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.errors import AssistantError, ModelDamaged, ModelMissing, ModelUnsupported
from assistant.model_store.gguf import GgufFile, StringArray
from assistant.model_store.llm_plan import make_plan
from assistant.model_store.quant_blocks import dequantise
from tests.model_store import tiny_bpe
from tests.model_store.tiny_gguf import TYPE_NUMBER, Tensor, Tiny, string, value, write, write_model


def header(tensors: int, keys: int, rest: bytes = b"", version: int = 3) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", version, tensors, keys) + rest


def tensor_row(name: str, dims: list[int], kind: int, offset: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def opened(path: Path, raw: bytes) -> GgufFile:
    path.write_bytes(raw)
    return GgufFile(path)


def test_reads_values_of_every_kind(tmp_path: Path) -> None:
    wanted: dict[str, Any] = {"a": 7, "b": -0.5, "c": True, "d": "straße", "e": [1, -2, 3], "f": ["x", "", "你好"]}
    rows = np.arange(6, dtype="<f4").reshape(2, 3)
    path = write(tmp_path / "x.gguf", wanted, [Tensor("t", "F32", 2, 3, rows.tobytes())])
    with GgufFile(path) as file:
        assert [file.metadata[key] for key in "abc"] == [7, -0.5, True]
        assert file.metadata["d"] == "straße".encode()
        assert file.metadata["e"].tolist() == [1, -2, 3]
        texts = file.metadata["f"]
        assert isinstance(texts, StringArray)
        assert list(texts) == texts[:] == [b"x", b"", "你好".encode()]
        assert texts[-1] == "你好".encode()
        tensor = file.tensors["t"]
        assert (dequantise(file.read(tensor), "F32") == rows).all()
        assert (dequantise(file.read(tensor, 1, 1), "F32") == rows[1:]).all()


def test_a_file_that_shrinks_after_it_was_opened_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", {}, [Tensor("t", "F32", 64, 64)])
    with GgufFile(path) as file:
        os.truncate(path, path.stat().st_size - 5000)
        with pytest.raises(ModelDamaged, match="fetch it again"):
            file.read(file.tensors["t"])


@pytest.mark.parametrize(
    "make", [lambda p: p.mkdir(), lambda p: p.touch(), os.mkfifo], ids=["directory", "empty", "fifo"]
)
def test_what_is_no_file_is_damaged(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "x.gguf")
    with pytest.raises(ModelDamaged):
        GgufFile(tmp_path / "x.gguf")


def test_no_such_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing):
        GgufFile(tmp_path / "x.gguf")


HUGE = 1 << 62
HOSTILE: dict[str, bytes] = {
    "wrong magic": b"GGML" + bytes(60),
    "short": b"GGUF",
    "many tensors": header(HUGE, 0, bytes(100)),
    "many keys": header(0, HUGE, bytes(100)),
    "key beyond the file": header(0, 1, struct.pack("<Q", HUGE) + bytes(100)),
    "key not UTF-8": header(0, 1, string(b"\xff\xfe") + value(1)),
    "string beyond the file": header(0, 1, string("k") + struct.pack("<IQ", 8, HUGE) + bytes(64)),
    "long array of strings": header(0, 1, string("k") + struct.pack("<IIQ", 9, 8, HUGE) + bytes(64)),
    "array of strings beyond the file": header(0, 1, string("k") + struct.pack("<IIQQ", 9, 8, 4, HUGE) + bytes(64)),
    "long array of numbers": header(0, 1, string("k") + struct.pack("<IIQ", 9, 4, HUGE) + bytes(64)),
    "unknown value type": header(0, 1, string("k") + struct.pack("<I", 99) + bytes(64)),
    "unknown array type": header(0, 1, string("k") + struct.pack("<IIQ", 9, 99, 1) + bytes(64)),
    "same key twice": header(0, 2, 2 * (string("k") + value(1))),
    "alignment 0": header(0, 1, string("general.alignment") + value(0)),
    "alignment 3": header(0, 1, string("general.alignment") + value(3)),
    "alignment as text": header(0, 1, string("general.alignment") + value("32")),
    "no dimensions": header(1, 0, tensor_row("t", [], 0, 0) + bytes(64)),
    "five dimensions": header(1, 0, tensor_row("t", [1, 1, 1, 1, 1], 0, 0) + bytes(64)),
    "dimension 0": header(1, 0, tensor_row("t", [0, 4], 0, 0) + bytes(64)),
    "huge dimension": header(1, 0, tensor_row("t", [HUGE], 0, 0) + bytes(64)),
    "huge product": header(1, 0, tensor_row("t", [1 << 31] * 4, 0, 0) + bytes(64)),
    "part of a block": header(1, 0, tensor_row("t", [33], TYPE_NUMBER["Q4_0"], 0) + bytes(64)),
    "offset beyond the file": header(1, 0, tensor_row("t", [4], 0, HUGE) + bytes(64)),
    "overlap": header(2, 0, tensor_row("t", [8], 0, 0) + tensor_row("u", [8], 0, 16) + bytes(128)),
    "same tensor twice": header(2, 0, tensor_row("t", [8], 0, 0) + tensor_row("t", [8], 0, 32) + bytes(128)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_damaged_and_cost_no_memory(name: str, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ModelDamaged, match=r"x\.gguf"):
            opened(tmp_path / "x.gguf", HOSTILE[name])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


UNSUPPORTED: dict[str, bytes] = {
    "version 1": header(0, 0, bytes(64), version=1),
    "big-endian": header(0, 0, bytes(64), version=3 << 24),
    "array of arrays": header(0, 1, string("k") + struct.pack("<IIQ", 9, 9, 1) + bytes(64)),
    "Q2_K": header(1, 0, tensor_row("t", [256], 10, 0) + bytes(128)),
    "a type of the future": header(1, 0, tensor_row("t", [256], 77, 0) + bytes(128)),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_we_do_not_know_is_unsupported(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelUnsupported, match=r"x\.gguf"):
        opened(tmp_path / "x.gguf", UNSUPPORTED[name])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "x.gguf"
    tiny = Tiny(layers=1, hidden=64, heads=2, kv_heads=1, ffn=64, weights="Q4_0")
    return write_model(path, tiny, tiny_bpe.metadata()).read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutated") / "x.gguf"


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.9, 0.99999])
def test_a_truncated_file_is_damaged(whole: bytes, scratch: Path, part: float) -> None:
    with pytest.raises(ModelDamaged):
        opened(scratch, whole[: int(len(whole) * part)])


def outcome(path: Path, raw: bytes) -> str:
    """`taken`, or the message of the refusal; an exception that is not ours goes through and fails the test."""
    try:
        with opened(path, raw) as file:
            make_plan(file, None)
            for tensor in file.tensors.values():
                file.read(tensor)
            return "taken"
    except AssistantError as error:
        return error.message


def test_the_whole_file_is_taken(whole: bytes, scratch: Path) -> None:
    assert outcome(scratch, whole) == "taken"


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_mutated_headers_are_taken_or_refused_and_nothing_else(
    whole: bytes, scratch: Path, data: st.DataObject
) -> None:
    """Numbers that decide over lengths, types and shapes are hit most often: they lie in the first and last parts."""
    raw = bytearray(whole)
    table = whole.index(b"token_embd.weight")
    places = st.one_of(st.integers(0, 1200), st.integers(table - 400, table + 1200))
    for at in data.draw(st.lists(places, min_size=1, max_size=4)):
        raw[at] = data.draw(st.one_of(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]), st.integers(0, 255)))
    found = outcome(scratch, bytes(raw))
    assert found == "taken" or found.startswith(str(scratch))


@settings(max_examples=100, deadline=None)
@given(rest=st.binary(max_size=400), tensors=st.integers(0, 5), keys=st.integers(0, 5))
def test_random_headers_are_taken_or_refused_and_nothing_else(
    scratch: Path, rest: bytes, tensors: int, keys: int
) -> None:
    assert outcome(scratch, header(tensors, keys, rest)).startswith(str(scratch))
