"""Which of MNN's attention modes keep the answer when a prompt comes in pieces. Section `attention`: why the settings
refuse the others.

Modes 9 and 10 keep 8-bit keys, scaled by the piece that came first; 0 and 8 keep numbers as they are. Cut as the stage
cuts them (`llm_slot.pieces`), prompts must give the same logits to the bit; cut anywhere, 8-bit activations are rounded
in another way.
"""

from __future__ import annotations

import msgspec

from assistant.bench.llm_child import Split, Splits, Splitting, ask, model_of
from assistant.bench.llm_options import Options
from assistant.bench.llm_runs import text_of
from assistant.bench.output import said, say_aside
from assistant.config_checks import ATTENTION_MODES

MODES, PIECES = (8, 0, 9, 10), (32, 16, 8)
_STEPS, _CHARACTERS = 16, (240, 420, 700)
_ANY_CONTEXT, _ANY_CHUNK = 1024, 128


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    attention_mode: int
    allowed: bool
    """By the settings."""
    agrees: bool
    """As the stage cuts them, prompts give the same logits to the bit and the same answers."""
    splits: Splits


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    prompts: int
    modes: tuple[Mode, ...]
    reached: bool
    """Those that are allowed agree."""


def measure(options: Options) -> Attention:
    chosen = options.small()
    model = model_of(chosen.spec(context_tokens=_ANY_CONTEXT, prefill_chunk=_ANY_CHUNK))
    prompts = [f"{text_of(length)}\n\nIn short, this text says that" for length in _CHARACTERS]
    rows = []
    for mode in MODES:
        say_aside(f"attention mode {mode}")
        order = Splitting(model=model, attention_mode=mode, prompts=prompts, pieces=list(PIECES), steps=_STEPS)
        rows.append(judged(mode, ask(order, Splits), len(prompts)))
    reached = all(row.agrees or not row.allowed for row in rows)
    return Attention(model=chosen.name, prompts=len(prompts), modes=tuple(rows), reached=reached)


def judged(mode: int, splits: Splits, prompts: int) -> Mode:
    return Mode(
        attention_mode=mode,
        allowed=mode in ATTENTION_MODES,
        agrees=all(one.same == prompts and one.difference == 0 for one in splits.as_we_cut.values()),
        splits=splits,
    )


def table(found: Attention) -> str:
    heads = "".join(f"{f'pieces of {piece}':>20}" for piece in PIECES)
    lines = [
        f"{found.model}: one piece against several, {found.prompts} prompts, {_STEPS} tokens of each answer",
        f"{'mode':>4}  {'cut':<16}{heads}  settings",
    ]
    for one in found.modes:
        allowed = "allowed" if one.allowed else "refused"
        lines += [
            f"{one.attention_mode:>4}  {'as we do':<16}{_cells(one.splits.as_we_cut, found.prompts)}  {allowed}",
            f"{'':4}  {'evenly':<16}{_cells(one.splits.evenly, found.prompts)}",
        ]
    lines += [
        "largest difference of a logit, and how many greedy answers are the same",
        f"allowed modes: the same logits to the bit and the same answers, as we cut: {said(found.reached)}",
    ]
    return "\n".join(lines)


def _cells(splits: dict[int, Split], prompts: int) -> str:
    return "".join(f"{f'{one.difference:.3f}, {one.same} of {prompts}':>20}" for one in splits.values())
