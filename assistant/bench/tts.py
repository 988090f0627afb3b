"""Speech synthesis on MNN against the published piper-tts and our engine on onnxruntime: `assistant bench tts`.

Each run is a process of its own, the engines take turns so that all meet the same noise, and anonymous memory is read
from outside. Medians and ratios to piper-tts. Imports `bench.conversion` for the reading of memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import msgspec

from assistant.bench.conversion import most_anonymous_kib
from assistant.bench.output import judge, said, say_aside
from assistant.errors import EngineFailed

ENGINES = ("piper-tts", "piper", "piper-mnn")
SENTENCE = "The capital of France is Paris, a city in the north of the country on the river Seine."
"""Of four seconds and a half."""
SHORT = "The capital of France is Paris."
"""Of two."""
LONG = " ".join(["and the wind went over the hills of the old town"] * 9) + "."
"""One sentence of more than twenty seconds."""
TARGETS = {"load": 0.25, "first_audio": 0.5, "whole": 1.0, "peak": 0.8}
"""piper-mnn divided by piper-tts, on the sentence of four seconds."""
FLAT = 1.1
"""Peak of anonymous memory for the long sentence, divided by that for the short one."""
_TIMEOUT_S = 120


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """Medians of one engine on one sentence."""

    engine: str
    speech_s: float
    import_s: float
    load_s: float
    first_audio_s: float
    """From the text, loaded, to the first samples."""
    whole_s: float
    """From the text, loaded, to the last samples."""
    peak_mib: float
    """Anonymous memory of the whole process, the most there was."""


class Tts(msgspec.Struct, frozen=True, kw_only=True):
    runs: int
    sentence: list[Spoken]
    """By engine, on the sentence of four seconds."""
    short_peak_mib: dict[str, float]
    long_peak_mib: dict[str, float]
    ratios: dict[str, dict[str, float]]
    """To piper-tts, by engine: load, first_audio, whole, peak."""
    growth: dict[str, float]
    """Peak of the long sentence divided by that of the short one, by engine."""
    targets: dict[str, bool]
    """Of piper-mnn."""
    reached: bool


def speak(engine: str, text: str, cache: str) -> Spoken:
    """One run. Raises `EngineFailed`."""
    command = [sys.executable, "-m", "assistant.bench.tts_child", engine, text, cache]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
        try:
            peak = most_anonymous_kib(child, _TIMEOUT_S)
        finally:
            child.kill()
            child.wait()
        out.seek(0)
        errors.seek(0)
        last, told = out.read().strip().rpartition("\n")[2], errors.read().strip().rpartition("\n")[2]
    if child.returncode != 0 or not last.startswith("{"):
        raise EngineFailed(f"{engine} did not speak ({child.returncode}): {told or last or 'no output'}")
    return Spoken(engine=engine, peak_mib=peak / 1024, **json.loads(last))


def medians(spoken: Sequence[Spoken]) -> Spoken:
    figures = {
        name: round(statistics.median(getattr(one, name) for one in spoken), 3)
        for name in Spoken.__struct_fields__
        if name != "engine"
    }
    return Spoken(engine=spoken[0].engine, **figures)


def measure(runs: int) -> Tts:
    """After one run of each that makes what is made once. Raises `EngineFailed`."""
    found: dict[tuple[str, str], list[Spoken]] = {}
    with tempfile.TemporaryDirectory(prefix="assistant-tts-") as cache:
        for engine in ENGINES:
            speak(engine, SHORT, cache)
        for number in range(runs):
            say_aside(f"run {number + 1} of {runs}")
            for engine in ENGINES:
                found.setdefault((engine, SENTENCE), []).append(speak(engine, SENTENCE, cache))
        for text in (SHORT, LONG):
            for engine in ENGINES:
                found[engine, text] = [speak(engine, text, cache)]
    return judged({key: medians(each) for key, each in found.items()}, runs)


def judged(found: dict[tuple[str, str], Spoken], runs: int) -> Tts:
    base = found["piper-tts", SENTENCE]
    ratios = {
        engine: {
            "load": found[engine, SENTENCE].load_s / base.load_s,
            "first_audio": found[engine, SENTENCE].first_audio_s / base.first_audio_s,
            "whole": found[engine, SENTENCE].whole_s / base.whole_s,
            "peak": found[engine, SENTENCE].peak_mib / base.peak_mib,
        }
        for engine in ENGINES
    }
    growth = {engine: found[engine, LONG].peak_mib / found[engine, SHORT].peak_mib for engine in ENGINES}
    targets = {name: ratios["piper-mnn"][name] <= limit for name, limit in TARGETS.items()}
    targets["flat"] = growth["piper-mnn"] <= FLAT
    return Tts(
        runs=runs,
        sentence=[found[engine, SENTENCE] for engine in ENGINES],
        short_peak_mib={engine: round(found[engine, SHORT].peak_mib, 1) for engine in ENGINES},
        long_peak_mib={engine: round(found[engine, LONG].peak_mib, 1) for engine in ENGINES},
        ratios={engine: {name: round(value, 3) for name, value in each.items()} for engine, each in ratios.items()},
        growth={engine: round(value, 3) for engine, value in growth.items()},
        targets=targets,
        reached=all(targets.values()),
    )


def table(found: Tts) -> str:
    lines = [f"{'':<12}{'speech':>9}{'import':>10}{'load':>10}{'first audio':>13}{'whole':>10}{'anonymous':>12}"]
    lines += [
        f"{one.engine:<12}{one.speech_s:>7.1f} s{one.import_s:>8.2f} s{one.load_s:>8.2f} s{one.first_audio_s:>11.2f} s"
        f"{one.whole_s:>8.2f} s{one.peak_mib:>8.0f} MiB"
        for one in found.sentence
    ]
    lines.append(f"\n{'to piper-tts':<31}{'load':>10}{'first audio':>13}{'whole':>10}{'anonymous':>12}")
    for engine, each in found.ratios.items():
        lines.append(
            f"{engine:<31}{each['load']:>10.2f}{each['first_audio']:>13.2f}{each['whole']:>10.2f}{each['peak']:>12.2f}"
        )
    lines.append(f"\nanonymous MiB for 2 s and for 20 s of speech: {_peaks(found)}")
    limits = {**TARGETS, "flat": FLAT}
    verdicts = (f"{name} <= {limits[name]}: {said(reached)}" for name, reached in found.targets.items())
    lines.append(f"medians of {found.runs} runs in turns; targets of piper-mnn: {', '.join(verdicts)}")
    return "\n".join(lines)


def _peaks(found: Tts) -> str:
    return ", ".join(
        f"{engine} {found.short_peak_mib[engine]:.0f} and {found.long_peak_mib[engine]:.0f}" for engine in ENGINES
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 0 when the targets are reached, 1 when not, or the exit status of the error."""
    parser = argparse.ArgumentParser(prog="assistant bench tts", description="Speech synthesis against piper-tts.")
    parser.add_argument("--runs", type=int, default=5, help="measured runs of each engine (default 5)")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    args = parser.parse_args(argv)
    return judge(lambda: measure(max(1, args.runs)), table, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
