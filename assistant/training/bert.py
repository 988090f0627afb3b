"""MiniLM in torch: BERT's encoder without dropout's frills, its weights from safetensors. Imports nothing of ours.

Post-norm layers, exact GELU, twelve heads; names of tensors are those of the published file, so that the converter
finds each by its name. The word table is not a parameter: it is frozen in the very 4-bit values that ship, so what is
learnt is learnt on top of them and nothing of it is lost on conversion.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, INNER = 6, 384, 12, 1536
EPSILON = 1e-12


def read_safetensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """The float32 tensors of a file by name. Format: length of a JSON table (uint64), the table, the bytes."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    table = json.loads(data[8 : 8 + length])
    start = 8 + length
    return {
        name: np.frombuffer(
            data[start + item["data_offsets"][0] : start + item["data_offsets"][1]], np.float32
        ).reshape(item["shape"])
        for name, item in table.items()
        if name != "__metadata__" and item["dtype"] == "F32"
    }


class Layer(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm = nn.LayerNorm(WIDTH, EPSILON)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.norm_out = nn.LayerNorm(WIDTH, EPSILON)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            linear(x).view(batch, length, HEADS, -1).transpose(1, 2) for linear in (self.query, self.key, self.value)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = self.norm(x + self.dropout(self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))))
        return self.norm_out(x + self.dropout(self.down(functional.gelu(self.up(x)))))


class Encoder(nn.Module):
    """Token ids [batch, T], 0 where there is none -> mean of the last layer [batch, 384]."""

    def __init__(self, words: Tensor, positions: Tensor, dropout: float = 0.1) -> None:
        super().__init__()
        self.register_buffer("words", words, persistent=False)
        self.positions = nn.Parameter(positions)
        self.norm = nn.LayerNorm(WIDTH, EPSILON)
        self.layers = nn.ModuleList(Layer(dropout) for _ in range(LAYERS))
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        present = ids != 0
        words: Tensor = self.get_buffer("words")
        x = self.dropout(self.norm(functional.embedding(ids, words) + self.positions[: ids.shape[1]]))
        mask = present[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        weight = present[..., None].to(x.dtype)
        return (x * weight).sum(1) / weight.sum(1)


class Classifier(nn.Module):
    """`topics`: a second head that only learning uses."""

    def __init__(self, encoder: Encoder, classes: int, topics: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(WIDTH, classes)
        self.topics = nn.Linear(WIDTH, topics)
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [batch, classes] and [batch, topics]."""
        found = self.dropout(self.encoder(ids))
        return self.head(found), self.topics(found)


def published(weights: dict[str, NDArray[np.float32]], words: NDArray[np.float32], longest: int) -> Encoder:
    """The encoder with the published weights; `words` [rows, 384] is the table as it will ship."""
    ahead = "embeddings."
    positions = weights[ahead + "position_embeddings.weight"] + weights[ahead + "token_type_embeddings.weight"][0]
    encoder = Encoder(torch.from_numpy(words), torch.from_numpy(positions[:longest].copy()))
    names = {"norm": ahead + "LayerNorm"}
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}."
        for ours, theirs in {
            "query": "attention.self.query",
            "key": "attention.self.key",
            "value": "attention.self.value",
            "out": "attention.output.dense",
            "norm": "attention.output.LayerNorm",
            "up": "intermediate.dense",
            "down": "output.dense",
            "norm_out": "output.LayerNorm",
        }.items():
            names[f"layers.{number}.{ours}"] = layer + theirs
    state = {
        f"{ours}.{part}": torch.from_numpy(weights[f"{theirs}.{part}"].copy())
        for ours, theirs in names.items()
        for part in ("weight", "bias")
    }
    encoder.load_state_dict(state | {"positions": encoder.positions.detach()})
    return encoder
