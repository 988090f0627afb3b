"""Models of random weights: always the same, of sane size, installed like any other, made once."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from assistant.bench.mnn_logits import Job, run
from assistant.errors import AssistantError, FetchFailed, ModelError, ModelMissing, UsageError
from assistant.model_store import manifest as manifests
from assistant.model_store.chat_template import FORMATS
from assistant.model_store.choices import Block, Choices
from assistant.model_store.conversion import Converters
from assistant.model_store.convert_synthetic import convert_synthetic
from assistant.model_store.installing import held
from assistant.model_store.llm_conversion import convert
from assistant.model_store.llm_plan import make_plan, sizes
from assistant.model_store.progress import Silent, Update
from assistant.model_store.store import ModelStore, State
from assistant.model_store.synth import SHAPES, disk_bytes, synthesise
from assistant.model_store.synthetic_source import SyntheticSource
from assistant.model_store.synthetic_vocabulary import LARGEST, tokenizer_keys
from assistant.model_store.vocabulary import Vocabulary
from tests.model_store.shop import World, world
from tests.stages.disks import mounted_tmpfs

SMALL = msgspec.structs.replace(
    SHAPES["qwen2.5-0.5b"],
    layers=9,
    hidden=256,
    heads=4,
    kv_heads=2,
    head_dim=64,
    ffn=512,
    vocab=2000,
    max_position=256,
)
OWN_COMMAND = """
import json, pathlib, sys
shape, out = sys.argv[1], pathlib.Path(sys.argv[2])
if shape.startswith("llama"):
    sys.exit("no llamas here")
out.mkdir()
(out / "llm.mnn").write_text(shape)
(out / "blocks.txt").write_text(sys.argv[3])
print(json.dumps({"report": {"shape": {"layers": 3}}}))
"""
"""Speaks the converter's protocol."""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        (tmp_path / "own.py").write_text(OWN_COMMAND)
        yield made


def made(here: World, shape: str, name: str | None = None, block: Block = 64) -> str:
    converters = Converters(synthetic=[sys.executable, str(here.top / "own.py")])
    return synthesise(here.store(), shape, name, block=block, converters=converters, free=lambda _: 1 << 40)


