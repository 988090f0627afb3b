"""The files of a wake word: NAME.json and the .tflite file that it names, in one folder. Imports `errors` alone.

Looks at everything that can be looked at without the library that runs them. Never writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from assistant.errors import ModelDamaged, ModelUnsupported

MAX_JSON_BYTES = 64 * 1024
MAX_MODEL_BYTES = 8 * 2**20
"""The known ones have 45 to 80 kB."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAGIC = slice(4, 8)
"""Where a flatbuffer says what it is."""


class WakeModel(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    """The .tflite file."""
    phrase: str
    """In lower case."""
    cutoff: float
    """What a score must exceed, as its maker advises."""
    window: int
    """Of how many scores the mean is taken."""


class _Micro(msgspec.Struct, frozen=True):
    probability_cutoff: float
    sliding_window_size: int
    feature_step_size: int = 10


class _Description(msgspec.Struct, frozen=True):
    """NAME.json; what else it holds is of no use here."""

    wake_word: str
    model: str
    micro: _Micro
    type: str = "micro"
    version: int = 2


def described(folders: Iterable[Path]) -> dict[str, Path]:
    """NAME.json by NAME; the first folder that has a name decides. A folder that is not there has none."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            # the model store keeps its own notes beside a model's files
            if _NAME.fullmatch(path.stem) and path.name != "manifest.json":
                found.setdefault(path.stem, path)
    return found


def read_model(description: Path) -> WakeModel:
    """What NAME.json says. Raises `ModelDamaged` or `ModelUnsupported`; looks at the first bytes of the model, too."""
    try:
        told = msgspec.json.decode(_read(description, MAX_JSON_BYTES), type=_Description)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelDamaged(f"{description} does not describe a wake word: {error}. Get it again.") from None
    micro = told.micro
    if told.type != "micro" or told.version != 2 or micro.feature_step_size != 10:
        raise unsupported(description, 'only models of type "micro", version 2 and steps of 10 ms can be used')
    if not 0 < micro.probability_cutoff < 1 or not 1 <= micro.sliding_window_size <= 100:
        raise ModelDamaged(f"{description} has a probability_cutoff or a sliding_window_size that cannot be.")
    phrase = " ".join("".join(char if char.isprintable() else " " for char in told.wake_word).lower().split())
    if not phrase or len(phrase) > 100 or not _NAME.fullmatch(told.model):
        raise ModelDamaged(f"{description} must have a wake_word and, as model, the name of a file beside it.")
    path = description.parent / told.model
    if _read(path, MAX_MODEL_BYTES)[_MAGIC] != b"TFL3":
        raise ModelDamaged(f"{path} is no TensorFlow Lite model. Get it again.")
    return WakeModel(path=path, phrase=phrase, cutoff=micro.probability_cutoff, window=micro.sliding_window_size)


def _read(path: Path, most: int) -> bytes:
    try:
        if not path.is_file():  # a pipe would be waited for
            raise ModelDamaged(f"There is no file {path}, which a wake word needs.")
        with path.open("rb") as stream:
            data = stream.read(most + 1)
    except OSError as error:
        raise ModelDamaged(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) > most:
        raise ModelDamaged(f"{path} is larger than {most} bytes, too large for what it should be.")
    return data


def unsupported(path: Path, why: str) -> ModelUnsupported:
    return ModelUnsupported(f"{path} cannot be used as a wake word: {why}.")
