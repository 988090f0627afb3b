"""Exact sentences -> intents, with Home Assistant's templates and ours. Imported by the worker alone.

Only the intents that somebody handles are loaded: "turn on the lamp" is a local command on the day a skill can do it,
and a question for the LLM until then. A sentence matches as a whole or not at all, so that "what time is it in a
novel about the end of the world" stays a question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hassil
import home_assistant_intents
import msgspec
import yaml  # type: ignore[import-untyped]
from hassil.intents import Intents

from assistant.errors import ConfigError
from assistant.messages import IntentMatch, IntentRequest
from assistant.stages.base import EngineConfig, EngineInfo

MAX_WORDS = 30
"""Commands are short; what is longer is not even tried."""

OURS = Path(__file__).parents[1] / "skills/intents"

_APOSTROPHES = re.compile("[’‘`´ʼ]")
_ATTENTION = (
    r"(?:hey|hi|hello|ok|okay)(?: (?:jarvis|nabu|mycroft|alexa|computer|assistant|siri|olly|google))?|excuse me|please"
    r"|so|um|uh|well|now|and|alexa|siri|olly|computer|jarvis"
)
_POLITE = (
    r"would you mind telling me|(?:can|could|would|will) you(?: please| kindly)?"
    r"|(?:i'd|id|i would) like to (?:know|get)|i (?:want|need|wonder)(?: to know)?"
    r"|(?:can|could|may) i (?:have|get|know)|do you(?: happen to)? know|sorry(?: to bother you)?|quick|kindly|just"
)
_BEFORE = {"en": re.compile(rf"(?:{_ATTENTION}|{_POLITE})(?:,|\s)\s*", re.I)}
_AFTER = {
    "en": re.compile(
        r"(?:,\s*|\s+)(?:please|thanks|thank you|for me|computer|jarvis|will you|would you|mate|dear)\s*$", re.I
    )
}


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    language: str = "en"
    intents: tuple[str, ...] | None = None
    """The only intents to load; None = all that the language has."""
    beyond: tuple[str, ...] = ()
    """More of them, which other programs handle."""
    names: dict[str, tuple[str, ...]] = {}
    """What stands in the house, by list: name, area, floor. Plain text, no templates."""


class TemplateIntent:
    """`IntentRequest` -> exactly one `IntentMatch`."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        try:
            self._options = msgspec.convert(dict(config.options), Options)
        except msgspec.ValidationError as error:
            raise ConfigError(f"options of the templates engine: {error}") from None
        self._intents: Any = None
        self._language = self._options.language

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(name="templates", model=self._config.model)

    def load(self) -> None:
        """Raises `ConfigError` for a language that has no sentences."""
        self._language = _known_language(self._options.language)
        data = home_assistant_intents.get_intents(self._language)
        self._intents = Intents.from_dict(_merged(data or {}, _our_sentences(self._language), self._options))
        hassil.recognize_best("warm up", self._intents)  # templates are parsed at their first use

    def run(self, request: IntentRequest) -> Iterator[IntentMatch]:
        text = normalise(request.text, self._language)
        found = None
        if 0 < len(text.split()) <= MAX_WORDS:
            # "kitchen lamp" is the lamp of that name before it is any lamp of the kitchen
            found = hassil.recognize_best(text, self._intents, best_slot_name="name")
        if found is None:
            yield IntentMatch(name=None)
            return
        slots = {name: entity.value for name, entity in found.entities.items() if entity.value is not None}
        yield IntentMatch(name=found.intent.name, score=1.0, slots=slots, source="template")

    def close(self) -> None:
        self._intents = None


def normalise(text: str, language: str = "en") -> str:
    """One line, plain apostrophes, without the polite words before and after; case is hassil's business."""
    text = " ".join(_APOSTROPHES.sub("'", text).split()).strip(" .!?,;:\"'-")
    before, after = _BEFORE.get(language), _AFTER.get(language)
    while before and (found := before.match(text)):
        text = text[found.end() :]
    while after and (found := after.search(text)):
        text = text[: found.start()]
    return text.strip(" .!?,;:\"'-")


def _known_language(wanted: str) -> str:
    known = set(home_assistant_intents.get_languages())
    for name in (wanted, wanted.replace("_", "-"), wanted.replace("_", "-").partition("-")[0]):
        if name in known:
            return name
    raise ConfigError(f"stages.intent.language is {wanted!r}; there are sentences for {', '.join(sorted(known))}")


def _our_sentences(language: str) -> dict[str, Any]:
    path = OURS / f"{language}.yaml"
    return yaml.safe_load(path.read_text("utf-8")) if path.is_file() else {}


def _merged(theirs: dict[str, Any], ours: dict[str, Any], options: Options) -> dict[str, Any]:
    """What hassil needs and no more: the intents that are wanted, without the responses."""
    intents: dict[str, Any] = {}
    for source in (theirs, ours):
        for name, intent in source.get("intents", {}).items():
            if options.intents is None or name in options.intents or name in options.beyond:
                groups = _anywhere(intent["data"]) if name in options.beyond else intent["data"]
                intents.setdefault(name, {"data": []})["data"].extend(groups)
    lists, rules = ({**theirs.get(key, {}), **ours.get(key, {})} for key in ("lists", "expansion_rules"))
    lists |= {kind: {"values": list(values)} for kind, values in options.names.items()}
    return {
        "language": theirs.get("language", ours.get("language")),
        "intents": intents,
        "lists": _lists_used(lists, rules, intents),
        "expansion_rules": rules,
        "skip_words": theirs.get("skip_words", []),
    }


def _anywhere(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the conditions on the room and on the kind of a device, of which we know nothing: whoever handles the
    intent does."""
    return [{key: value for key, value in group.items() if not key.endswith("_context")} for group in groups]


def _lists_used(lists: dict[str, Any], rules: dict[str, Any], intents: dict[str, Any]) -> dict[str, Any]:
    """Those that a sentence can reach: lists are most of the work at load time.

    Home Assistant fills {name}, {area} and {floor} with what stands in a house; where nobody has told us what stands in
    ours, they are empty, and sentences with them match nothing.
    """
    text = " ".join(
        sentence for intent in intents.values() for group in intent["data"] for sentence in group["sentences"]
    )
    seen: set[str] = set()
    while more := {name for name in re.findall(r"<(\w+)>", text) if name in rules} - seen:
        seen |= more
        text += " ".join(rules[name] for name in more)
    return {name: lists.get(name, {"values": []}) for name in re.findall(r"\{(\w+)", text)}
