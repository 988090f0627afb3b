"""How far a network sees, held against networks that run; and the same network over planes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from assistant.errors import ModelUnsupported
from assistant.model_store import voice_graph
from assistant.model_store.voice_planes import in_planes
from assistant.model_store.voice_wires import Sight, sight

CHANNELS = 4
Layer = tuple[str, int, int]
"""Kind, kernel, and dilation or stride."""

convolutions = st.tuples(st.just("Conv"), st.sampled_from([1, 3, 5, 7]), st.sampled_from([1, 2, 3]))
upsamplings = st.sampled_from([("ConvTranspose", 4, 2), ("ConvTranspose", 8, 4), ("ConvTranspose", 16, 8)])
networks = st.lists(convolutions | upsamplings, min_size=1, max_size=4)


def network(layers: list[Layer]) -> onnx.ModelProto:
    """Each layer with a leaky rectifier before it, and added to what it takes where the lengths agree."""
    random, nodes, weights, last = np.random.default_rng(0), [], [], "input"
    for number, (kind, kernel, step) in enumerate(layers):
        weight = random.standard_normal((CHANNELS, CHANNELS, kernel), np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{number}"))
        nodes.append(helper.make_node("LeakyRelu", [last], [f"r{number}"], alpha=0.1))
        if kind == "Conv":
            pad = (kernel - 1) * step // 2
            how = {"pads": [pad, pad], "dilations": [step], "kernel_shape": [kernel]}
        else:
            how = {"pads": [(kernel - step) // 2] * 2, "strides": [step], "kernel_shape": [kernel]}
        nodes.append(helper.make_node(kind, [f"r{number}", f"w{number}"], [f"c{number}"], name=f"n{number}", **how))
        if kind == "Conv":
            nodes.append(helper.make_node("Add", [f"c{number}", last], [f"a{number}"]))
        last = nodes[-1].output[0]
    nodes.append(helper.make_node("Concat", [last, last], ["output"], axis=1))
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, None, None]) for name in ("input", "output")]
    shapes[0].type.tensor_type.shape.dim[1].dim_value = CHANNELS
    graph = helper.make_graph(nodes, "g", shapes[:1], shapes[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def run(model: onnx.ModelProto, x: NDArray[np.float32]) -> Any:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"input": x})[0]


def sight_of(layers: list[Layer]) -> Sight:
    kernels = {f"w{number}": kernel for number, (_, kernel, _) in enumerate(layers)}
    return sight(network(layers).graph.node, kernels, "input", "output")


@settings(max_examples=25, deadline=None)
@given(networks)
def test_a_stretch_with_as_much_around_it_comes_out_as_among_all_the_others(layers: list[Layer]) -> None:
    model, found = network(layers), sight_of(layers)
    begin, end = found.reach + 3, found.reach + 8
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, end + found.reach + 4), np.float32)
    whole = run(model, x)
    assert whole.shape[2] == x.shape[2] * found.rate
    part = run(model, x[:, :, begin - found.reach : end + found.reach])
    cut = part[:, :, found.reach * found.rate : (found.reach + end - begin) * found.rate]
    wanted = whole[:, :, begin * found.rate : end * found.rate]
    assert np.abs(cut - wanted).max() <= 1e-5 * np.abs(whole).max()


def test_no_more_than_is_needed() -> None:
    assert sight_of([("Conv", 7, 1)]) == Sight(3, 1)
    assert sight_of([("Conv", 7, 12), ("Conv", 3, 1)]) == Sight(37, 1)
    assert sight_of([("ConvTranspose", 16, 8), ("Conv", 7, 12)]) == Sight(6, 8)
    assert sight_of([("ConvTranspose", 4, 2), ("ConvTranspose", 8, 4)]) == Sight(2, 8)


def test_a_convolution_that_leaves_steps_out_is_refused() -> None:
    node = helper.make_node("Conv", ["input", "w"], ["output"], name="n", strides=[2])
    with pytest.raises(ModelUnsupported, match="n leaves steps out"):
        sight([node], {"w": 3}, "input", "output")


@settings(max_examples=15, deadline=None)
@given(networks)
def test_over_planes_the_numbers_are_the_same_and_the_source_is_left_alone(layers: list[Layer]) -> None:
    model = network(layers)
    before = model.SerializeToString()
    planes = in_planes(model)
    onnx.checker.check_model(planes)
    assert model.SerializeToString() == before
    x = np.random.default_rng(2).standard_normal((1, CHANNELS, 40), np.float32)
    wanted = run(model, x)
    found = run(planes, x)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_the_middle_of_a_decoder_is_what_its_second_stage_takes() -> None:
    make = helper.make_node
    nodes = [
        make("ConvTranspose", ["elsewhere", "w"], ["e"]),
        make("ConvTranspose", ["latent", "w"], ["one"]),
        make("Div", ["one", "three"], ["middle"]),
        make("LeakyRelu", ["middle"], ["lively"]),
        make("ConvTranspose", ["lively", "w"], ["two"]),
    ]
    assert voice_graph.find_middle(nodes, ["latent"]) == "middle"
    assert voice_graph.find_middle([nodes[1], make("ConvTranspose", ["one", "w"], ["two"])], ["latent"]) == "one"
    with pytest.raises(ModelUnsupported, match="two stages"):
        voice_graph.find_middle(nodes[:2], ["latent"])
