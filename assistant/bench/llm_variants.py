"""What the variants of a model cost and give: perplexity on the shipped text, decode speed, weight. Section `variants`.

Full, the graph that leaves layers out, and the same model in 4 and in 8 bits throughout. Speeds are medians of rounds
that take the variants in turns.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import msgspec

from assistant import paths
from assistant.bench.llm_child import Model, Read, Reading, ask, model_of
from assistant.bench.llm_model import Chosen, choose
from assistant.bench.llm_options import W4, W8, Options
from assistant.bench.llm_runs import TEXT, laid_out, mib
from assistant.bench.output import say_aside
from assistant.errors import ModelError
from assistant.model_store.choices import EMERGENCY_GRAPH
from assistant.model_store.vocabulary import Vocabulary

_DECODED = 48
_ANY_CONTEXT, _ANY_CHUNK = 1024, 128


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    variant: str
    model: str
    perplexity: float
    against_full: float
    """Perplexity over that of the full model in the source's own bits."""
    decode_tps: float
    speed: float
    """Decode tok/s over the full model's: median of the ratios of each round."""
    weight_mib: float
    """The model's weight file, word table and head included."""
    laid_out_mib: float
    """What is mapped, in MNN's layout for this machine."""
    layers: int
    tokens: int


class Variants(msgspec.Struct, frozen=True, kw_only=True):
    variants: tuple[Variant, ...]
    missing: dict[str, str]
    """What could not be measured, and how to get it."""
    reached: bool
    """All are opinions on words (finite perplexity), and the emergency graph is faster than the full one."""


def measure(options: Options) -> Variants:
    chosen = options.small()
    found, missing = _found(chosen)
    text = paths.data_file(TEXT).read_text("utf-8")
    read: dict[str, Read] = {}
    speeds: dict[str, list[float]] = {name: [] for name in found}
    for name, (model, _) in found.items():
        say_aside(f"{name}: perplexity")
        read[name] = ask(Reading(model=model, text=text, decode=0), Read)
    for number in range(options.rounds):
        say_aside(f"decode speed, round {number + 1} of {options.rounds}")
        for name, (model, _) in found.items():
            speeds[name].append(
                ask(Reading(model=model, text=text, decode=_DECODED, perplexity=False), Read).decode_tps
            )
    rows = tuple(_row(name, *found[name], read[name], read["full"], speeds[name], speeds["full"]) for name in found)
    return Variants(variants=rows, missing=missing, reached=judged(rows))


def judged(rows: tuple[Variant, ...]) -> bool:
    faster = all(row.speed > 1 for row in rows if row.variant == "emergency")
    return faster and all(math.isfinite(row.perplexity) and row.perplexity > 1 for row in rows)


def _found(chosen: Chosen) -> tuple[dict[str, tuple[Model, int]], dict[str, str]]:
    """By variant: the model, and how many layers its graph has."""
    spec = chosen.spec(context_tokens=_ANY_CONTEXT, prefill_chunk=_ANY_CHUNK)
    facts, missing = Vocabulary.open(spec.model_dir).facts, dict[str, str]()
    layers = int(facts.shape["layers"])
    found = {"full": (model_of(spec), layers)}
    if facts.emergency_skip:
        found["emergency"] = model_of(spec, EMERGENCY_GRAPH), layers - len(facts.emergency_skip)
    else:
        missing["emergency"] = f"{chosen.name} has no such graph; convert the model again"
    for ending in (W4, W8):
        name = chosen.name + ending
        try:
            other = choose(model=name, store=chosen.store).spec(context_tokens=_ANY_CONTEXT, prefill_chunk=_ANY_CHUNK)
        except ModelError:
            missing[ending[1:]] = f"get it with: assistant models fetch {name}, or assistant models convert --bits"
        else:
            found[ending[1:]] = model_of(other), layers
    return found, missing


def _row(
    name: str, model: Model, layers: int, read: Read, full: Read, speeds: list[float], full_speeds: list[float]
) -> Variant:
    folder = Path(model.folder)
    return Variant(
        variant=name,
        model=folder.name,
        perplexity=round(read.perplexity, 2),
        against_full=round(read.perplexity / full.perplexity, 3),
        decode_tps=round(statistics.median(speeds), 1),
        speed=round(statistics.median(one / other for one, other in zip(speeds, full_speeds, strict=True)), 3),
        weight_mib=mib((folder / "llm.mnn.weight").stat().st_size),
        laid_out_mib=mib(laid_out(Path(model.weights))),
        layers=layers,
        tokens=read.tokens,
    )


def table(found: Variants) -> str:
    lines = [
        f"perplexity on {found.variants[0].tokens} tokens of {TEXT}, decode speed of MNN alone",
        f"{'variant':<11}{'layers':>7}{'perplexity':>12}{'to full':>9}{'tok/s':>8}{'to full':>9}{'weights MiB':>13}"
        f"{'mapped MiB':>12}  model",
    ]
    lines += [
        f"{one.variant:<11}{one.layers:>7}{one.perplexity:>12.2f}{one.against_full:>9.2f}{one.decode_tps:>8.1f}"
        f"{one.speed:>9.2f}{one.weight_mib:>13.1f}{one.laid_out_mib:>12.1f}  {one.model}"
        for one in found.variants
    ]
    lines += [f"{name:<11} not measured: {how}" for name, how in found.missing.items()]
    return "\n".join(lines)
