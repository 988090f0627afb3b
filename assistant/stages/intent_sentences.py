"""The sentences that are matched: Home Assistant's, ours, and the user's, as one dictionary for hassil.

Imported by the intent engines alone. A file of the user's that is broken is left out and told of; the rest is loaded.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hassil
import home_assistant_intents
import yaml  # type: ignore[import-untyped]
from hassil.intents import Intents
from hassil.parse_expression import parse_sentence
from hassil.parser import ParseError

from assistant.errors import ConfigError

OURS = Path(__file__).parents[1] / "skills/intents"
MAX_FILE = 1024 * 1024
"""Bytes of a file of the user's."""

MAX_EXAMPLES = 300
"""Of all intents together: each takes 5 ms when the stage is loaded."""

_LEFT_OUT = "conversation_command"
"""Sentences with a command of its own for a later time: "{anything} in five minutes" would take every question."""
_HOUSE = ("name", "area", "floor")
_PARTS = re.compile(r"[\[\]()]|\{\w+")
_MERGED = ("lists", "expansion_rules")


def known_language(wanted: str) -> str:
    """As Home Assistant writes it. Raises `ConfigError` for a language that has no sentences."""
    known: set[str] = set(home_assistant_intents.get_languages())
    plain = wanted.replace("_", "-")
    for name in (wanted, plain, plain.partition("-")[0], *(n for n in sorted(known) if n.startswith(plain + "-"))):
        if name in known:
            return name
    raise ConfigError(f"stages.intent.language is {wanted!r}; there are sentences for {', '.join(sorted(known))}")


class Sentences:
    """All that is understood in one language."""

    def __init__(self, language: str, wanted: frozenset[str], names: Mapping[str, list[dict[str, str]]]) -> None:
        """`wanted`: the intents to load of those that we know; `names`: what stands in the house, as hassil's values,
        by list. `language` as `known_language` gives it."""
        self._language, self._wanted, self._names = language, wanted, names
        self.examples: dict[str, list[str]] = {}
        """Of the user's intents: phrases that mean them."""
        self.notes: list[str] = []
        """What is wrong with the user's files, for him to read."""
        self._data: dict[str, Any] = {"intents": {}, "lists": {}, "expansion_rules": {}, "skip_words": []}
        theirs = home_assistant_intents.get_intents(language) or {}
        self._data["skip_words"] = list(theirs.get("skip_words", []))
        for source in (theirs, *_ours(language)):
            self._take(source, self._wanted)

    def add_folder(self, folder: Path) -> None:
        """The user's files for this language: `*.yaml` in the folder of its name, in the order of their names."""
        for name in dict.fromkeys((self._language, self._language.partition("-")[0])):
            for path in sorted((folder / name).glob("*.yaml")):
                try:
                    self._add_file(path)
                except ConfigError as error:
                    self.notes.append(f"{error.message}; this file is left out")

    def _add_file(self, path: Path) -> None:
        before = copy.deepcopy(self._data)
        try:
            source = _read(path)
            examples = _examples(path, source)
            _check_templates(path, source, self._data, set(self._names))
            self._take(source, None)
            hassil.recognize_best("warm up", Intents.from_dict(self.data()))
        except ConfigError:
            self._data = before
            raise
        except Exception as error:  # noqa: BLE001 - hassil raises anything; a file of the user's must not end the stage
            self._data = before
            raise ConfigError(f"{path}: {type(error).__name__}: {error}"[:300]) from None
        for name, phrases in examples.items():
            known = self.examples.setdefault(name, [])
            known.extend(phrases[: MAX_EXAMPLES - sum(map(len, self.examples.values()))])
            if len(phrases) > len(known):
                self.notes.append(f"{path}: at most {MAX_EXAMPLES} examples are taken; some of {name} are left out")

    def _take(self, source: Mapping[str, Any], wanted: frozenset[str] | None) -> None:
        for name, intent in source.get("intents", {}).items():
            if wanted is None or name in wanted:
                groups = self._data["intents"].setdefault(name, {"data": []})["data"]
                groups.extend(_anywhere(intent.get("data") or []))
        for key in _MERGED:
            self._data[key].update(source.get(key) or {})

    def data(self) -> dict[str, Any]:
        """What hassil needs and no more: without responses, and with the lists that a sentence can reach (they are
        most of the work at load time).

        Home Assistant fills {name}, {area} and {floor} with what stands in a house; where nobody has told us what
        stands in ours, they are empty, and sentences with them match nothing.
        """
        lists = self._data["lists"] | {kind: {"values": values} for kind, values in self._names.items()}
        empty = frozenset(kind for kind in _HOUSE if not lists.get(kind, {}).get("values"))
        intents = {}
        for name, one in self._data["intents"].items():
            if groups := [group for group in (_possible(group, empty) for group in one["data"]) if group["sentences"]]:
                intents[name] = {"data": groups}
        rules = self._data["expansion_rules"]
        reached = {name: _alone(lists.get(name, {"values": []})) for name in _lists_reached(rules, intents)}
        return {
            "language": self._language,
            "intents": intents,
            "lists": reached,
            "expansion_rules": rules,
            "skip_words": self._data["skip_words"],
        }


