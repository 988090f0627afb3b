"""What each size of prompt chunks costs: memory, first token, decode. `assistant bench chunks`.

    assistant bench chunks [--shape NAME | --model NAME-or-DIR] [--prompt-tokens 512] [--chunks none,128,64,32,16]
                           [--kv-cache auto|memory|disk] [--rounds 2] [--json]

Each figure comes from a fresh worker of the LLM stage, with the product's own request. Memory is that of one watched
run per chunk; times are medians of runs that nobody watches, in rounds that take the chunks in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Sequence

import msgspec

from assistant.bench.llm_model import BIG_SHAPE, Chosen, choose, whole_pieces
from assistant.bench.llm_runs import Answered, asking, fitted, mib, once
from assistant.bench.output import judge, said, say_aside
from assistant.errors import UsageError
from assistant.memory_orchestrator.estimate import slot_tokens
from assistant.stages.fork_client import ForkServer
from assistant.stages.spec import StageSpec

ANON_MIB, DECODE_TIMES, PREFILL_SLOWER = 150.0, 4.0, 1.10
"""Targets: anonymous memory with keys and values, decode against the best published figure, and the time to the first
token against that without chunks; a tenth is what two runs of the same differ by on a machine that others use."""
DECODED = 32
_WATCHED_DECODED = 8


class Published(msgspec.Struct, frozen=True):
    """Of a comparable assistant with a model of this shape on a board of 2 GB."""

    peak_mb: float
    latency_ms: float | None
    """None: it ran out of memory."""
    tps: float | None


PUBLISHED = {
    None: Published(2100, None, None),
    128: Published(580, 320, 3.1),
    64: Published(420, 350, 2.8),
    32: Published(310, 410, 2.4),
    16: Published(250, 520, 1.9),
}
PUBLISHED_TOKENS = 512
"""Length of the prompt that they are compared at; other lengths, and other models, are compared with nothing."""
BEST_TPS = max(one.tps or 0.0 for one in PUBLISHED.values())


class Row(msgspec.Struct, frozen=True, kw_only=True):
    chunk: int | None
    """Prompt tokens at once; None = all of them."""
    peak_anon_mib: float
    """Of PSS, keys and values in shared memory included."""
    peak_file_mib: float
    """Of PSS: pages that the kernel can drop or write out, keys and values on a disk included."""
    kv_mib: float
    """By the formula, for the tokens that were in the cache."""
    first_token_ms: float
    decode_tps: float
    kv_measured_mib: float
    """PSS of the files of keys and values; 0 when MNN keeps them on its heap."""
    kv_home: str
    prompt_tokens: int
    new_tokens: int
    load_ms: float
    against_no_chunks: float | None
    """Time to the first token against that without chunks: median of the ratios of each round."""
    published: Published | None


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    anon_mib: float = ANON_MIB
    decode_tps: float = DECODE_TIMES * BEST_TPS
    prefill_against_no_chunks: float = PREFILL_SLOWER
    anon_reached: bool | None
    decode_reached: bool | None
    """Both None: not comparable, another model or prompt than the published figures are of."""
    prefill_reached: bool | None
    """None: there was no row without chunks, or no other."""


class Chunks(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    threads: int
    rounds: int
    rows: tuple[Row, ...]
    targets: Targets
    reached: bool


def comparable(model: str, tokens: int) -> bool:
    """Whether the published figures are of this model's shape and a prompt of so many tokens."""
    return BIG_SHAPE in model and tokens == PUBLISHED_TOKENS


def judged(model: str, threads: int, rounds: int, rows: tuple[Row, ...]) -> Chunks:
    ratios = [row.against_no_chunks for row in rows if row.chunk is not None and row.against_no_chunks is not None]
    judging = all(comparable(model, row.prompt_tokens) for row in rows)
    targets = Targets(
        anon_reached=all(row.peak_anon_mib <= ANON_MIB for row in rows) if judging else None,
        decode_reached=all(row.decode_tps >= DECODE_TIMES * BEST_TPS for row in rows) if judging else None,
        prefill_reached=all(ratio <= PREFILL_SLOWER for ratio in ratios) if ratios else None,
    )
    reached = False not in (targets.anon_reached, targets.decode_reached, targets.prefill_reached)
    return Chunks(model=model, threads=threads, rounds=rounds, rows=rows, targets=targets, reached=reached)


