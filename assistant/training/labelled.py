"""Sentences of the templates with their intent and slots, for measuring: writes tests/intents/templates.tsv.

`python -m assistant.training.labelled OUT.tsv`. What stands in the open places is nothing that the encoder has learnt.
Needs no torch.
"""

from __future__ import annotations

import json
import random
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hassil.intents import RangeSlotList, TextSlotList

from assistant.nlu.vocabulary import INTENTS
from assistant.stages.intent_sentences import Sentences
from assistant.training.walks import Walker, Words

EACH = 24
"""Walks of each intent."""
SEED = 20261130
HOUSE = Path(__file__).parents[2] / "tests/intents/house.toml"
OPEN: Mapping[str, tuple[str, ...]] = {
    "search_query": ("bohemian rhapsody", "miles davis", "the rolling stones", "purple rain", "dolly parton", "mozart"),
    "shopping_list_item": ("olive oil", "paper towels", "two lemons", "rye bread", "peanut butter", "dog food"),
    "timer_name": ("spaghetti", "laundry", "nap", "chicken", "parking", "homework"),
    "message": ("dinner is ready",),
    "todo_list_item": ("call the plumber",),
    "zone": ("work",),
}


class LabelledWalker(Walker):
    """Remembers what it put into the places."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._slots: dict[str, Any] = {}

    def labelled(self, intent: str, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
        for _ in range(count):
            self._slots = {}
            if (walked := self._walked(intent)) is not None:
                text, group = walked
                yield text, {**(group.slots or {}), **self._slots}

    def _from_list(self, node: Any, rules: Mapping[str, Any], depth: int) -> str:
        values = self._intents.slot_lists.get(node.list_name)
        if isinstance(values, TextSlotList):
            value = self._rng.choice(values.values)
            self._slots[node.slot_name] = value.value_out
            return self._walk(value.text_in, rules, depth + 1)
        if isinstance(values, RangeSlotList):
            number = self._rng.randrange(values.start, values.stop + 1, values.step)
            self._slots[node.slot_name] = number * int(values.multiplier or 1)
            return str(self._numbers.format_number(number).text).replace("-", " ")
        self._slots[node.slot_name] = said = self._rng.choice(OPEN[node.list_name])
        return said


def lines() -> Iterator[str]:
    house = tomllib.loads(HOUSE.read_text("utf-8"))
    known = {"name": house["names"], "area": house["areas"], "floor": house["floors"]}
    values = {
        kind: [{"in": name.split("|")[0], "out": name.split("|")[0]} for name in names] for kind, names in known.items()
    }
    data = Sentences("en", frozenset(INTENTS), values).data()
    walker = LabelledWalker(data, Words(OPEN), random.Random(SEED))
    seen: set[str] = set()
    for intent in INTENTS:
        for text, slots in walker.labelled(intent, EACH):
            if text not in seen:
                seen.add(text)
                yield f"{text}\t{intent}\t{json.dumps(slots, ensure_ascii=False)}"


def main(argv: list[str]) -> int:
    (out,) = map(Path, argv)
    out.write_text(
        "\n".join([f"# By assistant.training.labelled: {EACH} walks of each intent.", *lines()]) + "\n", "utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
