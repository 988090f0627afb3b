"""Random walks over templates: sentences as hassil's grammar allows them. Imports `stages.intent_sentences`.

A walk picks one branch at each fork, so that rare branches come as often as they deserve; to list the first so many
sentences instead would show a thousand forms of one. Where a template lets anything stand, a walk takes from the lists
of `data/words_en.yaml`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hassil import expression as grammar
from hassil.intents import Intents, RangeSlotList, TextSlotList
from hassil.numbers import get_rbnf_engine

from assistant.stages.intent_sentences import Sentences

DIGITS_SHARE = 0.15
"""Of the numbers: recognisers write most of them in words."""
DEPTH = 40
_ROUND = (1, 2, 3, 5, 7, 10, 12, 15, 18, 20, 21, 22, 25, 30, 40, 45, 50, 60, 70, 80, 90, 100, 1950, 3000, 4000)
"""Numbers that people say more often than others."""


@dataclass(frozen=True, slots=True)
class Words:
    """What may stand in an open place, by the name of the list; `data/words_en.yaml`."""

    lists: Mapping[str, Sequence[str]]

    def house(self) -> dict[str, list[dict[str, str]]]:
        """As `Sentences` takes what stands in a house."""
        return {kind: [{"in": name, "out": name} for name in self.lists[kind]] for kind in ("name", "area", "floor")}


class Walker:
    """`data`: templates as hassil reads them. Sentences whose lists are empty are passed over."""

    def __init__(self, data: Mapping[str, Any], words: Words, rng: random.Random) -> None:
        self._intents: Any = Intents.from_dict(dict(data))
        self._words, self._rng = words, rng
        self._numbers: Any = get_rbnf_engine("en")

    def names(self) -> list[str]:
        return sorted(self._intents.intents)

    def sentences(self, intent: str, count: int) -> Iterator[str]:
        """`count` walks, or fewer where walks end at an empty list; evenly over the groups of templates."""
        for _ in range(count):
            if (walked := self._walked(intent)) is not None:
                yield walked[0]

    def _walked(self, intent: str) -> tuple[str, Any] | None:
        """One sentence and the group of its template; None when the walk ended at an empty list."""
        group = self._rng.choice([group for group in self._intents.intents[intent].data if group.sentences])
        rules = {**self._intents.expansion_rules, **(group.expansion_rules or {})}
        sentence = self._rng.choice(group.sentences)
        try:
            text = self._walk(sentence.expression, rules, 0)
        except LookupError:
            return None
        return " ".join(text.split()), group

    def _walk(self, node: Any, rules: Mapping[str, Any], depth: int) -> str:
        if depth > DEPTH:
            raise LookupError("rules that name each other")
        if isinstance(node, grammar.TextChunk):
            return str(node.original_text)
        if isinstance(node, grammar.Alternative):
            return self._walk(self._rng.choice(node.items), rules, depth + 1)
        if isinstance(node, grammar.Permutation):
            items = self._rng.sample(node.items, len(node.items))
            return " ".join(self._walk(item, rules, depth + 1) for item in items)
        if isinstance(node, grammar.Group):
            return "".join(self._walk(item, rules, depth + 1) for item in node.items)
        if isinstance(node, grammar.RuleReference):
            return self._walk(rules[node.rule_name].expression, rules, depth + 1)
        return self._from_list(node, rules, depth)

    def _from_list(self, node: Any, rules: Mapping[str, Any], depth: int) -> str:
        values = self._intents.slot_lists.get(node.list_name)
        if isinstance(values, TextSlotList):
            return self._walk(self._rng.choice(values.values).text_in, rules, depth + 1)
        if isinstance(values, RangeSlotList):
            return self._number(values)
        return self._rng.choice(self._words.lists[node.list_name])

    def _number(self, values: Any) -> str:
        round_ones = [number for number in _ROUND if values.start <= number <= values.stop]
        if round_ones and self._rng.random() < 0.8:
            number = self._rng.choice(round_ones)
        else:
            number = self._rng.randrange(values.start, values.stop + 1, values.step)
        if self._rng.random() < DIGITS_SHARE:
            return str(number)
        return str(self._numbers.format_number(number).text).replace("-", " ")


def shipped(words: Words, intents: Sequence[str], rng: random.Random) -> Walker:
    """Over the templates of the intent stage: Home Assistant's and ours."""
    return Walker(Sentences("en", frozenset(intents), words.house()).data(), words, rng)


def frames(words: Words, source: Mapping[str, Any]) -> dict[str, Any]:
    """A file of templates in the short form of `data/frames_en.yaml`, with every open list filled from `words`."""
    used = {kind: {"values": list(values)} for kind, values in words.lists.items()}
    return {
        "language": "en",
        "lists": used | source["lists"],
        **{key: source[key] for key in ("expansion_rules", "intents")},
    }
