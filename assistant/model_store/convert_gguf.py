"""GGUF -> a model directory for MNN's LLM runtime. `python -m assistant.model_store.convert_gguf`.

The command around `llm_conversion`. Imports that and `gguf`; never touches a network.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from assistant.model_store import json_command
from assistant.model_store.choices import Bits, Block, checked
from assistant.model_store.gguf import GgufFile
from assistant.model_store.llm_conversion import ConversionReport, Progress, convert
from assistant.model_store.manifest import sha256_of
from assistant.model_store.workspace import bytes_free

__all__ = ["ConversionReport", "convert_gguf", "main", "throttled"]


def convert_gguf(
    gguf: Path,
    out_dir: Path,
    progress: Progress | None = None,
    *,
    bits: Bits | None = None,
    block: Block | None = None,
    emergency_skip: Sequence[int] | None = None,
    head_slices: int | None = None,
    source_sha256: str | None = None,
    free_bytes: Callable[[Path], int] = bytes_free,
) -> ConversionReport:
    """Converts one file; see `llm_conversion.convert` for what it writes and raises, and `choices` for the choices.

    `source_sha256` saves hashing a file whose digest is known. Raises `ModelMissing` and `UsageError` besides.
    """
    choices = checked(bits, block, emergency_skip)
    with GgufFile(gguf) as source:
        return convert(
            source,
            out_dir,
            progress,
            sha256=source_sha256 or sha256_of(gguf),
            choices=choices,
            head_slices=head_slices,
            free_bytes=free_bytes,
        )


def throttled(progress: Progress, every_s: float = 0.05) -> Progress:
    """Passes on at most one call per `every_s`, and the last one."""
    last = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= every_s:
            last = time.monotonic()
            progress(done, total)

    return tell


def _add_choices(parser: argparse.ArgumentParser) -> None:
    """The options that `Choices.arguments` writes."""
    parser.add_argument("--bits", type=int, choices=(4, 8), help="every matrix in so many bits (default: the file's)")
    parser.add_argument("--block", type=int, choices=(32, 64, 128), help="4 bits in blocks of so many weights")
    parser.add_argument(
        "--emergency-skip", type=_layers, metavar="N,N,...", help="layers that the emergency graph leaves out"
    )


def _layers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; see `json_command` for what it prints. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="convert_gguf", description="Converts a GGUF model for MNN.")
    parser.add_argument("source", type=Path, help="the GGUF file")
    parser.add_argument("out", type=Path, help="the directory to write")
    _add_choices(parser)
    parser.add_argument("--json", action="store_true", help="JSON lines on stdout, which is what it always prints")
    args = parser.parse_args(argv)
    return json_command.run(
        lambda update: convert_gguf(
            args.source,
            args.out,
            throttled(update),
            bits=args.bits,
            block=args.block,
            emergency_skip=args.emergency_skip,
        )
    )


if __name__ == "__main__":
    os._exit(main())  # MNN's libraries may crash in their own exit handlers
