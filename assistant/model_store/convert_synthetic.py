"""Random weights -> a model directory. `python -m assistant.model_store.convert_synthetic SHAPE OUT`.

The command around `llm_conversion` for a `SyntheticSource`. Reads no file and touches no network.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from assistant.model_store import json_command
from assistant.model_store.choices import Block, checked
from assistant.model_store.convert_gguf import throttled
from assistant.model_store.llm_conversion import ConversionReport, Progress, convert
from assistant.model_store.synthetic_shapes import BLOCK, shape_of
from assistant.model_store.synthetic_source import SyntheticSource
from assistant.model_store.workspace import bytes_free


def convert_synthetic(
    name: str,
    out_dir: Path,
    progress: Progress | None = None,
    *,
    block: Block = BLOCK,
    free_bytes: Callable[[Path], int] = bytes_free,
) -> ConversionReport:
    """The shape called `name`; see `llm_conversion.convert` for what it writes and raises. `UsageError` besides."""
    source = SyntheticSource(name, shape_of(name), block)
    choices = checked(4, block)
    return convert(source, out_dir, progress, sha256=source.sha256, choices=choices, free_bytes=free_bytes)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; see `json_command` for what it prints. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="convert_synthetic", description="Makes a model of random weights.")
    parser.add_argument("shape", help="the name of a shape")
    parser.add_argument("out", type=Path, help="the directory to write")
    parser.add_argument("--block", type=int, choices=(32, 64, 128), default=BLOCK, help="weights that share a scale")
    parser.add_argument("--json", action="store_true", help="JSON lines on stdout, which is what it always prints")
    args = parser.parse_args(argv)
    return json_command.run(lambda update: convert_synthetic(args.shape, args.out, throttled(update), block=args.block))


if __name__ == "__main__":
    os._exit(main())  # MNN's libraries may crash in their own exit handlers
