"""What the LLM stage is worth, section by section: `assistant bench llm`.

    assistant bench llm [--sections variants,attention,memory-limits,bandwidth,embedding] [--compare-llama-cpp]
                        [--model NAME-or-DIR] [--shape NAME] [--plot FILE.svg] [--rounds 3] [--json]

A section is a module with `measure(options)` and `table(found)`; what it found has `reached`. Of several sections, one
that cannot be measured here (no root, no model) is told and does not keep the others from it. Tables are printed as
soon as they are measured.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assistant.bench.daemons import terminable
from assistant.bench.llm_model import BIG_SHAPE
from assistant.bench.llm_options import DEFAULT_LIMITS, Options
from assistant.bench.output import judge, say_aside
from assistant.errors import AssistantError, UsageError

SECTIONS = {
    "variants": "llm_variants",
    "attention": "llm_attention",
    "memory-limits": "llm_limits",
    "bandwidth": "llm_bandwidth",
    "embedding": "llm_embedding",
    "llama-cpp": "llm_llama_cpp",
}
LLAMA_CPP = "llama-cpp"


class LlmBench(msgspec.Struct, frozen=True, kw_only=True):
    sections: dict[str, Any]
    """By name: the struct of its module."""
    errors: dict[str, dict[str, Any]]
    """Of the sections that could not be measured."""
    reached: bool


def measure(names: Sequence[str], options: Options, told: Callable[[str, Any], None]) -> LlmBench:
    """`told(name, found)` hears of each section as soon as it is measured: an interrupt later on costs it nothing.

    Raises the error of a section that is the only one.
    """
    found, errors = dict[str, Any](), dict[str, dict[str, Any]]()
    for name in names:
        say_aside(f"--- {name}")
        try:
            found[name] = _module(name).measure(options)
            told(name, found[name])
        except AssistantError as error:
            if len(names) == 1:
                raise
            errors[name] = error.to_dict()
            say_aside(f"{name}: {error.message}")
    return LlmBench(sections=found, errors=errors, reached=not errors and all(one.reached for one in found.values()))


def _module(name: str) -> Any:
    return importlib.import_module(f"assistant.bench.{SECTIONS[name]}")


def show(name: str, found: Any) -> None:
    """The table of one section, on stdout at once."""
    sys.stdout.write(f"=== {name}\n{_module(name).table(found)}\n\n")
    sys.stdout.flush()


def closing(found: LlmBench) -> str:
    """What stands below the tables: the sections that could not be measured, and the verdict."""
    missed = [name for name, one in found.sections.items() if not one.reached]
    parts = [f"=== {name}\nnot measured: {error['message']}" for name, error in found.errors.items()]
    verdict = [f"missed: {', '.join(missed)}"] if missed else []
    verdict += [f"not measured: {', '.join(found.errors)}"] if found.errors else []
    return "\n\n".join([*parts, f"=== targets\n{'; '.join(verdict) or 'all reached'}"])


def parsed_sections(text: str | None, compare: bool) -> list[str]:
    """Names in the order given; None = all that need no compiler. Raises `UsageError`."""
    names = [name for name in SECTIONS if name != LLAMA_CPP] if text is None else [s.strip() for s in text.split(",")]
    for name in names:
        if name not in SECTIONS:
            raise UsageError(f"--sections: there is no section {name!r}; choose some of: {', '.join(SECTIONS)}")
    return list(dict.fromkeys([*names, *([LLAMA_CPP] if compare else [])]))


def parsed_limits(text: str) -> tuple[int, ...]:
    found = []
    for one in text.split(","):
        if not (one.strip().isascii() and one.strip().isdigit() and int(one)):
            raise UsageError(f"--limits takes MiB, as in 1200,900,500; {one!r} is no number of them")
        found.append(int(one))
    return tuple(found)


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 0 when the targets are reached, 1 when not, or the exit status of the error."""
    limits = ",".join(map(str, DEFAULT_LIMITS))
    parser = argparse.ArgumentParser(prog="assistant bench llm", description="What the LLM stage is worth.")
    parser.add_argument("--sections", help=f"of {', '.join(SECTIONS)} (default: all but {LLAMA_CPP})")
    parser.add_argument("--model", default="embedded", help="a name or a folder (default: the embedded model)")
    parser.add_argument("--shape", default=BIG_SHAPE, help=f"of the heavy sections (default {BIG_SHAPE}; '' = --model)")
    parser.add_argument("--rounds", type=int, default=3, help="timed runs, in turns (default 3)")
    parser.add_argument("--limits", default=limits, help=f"of memory-limits, MiB (default {limits})")
    parser.add_argument("--below", type=int, default=160, help="MiB at which the ledger must refuse (default 160)")
    parser.add_argument("--plot", type=Path, help="tok/s over the memory limit, as an SVG file")
    parser.add_argument("--compare-llama-cpp", action="store_true", help=f"also {LLAMA_CPP}, which is compiled once")
    parser.add_argument("--llama-cpp-python", type=Path, help="a Python that has llama-cpp-python already")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    args = parser.parse_args(argv)

    def measured(unless_interrupted: Callable[[], None]) -> LlmBench:
        options = Options(
            model=args.model,
            shape=args.shape,
            rounds=max(1, args.rounds),
            limits_mib=parsed_limits(args.limits),
            below_mib=max(1, args.below),
            llama_cpp_python=args.llama_cpp_python,
            plot=args.plot,
        )

        def told(name: str, one: Any) -> None:
            if not args.json:
                show(name, one)
            unless_interrupted()

        return measure(parsed_sections(args.sections, args.compare_llama_cpp), options, told)

    with terminable() as unless_interrupted:
        return judge(lambda: measured(unless_interrupted), closing, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
