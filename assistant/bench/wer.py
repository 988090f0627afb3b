"""Word error rate of the English recogniser on human recordings. Imports the engine and `audio`.

The recordings are not part of the project; `--speech` names their folder (default: ../shared/speech beside the
checkout). Counts only clips whose reference text comes with the recording.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assistant import paths
from assistant.audio.formats import read_audio
from assistant.audio.vad import speech_spans, trim_to_speech
from assistant.messages import AsrRequest
from assistant.stages.base import Engine

GROUPS = {
    "quiet room commands": r"cmd_r3_",
    "all commands": r"cmd_",
    "sentences": r"sent_",
    "digits": r"digits_|fmt_",
    "telephone": r"tel_",
}
"""Group -> the beginning of its files' names."""

_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


SPEECH_HELP = "folder of recordings with their manifest.json (default: ../shared/speech beside the checkout)"
NO_RECORDINGS = (
    "There are no recordings in {}. They are not part of the project: name a folder of your own with --speech. Its\n"
    "manifest.json is a list with an object for each sound file: file (its name), language, reference (what is said),\n"
    'reference_kind ("published" when that is known to be right) and categories (a list, may be empty).\n'
)


class Clip(msgspec.Struct, frozen=True):
    """One row of the recordings' manifest; keys that are not needed here are ignored."""

    file: str
    language: str
    reference: str | None
    reference_kind: str
    categories: tuple[str, ...]

    @property
    def counts(self) -> bool:
        """Whether the reference is what was said, and not what some recogniser made of it."""
        return bool(self.reference) and self.reference_kind in ("repo", "published")


class Heard(msgspec.Struct, frozen=True):
    clip: Clip
    text: str
    """"" when the voice activity detector let nothing through."""
    confidence: float
    ms: float
    """Of the recogniser alone; 0 when it was not asked."""
    errors: int
    words: int


def corpus(folder: Path) -> list[Clip]:
    clips = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=list[Clip])
    return [clip for clip in clips if "malformed" not in clip.categories]


def pcm_of(folder: Path, clip: Clip) -> bytes:
    """s16le mono at 16 kHz; `.raw` files are exactly that."""
    path = folder / clip.file
    return path.read_bytes() if path.suffix == ".raw" else read_audio(path).pcm


def hear(engine: Engine[AsrRequest, Any], folder: Path, clips: Iterable[Clip]) -> list[Heard]:
    """Runs each clip through voice activity detection and a loaded engine, as a query does."""
    out = []
    for clip in clips:
        pcm = pcm_of(folder, clip)
        spans = speech_spans(pcm)
        text, confidence, ms = "", 0.0, 0.0
        if spans:
            started = time.perf_counter()
            *_, last = engine.run(AsrRequest(pcm=trim_to_speech(pcm, spans)))
            ms = (time.perf_counter() - started) * 1000
            text, confidence = last.text, last.confidence
        reference = folded_words(clip.reference or "") if clip.counts else []
        errors = edit_distance(reference, folded_words(text)) if reference else 0
        out.append(Heard(clip, text, confidence, ms, errors, len(reference)))
    return out


def group_rate(heard: Iterable[Heard], pattern: str) -> tuple[float, int, int]:
    """(word error rate, errors, words) of the English clips whose name begins with `pattern`."""
    rows = [row for row in heard if row.clip.language == "en" and row.words and re.match(pattern, row.clip.file)]
    errors, words = sum(row.errors for row in rows), sum(row.words for row in rows)
    return (errors / words if words else 0.0), errors, words


def folded_words(text: str) -> list[str]:
    """Lower case, punctuation dropped, digits read out ("10" -> "ten", "01803" digit by digit), "oh" -> "zero"."""
    plain = re.sub(r"[^\w\s]|_", " ", text.lower().replace("'", "").replace("\N{RIGHT SINGLE QUOTATION MARK}", ""))
    words = [word for part in plain.split() for word in (number_words(part) if part.isdecimal() else [part])]
    return ["zero" if word == "oh" else word for word in words]


def number_words(digits: str) -> list[str]:
    """As spoken; codes (more than four digits, or a zero in front) digit by digit."""
    if len(digits) > 4 or (len(digits) > 1 and digits[0] == "0"):
        return [_ONES[int(digit)] for digit in digits]
    return _below_10000(int(digits))


