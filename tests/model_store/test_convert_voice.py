"""A Piper voice cut in two: for MNN, and for a quick start on onnxruntime."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from assistant import paths
from assistant.errors import ModelDamaged, ModelMissing, ModelUnsupported
from assistant.model_store import convert_voice as command
from assistant.model_store import cut_voice, voice_graph
from tests.lacking import lacks

NAME = "en_US-joe-medium"
MODULE = "assistant.model_store.convert_voice"
Lines = list[dict[str, Any]]

# runs a module as its command does, and reports what it asked of the outside world
WATCHED = """
import json, runpy, sys
seen = []
sys.addaudithook(lambda event, args: seen.append(event) if event.startswith(
    ("socket.connect", "socket.getaddrinfo", "socket.bind", "subprocess", "os.system", "os.exec", "os.posix_spawn",
     "os.fork", "urllib")) else None)
module, log, *sys.argv[1:] = sys.argv[1:]
try:
    runpy.run_module(module, run_name="__main__")
finally:
    open(log, "w").write(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def voice() -> Path:
    path = paths.models_dir() / NAME / f"{NAME}.onnx"
    if not path.is_file():
        lacks("models", f"{path} is not there: scripts/setup fetches it")
    return path


def config_of(voice: Path) -> Path:
    return voice.with_name(voice.name + ".json")


def run(*arguments: str | Path) -> tuple[int, Lines, str]:
    done = subprocess.run(
        [sys.executable, "-m", MODULE, *map(str, arguments), "--json"], capture_output=True, text=True, check=False
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def packages() -> list[str]:
    return sorted(f"{found.metadata['Name']}=={found.version}" for found in metadata.distributions())


@pytest.fixture(scope="module")
def converted(voice: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lines, list[str], bool]:
    """The folder, the lines on stdout, what was asked of the outside, and whether the installed packages stayed."""
    top = tmp_path_factory.mktemp("converted")
    out, log = top / "voice", top / "log.json"
    before = packages()
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, MODULE, str(log), str(voice), str(config_of(voice)), str(out), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    events = json.loads(log.read_text())
    log.unlink()
    return out, [json.loads(line) for line in done.stdout.splitlines()], events, packages() == before


@pytest.mark.engine
def test_stdout_carries_progress_then_the_report(converted: tuple[Path, Lines, list[str], bool]) -> None:
    out, lines, _, _ = converted
    assert lines[:-1] == [{"done": done, "total": 6} for done in range(1, 7)]
    report = lines[-1]["report"]
    assert report["files"] == {path.name: path.stat().st_size for path in out.iterdir()}
    assert set(report["files"]) == {"encoder.mnn", "flow.mnn", "decoder.mnn", "upsampler.mnn", "voice.json"}
    sights = {part: (wiring["reach"], wiring["rate"]) for part, wiring in report["parts"].items()}
    assert sights == {"encoder": (0, 1), "flow": (32, 1), "decoder": (10, 8), "upsampler": (9, 32)}
    assert (report["sample_rate"], report["samples_per_frame"], report["channels"]) == (22050, 256, 192)


@pytest.mark.engine
def test_a_conversion_asks_nothing_of_the_outside_and_leaves_it_as_it_was(
    converted: tuple[Path, Lines, list[str], bool],
) -> None:
    out, _, events, same_packages = converted
    assert events == []
    assert same_packages
    assert [path.name for path in out.parent.iterdir()] == ["voice"]


@pytest.mark.engine
def test_the_converted_voice_sounds_like_its_source(
    voice: Path, converted: tuple[Path, Lines, list[str], bool]
) -> None:
    script = Path(__file__).with_name("voice_on_mnn.py")
    done = subprocess.run(
        [sys.executable, str(script), str(voice), str(converted[0])], capture_output=True, text=True, check=True
    )
    # MNN prints lines of its own to C's stdout, which is flushed when it likes
    results = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    same_length = [each for each in results if each["samples"] == each["reference_samples"]]
    assert len(same_length) >= 3
    for each in same_length:
        assert each["whole"] >= 0.99
        assert each["windowed"] >= 0.99
    for each in results:
        # durations are rounded up to whole frames, so a last bit may move a sound by a frame
        assert abs(each["samples"] - each["reference_samples"]) <= 0.02 * each["reference_samples"]
        assert each["window_error"] <= 1e-4


@pytest.mark.engine
def test_a_second_conversion_replaces_the_first(voice: Path, tmp_path: Path) -> None:
    out = tmp_path / "voice"
    out.mkdir()
    (out / "voice.json").write_text("old")
    status, lines, _ = run(voice, config_of(voice), out)
    assert status == 0
    assert (out / "voice.json").stat().st_size == lines[-1]["report"]["files"]["voice.json"]


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_conversion_leaves_nothing_behind(voice: Path, tmp_path: Path, number: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", MODULE, str(voice), str(config_of(voice)), str(tmp_path / "new/voice"), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    assert json.loads(child.stdout.readline()) == {"done": 1, "total": 6}
    time.sleep(0.1)
    child.send_signal(number)
    rest, _ = child.communicate()
    assert child.returncode == 130
    assert json.loads(rest.splitlines()[-1])["error"]["type"] == "Cancelled"
    assert list(tmp_path.iterdir()) == []


def one_node(name: str, op: str, shape: list[int | str]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("output", TensorProto.FLOAT, shape)
    return helper.make_model(helper.make_graph([helper.make_node(op, ["input"], ["output"], name=name)], "g", [x], [y]))


def damage(tmp_path: Path, kind: str, voice: Path | None) -> Path:
    path = tmp_path / "x.onnx"
    if kind == "truncated":
        assert voice is not None
        path.write_bytes(voice.read_bytes()[:-1])
    elif kind == "not a voice":
        onnx.save(one_node("/relu", "Relu", [1, 4]), str(path))
    elif kind == "no convolution":
        onnx.save(one_node("/dec/relu", "Relu", [1, 4, "t"]), str(path))
    elif kind != "missing":
        path.write_bytes({"empty": b"", "text": b"hello " * 100, "zeros": bytes(1000)}[kind])
    return path


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("missing", ModelMissing),
        ("empty", ModelDamaged),
        ("text", ModelDamaged),
        ("zeros", ModelDamaged),
        ("not a voice", ModelUnsupported),
        ("no convolution", ModelUnsupported),
    ],
)
def test_what_is_no_voice_is_refused_and_leaves_nothing(tmp_path: Path, kind: str, error: type[Exception]) -> None:
    path = damage(tmp_path, kind, None)
    config = tmp_path / "x.onnx.json"
    config.write_text(json.dumps({"audio": {"sample_rate": 22050}, "phoneme_id_map": {"a": [1]}}))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(error):
        command.convert_voice(path, config, tmp_path / "out")
    with pytest.raises(error):
        cut_voice.cut_voice(path, tmp_path / "cut")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.engine
def test_the_command_names_the_error_and_has_its_exit_status(voice: Path, tmp_path: Path) -> None:
    status, lines, stderr = run(damage(tmp_path, "truncated", voice), config_of(voice), tmp_path / "out")
    assert status == 6
    assert [line["error"]["type"] for line in lines] == ["ModelDamaged"]
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"audio": {}}', '{"audio": {"sample_rate": 0}, "phoneme_id_map": {}}', "\x00"]
)
def test_a_damaged_configuration_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(ModelDamaged):
        command.convert_voice(tmp_path / "x.onnx", tmp_path / "c.json", tmp_path / "out")


