"""Files of sentences that the user has written: read, and checked, so that he is told what is wrong and where.

Imports `errors`; knows hassil's parser alone.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hassil.parse_expression import parse_sentence
from hassil.parser import ParseError

from assistant.errors import ConfigError

MAX_FILE = 1024 * 1024
"""Bytes of a file."""
MERGED = ("lists", "expansion_rules")
"""Beside the intents, what a file may have."""


def read_file(path: Path) -> dict[str, Any]:
    """Raises `ConfigError` with file, line and reason for what is no file of sentences."""
    try:
        there = path.stat()
        if stat.S_ISFIFO(there.st_mode):  # nobody may ever write into it
            raise ConfigError(f"{path} is no file")
        if there.st_size > MAX_FILE:
            raise ConfigError(f"{path} has more than {MAX_FILE // 1024} KiB")
        found = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{path}{line}: {getattr(error, 'problem', None) or 'no YAML'}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    if not isinstance(found, dict) or not isinstance(found.get("intents", {}), dict):
        raise ConfigError(f"{path}: `intents` is missing; a file has `intents: NAME: data: - sentences: [...]`")
    unknown = sorted(set(map(str, found)) - {"language", "intents", *MERGED})
    if unknown:
        raise ConfigError(f"{path}: `{unknown[0]}` is none of language, intents, {', '.join(MERGED)}")
    for key in MERGED:
        if not isinstance(found.get(key) or {}, dict):
            raise ConfigError(f"{path}: `{key}` is no table of names")
    return found


def examples_of(path: Path, source: Mapping[str, Any]) -> dict[str, list[str]]:
    """Also checks the shape of every intent."""
    found: dict[str, list[str]] = {}
    for name, intent in source.get("intents", {}).items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name):
            raise ConfigError(f"{path}: {str(name)[:80]!a} is no name of an intent; one looks like OrderCoffee")
        if not isinstance(intent, dict) or not set(intent) <= {"data", "examples"} or not intent:
            raise ConfigError(f"{path}: intent {name} has `data` or `examples`, and nothing else")
        groups = intent.get("data") or []
        if not isinstance(groups, list):
            raise ConfigError(f"{path}: intent {name}: `data` is a list")
        for group in groups:
            sentences = group.get("sentences") if isinstance(group, dict) else None
            if not isinstance(sentences, list) or not all(isinstance(one, str) for one in sentences):
                raise ConfigError(f"{path}: intent {name}: each entry of `data` has `sentences`, a list of texts")
        examples = intent.get("examples") or []
        if not isinstance(examples, list) or not all(isinstance(one, str) and one.strip() for one in examples):
            raise ConfigError(f"{path}: intent {name}: `examples` is a list of texts")
        if examples:
            found[name] = examples
    return found


def check_templates(path: Path, source: Mapping[str, Any], rules: Mapping[str, Any], lists: Collection[str]) -> None:
    """Raises `ConfigError` with the line of a sentence that hassil cannot parse or that names an unknown rule or list;
    `rules` and `lists` are known already."""
    rules = {**rules, **(source.get("expansion_rules") or {})}
    lists = {*lists, *(source.get("lists") or {})}
    _check_circles(path, rules)
    sentences = [
        sentence
        for intent in source.get("intents", {}).values()
        for group in intent.get("data") or []
        for sentence in group["sentences"]
    ]
    for text in (*sentences, *(source.get("expansion_rules") or {}).values()):
        reason = ""
        try:
            parse_sentence(str(text))
        except (ParseError, ValueError, IndexError, RecursionError) as error:
            reason = str(error) or "it cannot be parsed"
        unknown = [name for name in re.findall(r"<(\w+)>", str(text)) if name not in rules]
        if unknown:
            reason = f"there is no expansion rule <{unknown[0]}>"
        strange = [name for name in re.findall(r"\{(\w+)", str(text)) if name not in lists]
        if strange:
            reason = f"there is no list {{{strange[0]}}}"
        if reason:
            raise ConfigError(f"{path}{_line_of(path, str(text))}: {str(text)[:80]!r}: {reason}")


def _check_circles(path: Path, rules: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for a rule that leads back to itself."""
    leads = {name: set(re.findall(r"<(\w+)>", str(rule))) for name, rule in rules.items()}
    for name in leads:
        seen: set[str] = set()
        new = set(leads[name])
        while new:
            seen |= new
            new = {more for one in new for more in leads.get(one, ())} - seen
        if name in seen:
            raise ConfigError(f"{path}: the expansion rule <{name}> leads back to itself")


def _line_of(path: Path, text: str) -> str:
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if text and text in line:
            return f", line {number}"
    return ""
