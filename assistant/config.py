"""Settings: frozen trees, layered from files, environment and command line.

Imports `config_checks`, `config_sections`, `errors` and `paths`.

Precedence, lowest first: defaults, /etc/assistant/config.toml, $XDG_CONFIG_HOME/assistant/config.toml, ASSISTANT_*
(ASSISTANT_STAGES_LLM_THREADS=2), `--set stages.llm.threads=2`. An unknown key is refused with the nearest valid one.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from assistant import paths
from assistant.config_checks import all_of, check, wrong_values
from assistant.config_sections import (
    Api,
    Asr,
    Audio,
    Cues,
    Debug,
    House,
    Intent,
    Listen,
    Llm,
    Log,
    Memory,
    Metrics,
    Section,
    Stages,
    Tts,
    Wake,
    Wyoming,
)
from assistant.errors import ConfigError
from assistant.messages import Stage

ENV_PREFIX = "ASSISTANT_"


class Config(Section, frozen=True, kw_only=True):
    audio: Audio = Audio()
    cues: Cues = Cues()
    wake: Wake = Wake()
    listen: Listen = Listen()
    memory: Memory = Memory()
    stages: Stages = Stages()
    house: House = House()
    api: Api = Api()
    wyoming: Wyoming = Wyoming()
    metrics: Metrics = Metrics()
    log: Log = Log()
    debug: Debug = Debug()

    def __post_init__(self) -> None:
        check(flatten(msgspec.to_builtins(self)))

    def stage(self, stage: Stage) -> Asr | Intent | Llm | Tts:
        section: Asr | Intent | Llm | Tts = getattr(self.stages, stage.value)
        return section


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` -> `{"a.b": 1}`."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            out.update(flatten(value, f"{prefix}{key}."))
        else:
            out[prefix + key] = value
    return out


def _types(section: type[Section], prefix: str = "") -> dict[str, Any]:
    """`{"memory.budget_mib": float}`: the declared type of every key."""
    out: dict[str, Any] = {}
    for key, kind in get_type_hints(section).items():
        out |= _types(kind, f"{prefix}{key}.") if hasattr(kind, "__struct_fields__") else {prefix + key: kind}
    return out


_TYPES = _types(Config)
_FROM_ENV = {ENV_PREFIX + key.upper().replace(".", "_"): key for key in _TYPES}


def _unknown(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else "'assistant config' lists them all"
    return f"unknown key {key!r}; {hint}"


def _parse(key: str, text: str, where: str) -> Any:
    """A value given as text, read as the type that the key has."""
    kind = _TYPES[key]
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
        if kind not in (int, float, str):
            if text.lstrip().startswith("["):  # as in a file
                return msgspec.convert(tomllib.loads(f"list = {text}")["list"], list[str])
            return [part.strip() for part in text.split(",") if part.strip()]
        return msgspec.convert(text, kind, strict=False)
    except (KeyError, ValueError, msgspec.ValidationError):  # ValueError: bytes that are no text
        raise ConfigError(f"{where}: {key} must be {_named(kind)}, not {text!r}") from None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is no file")
        flat = flatten(tomllib.loads(path.read_text("utf-8-sig")))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError:
        raise ConfigError(
            f"{path} may not be read; whose are HOME and XDG_CONFIG_HOME? ('su' and 'sudo' can keep another user's)"
        ) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}, line {line}: this is no UTF-8; save the file as UTF-8 in an editor") from None
    except (OSError, ValueError, RecursionError) as error:  # ValueError: no TOML, an endless number
        hint = ': a text needs quotes (key = "text"); true and false have none' if "Invalid value" in str(error) else ""
        raise ConfigError(f"{path}: {error}{hint}") from None
    if wrong := dict(_mistakes(flat)):
        # a value that is none alone is refused with all layers together: a later one may have another
        good = {key: value for key, value in flat.items() if key not in wrong}
        raise ConfigError(f"{path}: {all_of([*wrong.values(), *wrong_values(good)])}")
    return flat


def _mistakes(flat: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys that there are not, and values of another type: each key with what to say."""
    for key, value in flat.items():
        if key not in _TYPES:
            yield key, _unknown(key, _TYPES)
            continue
        try:
            msgspec.convert(value, _TYPES[key])
        except msgspec.ValidationError:
            yield key, f"{key} must be {_named(_TYPES[key])}, not {value!r}"


def _named(kind: Any) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(kind, "a list of texts")


def _from_env(environ: Mapping[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, text in environ.items():
        if not name.startswith(ENV_PREFIX):
            continue
        if name not in _FROM_ENV:
            raise ConfigError(f"environment: {_unknown(name, _FROM_ENV)}")
        out[_FROM_ENV[name]] = _parse(_FROM_ENV[name], text, name)
    return out


def _from_sets(sets: Iterable[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for item in sets:
        key, equals, text = item.partition("=")
        key = key.strip()
        if not equals:
            raise ConfigError(f"--set {item}: write key=value")
        if key not in _TYPES:
            raise ConfigError(f"--set: {_unknown(key, _TYPES)}")
        out[key] = _parse(key, text.strip(), "--set")
    return out


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in flat.items():
        *path, leaf = key.split(".")
        node = out
        for part in path:
            node = node.setdefault(part, {})
        node[leaf] = value
    return out


def load(
    sets: Iterable[str] = (), *, files: Iterable[Path] | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """The effective settings. Raises `ConfigError` naming the key and where it came from."""
    flat: dict[str, Any] = {}
    for path in paths.config_files() if files is None else files:
        flat |= _from_file(path)
    flat |= _from_env(os.environ if environ is None else environ)
    flat |= _from_sets(sets)
    try:
        return msgspec.convert(_nest(flat), Config)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from None
