"""The LLM stage beside llama.cpp: the same GGUF, the same threads, in turns. Section `llama-cpp`.

Each run is a fresh process on either side: ours a worker of the stage, asked from outside; the other one a script under
a Python that has llama-cpp-python. Memory comes from one watched run of each, times from runs that nobody watches.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from assistant.bench.embedded import embedded_gguf
from assistant.bench.llama_cpp_python import python_of
from assistant.bench.llm_model import choose
from assistant.bench.llm_options import W4, Options
from assistant.bench.llm_runs import Answered, PeakLog, asking, fitted, mib, once, text_of
from assistant.bench.output import said, say_aside
from assistant.errors import EngineFailed, ModelError
from assistant.stages.fork_client import ForkServer

PROMPTS = (33, 128, 512)
DECODE, DECODE_W4, FIRST, LOAD, ANON = 1.0, 1.15, 0.55, 0.2, 0.5
"""Targets, ours over theirs: at least for decode (the source's own bits, a 4-bit head), at most for the others."""
_CHILD = Path(__file__).with_name("llama_cpp_child.py")
_NEW = 32
_CONTEXT = 1024
"""The product's default."""
_CHARACTERS_PER_TOKEN = 12
_TIMEOUT_S = 300


class Pair(msgspec.Struct, frozen=True):
    ours: float
    theirs: float
    ratio: float
    """Median of the ratios of each round."""


class At(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    first_token_ms: Pair
    decode_tps: Pair
    load_ms: Pair
    anon_mib: Pair


class Against(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    decode_target: float
    at: tuple[At, ...]
    decode_ratio: float
    """Medians over the prompts."""
    load_ratio: float
    anon_ratio: float
    """The worst one."""
    missed: tuple[str, ...]


class LlamaCpp(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    gguf: str
    threads: int
    rounds: int
    models: tuple[Against, ...]
    missing: dict[str, str]
    reached: bool


def measure(options: Options) -> LlamaCpp:
    """Makes the other side's environment first unless one is given, which compiles for minutes."""
    gguf, python = embedded_gguf(), python_of(options.llama_cpp_python)
    chosen = choose(model="embedded")
    models, missing = {chosen.name: DECODE}, dict[str, str]()
    try:
        models[choose(model=chosen.name + W4).name] = DECODE_W4
    except ModelError:
        missing[chosen.name + W4] = f"get it with: assistant models fetch {chosen.name}{W4}"
    found, threads = [], 0
    for name, target in models.items():
        threads = choose(model=name).spec(context_tokens=_CONTEXT, prefill_chunk=128).threads
        found.append(asyncio.run(_against(name, target, _Other(python.path, gguf, threads), options.rounds)))
    return LlamaCpp(
        version=python.version,
        gguf=gguf.name,
        threads=threads,
        rounds=options.rounds,
        models=tuple(found),
        missing=missing,
        reached=not missing and not any(one.missed for one in found),
    )


class _Other:
    """llama.cpp: a process per prompt."""

    def __init__(self, python: Path, gguf: Path, threads: int) -> None:
        self._command = [str(python), "-P", str(_CHILD), str(gguf), str(_CONTEXT), str(threads)]

    def once(self, tokens: int, *, watched: bool = False) -> tuple[Answered, float]:
        """And its anonymous memory in bytes at its peak, if it is watched."""
        command = [*self._command, str(tokens), str(_NEW), text_of(tokens * _CHARACTERS_PER_TOKEN)]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            try:
                if watched:
                    with PeakLog((process.pid,)) as log:
                        process.wait(_TIMEOUT_S)
                    anon = log.peak.anon
                else:
                    process.wait(_TIMEOUT_S)
                    anon = 0
            finally:
                process.kill()
                process.wait()
            out.seek(0)
            err.seek(0)
            if process.returncode:
                last = err.read().decode("utf-8", "replace").strip().splitlines()[-1:]
                raise EngineFailed(f"llama.cpp ended with code {process.returncode}: {' '.join(last)}")
            return msgspec.json.decode(out.read().splitlines()[-1], type=Answered), anon


async def _against(name: str, decode_target: float, other: _Other, rounds: int) -> Against:
    spec = choose(model=name).spec(context_tokens=_CONTEXT, prefill_chunk=128)
    server = ForkServer()
    server.start()
    at = []
    try:
        for tokens in PROMPTS:
            prompt = await fitted(spec, server, tokens)
            request = asking(prompt, _NEW)
            say_aside(f"{name} against llama.cpp: {tokens} tokens, memory")
            anon = (await once(spec, server, request, watched=True)).peak.anon, other.once(tokens, watched=True)[1]
            ours, theirs = [], []
            for number in range(rounds):
                say_aside(f"{name} against llama.cpp: {tokens} tokens, round {number + 1} of {rounds}")
                ours.append(await once(spec, server, request))
                theirs.append(other.once(tokens)[0])
            at.append(_at(tokens, ours, theirs, anon))
    finally:
        await server.close()
    return judged(name, decode_target, tuple(at))


def _at(tokens: int, ours: Sequence[Answered], theirs: Sequence[Answered], anon: tuple[float, float]) -> At:
    def pair(figure: Callable[[Answered], float]) -> Pair:
        left, right = [figure(one) for one in ours], [figure(one) for one in theirs]
        ratio = statistics.median(one / other for one, other in zip(left, right, strict=True))
        return Pair(round(statistics.median(left), 1), round(statistics.median(right), 1), round(ratio, 3))

    return At(
        prompt_tokens=tokens,
        first_token_ms=pair(lambda one: one.first_token_ms),
        decode_tps=pair(lambda one: one.decode_tps),
        load_ms=pair(lambda one: one.load_ms),
        anon_mib=Pair(mib(anon[0]), mib(anon[1]), round(anon[0] / anon[1], 3) if anon[1] else 0.0),
    )


def judged(name: str, decode_target: float, at: tuple[At, ...]) -> Against:
    decode = statistics.median(one.decode_tps.ratio for one in at)
    load = statistics.median(one.load_ms.ratio for one in at)
    anon = max(one.anon_mib.ratio for one in at)
    missed = [f"first token at {one.prompt_tokens}" for one in at if one.first_token_ms.ratio > FIRST]
    missed += [
        what
        for what, bad in (("decode", decode < decode_target), ("load", load > LOAD), ("anonymous memory", anon > ANON))
        if bad
    ]
    return Against(
        model=name,
        decode_target=decode_target,
        at=at,
        decode_ratio=decode,
        load_ratio=load,
        anon_ratio=anon,
        missed=tuple(missed),
    )


def table(found: LlamaCpp) -> str:
    lines = [
        f"llama-cpp-python {found.version}, {found.gguf}, {found.threads} threads: ours / theirs (ratio), medians of"
        f" {found.rounds} rounds",
        f"{'prompt':>6}{'first token ms':>24}{'decode tok/s':>24}{'load ms':>24}{'anonymous MiB':>24}",
    ]
    for model in found.models:
        lines.append(f"{model.model}:")
        lines += [
            f"{one.prompt_tokens:>6}"
            + "".join(f"{_cell(pair):>24}" for pair in (one.first_token_ms, one.decode_tps, one.load_ms, one.anon_mib))
            for one in model.at
        ]
        lines.append(
            f"       first token <= {FIRST:g}, decode {model.decode_ratio:.2f} >= {model.decode_target:g}, load"
            f" {model.load_ratio:.2f} <= {LOAD:g}, anonymous {model.anon_ratio:.2f} <= {ANON:g}:"
            f" {said(not model.missed)} {', '.join(model.missed)}".rstrip()
        )
    lines += [f"{name} not measured: {how}" for name, how in found.missing.items()]
    return "\n".join(lines)


def _cell(pair: Pair) -> str:
    return f"{pair.ours:.0f} / {pair.theirs:.0f} ({pair.ratio:.2f})"
