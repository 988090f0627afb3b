"""What the intent stage is made of: the settings, the user's own sentences, and what other programs handle.

Part of the composition root. Starts nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

from assistant import paths
from assistant.config import Config
from assistant.nlu.vocabulary import INTENTS
from assistant.query import Understood
from assistant.stages.spec import StageSpec

MODEL = "intents-en"
"""The encoder that ships with us."""


Stamp = tuple[tuple[str, int, int, int], ...]
"""Of files: path, inode, time of change, size. Empty = there are none."""


def sentences_stamp() -> Stamp:
    """Of the user's own sentences in all languages: another one when a file came, went or was changed. Asks the disk,
    and reads nothing."""
    return stamp_of(str(path) for folder in paths.sentences_dirs() for path in folder.glob("*/*.yaml"))


def stamp_of(files: Iterable[str]) -> Stamp:
    found = []
    for path in files:
        with contextlib.suppress(OSError):  # removed meanwhile, or a link to nothing
            stat = os.stat(path)
            found.append((path, stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(sorted(found))


def intent_spec(config: Config, beyond: Understood, common: Mapping[str, Any]) -> StageSpec:
    """`beyond`: what other programs handle; `common`: what all stages are told."""
    settings, house = config.stages.intent, config.house
    options: dict[str, Any] = {
        "language": settings.language,
        "intents": sorted({*INTENTS, *beyond.intents}),
    }
    known = {"name": house.names, "area": house.areas, "floor": house.floors}
    kinds = [kind for kind in (*known, *beyond.names) if known.get(kind) or beyond.names.get(kind)]
    # nothing else changes what was measured of a house without names
    if kinds:
        options["names"] = {
            kind: list(dict.fromkeys((*known.get(kind, ()), *beyond.names.get(kind, ()))))
            for kind in sorted(set(kinds))
        }
    folders = [str(folder) for folder in paths.sentences_dirs() if folder.is_dir()]
    if folders:
        options["folders"] = folders
    folder = paths.data_file(MODEL)
    if settings.engine == "classifier" and settings.threshold:
        options["threshold"] = settings.threshold
    return StageSpec(
        **common, model=settings.language, model_dir=folder if settings.engine == "classifier" else paths.data_file(""),
        digest="", weight_bytes=0, threads=1, options=options,
    )  # fmt: skip