def _below_10000(number: int) -> list[str]:
    if number < 20:
        return [_ONES[number]]
    if number < 100:
        return [_TENS[number // 10]] + ([_ONES[number % 10]] if number % 10 else [])
    unit, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    return [*_below_10000(number // unit), name] + (_below_10000(number % unit) if number % unit else [])


def edit_distance(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Substitutions, deletions and insertions that make one of the other (Levenshtein 1966)."""
    row = list(range(len(heard) + 1))
    for at, wanted in enumerate(reference, start=1):
        above, row = row, [at]
        for column, word in enumerate(heard, start=1):
            row.append(min(above[column] + 1, row[-1] + 1, above[column - 1] + (wanted != word)))
    return row[-1]


def report(heard: Sequence[Heard]) -> dict[str, Any]:
    asked = [row.ms for row in heard if row.ms]
    groups = {name: group_rate(heard, pattern) for name, pattern in GROUPS.items()}
    return {
        "groups": {name: {"wer": round(rate, 4), "errors": e, "words": w} for name, (rate, e, w) in groups.items()},
        "median_ms": round(statistics.median(asked), 1) if asked else 0.0,
        "clips": len(heard),
        "invented": [row.clip.file for row in heard if row.text and row.clip.reference_kind == "non_speech"],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the word error rate of each group and the median time of one clip. Exit code 0, 2 without recordings."""
    parser = argparse.ArgumentParser(prog="assistant bench wer", description=main.__doc__)
    parser.add_argument("--speech", type=Path, metavar="FOLDER", help=SPEECH_HELP,
                        default=(paths.checkout() or Path()).parent / "shared/speech")  # fmt: skip
    parser.add_argument("--threads", type=int, default=2, help="of the recogniser (default: 2)")
    parser.add_argument(
        "--full-window", action="store_true", help="in turns with a window of 30 s, which the model was trained on"
    )
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(argv)
    if not (options.speech / "manifest.json").is_file():
        sys.stderr.write(NO_RECORDINGS.format(options.speech))
        return 2
    windows = [{}, {"window_s": 30.0}] if options.full_window else [{}]
    engines = [_engine(options.threads, **window) for window in windows]
    english = [clip for clip in corpus(options.speech) if clip.language in ("en", "none")]
    heard: list[list[Heard]] = [[] for _ in engines]
    for clip in english:
        for rows, engine in zip(heard, engines, strict=True):
            rows += hear(engine, options.speech, [clip])
    for engine in engines:
        engine.close()
    result = report(heard[0])
    if options.full_window:
        result["full_window"] = report(heard[1])
        result["time_to_full_window"] = round(result["median_ms"] / result["full_window"]["median_ms"], 3)
    sys.stdout.write(json.dumps(result, indent=2) + "\n" if options.json else _table(result))
    return 0


def _engine(threads: int, **options: float) -> Engine[AsrRequest, Any]:
    from assistant.stages.asr_whisper import WhisperAsr
    from assistant.stages.base import EngineConfig

    cache = paths.cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    name = "whisper-tiny.en"
    config = EngineConfig(
        model=name, model_dir=paths.models_dir() / name, cache_dir=cache, threads=threads, options=options
    )
    engine = WhisperAsr(config)
    engine.load()
    return engine


def _table(result: dict[str, Any]) -> str:
    lines = [f"{'group':22} {'errors/words':>12}  WER"]
    for name, row in result["groups"].items():
        count = f"{row['errors']}/{row['words']}"
        lines.append(f"{name:22} {count:>12}  {row['wer']:.1%}")
    lines.append(f"median time of one clip: {result['median_ms']:.0f} ms")
    if full := result.get("full_window"):
        rates = ", ".join(f"{name} {row['wer']:.1%}" for name, row in full["groups"].items())
        lines.append(
            f"a window of 30 s: {full['median_ms']:.0f} ms ({result['time_to_full_window']:.2f} of it); {rates}"
        )
    lines.append(f"text invented where nobody speaks: {', '.join(result['invented']) or 'none'}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