def test_the_cut_is_found_by_structure_not_by_name() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "mask"], ["anything"], name="/flow/last"),
        helper.make_node("Conv", ["anything", "w", "b"], ["h"], name="/dec/conv_pre/Conv"),
        helper.make_node("Add", ["h", "speaker"], ["h2"], name="/dec/Add"),
        helper.make_node("Tanh", ["h2"], ["output"], name="/dec/Tanh"),
    ]
    assert voice_graph.find_cuts(nodes, ["w", "b"]) == ["anything", "speaker"]
    assert voice_graph.find_cuts(nodes[:1], []) == []


def prior_nodes() -> list[onnx.NodeProto]:
    """A network's middle as Piper's exporter writes it, under other names."""
    make = helper.make_node
    return [
        make("RandomNormalLike", ["zeros"], ["n0"]),
        make("Mul", ["n0", "w"], ["l0"]),
        make("Ceil", ["l0"], ["counts"]),
        make("Transpose", ["m"], ["mt"]),
        make("MatMul", ["path", "mt"], ["mf"]),
        make("Transpose", ["mf"], ["mean_frames"]),
        make("Transpose", ["s"], ["st"]),
        make("MatMul", ["path", "st"], ["sf"]),
        make("Transpose", ["sf"], ["scale_frames"]),
        make("RandomNormalLike", ["mean_frames"], ["n1"]),
        make("Exp", ["scale_frames"], ["e"]),
        make("Mul", ["n1", "e"], ["ne"]),
        make("Mul", ["ne", "scale"], ["nes"]),
        make("Add", ["mean_frames", "nes"], ["z"]),
        make("Cast", ["counts"], ["ones"]),
        make("Conv", ["z", "fw"], ["f"]),
        make("Mul", ["f", "ones"], ["latent"]),
    ]


def test_what_surrounds_the_flow_is_found_by_structure() -> None:
    found = voice_graph.find_prior(prior_nodes(), "latent")
    assert found == voice_graph.Prior("n0", "m", "s", "counts", "z", "ones")


@pytest.mark.parametrize("missing", range(17))
def test_a_network_without_a_part_of_it_is_refused(missing: int) -> None:
    nodes = prior_nodes()
    del nodes[missing]
    if missing in (1, 14, 15):  # what lies between is not looked at
        nodes = [node for node in nodes if node.op_type != "Ceil"]
    with pytest.raises(ModelUnsupported, match="no flow"):
        voice_graph.find_prior(nodes, "latent")


def test_a_folder_that_cannot_be_written_is_an_error_in_json(tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"audio": {"sample_rate": 22050}, "phoneme_id_map": {"a": [1]}}))
    model = helper.make_graph(
        [
            helper.make_node("Identity", ["input"], ["latent"], name="/flow"),
            helper.make_node("Conv", ["latent", "w"], ["output"], name="/dec/conv_pre/Conv"),
        ],
        "g",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 1, "t"])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 1, "t"])],
        [helper.make_tensor("w", TensorProto.FLOAT, [1, 1, 1], [1.0])],
    )
    onnx.save(helper.make_model(model), str(tmp_path / "x.onnx"))
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.iterdir())
    status, lines, stderr = run(tmp_path / "x.onnx", config, tmp_path / "file/out")
    assert status != 0
    assert set(lines[-1]) == {"error"}
    assert "Traceback" not in stderr
    assert sorted(tmp_path.iterdir()) == before
