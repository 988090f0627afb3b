"""Settings: frozen trees, layered from files, environment and command line.

Imports `config_checks`, `errors` and `paths`.

Precedence, lowest first: defaults, /etc/assistant/config.toml, $XDG_CONFIG_HOME/assistant/config.toml, ASSISTANT_*
(ASSISTANT_STAGES_LLM_THREADS=2), `--set stages.llm.threads=2`. An unknown key is refused with the nearest valid one.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from assistant import paths
from assistant.config_checks import check
from assistant.errors import ConfigError
from assistant.messages import Stage

ENV_PREFIX = "ASSISTANT_"


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields carry their unit in the name."""


class Audio(_Section, frozen=True, kw_only=True):
    enabled: bool = True
    """False runs without microphone and speaker."""
    input: str = ""
    """Name or regular expression of the microphone; empty = the system's default."""
    output: str = ""


class Wake(_Section, frozen=True, kw_only=True):
    words: tuple[str, ...] = ("hey_jarvis", "okay_nabu")


class Memory(_Section, frozen=True, kw_only=True):
    budget_mib: float = 0
    """0 = find out (cgroup, machine)."""
    margin_mib: float = 300
    """Always stays free; proportionally less on machines (or in cgroups) of less than 2 GB."""
    keep_alive_s: float = 300
    """How long an idle stage stays loaded; 0 = unload at once, -1 = never unload."""


class Asr(_Section, frozen=True, kw_only=True):
    engine: str = "whisper"
    model: str = "whisper-tiny.en"
    language: str = ""
    """Of a multilingual whisper model, for example "fr"; empty = found out from the audio."""
    threads: int = 0
    """0 = physical cores."""
    start_timeout_s: float = 30
    step_timeout_s: float = 60
    """Longest silence of a busy worker before it is taken for hung."""


class Intent(_Section, frozen=True, kw_only=True):
    engine: str = "templates"
    language: str = "en"
    start_timeout_s: float = 20
    step_timeout_s: float = 10


class Llm(_Section, frozen=True, kw_only=True):
    engine: str = "mnn"
    model: str = "smollm2-135m-instruct"
    small_model: str = ""
    """Taken instead while the machine is pressed hard (heat, memory, supply); empty = none."""
    context_tokens: int = 1024
    slots: int = 1
    """Conversations whose keys and values stay in memory; more take turns."""
    kv_cache: str = "auto"
    """memory | disk | auto: where keys and values lie. On a disk they can be written out instead of filling memory.
    auto = on disk from 160 MiB of them on."""
    attention_mode: int = 8
    """MNN's: 8 or 0 (without flash attention). The others keep 8-bit or 4-bit keys, which fit one piece of a prompt
    only."""
    conversation_ttl_s: float = 300
    """How long a conversation is remembered after its last turn."""
    prefill_chunk: int = 128
    """Tokens of a prompt at once; a multiple of 8, so that MNN computes whole rows."""
    threads: int = 0
    """0 = physical cores, less one for audio where there are four or more."""
    system_prompt: str = "You are a voice assistant. Answer in one short sentence."
    """Empty = what the model's own chat template says."""
    max_new_tokens: int = 96
    temperature: float = 0.0
    """0 = greedy."""
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.1
    seed: int = -1
    """-1 = a new one for each answer."""
    start_timeout_s: float = 120
    """The first start of a model builds its mapped weights, which takes seconds per GB."""
    step_timeout_s: float = 60


class Tts(_Section, frozen=True, kw_only=True):
    engine: str = "piper"
    model: str = "en_US-joe-medium"
    length_scale: float = 1.0
    """How long sounds take: 1.2 speaks slower, 0.9 faster."""
    threads: int = 0
    """0 = physical cores."""
    start_timeout_s: float = 30
    step_timeout_s: float = 60


class Stages(_Section, frozen=True, kw_only=True):
    asr: Asr = Asr()
    intent: Intent = Intent()
    llm: Llm = Llm()
    tts: Tts = Tts()


class Log(_Section, frozen=True, kw_only=True):
    level: str = "warning"
    """debug | info | warning | error."""


class Config(_Section, frozen=True, kw_only=True):
    audio: Audio = Audio()
    wake: Wake = Wake()
    memory: Memory = Memory()
    stages: Stages = Stages()
    log: Log = Log()

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


def _types(section: type[_Section], prefix: str = "") -> dict[str, Any]:
    """`{"memory.budget_mib": float}`: the declared type of every key."""
    out: dict[str, Any] = {}
    for key, kind in get_type_hints(section).items():
        out |= _types(kind, f"{prefix}{key}.") if hasattr(kind, "__struct_fields__") else {prefix + key: kind}
    return out


_TYPES = _types(Config)
_FROM_ENV = {ENV_PREFIX + key.upper().replace(".", "_"): key for key in _TYPES}


def _unknown(key: str, where: str, known: Iterable[str]) -> ConfigError:
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else "'assistant config' lists them all"
    return ConfigError(f"{where}: unknown key {key!r}; {hint}")


def _parse(key: str, text: str, where: str) -> Any:
    """A value given as text, read as the type that the key has."""
    kind = _TYPES[key]
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
        if kind not in (int, float, str):
            return [part.strip() for part in text.split(",") if part.strip()]
        return msgspec.convert(text, kind, strict=False)
    except (KeyError, ValueError, msgspec.ValidationError):  # ValueError: bytes that are no text
        raise ConfigError(f"{where}: {key} must be {_named(kind)}, not {text!r}") from None


def _from_file(path: Path) -> dict[str, Any]:
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is no file")
    try:
        flat = flatten(tomllib.loads(path.read_text("utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, no TOML, an endless number
        raise ConfigError(f"{path}: {error}") from None
    for key, value in flat.items():
        if key not in _TYPES:
            raise _unknown(key, str(path), _TYPES)
        try:
            msgspec.convert(value, _TYPES[key])
        except msgspec.ValidationError:
            raise ConfigError(f"{path}: {key} must be {_named(_TYPES[key])}, not {value!r}") from None
    return flat


def _named(kind: Any) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(kind, "a list of texts")


def _from_env(environ: Mapping[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, text in environ.items():
        if not name.startswith(ENV_PREFIX):
            continue
        if name not in _FROM_ENV:
            raise _unknown(name, "environment", _FROM_ENV)
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
            raise _unknown(key, "--set", _TYPES)
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