class Filling(Silent):
    """Takes what is left of a disk as soon as the converter, which has looked for room, is at work."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Update]:
        def update(done: int, total: int) -> None:
            with suppress(OSError), (self._disk / "filler").open("ab", buffering=0) as filler:
                while filler.write(bytes(1 << 20)):
                    pass

        yield update


@pytest.mark.root
@pytest.mark.engine
@pytest.mark.timeout(60)
def test_a_disk_that_fills_up_on_the_way_is_said_to_be_full(here: World) -> None:
    with mounted_tmpfs(here.top / "disk", "130m") as disk:
        store = ModelStore(disk / "models", here.top / "catalog.toml")
        with pytest.raises(AssistantError, match=r"is full.*[Mm]ake room") as caught:
            synthesise(store, "smollm2-135m", progress=Filling(disk), free=lambda _: 1 << 40)
        assert caught.value.code == "disk-full"
        assert "Errno" not in caught.value.message
        assert store.installed() == []


def test_no_room_for_the_last_steps_is_said_so_too(here: World) -> None:
    with pytest.raises(FetchFailed, match=r"is full.*Make room") as caught, held(here.store(), "mine", Silent()):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.code == "disk-full"


@pytest.mark.parametrize("block", [32, 64, 128])
@pytest.mark.parametrize("name", SHAPES)
def test_the_shapes_are_those_that_the_converter_reads_back(name: str, block: Block) -> None:
    source = SyntheticSource(name, SHAPES[name], block)
    plan = make_plan(source, None, Choices(4, None, block))
    assert plan.shape == SHAPES[name]
    assert plan.requantised == []
    assert {packing.bits for packing in plan.packings.values()} == {4}
    columns = {tensor.name.removesuffix(".weight"): tensor.columns for tensor in source.tensors.values()}
    blocks = {name: packing.block for name, packing in plan.packings.items()}
    assert blocks == {name: 32 if columns[name] % block else block for name in plan.packings}
    assert [f"{name}.weight" for name, found in blocks.items() if found != block] == plan.unblocked
    assert disk_bytes(SHAPES[name]) >= sizes(source, plan)[1] - (32 << 20)


def test_a_row_is_the_same_however_it_is_asked_for() -> None:
    source = SyntheticSource("x", SMALL)
    tensor = source.tensors["token_embd.weight"]
    whole = source.read(tensor)
    assert whole.shape == (2000, tensor.row_bytes)
    for first, rows in ((0, 1), (3, 1900), (1999, 1), (1800, 64)):
        np.testing.assert_array_equal(source.read(tensor, first, rows), whole[first : first + rows])
    np.testing.assert_array_equal(SyntheticSource("x", SMALL).read(tensor), whole)
    assert len({row.tobytes() for row in whole}) == 2000
    other = source.tensors["blk.0.ffn_up.weight"]
    assert (source.read(other, 0, 500) != whole[:500]).mean() > 0.9


def test_a_vocabulary_is_of_different_tokens_in_a_moment() -> None:
    began = time.monotonic()
    keys = tokenizer_keys(151_936, "qwen2")
    assert time.monotonic() - began < 3, "a tenth of that on an idle machine"
    tokens = list(keys["tokenizer.ggml.tokens"])
    assert len(tokens) == len(set(tokens)) == 151_936
    assert tokens[-2:] == [b"<|im_start|>", b"<|im_end|>"]
    assert len(keys["tokenizer.ggml.merges"]) < 100


@pytest.mark.parametrize("size", [200, LARGEST + 1])
def test_a_vocabulary_of_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="cannot be made"):
        tokenizer_keys(size, "qwen2")


def logits(model: Path, ids: list[int]) -> NDArray[np.float32]:
    return run(model, {"memory": "low", "dynamic_option": 2}, [Job(prompt=ids)])[0].logits


@pytest.mark.engine
def test_what_it_computes_is_finite_and_near_one(tmp_path: Path) -> None:
    source = SyntheticSource("x", SMALL)
    report = convert(source, tmp_path / "model", sha256=source.sha256)
    assert report.emergency_skip == [4, 5]
    assert (report.chat_format, report.stop_ids) == ("the file's own", [1997, 1999])
    assert Vocabulary.open(tmp_path / "model").facts.chat_template == FORMATS[0].template
    found = logits(tmp_path / "model", [300, 1000, 1998, 7])
    assert np.isfinite(found).all()
    assert 0.3 < found.std() < 3


@pytest.mark.engine
def test_the_smallest_shape_through_the_real_command(here: World) -> None:
    store = here.store()
    name = synthesise(store, "smollm2-135m")
    assert name == "synth-smollm2-135m"
    info = store.open(name)
    assert (info.kind, info.engine, info.shape) == ("mnn-llm", "mnn", SHAPES["smollm2-135m"].summary())
    assert sum(file.stat().st_size for file in info.path.iterdir()) < disk_bytes(SHAPES["smollm2-135m"])
    assert np.isfinite(logits(info.path, [400, 5000])).all()
    assert here.leftovers() == []


def test_the_memory_that_it_takes_is_that_of_a_few_rows() -> None:
    """In the child; the vocabulary is most of it. The real shape of 1.8 B takes 46 MiB."""
    code = (
        "import sys, tempfile, pathlib\n"
        "from assistant.model_store.convert_synthetic import convert_synthetic\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    print(convert_synthetic('smollm2-135m', pathlib.Path(folder, 'x')).peak_anon_mib)\n"
        "import os; sys.stdout.flush(); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 100


def test_a_full_disk_is_noticed_before_anything_is_written(here: World, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match="Make room"):
        synthesise(here.store(), "qwen1.5-1.8b", free=lambda _: 100 << 20)
    with pytest.raises(ModelError, match="make room"):
        convert_synthetic("smollm2-135m", tmp_path / "out", free_bytes=lambda _: 1 << 20)
    assert here.store().installed() == []
    assert here.leftovers() == []


def test_it_is_made_once_and_again_when_it_is_damaged(here: World) -> None:
    assert made(here, "smollm2-135m") == made(here, "smollm2-135m") == "synth-smollm2-135m"
    file = here.models / "synth-smollm2-135m/llm.mnn"
    first = file.stat().st_ino
    made(here, "smollm2-135m")
    assert file.stat().st_ino == first
    os.truncate(file, 3)
    assert "synth --shape smollm2-135m --name synth-smollm2-135m --block 64" in here.store().fix(
        "synth-smollm2-135m", manifests.read(file.parent)
    )
    made(here, "smollm2-135m")
    assert file.read_text() == "smollm2-135m"


def test_one_from_an_older_converter_is_made_again(here: World) -> None:
    made(here, "smollm2-135m", "mine")
    folder = here.models / "mine"
    manifest = manifests.read(folder)
    assert manifest is not None
    manifests.write(folder, msgspec.structs.replace(manifest, converter_version="gguf-0"))
    assert here.store().status("mine").state is State.OUTDATED
    made(here, "smollm2-135m", "mine")
    assert here.store().status("mine").state is State.READY


def test_one_with_other_blocks_is_made_anew(here: World) -> None:
    made(here, "smollm2-135m")
    folder = here.models / "synth-smollm2-135m"
    for block in (128, 32, 64):
        made(here, "smollm2-135m", block=block)
        manifest = manifests.read(folder)
        assert manifest is not None
        assert (manifest.synthetic, manifest.choices) == ("smollm2-135m", Choices(4, None, block))
        assert (folder / "blocks.txt").read_text() == f"--block={block}"
    assert here.leftovers() == []


def test_one_from_before_blocks_is_made_anew(here: World) -> None:
    made(here, "smollm2-135m")
    folder = here.models / "synth-smollm2-135m"
    manifest = manifests.read(folder)
    assert manifest is not None
    manifests.write(folder, msgspec.structs.replace(manifest, choices=Choices()))
    made(here, "smollm2-135m")
    renewed = manifests.read(folder)
    assert renewed is not None
    assert renewed.choices.block == 64


def test_names_that_are_taken_and_shapes_that_nobody_knows(here: World) -> None:
    made(here, "smollm2-135m", "mine")
    with pytest.raises(UsageError, match="another model 'mine'"):
        made(here, "qwen2.5-0.5b", "mine")
    with pytest.raises(UsageError, match="of the catalog"):
        made(here, "smollm2-135m", "llm")
    with pytest.raises(UsageError, match="there is no shape"):
        made(here, "gpt-5")
    with pytest.raises(UsageError, match="no name for a model"):
        made(here, "smollm2-135m", "../x")


def test_one_that_is_not_here_can_be_made(here: World) -> None:
    with pytest.raises(ModelMissing, match=r"assistant models synth --shape smollm2-135m$"):
        here.store().open("synth-smollm2-135m")


def test_a_failure_leaves_nothing(here: World) -> None:
    with pytest.raises(ModelError, match="no llamas here"):
        made(here, "llama-3.2-1b")
    assert here.store().installed() == []
    assert here.leftovers() == []
