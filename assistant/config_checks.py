"""What settings may be: least and most of every number, the choices of texts, and what does not go together. Pure.

Works on the flat form (`{"stages.llm.slots": 1}`); imports `errors` and `messages`, knows no section.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assistant.errors import ConfigError
from assistant.messages import Stage

_AT_LEAST: dict[str, float] = {  # 0 where nothing is said
    "api.deadline_s": 1,
    "memory.keep_alive_s": -1,
    "listen.max_s": 1,
    "listen.no_speech_s": 0.5,
    "stages.llm.context_tokens": 64,
    "stages.llm.slots": 1,
    "stages.llm.prefill_chunk": 8,
    "stages.llm.max_new_tokens": 1,
    "stages.llm.seed": -1,
    "stages.llm.repetition_penalty": 0.1,
    "stages.tts.length_scale": 0.1,
    "stages.intent.handler_timeout_s": 0.1,
    **{f"stages.{stage.value}.{key}": 0.001 for stage in Stage for key in ("start_timeout_s", "step_timeout_s")},
    **{f"stages.{stage}.deadline_s": 0.1 for stage in ("asr", "llm", "tts")},
}


_AT_MOST: dict[str, float] = {
    "audio.volume_percent": 100,
    "listen.pre_roll_s": 3,
    "listen.max_s": 120,
    "metrics.port": 65_535,
    "listen.no_speech_s": 3600,
    "stages.llm.top_p": 1,
    "stages.llm.min_p": 1,
    "stages.llm.temperature": 100,
    "stages.llm.repetition_penalty": 100,
    "stages.llm.seed": 2**63 - 1,
    "stages.llm.slots": 64,
    "stages.llm.context_tokens": 1_000_000,
    "stages.tts.length_scale": 10,
    "stages.intent.handler_timeout_s": 60,
    **{f"stages.{stage}.threads": 256 for stage in ("asr", "llm", "tts")},
    **{f"stages.{stage}.deadline_s": 600 for stage in ("asr", "llm", "tts")},
}
MOST = 1e9
"""Of every other number: a budget of an exabyte is a typing error, and an infinite time-out is no time-out."""

SILENCES_S = {"normal": 0.7, "relaxed": 1.25, "aggressive": 0.25}
"""Of `listen.silence`: what Home Assistant's users know."""

_LONGEST = 200
"""Characters of a device's name or a folder's."""
CHOICES = {
    "listen.silence": tuple(SILENCES_S),
    "log.level": ("debug", "info", "warning", "error"),
    "log.format": ("text", "json"),
    "stages.llm.kv_cache": ("auto", "memory", "disk"),
}

PREFILL_STEP = 8
"""Tokens: two of the rows of four that MNN computes together. A piece that ends inside a row changes the answer by
rounding."""

ATTENTION_MODES = (8, 0)
_INT8_KEYS = "8-bit keys are scaled by the part of a prompt that came first, so a prompt in chunks gives another answer"
_TURBO = "3-bit and 4-bit keys and values give wrong answers"
REFUSED_ATTENTION_MODES = {
    **dict.fromkeys((1, 2, 9, 10), _INT8_KEYS),
    **dict.fromkeys((3, 4, 5, 6, 11, 12, 13, 14), _TURBO),
}
"""Measured with `assistant bench llm`; the tests of the LLM engine show it as well."""


def limits(key: str) -> tuple[float, float]:
    """The least and the most of a number."""
    return _AT_LEAST.get(key, 0), _AT_MOST.get(key, MOST)


def check(flat: Mapping[str, Any]) -> None:
    """Raises `ConfigError` that names the key, what it is and what it may be."""
    if wrong := list(wrong_values(flat)):
        raise ConfigError(all_of(wrong))
    for key in ("audio.input", "audio.output", "wake.models_dir"):
        if len(flat[key]) > _LONGEST:
            raise ConfigError(f"{key} has {len(flat[key])} characters; at most {_LONGEST} are taken")
    thresholds_of(flat["wake.thresholds"])
    tcp_address(flat["api.tcp"])
    _check_llm(flat)


def wrong_values(flat: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with each value by itself, of any part of the settings."""
    for key, value in flat.items():
        if (allowed := CHOICES.get(key)) is not None and value not in allowed:
            yield f"{key} is {value!r}; choose {', '.join(allowed[:-1])} or {allowed[-1]}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        least, most = limits(key)
        if not value >= least:
            yield f"{key} is {value}; the least allowed is {least:g}"
        elif not value <= most:
            yield f"{key} is {value}; the most allowed is {most:g}"


def all_of(mistakes: Sequence[str]) -> str:
    """In one line: whoever mends one wants to know of the next."""
    return " Also: ".join([*(one if one.endswith("?") else f"{one}." for one in mistakes[:-1]), mistakes[-1]])


def thresholds_of(texts: Sequence[str]) -> dict[str, float]:
    """`["hey_jarvis=0.9"]` -> `{"hey_jarvis": 0.9}`. Raises `ConfigError`."""
    found = {}
    for text in texts:
        word, _, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1
        if not (word.strip() and 0 < value < 1):
            raise ConfigError(
                f"wake.thresholds: {text!r} is no word=number between 0 and 1, for example hey_jarvis=0.9"
            )
        found[word.strip()] = value
    return found


TCP_PORTS = 3
"""One after the other: commands, controls, events."""


def tcp_address(text: str) -> tuple[str, int] | None:
    """`tcp://0.0.0.0:5123` -> ("0.0.0.0", 5123); empty -> None. Raises `ConfigError`."""
    if not text:
        return None
    host, _, port = text.removeprefix("tcp://").rpartition(":")
    try:
        # names are not looked up: the answer would decide who can reach us
        if host != "*" and (ipaddress.ip_address(host.strip("[]")).version == 6) != host.startswith("["):
            raise ValueError
        if not (text.startswith("tcp://") and port.isascii() and port.isdecimal() and 0 < int(port) < 65536 - 2):
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"api.tcp is {text!r}; write tcp://ADDRESS:PORT with an address of this machine (or * for all) and the"
            f" first of {TCP_PORTS} free ports, for example tcp://0.0.0.0:5123"
        ) from None
    return host, int(port)


def _check_llm(flat: Mapping[str, Any]) -> None:
    if flat["stages.llm.max_new_tokens"] >= flat["stages.llm.context_tokens"]:
        raise ConfigError("stages.llm.max_new_tokens must be smaller than stages.llm.context_tokens")
    chunk: int = flat["stages.llm.prefill_chunk"]
    if chunk % PREFILL_STEP:
        raise ConfigError(
            f"stages.llm.prefill_chunk is {chunk}; it must be a multiple of {PREFILL_STEP}, for example"
            f" {chunk // PREFILL_STEP * PREFILL_STEP}: MNN computes 4 tokens together, and other pieces change the"
            " answer by rounding"
        )
    mode: int = flat["stages.llm.attention_mode"]
    if mode not in ATTENTION_MODES:
        reason = REFUSED_ATTENTION_MODES.get(mode, "MNN knows no such mode")
        raise ConfigError(f"stages.llm.attention_mode is {mode}: {reason}; choose 8, or 0")
