"""Speed of a large model over the memory that it may use. Section `memory-limits`; needs root.

In a fresh cgroup per limit: one prompt to a worker, which the kernel alone bounds; then the same model in a daemon of
its own, whose ledger may refuse. Weights are laid out before and dropped from the page cache, so that their pages are
charged.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from assistant import page_cache
from assistant.bench import mix, plots
from assistant.bench.cgroups import MemoryCgroup
from assistant.bench.daemons import OwnDaemon
from assistant.bench.llm_child import model_of
from assistant.bench.llm_in_group import InGroup, Order, ask
from assistant.bench.llm_model import Chosen
from assistant.bench.llm_options import Options
from assistant.bench.llm_runs import laid_out, mib
from assistant.bench.output import said, say_aside
from assistant.errors import AssistantError
from assistant.memory_orchestrator.probe import MIB
from assistant.stages.spec import StageSpec

CONTEXT, _CHUNK = 256, 128
_CHARACTERS, _NEW, _PATIENCE_S = 60, 16, 60.0
REFUSED = "memory-never-fits"


class AtLimit(msgspec.Struct, frozen=True, kw_only=True):
    limit_mib: int
    answered: bool
    """By the worker, which nothing but the kernel bounds."""
    decode_tps: float
    first_token_ms: float
    faults_per_token: float
    read_mib_per_token: float
    cached_mib: float
    """Pages of files that were charged to the cgroup at the end. Weights that somebody else has mapped meanwhile are
    charged to nobody here, and the limit does not bind them: then this is small at every limit."""
    oom_kills: int
    """In the cgroup, by the kernel's count; those of the ledger's turn included."""
    error: str
    ledger: str
    """What a daemon in the same cgroup did: "answered", the code of its error, or "not asked" (a model in a folder)."""
    ledger_exit_code: int
    ledger_message: str


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    weights_mib: float
    """Laid out."""
    at: tuple[AtLimit, ...]
    below: AtLimit
    """Where the ledger must refuse."""
    least_admitted_mib: int | None
    """The smallest of the limits at which the ledger let the model in."""
    reached: bool
    """Answers at every limit, nothing killed anywhere, and below them the ledger refuses (`memory-never-fits`)."""


def measure(options: Options) -> Limits:
    """Raises `UsageError` where no cgroup can be made, `ModelError`, `StageError`."""
    with MemoryCgroup(f"assistant-bench-{os.getpid()}", 64 * MIB):
        pass  # a machine without cgroups says so before anybody waits
    chosen = options.big()
    spec = chosen.spec(context_tokens=CONTEXT, prefill_chunk=_CHUNK)
    say_aside(f"{chosen.name}: weights are laid out first unless they are")
    weights = Path(model_of(spec).weights)
    *at, below = (_at(limit, chosen, spec, weights) for limit in (*options.limits_mib, options.below_mib))
    admitted = [one.limit_mib for one in (*at, below) if one.ledger == "answered"]
    found = Limits(
        model=chosen.name,
        weights_mib=mib(laid_out(weights)),
        at=tuple(at),
        below=below,
        least_admitted_mib=min(admitted, default=None),
        reached=judged(at, below),
    )
    if options.plot is not None:
        plots.write(options.plot, plot(found))
    return found


def judged(at: list[AtLimit], below: AtLimit) -> bool:
    answers = all(one.answered for one in at)
    refused = below.ledger in (REFUSED, "not asked")
    return answers and refused and not any(one.oom_kills for one in at) and not (below.answered and below.oom_kills)


def _at(limit: int, chosen: Chosen, spec: StageSpec, weights: Path) -> AtLimit:
    order = Order(spec=spec, characters=_CHARACTERS, new_tokens=_NEW, patience_s=_PATIENCE_S)
    say_aside(f"{limit} MiB: a worker alone")
    with _group(limit, spec, weights) as group:
        found = ask(order, group.procs)
        kills, cached = group.oom_kills(), group.cached()
    told = mix.Told("", "not asked", "a model in a folder is not known to a daemon", 0, 0, "", ())
    if spec.model_dir == chosen.store.models_dir / chosen.name:
        say_aside(f"{limit} MiB: a daemon with its ledger")
        with _group(limit, spec, weights) as group:
            told = _asked_of_daemon(chosen.name, group)
            kills += group.oom_kills()
    return _row(limit, found, kills, cached, told)


def _row(limit: int, found: InGroup, kills: int, cached: int, told: mix.Told) -> AtLimit:
    answered = found.answered
    return AtLimit(
        limit_mib=limit,
        answered=answered is not None,
        decode_tps=round(answered.decode_tps, 2) if answered else 0.0,
        first_token_ms=round(answered.first_token_ms, 1) if answered else 0.0,
        faults_per_token=found.faults_per_token,
        read_mib_per_token=found.read_mib_per_token,
        cached_mib=round(cached / MIB, 1),
        oom_kills=kills,
        error=found.message,
        ledger=told.code or "answered",
        ledger_exit_code=told.exit_code,
        ledger_message=told.message,
    )


def _group(limit: int, spec: StageSpec, weights: Path) -> MemoryCgroup:
    os.sync()  # what is not yet written stays in the page cache
    for folder in (spec.model_dir, weights):  # so that who reads them next is charged for them
        page_cache.forget(folder)
    return MemoryCgroup(f"assistant-bench-{os.getpid()}", limit * MIB)


def _asked_of_daemon(model: str, group: MemoryCgroup) -> mix.Told:
    sets = [
        f"stages.llm.model={model}", f"stages.llm.context_tokens={CONTEXT}", f"stages.llm.prefill_chunk={_CHUNK}",
        "stages.llm.max_new_tokens=4", "stages.llm.system_prompt=", "audio.enabled=false",
    ]  # fmt: skip
    asked = mix.Asked("typed question", "Tell me what bread is made of.", b"", False)
    try:
        with OwnDaemon(sets, procs=group.procs) as daemon:
            return mix.ask(daemon.client, asked)
    except AssistantError as error:  # it did not even start
        return mix.Told(asked.kind, error.code, error.message, int(error.exit_code), 0, "", ())


def table(found: Limits) -> str:
    lines = [
        f"{found.model}, {found.weights_mib:.0f} MiB of mapped weights; a worker alone, then a daemon",
        f"{'limit MiB':>9}{'tok/s':>8}{'first ms':>10}{'faults/token':>14}{'MiB read/token':>16}{'cached MiB':>12}"
        f"{'OOM kills':>11}  ledger",
    ]
    for one in (*found.at, found.below):
        figures = f"{one.decode_tps:>8.2f}{one.first_token_ms:>10.0f}" if one.answered else f"{'-':>8}{'-':>10}"
        lines.append(
            f"{one.limit_mib:>9}{figures}{one.faults_per_token:>14.0f}{one.read_mib_per_token:>16.0f}"
            f"{one.cached_mib:>12.0f}{one.oom_kills:>11}  {one.ledger}"
        )
        lines += [f"{'':9}  worker: {one.error}"] if one.error else []
        lines += [f"{'':9}  ledger: {one.ledger_message}"] if one.ledger_message else []
    lines.append(
        f"answers at every limit but the last, where the ledger refuses ({REFUSED}), no kill: {said(found.reached)}"
    )
    return "\n".join(lines)


def plot(found: Limits) -> bytes:
    """An SVG document: tok/s over the limit, and the limits at which the ledger lets the model in."""
    rows = sorted((one for one in (*found.at, found.below) if one.answered), key=lambda one: one.limit_mib)
    top = max((one.decode_tps for one in rows), default=1.0) * 1.15
    chart = plots.chart(
        ("#4f81bd", "#9bbb59", "#c0504d"), range=(0, top), dots_size=4, legend_at_bottom_columns=3,
        allow_interruptions=True, x_title="limit of the memory cgroup, MiB", y_title="tokens per second",
        title=f"{found.model}: decoding speed over the memory allowed",
        x_value_formatter=lambda x: f"{x:.0f}", value_formatter=lambda y: f"{y:.1f}",
    )  # fmt: skip
    chart.add("tokens per second", [(one.limit_mib, one.decode_tps) for one in rows])
    chart.add(
        "the ledger lets it in",
        [(one.limit_mib, one.decode_tps) for one in rows if one.ledger == "answered"],
        stroke=False,
        dots_size=8,
    )
    whole = [(found.weights_mib, 0.0), (found.weights_mib, top)]
    chart.add("size of the mapped weights", whole, show_dots=False, stroke_style={"width": 1.5, "dasharray": "4, 4"})
    return plots.svg(chart)
