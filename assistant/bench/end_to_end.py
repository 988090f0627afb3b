"""How long a spoken question takes from process start to the first audio, and what it holds: ours against the naive
script of `naive`, run in turns on the same machine so that both meet the same noise. Medians and their ratio.

    assistant bench ask [--runs 7] [--wav FILE] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from assistant import paths
from assistant.bench.output import judge, say_aside
from assistant.errors import EngineFailed

FIRST_AUDIO_TARGET = 0.6
"""Ours divided by naive."""
PEAK_TARGET_MIB = 400


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the runs."""

    first_audio_s: float
    total_s: float
    peak_mib: float
    """Ours: PSS of all processes together. Naive: RSS of its one process."""
    transcript: str
    reply: str


class EndToEnd(msgspec.Struct, frozen=True, kw_only=True):
    runs: int
    ours: Side
    naive: Side
    first_audio_ratio: float
    total_ratio: float
    stages: dict[str, dict[str, float]]
    """Of ours, medians: load_ms, run_ms, anon_mib, file_mib by stage."""
    timings_ms: dict[str, float]
    reached: bool


def measure(question: Path, runs: int) -> EndToEnd:
    """Runs both sides `runs` times in turns, after one unmeasured run each. Raises `EngineFailed`."""
    with tempfile.TemporaryDirectory(prefix="assistant-bench-") as folder:
        answer = str(Path(folder) / "answer.wav")
        ours = [
            sys.executable,
            "-m",
            "assistant",
            "ask",
            "--standalone",
            "--json",
            "--wav",
            str(question),
            "--out",
            answer,
        ]
        naive = [sys.executable, "-m", "assistant.bench.naive", str(question), answer]
        _run(ours), _run(naive)
        reports, baselines = [], []
        for number in range(runs):
            say_aside(f"run {number + 1} of {runs}")
            reports.append(_run(ours))
            baselines.append(_run(naive))
    return _compare(reports, baselines)


def _run(command: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
            return found
    except ValueError:
        pass
    last = (done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["no output"])[-1]
    raise EngineFailed(f"{' '.join(command[1:4])} failed ({done.returncode}): {last}")


def _compare(reports: list[dict[str, Any]], baselines: list[dict[str, Any]]) -> EndToEnd:
    first = statistics.median(one["timings_ms"]["speech_end_to_first_audio"] / 1000 for one in reports)
    ours = Side(
        first_audio_s=round(first, 3),
        total_s=round(statistics.median(one["timings_ms"]["total"] / 1000 for one in reports), 3),
        peak_mib=max(one["memory"]["peak_mib"] for one in reports),
        transcript=reports[-1]["transcript"],
        reply=reports[-1]["reply"],
    )
    naive = Side(
        first_audio_s=statistics.median(one["first_audio_s"] for one in baselines),
        total_s=statistics.median(one["total_s"] for one in baselines),
        peak_mib=max(one["peak_mib"] for one in baselines),
        transcript=baselines[-1]["transcript"],
        reply=baselines[-1]["reply"],
    )
    ratio = ours.first_audio_s / naive.first_audio_s
    return EndToEnd(
        runs=len(reports),
        ours=ours,
        naive=naive,
        first_audio_ratio=round(ratio, 3),
        total_ratio=round(ours.total_s / naive.total_s, 3),
        stages=_stage_medians(reports),
        timings_ms={
            name: round(statistics.median(one["timings_ms"][name] for one in reports), 1)
            for name in reports[0]["timings_ms"]
        },
        reached=ratio <= FIRST_AUDIO_TARGET and ours.peak_mib <= PEAK_TARGET_MIB,
    )


def _stage_medians(reports: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    names = [stage["name"] for stage in reports[0]["stages"]]
    return {
        name: {
            figure: round(
                statistics.median(stage[figure] for one in reports for stage in one["stages"] if stage["name"] == name),
                1,
            )
            for figure in ("load_ms", "run_ms", "anon_mib", "file_mib")
        }
        for name in names
    }


def table(found: EndToEnd) -> str:
    lines = [f"{'':<24}{'first audio':>12}{'all of it':>12}{'peak':>12}"]
    for name, side in (("assistant ask", found.ours), ("naive script", found.naive)):
        lines.append(f"{name:<24}{side.first_audio_s:>10.2f} s{side.total_s:>10.2f} s{side.peak_mib:>8.0f} MiB")
    lines.append(f"{'ratio':<24}{found.first_audio_ratio:>12.2f}{found.total_ratio:>12.2f}")
    lines.append(f"\n{'stage':<24}{'load':>10}{'run':>10}{'anonymous':>14}{'file':>10}")
    for name, one in found.stages.items():
        times = f"{one['load_ms']:>7.0f} ms{one['run_ms']:>7.0f} ms"
        lines.append(f"{name:<24}{times}{one['anon_mib']:>10.0f} MiB{one['file_mib']:>6.0f} MiB")
    lines.append("\nmilliseconds: " + ", ".join(f"{name} {value:.0f}" for name, value in found.timings_ms.items()))
    lines.append(
        f"medians of {found.runs} runs in turns; targets: ratio <= {FIRST_AUDIO_TARGET}, peak <= {PEAK_TARGET_MIB} MiB"
    )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 0 when the targets are reached, 1 when not, or the exit status of the error."""
    parser = argparse.ArgumentParser(
        prog="assistant bench ask", description="A spoken question, against the naive way."
    )
    parser.add_argument("--runs", type=int, default=7, help="measured runs of each side (default 7)")
    parser.add_argument("--wav", type=Path, default=paths.data_file("question.wav"), help="another spoken question")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    args = parser.parse_args(argv)
    return judge(lambda: measure(args.wav, max(1, args.runs)), table, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
