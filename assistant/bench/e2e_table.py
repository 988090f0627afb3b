"""The figures of `bench e2e` as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.bench.e2e_figures import E2e, Side
from assistant.bench.output import said

PUBLISHED = (
    "published, of a comparable assistant on a board of 2 GB: ASR 280 ms, intent 120 ms, first token 420 ms, 3.2 tok/s,"
    " TTS 650 ms, 2.1 s end to end; at most 800 ms on a Raspberry Pi 4 with a peak of 1.8 GB"
)
_STAGES = {
    "asr_load": "ASR load",
    "asr": "ASR, after the silence",
    "intent_load": "intent load",
    "intent": "intent",
    "llm_load": "LLM load",
    "llm_first_token": "LLM first token",
    "llm": "LLM whole reply",
    "tts_load": "TTS load",
    "tts_first_audio": "TTS first audio",
}


def table(found: E2e) -> str:
    sides = {
        "ours, cold": found.cold,
        "ours, warm": found.warm,
        "naive, cold": found.naive.cold,
        "naive, warm": found.naive.warm,
    }
    lines = [
        f"{'answers of the LLM':<22}{'queries':>8}{'p50':>10}{'p95':>10}{'silence':>10}{'with it':>10}{'peak':>10}"
    ]
    lines += [_row(name, one) for name, one in sides.items()]
    local = {"ours, cold": found.local.cold, "ours, warm": found.local.warm, "naive, cold": found.local.naive_cold}
    if found.local.cold.queries:
        lines += ["local commands", *(_row(name, one) for name, one in local.items())]
    lines.append(
        "milliseconds from the end of speech to the first audio, the endpointing silence not counted; PSS in MiB"
    )
    lines += ["", *_stages(sides), "", PUBLISHED, "", *_verdicts(found)]
    return "\n".join(lines)


def _row(name: str, one: Side) -> str:
    if not one.queries:
        return f"{name:<22}{0:>8}"
    peak = "" if one.peak_mib is None else f"{one.peak_mib:.0f}"
    silence = f"{one.silence_ms:.0f}" if one.silence_ms else ""
    first = one.first_audio_ms
    return (
        f"{name:<22}{one.queries:>8}{first.p50:>10.0f}{first.p95:>10.0f}{silence:>10}{one.with_silence_ms.p50:>10.0f}"
        f"{peak:>10}"
    )


def _stages(sides: dict[str, Side]) -> Iterator[str]:
    yield f"{'stage: p50 / p95 ms':<24}" + "".join(f"{name:>16}" for name in sides)
    for stage, title in _STAGES.items():
        if any(stage in one.stages for one in sides.values()):
            cells = (one.stages.get(stage) for one in sides.values())
            told = ("" if cell is None else f"{cell.p50:.0f} / {cell.p95:.0f}" for cell in cells)
            yield f"{title:<24}" + "".join(f"{cell:>16}" for cell in told)
    rates = (f"{one.tokens_per_s:.0f}" if one.tokens_per_s else "" for one in sides.values())
    yield f"{'LLM tokens a second':<24}" + "".join(f"{rate:>16}" for rate in rates)


def _verdicts(found: E2e) -> Iterator[str]:
    yield f"{'ratio':<24}{'found':>8}{'target':>8}"
    for name, ratio in found.ratio.items():
        limit = found.limits.get(name)
        target = "" if limit is None else f"{limit:.2f}"
        verdict = "" if limit is None else said(found.targets[name])
        yield f"{name:<24}{'' if ratio is None else f'{ratio:.2f}':>8}{target:>8}  {verdict}".rstrip()
    guesses = found.speculation
    told = (
        f"{guesses.hits} of {guesses.attempts} were right, {guesses.answers} with an answer begun"
        if guesses.attempts
        else "there were none"
    )
    yield f"\n{found.queries} queries each, in turns; {found.mode}; guesses at a pause: {told}"
    if found.throttled:
        yield f"the machine was slowed down, so these figures are too high: {'; '.join(found.pressed)}"
    if found.failed:
        failed = (f"{one.file} ({one.side}: {one.code})" for one in found.failed)
        yield f"in no figure, because it failed: {', '.join(failed)}"