async def measure(chosen: Chosen, tokens: int, chunks: Sequence[int | None], kv_cache: str, rounds: int) -> Chunks:
    """Raises `ModelError`, `StageError`, and `UsageError` for a prompt that is too short for the chat format."""
    specs = {
        chunk: chosen.spec(
            context_tokens=tokens + DECODED, prefill_chunk=chunk or whole_pieces(tokens), kv_cache=kv_cache
        )
        for chunk in chunks
    }
    server = ForkServer()
    server.start()
    try:
        say_aside(f"{chosen.name}: a prompt of {tokens} tokens (weights are laid out first unless they are)")
        finely = chosen.spec(context_tokens=tokens + DECODED, prefill_chunk=16, kv_cache=kv_cache)  # hears a cancel
        prompt = await fitted(finely, server, tokens, "Tell me a long story that begins like this. ")
        watched: dict[int | None, Answered] = {}
        timed: dict[int | None, list[Answered]] = {chunk: [] for chunk in chunks}
        for chunk in chunks:
            say_aside(f"chunk {named(chunk)}: memory")
            watched[chunk] = await once(specs[chunk], server, asking(prompt, _WATCHED_DECODED), watched=True)
        for number in range(rounds):
            for chunk in chunks if number % 2 == 0 else list(reversed(chunks)):
                say_aside(f"chunk {named(chunk)}: time, round {number + 1} of {rounds}")
                timed[chunk].append(await once(specs[chunk], server, asking(prompt, DECODED)))
    finally:
        await server.close()
    published = PUBLISHED if comparable(chosen.name, tokens) else {}
    rows = tuple(
        _row(chunk, specs[chunk], watched[chunk], timed[chunk], timed.get(None), published.get(chunk))
        for chunk in chunks
    )
    return judged(chosen.name, specs[chunks[0]].threads, rounds, rows)


def _row(
    chunk: int | None,
    spec: StageSpec,
    watched: Answered,
    timed: list[Answered],
    whole: list[Answered] | None,
    published: Published | None,
) -> Row:
    against = [one.first_token_ms / other.first_token_ms for one, other in zip(timed, whole or [], strict=False)]
    return Row(
        chunk=chunk,
        peak_anon_mib=mib(watched.peak.anon),
        peak_file_mib=mib(watched.peak.file),
        kv_mib=mib(slot_tokens(watched.prompt_tokens + watched.new_tokens) * spec.kv_token_bytes),
        first_token_ms=round(statistics.median(one.first_token_ms for one in timed), 1),
        decode_tps=round(statistics.median(one.decode_tps for one in timed), 2),
        kv_measured_mib=mib(watched.kv_mapped),
        kv_home=spec.kv_home,
        prompt_tokens=watched.prompt_tokens,
        new_tokens=min(one.new_tokens for one in timed),
        load_ms=round(statistics.median(one.load_ms for one in timed), 1),
        against_no_chunks=round(statistics.median(against), 3) if against else None,
        published=published,
    )


def named(chunk: int | None) -> str:
    return "none" if chunk is None else str(chunk)


