"""From the end of speech to the first audio: ours, with nothing loaded and with everything, against the naive way.

    assistant bench e2e [--wavs DIR] [--n N] [--budget MIB] [--set k=v]... [--json | --plot FILE.svg]

Both sides take turns, recording by recording, so that both meet the same noise, and each run is a process of its own.
Then the memory of a few of the same queries is looked at, which would disturb the times.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from assistant import config as settings
from assistant.bench.daemons import terminable
from assistant.bench.e2e_figures import E2e, Measured, judged
from assistant.bench.e2e_runs import Processes, Sides, Taken
from assistant.bench.e2e_speech import Utterance, default_recordings, picked, utterances
from assistant.bench.e2e_table import table
from assistant.bench.output import judge, say_aside
from assistant.bench.waterfall import write_plot
from assistant.daemon_voice import endpoint_settings
from assistant.errors import AssistantError, EngineFailed

STATES = ("cold", "warm")
MEMORY_RUNS = 3


def measure(sides: Sides, spoken: Sequence[Utterance], *, budget: bool = False) -> E2e:
    """Raises what `sides` do at the first recording, before anything is measured."""
    say_aside("once without counting")
    sides.ours(spoken[0])
    for state in STATES:
        sides.naive(spoken[0], state)
    timed = turns(sides, spoken)
    of_llm = [one for one, taken in zip(spoken, timed["ours cold"], strict=True) if taken.outcome == "answered"]
    few = of_llm or list(spoken)
    observed = turns(sides, picked(few, min(MEMORY_RUNS, len(few))), observed=True)
    return judged(timed, observed, budget=budget)


def turns(sides: Sides, spoken: Sequence[Utterance], *, observed: bool = False) -> Measured:
    """Every recording on both sides; which one begins changes. What fails is among what is found."""
    found: dict[str, list[Taken]] = {f"{who} {state}": [] for who in ("ours", "naive") for state in STATES}

    def ours(one: Utterance) -> None:
        try:
            taken = sides.ours(one, observed=observed)
        except AssistantError as error:
            taken = dict.fromkeys(STATES, _failed(one, error))
        for state in STATES:
            found[f"ours {state}"].append(taken[state])

    def naive(one: Utterance) -> None:
        for state in STATES:
            try:
                taken = sides.naive(one, state, observed=observed)
            except AssistantError as error:
                taken = _failed(one, error)
            found[f"naive {state}"].append(taken)

    for number, one in enumerate(spoken):
        say_aside(f"{'memory of ' if observed else ''}{number + 1} of {len(spoken)}: {one.file.name}")
        for side in (ours, naive) if number % 2 == 0 else (naive, ours):
            side(one)
    return found


def _failed(one: Utterance, error: AssistantError) -> Taken:
    """The other recordings shall not have been measured in vain."""
    say_aside(f"error: {error.message}")
    return Taken(file=one.file.name, outcome="failed", code=error.code)


def run(wavs: Path, n: int, budget_mib: float | None, sets: Sequence[str], plot: Path | None) -> E2e:
    """Raises `UsageError`, `ConfigError`, `BadAudio`, `EngineFailed`."""
    wanted = [*sets, *([f"memory.budget_mib={budget_mib:g}"] if budget_mib is not None else [])]
    if importlib.util.find_spec("faster_whisper") is None:
        raise EngineFailed("the plain script needs faster-whisper; install it with 'scripts/setup --dev'")
    spoken = utterances(wavs, n, endpoint_settings(settings.load(wanted)))
    if (load := os.getloadavg()[0]) > (cpus := os.cpu_count() or 1) / 2:
        say_aside(f"note: others work on this machine (load {load:.1f} on {cpus} CPUs); trust the ratios at best")
    with tempfile.TemporaryDirectory(prefix="assistant-bench-") as folder:
        sides = Processes(Path(folder), wanted)
        found = measure(sides, spoken, budget=budget_mib is not None)
    if plot is not None:
        write_plot(plot, sides.seen)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 0 when the targets are reached, 1 when not, or the exit status of the error."""
    parser = argparse.ArgumentParser(
        prog="assistant bench e2e", description="From the end of speech to the first audio, against the naive way."
    )
    parser.add_argument(
        "--wavs", type=Path, metavar="DIR",
        help="recordings (default: ../shared/speech beside the checkout, else the shipped question)",
    )  # fmt: skip
    parser.add_argument("--n", type=int, default=0, help="this many, spread over all (default: each of them once)")
    parser.add_argument("--budget", type=float, metavar="MIB", help="memory budget of ours: memory.budget_mib")
    parser.add_argument(
        "--set", action="append", default=[], dest="sets", metavar="KEY=VALUE", help="a setting of ours"
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="JSON on stdout")
    output.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw some of the queries, too")
    args = parser.parse_args(argv)
    with terminable():
        return judge(
            lambda: run(args.wavs or default_recordings(), max(0, args.n), args.budget, args.sets, args.plot),
            table,
            as_json=args.json,
        )


if __name__ == "__main__":
    sys.exit(main())
