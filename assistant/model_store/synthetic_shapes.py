"""Shapes of well-known models, for models of random weights. Imports `choices`, `llm_shape`, `synthetic_gguf`.

The numbers are those of each model's published configuration, with the context cut to `MAX_POSITIONS`. Memory and speed
depend on them and not on what the weights say, so nothing has to be downloaded to measure either.
"""

from __future__ import annotations

from assistant.errors import UsageError
from assistant.model_store.choices import Block
from assistant.model_store.llm_shape import MAX_POSITIONS, LlmShape
from assistant.model_store.synthetic_gguf import ModelSpec

WEIGHTS = "Q4_0"
"""Type of all matrices, the word table and the head included, where no longer blocks than 32 are asked for or fit."""
BLOCK: Block = 64
"""Unless another one is asked for: what MNN's own exports of these models have."""


def _shape(
    architecture: str,
    layers: int,
    hidden: int,
    heads: tuple[int, int],
    ffn: int,
    vocab: int,
    rope_base: float,
    *,
    tied: bool = True,
    norm_epsilon: float = 1e-6,
) -> LlmShape:
    """`heads`: of queries, of keys and values."""
    return LlmShape(
        architecture=architecture,
        layers=layers,
        hidden=hidden,
        heads=heads[0],
        kv_heads=heads[1],
        head_dim=hidden // heads[0],
        ffn=ffn,
        vocab=vocab,
        max_position=MAX_POSITIONS,
        tied=tied,
        norm_epsilon=norm_epsilon,
        rope_base=rope_base,
        rope_factor=1.0,
    )


SHAPES: dict[str, LlmShape] = {
    "qwen1.5-1.8b": _shape("qwen2", 24, 2048, (16, 16), 5504, 151_936, 1e6, tied=False),
    "qwen2.5-0.5b": _shape("qwen2", 24, 896, (14, 2), 4864, 151_936, 1e6),
    "llama-3.2-1b": _shape("llama", 16, 2048, (32, 8), 8192, 128_256, 5e5, norm_epsilon=1e-5),
    "smollm2-135m": _shape("llama", 30, 576, (9, 3), 1536, 49_152, 1e5, norm_epsilon=1e-5),
}
"""By the name that `assistant models synth --shape` takes."""

_PRE_TOKENIZERS = {"llama-3.2-1b": "llama-bpe", "smollm2-135m": "smollm"}


def shape_of(name: str) -> LlmShape:
    """Raises `UsageError` naming the shapes that there are."""
    if name not in SHAPES:
        raise UsageError(f"there is no shape {name!r}; known are {', '.join(SHAPES)}")
    return SHAPES[name]


def pre_tokenizer_of(name: str) -> str:
    return _PRE_TOKENIZERS.get(name, "qwen2")


def spec_of(name: str, shape: LlmShape) -> ModelSpec:
    """What the random model of this shape holds."""
    arch = shape.architecture
    return ModelSpec(
        architecture=arch,
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        ffn=shape.ffn,
        tied=shape.tied,
        bias=arch == "qwen2",
        rope_freqs=name.startswith("llama"),
        weights=WEIGHTS,
        context=shape.max_position,
        extra={
            f"{arch}.attention.layer_norm_rms_epsilon": shape.norm_epsilon,
            f"{arch}.rope.freq_base": shape.rope_base,
        },
    )