def table(found: Chunks) -> str:
    """With the published figures beside ours where the two are comparable."""
    with_published = found.targets.anon_reached is not None
    titles = [
        f"{'':6}{'---- measured ' + '-' * 52:<68}{'---- published ' + '-' * 13:<28}{'-- ratios --':>14}",
        f"{'chunk':>6}{'anon MiB':>10}{'file MiB':>10}{'KV MiB':>9}{'first ms':>10}{'to none':>9}{'tok/s':>8}"
        f"{'load ms':>9}",
    ]
    if with_published:
        titles[1] += f"{'':3}{'peak MB':>9}{'ms':>8}{'tok/s':>8}{'':3}{'memory':>8}{'tok/s':>7}"
    lines = [
        f"{found.model}, {found.rows[0].prompt_tokens} prompt tokens, {found.threads} threads, keys and values:"
        f" {found.rows[0].kv_home}",
        *(titles if with_published else titles[1:]),
    ]
    for row in found.rows:
        against = "" if row.against_no_chunks is None else f"{row.against_no_chunks:.2f}"
        lines.append(
            f"{named(row.chunk):>6}{row.peak_anon_mib:>10.1f}{row.peak_file_mib:>10.1f}{row.kv_mib:>9.1f}"
            f"{row.first_token_ms:>10.0f}{against:>9}{row.decode_tps:>8.1f}{row.load_ms:>9.0f}"
            f"{_published(row) if with_published else ''}"
        )
    return "\n".join([*lines, *_verdict(found.targets)])


def _published(row: Row) -> str:
    other = row.published or Published(0, None, None)
    return (
        f"{'':3}{other.peak_mb or '-':>9}{other.latency_ms or '-':>8}{other.tps or '-':>8}"
        f"{'':3}{_ratio(row.peak_anon_mib * 1.048576, other.peak_mb):>8}{_ratio(row.decode_tps, other.tps):>7}"
    )


def _verdict(targets: Targets) -> list[str]:
    lines = ["anon: with keys and values where they lie in memory; file: mapped weights, which the kernel can drop"]
    if targets.anon_reached is not None:
        lines += [
            "published: another assistant on a slower board; only 'none' is its whole process, out of memory",
            f"anonymous <= {targets.anon_mib:g} MiB in every row: {said(targets.anon_reached)}",
            f"decode >= {targets.decode_tps:g} tok/s ({DECODE_TIMES:g} x the best published):"
            f" {said(targets.decode_reached)}",
        ]
    prefill = f"first token with chunks <= {targets.prefill_against_no_chunks:g} x without"
    return [*lines, f"{prefill}: {said(targets.prefill_reached)}"]


def _ratio(ours: float, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if theirs else "-"


def parsed_chunks(text: str) -> list[int | None]:
    """`none,128,64`; each at most once. Raises `UsageError`."""
    found: list[int | None] = []
    for one in text.split(","):
        number = None if one.strip() == "none" else int(one) if one.strip().isascii() and one.strip().isdigit() else 0
        if number is not None and (number < 8 or number % 8):
            raise UsageError(f"--chunks takes 'none' and multiples of 8, as in none,128,64; {one!r} is neither")
        if number not in found:
            found.append(number)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 0 when the targets are reached, 1 when not, or the exit status of the error."""
    parser = argparse.ArgumentParser(prog="assistant bench chunks", description="What each size of chunks costs.")
    parser.add_argument("--shape", default="", help=f"a synthetic model of this shape (default {BIG_SHAPE})")
    parser.add_argument("--model", default="", help="a model by name or folder instead; 'embedded' is the default one")
    parser.add_argument(
        "--prompt-tokens", type=int, default=PUBLISHED_TOKENS, help="length of the prompt (default 512)"
    )
    parser.add_argument(
        "--chunks", default="none,128,64,32,16", help="prompt tokens at once (default none,128,64,32,16)"
    )
    parser.add_argument("--kv-cache", default="auto", help="auto, memory or disk (default auto)")
    parser.add_argument("--rounds", type=int, default=2, help="timed runs of each chunk (default 2)")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    args = parser.parse_args(argv)

    def measured() -> Chunks:
        chunks = parsed_chunks(args.chunks)
        if not 1 <= args.prompt_tokens <= 100_000:
            raise UsageError("--prompt-tokens must be between 1 and 100000")
        shape = args.shape or ("" if args.model else BIG_SHAPE)
        chosen = choose(model=args.model, shape=shape)
        return asyncio.run(measure(chosen, args.prompt_tokens, chunks, args.kv_cache, max(1, args.rounds)))

    return judge(measured, table, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
