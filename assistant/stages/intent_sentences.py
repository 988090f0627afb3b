"""The sentences that are matched: Home Assistant's, ours, and the user's, as one dictionary for hassil.

Imported by the intent engines alone. A file of the user's that is broken is left out and told of; the rest is loaded.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hassil
import home_assistant_intents
import yaml  # type: ignore[import-untyped]
from hassil.intents import Intents

from assistant.errors import ConfigError
from assistant.language_code import base_of
from assistant.stages.intent_files import check_templates, examples_of, read_file

OURS = Path(__file__).parents[1] / "skills/intents"

MAX_EXAMPLES = 300
"""Of all intents together: each takes 5 ms when the stage is loaded."""

_LEFT_OUT = "conversation_command"
"""Sentences with a command of its own for a later time: "{anything} in five minutes" would take every question."""
OF_LOCKS = "of-locks"
"""Metadata of a sentence that Home Assistant has for locks alone."""
_HOUSE = ("name", "area", "floor")
_PARTS = re.compile(r"[\[\]()]|\{\w+")


def known_language(wanted: str) -> str:
    """As Home Assistant writes it. Raises `ConfigError` for a language that has no sentences."""
    known: set[str] = set(home_assistant_intents.get_languages())
    plain = wanted.replace("_", "-")
    for name in (wanted, plain, base_of(wanted), *(n for n in sorted(known) if n.startswith(plain + "-"))):
        if name in known:
            return name
    raise ConfigError(f"stages.intent.language is {wanted!r}; there are sentences for {', '.join(sorted(known))}")


class _Grammar:
    """Sentences, lists and rules as they come from files, and what hassil makes its templates of."""

    def __init__(self, language: str, names: Mapping[str, list[dict[str, str]]], skip_words: list[str]) -> None:
        self.language, self.names, self.skip_words = language, names, skip_words
        self.intents: dict[str, list[dict[str, Any]]] = {}
        self.lists: dict[str, Any] = {}
        self.rules: dict[str, str] = {}

    def take(self, source: Mapping[str, Any], wanted: frozenset[str] | None = None) -> None:
        """More of them; of the intents those that are `wanted`, or all."""
        for name, intent in source.get("intents", {}).items():
            if wanted is None or name in wanted:
                self.intents.setdefault(name, []).extend(_anywhere(intent.get("data") or []))
        self.lists.update(source.get("lists") or {})
        self.rules.update(source.get("expansion_rules") or {})

    def without_intents(self) -> _Grammar:
        """Another one with the same lists and rules."""
        other = _Grammar(self.language, self.names, self.skip_words)
        other.lists, other.rules = dict(self.lists), dict(self.rules)
        return other

    def data(self) -> dict[str, Any]:
        """What hassil needs and no more: without responses, and with the lists that a sentence can reach (they are
        most of the work at load time).

        Home Assistant fills {name}, {area} and {floor} with what stands in a house; where nobody has told us what
        stands in ours, they are empty, and sentences with them match nothing.
        """
        lists = self.lists | {kind: {"values": values} for kind, values in self.names.items()}
        empty = frozenset(kind for kind in _HOUSE if not lists.get(kind, {}).get("values"))
        intents = {}
        for name, all_groups in self.intents.items():
            if groups := [group for group in (_possible(group, empty) for group in all_groups) if group["sentences"]]:
                intents[name] = {"data": groups}
        reached = {name: _alone(lists.get(name, {"values": []})) for name in _lists_reached(self.rules, intents)}
        return {
            "language": self.language,
            "intents": intents,
            "lists": reached,
            "expansion_rules": self.rules,
            "skip_words": self.skip_words,
        }


class Sentences:
    """All that is understood in one language."""

    def __init__(self, language: str, wanted: frozenset[str], names: Mapping[str, list[dict[str, str]]]) -> None:
        """`wanted`: the intents to load of those that we know; `names`: what stands in the house, as hassil's values,
        by list. `language` as `known_language` gives it."""
        self.examples: dict[str, list[str]] = {}
        """Of the user's intents: phrases that mean them."""
        self.notes: list[str] = []
        """What is wrong with the user's files, for him to read."""
        theirs = home_assistant_intents.get_intents(language) or {}
        self._grammar = _Grammar(language, names, list(theirs.get("skip_words", [])))
        for source in (theirs, *_ours(language)):
            self._grammar.take(source, wanted)
        self._lists = dict(self._grammar.lists)

    @property
    def lists_of_ours(self) -> list[str]:
        """Names of the lists that are ours or Home Assistant's, and were not written anew by the user."""
        return [name for name, values in self._lists.items() if self._grammar.lists[name] is values]

    def data(self) -> dict[str, Any]:
        """For hassil."""
        return self._grammar.data()

    def add_folder(self, folder: Path) -> None:
        """The user's files for this language: `*.yaml` in the folder of its name, in the order of their names."""
        language = self._grammar.language
        for name in dict.fromkeys((language, base_of(language))):
            for path in sorted((folder / name).glob("*.yaml")):
                try:
                    self._add_file(path)
                except ConfigError as error:
                    self.notes.append(f"{error.message}; this file is left out")

    def _add_file(self, path: Path) -> None:
        source = read_file(path)
        examples = examples_of(path, source)
        check_templates(path, source, self._grammar.rules, {*self._grammar.lists, *self._grammar.names, *_HOUSE})
        _try(path, source, self._grammar.without_intents())
        self._grammar.take(source)
        for name, phrases in examples.items():
            room = MAX_EXAMPLES - sum(map(len, self.examples.values()))
            self.examples.setdefault(name, []).extend(phrases[:room])
            if len(phrases) > room:
                self.notes.append(f"{path}: at most {MAX_EXAMPLES} examples are taken; some of {name} are left out")


def _ours(language: str) -> Iterator[dict[str, Any]]:
    for name in dict.fromkeys((base_of(language), language)):
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
            plain = {key: value for key, value in group.items() if not key.endswith("_context")}
            of_locks = (group.get("requires_context") or {}).get("domain") in ("lock", ["lock"])
            kept.append(plain | {"sentences": sentences, "metadata": {OF_LOCKS: of_locks}})
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


def _try(path: Path, source: Mapping[str, Any], grammar: _Grammar) -> None:
    """By itself: everybody's sentences once more for each file would take as long as the whole load. Raises
    `ConfigError` for what hassil cannot use, the file's lists and rules included."""
    every = [f"<{name}>" for name in source.get("expansion_rules") or {}]
    every += [f"{{{name}}}" for name in source.get("lists") or {}]
    try:
        grammar.take(source)
        grammar.take({"intents": {"All": {"data": [{"sentences": every}]}}})
        hassil.recognize_best("warm up", Intents.from_dict(grammar.data()))
    except Exception as error:  # noqa: BLE001 - hassil raises anything; a file of the user's must not end the stage
        raise ConfigError(f"{path}: {type(error).__name__}: {error}"[:300]) from None