def _ours(language: str) -> Iterator[dict[str, Any]]:
    for name in dict.fromkeys((language.partition("-")[0], language)):
        for path in (OURS / f"{name}.yaml", *sorted((OURS / name).glob("*.yaml"))):
            if path.is_file():
                yield yaml.safe_load(path.read_text("utf-8")) or {}


def _anywhere(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the conditions on the room and on the kind of a device, of which we know nothing: whoever handles the
    intent does."""
    kept = []
    for group in groups:
        sentences = [one for one in group["sentences"] if _LEFT_OUT not in one]
        if sentences:
            kept.append(
                {key: value for key, value in group.items() if not key.endswith("_context")} | {"sentences": sentences}
            )
    return kept


def _possible(group: dict[str, Any], empty: frozenset[str]) -> dict[str, Any]:
    """Without the sentences that cannot do without an empty list: parsing is most of the time that a load takes."""
    if not empty:
        return group
    return {**group, "sentences": [one for one in group["sentences"] if not empty & _needed(one)]}


@functools.lru_cache(maxsize=4096)
def _needed(sentence: str) -> frozenset[str]:
    """The lists of a template that stand in no bracket: whatever is said, a value of theirs is in it."""
    found, depth = set(), 0
    for part in _PARTS.findall(sentence):
        if part in "[(":
            depth += 1
        elif part in "])":
            depth -= 1
        elif depth == 0:
            found.add(part[1:])
    return frozenset(found)


def _alone(values: dict[str, Any]) -> dict[str, Any]:
    """A range with a multiplier gets an end that no other range has: hassil remembers the words of numbers by a
    range's bounds alone, and "up by five percent" would make "down by five percent" go up, too."""
    bounds = values.get("range")
    if not isinstance(bounds, dict) or "multiplier" not in bounds:
        return values
    return {**values, "range": {**bounds, "to": bounds["to"] + 1}}


def _lists_reached(rules: Mapping[str, str], intents: Mapping[str, Any]) -> set[str]:
    text = " ".join(
        sentence for intent in intents.values() for group in intent["data"] for sentence in group["sentences"]
    )
    local = [rule for one in intents.values() for group in one["data"] for rule in group.get("expansion_rules", {})]
    seen: set[str] = set(local)
    while more := {name for name in re.findall(r"<(\w+)>", text) if name in rules} - seen:
        seen |= more
        text += " ".join(rules[name] for name in more)
    return set(re.findall(r"\{(\w+)", text))


# --- files of the user's --------------------------------------------------------------------------------------------
def _read(path: Path) -> dict[str, Any]:
    """Raises `ConfigError` with file, line and reason for what is no file of sentences."""
    try:
        if path.stat().st_size > MAX_FILE:
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
    unknown = sorted(set(map(str, found)) - {"language", "intents", *_MERGED})
    if unknown:
        raise ConfigError(f"{path}: `{unknown[0]}` is none of language, intents, {', '.join(_MERGED)}")
    for key in _MERGED:
        if not isinstance(found.get(key) or {}, dict):
            raise ConfigError(f"{path}: `{key}` is no table of names")
    return found


def _examples(path: Path, source: Mapping[str, Any]) -> dict[str, list[str]]:
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


def _check_templates(path: Path, source: Mapping[str, Any], known: Mapping[str, Any], names: set[str]) -> None:
    """Raises `ConfigError` with the line of a sentence that hassil cannot parse or that names an unknown rule."""
    rules = known["expansion_rules"] | (source.get("expansion_rules") or {})
    lists = {*known["lists"], *(source.get("lists") or {}), *names, "name", "area", "floor"}
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
