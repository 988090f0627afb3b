"""The network: torch, its ONNX graph and MNN agree. Needs the extra `train`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is in the extra `train`, which only training needs")

from assistant.model_store.mnn_tools import onnx_to_mnn, silent_stdout  # noqa: E402
from assistant.stages.intent_encoder import _Net  # noqa: E402
from assistant.training import bert, bits, graph  # noqa: E402


def _encoder() -> bert.Encoder:
    torch.manual_seed(1)
    encoder = bert.Encoder(torch.randn(40, bert.WIDTH), torch.randn(16, bert.WIDTH))
    encoder.eval()
    return encoder


def test_padding_changes_nothing() -> None:
    encoder = _encoder()
    with torch.inference_mode():
        alone = encoder(torch.tensor([[1, 5, 2]]))
        padded = encoder(torch.tensor([[1, 5, 2, 0, 0], [1, 7, 8, 9, 2]]))
    assert torch.allclose(alone[0], padded[0], atol=1e-5)


def test_rounding_has_sixteen_values_a_block_and_is_its_own_fixed_point() -> None:
    weight = torch.randn(8, 64)
    once = bits.rounded(weight)
    assert all(len(block.unique()) <= 16 for block in once.reshape(-1, bits.BLOCK))
    assert torch.allclose(bits.rounded(once), once, atol=1e-6)
    assert 0 < float((once - weight).abs().max()) < 0.25


def test_learning_goes_on_through_the_rounding() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(32, 4))
    bits.begin(layer)
    layer(torch.ones(1, 32)).sum().backward()
    assert [float(p.grad.abs().sum()) > 0 for p in layer.parameters()] == [True, True]
    seen = layer[0].weight.detach().clone()
    with bits.full(layer):
        exact = layer[0].weight.detach().clone()
    assert not torch.equal(exact, seen)
    assert torch.allclose(bits.rounded(exact), seen, atol=1e-6)
    bits.end(layer)
    assert torch.equal(layer[0].weight, seen)


@pytest.mark.engine
@pytest.mark.parametrize("width", [8, 4])
def test_mnn_computes_what_torch_computes(tmp_path: Path, width: int) -> None:
    import onnx

    encoder = _encoder()
    if width == 4:
        bits.begin(encoder)
        bits.end(encoder)
    onnx.save(graph.build(encoder), str(tmp_path / "e.onnx"))
    onnx_to_mnn(tmp_path / "e.onnx", tmp_path / "e.mnn", width, bits.BLOCK)
    with silent_stdout():
        net = _Net(tmp_path / "e.mnn", 1)
    for ids in ([1, 5, 2], [1, 9, 8, 7, 6, 5, 4, 3, 2]):
        with torch.inference_mode():
            wanted = encoder(torch.tensor([ids])).numpy()[0]
        x = encoder.words[ids].numpy() + encoder.positions.detach().numpy()[: len(ids)]
        found = net.run(x[None])
        cosine = float(wanted @ found / np.linalg.norm(wanted) / np.linalg.norm(found))
        assert cosine > 0.998, cosine
