"""The second graph of a model: the layers that it leaves out are left out, and the weights are the first graph's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from assistant.bench.mnn_logits import REFERENCE, Job, run
from assistant.errors import ModelUnsupported, UsageError
from assistant.model_store.choices import EMERGENCY_GRAPH, Choices, checked, default_skip
from assistant.model_store.convert_gguf import convert_gguf
from assistant.model_store.numpy_llm import NumpyLlm
from assistant.model_store.vocabulary import Vocabulary
from tests.model_store import tiny_bpe
from tests.model_store.tiny_gguf import Tiny, write_model

IDS = [int(i) for i in np.random.default_rng(3).integers(0, tiny_bpe.vocab_size(), 9)]
SHARED = """
import json, os, sys
import MNN.llm
base = MNN.llm.create(sys.argv[1] + "/config.json")
base.set_config({"memory": "high", "all_logits": False, "use_mmap": False, "thread_num": 1})
assert base._c_obj.load()
ids = json.loads(sys.argv[2])
def last(llm):
    llm.reset()
    llm.generate_init(None, "\\n")
    return llm.forward(ids).read().reshape(-1).tolist()
before = last(base._c_obj)
other = base._c_obj.create_lora("llm.emergency.mnn")
print(json.dumps({"before": before, "emergency": last(other), "after": last(base._c_obj)}))
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("eight") / "x.gguf", Tiny(layers=8), tiny_bpe.metadata())


def wanted(gguf: Path, skip: list[int]) -> NDArray[np.float32]:
    with NumpyLlm(gguf, skip) as llm:
        return llm.forward(IDS)


@pytest.mark.engine
def test_the_graph_computes_the_model_without_those_layers(gguf: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    report = convert_gguf(gguf, model, emergency_skip=[5, 2])
    assert report.emergency_skip == Vocabulary.open(model).facts.emergency_skip == [2, 5]
    shutil.copy(model / EMERGENCY_GRAPH, model / "llm.mnn")  # its own graph over the same weight file
    found = run(model, REFERENCE, [Job(prompt=IDS)])[0].logits
    reference = wanted(gguf, [2, 5])
    assert np.abs(found - reference).max() < 2e-5 * np.abs(reference).max()
    assert np.abs(reference - wanted(gguf, [])).max() > 0.1


@pytest.mark.engine
def test_both_graphs_run_on_one_set_of_loaded_weights(gguf: Path, tmp_path: Path) -> None:
    convert_gguf(gguf, tmp_path / "model")
    command = [sys.executable, "-c", SHARED, str(tmp_path / "model"), json.dumps(IDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    whole, without = wanted(gguf, [])[-1], wanted(gguf, default_skip(8))[-1]
    np.testing.assert_allclose(found["before"], whole, atol=1e-4)
    np.testing.assert_allclose(found["emergency"], without, atol=1e-4)
    assert found["after"] == found["before"]


def test_a_quarter_in_the_middle_by_rule_and_none_of_a_small_model() -> None:
    assert [default_skip(layers) for layers in (1, 7, 8, 16)] == [[], [], [3, 4], [6, 7, 8, 9]]
    assert default_skip(30) == [12, 13, 14, 15, 16, 17, 18]


def test_a_small_model_has_no_second_graph_and_nobody_needs_to_have_one(gguf: Path, tmp_path: Path) -> None:
    small = write_model(tmp_path / "x.gguf", Tiny(layers=2), tiny_bpe.metadata())
    for source, choice in ((small, None), (gguf, [])):
        model = tmp_path / "model"
        assert convert_gguf(source, model, emergency_skip=choice).emergency_skip == []
        assert not (model / EMERGENCY_GRAPH).exists()
        assert Vocabulary.open(model).facts.emergency_skip == []


@pytest.mark.parametrize("skip", [[1], [6], [3, 3], [40], [-1]])
def test_layers_that_cannot_be_left_out_are_refused(skip: list[int], gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelUnsupported, match="cannot be left out"):
        convert_gguf(gguf, tmp_path / "model", emergency_skip=skip)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("choices", "arguments"),
    [
        (Choices(), []),
        (Choices(8), ["--bits=8"]),
        (Choices(None, ()), ["--emergency-skip="]),
        (Choices(4, (2, 3)), ["--bits=4", "--emergency-skip=2,3"]),
        (Choices(4, None, 64), ["--bits=4", "--block=64"]),
    ],
)
def test_choices_reach_the_converters_command(
    choices: Choices, arguments: list[str], gguf: Path, tmp_path: Path
) -> None:
    assert choices.arguments() == arguments
    command = [sys.executable, "-m", "assistant.model_store.convert_gguf", str(gguf), *arguments, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])["report"]
    assert report["bits"] == choices.bits
    assert report["emergency_skip"] == choices.skipped(8)


def test_bits_are_four_or_eight() -> None:
    assert [checked(bits).bits for bits in (None, 4, 8)] == [None, 4, 8]
    with pytest.raises(UsageError, match="4 or 8"):
        checked(5)


def test_blocks_are_of_three_sizes_and_of_four_bits() -> None:
    assert [checked(4, block).block for block in (None, 32, 64, 128)] == [None, 32, 64, 128]
    with pytest.raises(UsageError, match="32, 64 or 128"):
        checked(4, 48)
    for bits in (None, 8):
        with pytest.raises(UsageError, match="with 4 bits alone"):
            checked(bits, 64)
