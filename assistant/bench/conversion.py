"""Time and memory of a GGUF conversion: `assistant bench conversion`. Imports `model_store`; converts in a child.

The embedded model, and with `--big` a synthetic one of 1.1 GB in the shape of Qwen1.5-1.8B (Q4_0, head Q6_K), which is
written to a temporary directory first. Anonymous memory is read from outside, every two milliseconds.
"""

from __future__ import annotations

import argparse
import itertools
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from assistant.bench.embedded import embedded_gguf
from assistant.bench.output import judge, say_aside
from assistant.errors import ModelError, by_name
from assistant.model_store.chat_template import FORMATS
from assistant.model_store.llm_tokenizer import gpt2_alphabet
from assistant.model_store.synthetic_gguf import ModelSpec, write_model

EMBEDDED_S, EMBEDDED_MIB, BIG_MIB = 3.0, 100.0, 150.0
"""Targets: seconds and anonymous MiB of the embedded model, anonymous MiB of a 1.1 GB file."""
BIG = ModelSpec(
    architecture="qwen2", layers=24, hidden=2048, heads=16, kv_heads=16, ffn=5504, tied=False, bias=True,
    weights="Q4_0", head="Q6_K", context=32768,
)  # fmt: skip
BIG_VOCABULARY = 151_936


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    source_mib: float
    seconds: float
    """Of the whole child, its start included."""
    peak_anon_mib: float
    weight_mib: float
    head_slices: int
    reached: bool


class Conversions(msgspec.Struct, frozen=True, kw_only=True):
    conversions: list[Conversion]

    @property
    def reached(self) -> bool:
        return all(one.reached for one in self.conversions)


def big_tokenizer(count: int) -> dict[str, Any]:
    """A vocabulary of `count` tokens with a merge for each but the single bytes; of real size, of no use."""
    alphabet = list(gpt2_alphabet())
    longer = itertools.chain(
        itertools.product(alphabet, repeat=2), ((a + b, c) for a, b, c in itertools.product(alphabet, repeat=3))
    )
    pairs = list(itertools.islice(longer, count - len(alphabet)))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [*alphabet, *(a + b for a, b in pairs)],
        "tokenizer.ggml.token_type": [1] * count,
        "tokenizer.ggml.merges": [f"{a} {b}" for a, b in pairs],
        "tokenizer.ggml.eos_token_id": count - 1,
        "tokenizer.chat_template": FORMATS[0].template,
    }


def anonymous_kib(pid: int) -> int:
    """Anonymous memory of a process in KiB; 0 when it has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    value = status.partition("RssAnon:")[2].split(None, 1)
    return int(value[0]) if value else 0


def most_anonymous_kib(child: subprocess.Popen[Any], timeout_s: float = math.inf) -> int:
    """Until it ends, or for so long: the most that it held. Read every two milliseconds."""
    most, deadline = 0, time.monotonic() + timeout_s
    while child.poll() is None and time.monotonic() < deadline:
        most = max(most, anonymous_kib(child.pid))
        time.sleep(0.002)
    return most


def measure(name: str, gguf: Path, limit_s: float, limit_mib: float) -> Conversion:
    """Converts in a child and into a temporary directory. Raises the child's error."""
    with tempfile.TemporaryDirectory(prefix="assistant-conversion-") as temp:
        out, command = Path(temp, "out"), [sys.executable, "-m", "assistant.model_store.convert_gguf", str(gguf)]
        began = time.monotonic()
        with out.open("wb") as stdout:
            child = subprocess.Popen([*command, str(Path(temp, "model")), "--json"], stdout=stdout)
            try:
                peak = most_anonymous_kib(child)
            finally:
                child.kill()
                child.wait()
        seconds = time.monotonic() - began
        last = msgspec.json.decode(out.read_bytes().splitlines()[-1] if out.stat().st_size else b"{}")
    if "error" in last:
        raise by_name(last["error"]["type"])(last["error"]["message"])
    if "report" not in last:
        raise ModelError(f"the conversion of {gguf} ended with code {child.returncode} and without a word")
    report = last["report"]
    return Conversion(
        model=name,
        source_mib=round(gguf.stat().st_size / 2**20, 1),
        seconds=round(seconds, 2),
        peak_anon_mib=round(peak / 1024, 1),
        weight_mib=round(report["weight_bytes"] / 2**20, 1),
        head_slices=report["head_slices"],
        reached=seconds <= limit_s and peak / 1024 <= limit_mib,
    )


def measure_big() -> Conversion:
    with tempfile.TemporaryDirectory(prefix="assistant-conversion-") as temp:
        say_aside("writing a GGUF file of 1.1 GB ...")
        gguf = write_model(Path(temp, "big.gguf"), BIG, big_tokenizer(BIG_VOCABULARY))
        say_aside("converting it ...")
        return measure("synthetic 1.8B, Q4_0 + Q6_K", gguf, float("inf"), BIG_MIB)


def table(found: Conversions) -> str:
    lines = [f"{'model':<30}{'MiB':>9}{'s':>8}{'anon MiB':>10}{'weights MiB':>13}{'slices':>8}  target"]
    lines += [
        f"{c.model:<30}{c.source_mib:>9.1f}{c.seconds:>8.2f}{c.peak_anon_mib:>10.1f}{c.weight_mib:>13.1f}"
        f"{c.head_slices:>8}  {'reached' if c.reached else 'MISSED'}"
        for c in found.conversions
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 0 when the targets are reached, 1 when not, or the exit status of the error."""
    parser = argparse.ArgumentParser(prog="assistant bench conversion", description="What a GGUF conversion costs.")
    parser.add_argument("--gguf", type=Path, help="another file than the embedded model's")
    parser.add_argument("--big", action="store_true", help="also a synthetic file of 1.1 GB (needs 3 GB of disk)")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    args = parser.parse_args(argv)

    def measure_all() -> Conversions:
        gguf = embedded_gguf(args.gguf)
        conversions = [measure(gguf.stem, gguf, EMBEDDED_S, EMBEDDED_MIB)]
        if args.big:
            conversions.append(measure_big())
        return Conversions(conversions=conversions)

    return judge(measure_all, table, as_json=args.json)
