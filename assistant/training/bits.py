"""Weights as they will be in 4 bits, seen while still learning. Imports nothing of ours.

MNN's converter gives each block of 32 inputs a scale and a minimum: 16 evenly spaced values from the least to the
greatest. Learning sees those values and changes the exact ones (the straight-through estimator), so that it ends at
weights that lose little by it. A matrix that is written as it was seen is quantised to itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

BITS, BLOCK = 4, 32


def rounded(weight: Tensor) -> Tensor:
    """[out, in], in a multiple of `BLOCK` -> the same, on the values that 4 bits have."""
    blocks = weight.reshape(weight.shape[0], -1, BLOCK)
    low, high = blocks.amin(2, keepdim=True), blocks.amax(2, keepdim=True)
    step = ((high - low) / (2**BITS - 1)).clamp_min(1e-12)
    return (torch.round((blocks - low) / step) * step + low).reshape(weight.shape)


class _Rounded(nn.Module):
    active = True

    def forward(self, weight: Tensor) -> Tensor:
        if not self.active:
            return weight
        with torch.no_grad():
            change = rounded(weight) - weight
        return weight + change


def begin(encoder: nn.Module) -> None:
    """From here on every matrix is seen in 4 bits."""
    for module in list(encoder.modules()):
        if isinstance(module, nn.Linear) and not parametrize.is_parametrized(module):
            parametrize.register_parametrization(module, "weight", _Rounded(), unsafe=True)


@contextmanager
def full(encoder: nn.Module) -> Iterator[None]:
    """Inside, the matrices are seen as they are."""
    seen = [module for module in encoder.modules() if isinstance(module, _Rounded)]
    for module in seen:
        module.active = False
    try:
        yield
    finally:
        for module in seen:
            module.active = True


def end(encoder: nn.Module) -> None:
    """The matrices become what was seen of them."""
    for module in list(encoder.modules()):
        if isinstance(module, nn.Linear) and parametrize.is_parametrized(module):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
