"""Exact sentences -> intents, with Home Assistant's templates, ours and the user's. Imported by the worker alone.

A sentence matches as a whole or not at all, so that "what time is it in a novel about the end of the world" stays a
question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import hassil
import msgspec
from hassil.intents import Intents

from assistant.errors import ConfigError
from assistant.language_code import base_of
from assistant.messages import IntentMatch, IntentRequest
from assistant.nlu import caution, compound
from assistant.nlu.house import House
from assistant.nlu.slots import answer_to, slots_of
from assistant.nlu.words import APOSTROPHES
from assistant.stages import intent_numbers
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.intent_sentences import OF_LOCKS, Sentences, known_language

Shape = TypeVar("Shape")

MAX_WORDS = 30
"""Commands are short; what is longer is not even tried."""
MAX_LENGTH = 300
"""Characters of the same, for languages without spaces."""

LOOSE = 0.9
"""Score of a match in which some words may be anything: "play ..." takes a play in the theatre, too."""

_OPPOSITE = {"HassTurnOn", "HassTurnOff"}
_LOCKS = ("lock", "schloss", "schloß", "serrure", "锁", "鎖", "자물쇠")
"""How a lock is called."""

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
    intents: tuple[str, ...] = ()
    """Those to load of the sentences that come with us; the user's are all loaded."""
    names: dict[str, tuple[str, ...]] = {}
    """What stands in the house, by list: name, area, floor. Plain text, no templates; "lamp|light" has two names, and
    is the first."""
    folders: tuple[str, ...] = ()
    """Of the user's own sentences."""


class Templates:
    """What hassil makes of a sentence."""

    def __init__(self, options: Options) -> None:
        """Raises `ConfigError` for a language that has no sentences."""
        self.language = known_language(options.language)
        values = {kind: list(_values(names)) for kind, names in options.names.items()}
        sentences = Sentences(self.language, frozenset(options.intents), values)
        for folder in options.folders:
            sentences.add_folder(Path(folder))
        self.examples, self.notes = sentences.examples, tuple(sentences.notes)
        self._intents: Any = Intents.from_dict(sentences.data())
        intent_numbers.opened(self._intents, sentences.lists_of_ours)
        hassil.recognize_best("warm up", self._intents)  # templates are parsed at their first use

    def match(self, text: str) -> IntentMatch:
        """Of score 1, or `LOOSE`; `name` None when no template fits."""
        plain, found = normalise(text, self.language), None
        # "i need" is polite before a question, and the beginning of "i need milk on the list"
        for words in dict.fromkeys((plain, stripped(text), intent_numbers.in_digits(plain, self.language))):
            if found is None and is_short(words):
                # "kitchen lamp" is the lamp of that name before it is any lamp of the kitchen
                found = _best(hassil.recognize_ranked(words, self._intents, best_slot_name="name"), words)
        if found is None:
            return IntentMatch(name=None, text=text)
        loose = any(entity.is_wildcard for entity in found.entities.values())
        slots = {name: _value(entity) for name, entity in found.entities.items() if entity.value is not None}
        score = LOOSE if loose else 1.0
        return IntentMatch(name=found.intent.name, score=score, slots=slots, source="template", text=text)


class TemplateIntent:
    """`IntentRequest` -> one `IntentMatch` for each request of the sentence."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._options = options_of(config, Options)
        self._templates: Templates | None = None
        self._house = House.of(self._options.names)

    @property
    def info(self) -> EngineInfo:
        notes = self._templates.notes if self._templates else ()
        return EngineInfo(name="templates", model=self._config.model, notes=notes)

    def load(self) -> None:
        """Raises `ConfigError` for a language that has no sentences."""
        self._templates = Templates(self._options)

    def run(self, request: IntentRequest) -> Iterator[IntentMatch]:
        templates = self._templates
        assert templates is not None, "load comes first"
        completed = answered(request, templates, self._house)
        if completed is not None:
            yield completed
            return
        for match in compound.requests(request.text, self._match, templates.language):
            yield counted(match, templates.language)

    def _match(self, text: str) -> IntentMatch:
        assert self._templates is not None, "load comes first"
        return refined(self._templates.match(text), self._house, self._templates.language)

    def close(self) -> None:
        self._templates = None


def answered(request: IntentRequest, templates: Templates, house: House) -> IntentMatch | None:
    """The command that was asked back about, with what it lacked; None when the user says something else."""
    pending = request.pending
    if pending is None or not pending.name or not request.wanted:
        return None
    exact = templates.match(request.text)
    if exact.score >= 1 and exact.name != pending.name:
        return None
    found = answer_to(pending.name, request.wanted, request.text, house, templates.language)
    if not found:
        return None
    if caution.calculates(pending.name, request.text, templates.language):
        found = {}  # it is asked again
    return IntentMatch(
        name=pending.name,
        score=pending.score,
        slots={**pending.slots, **found},
        source=pending.source,
        text=f"{pending.text} {request.text}".strip(),
    )


def refined(match: IntentMatch, house: House, language: str) -> IntentMatch:
    """With the words that may be anything reduced to what was meant: "some jazz" -> "jazz". The rules for that are
    English; in other languages the template knows best."""
    if match.name is None or match.score >= 1 or base_of(language) != "en":
        return match
    slots = slots_of(match.name, match.text, house, language)
    # "play some music" looks for nothing, and "play songs by queen" for no song called "s by queen"
    kept = set(match.slots) - {"search_query", "media_class"}
    return msgspec.structs.replace(match, slots=slots) if kept <= set(slots) else match


def counted(match: IntentMatch, language: str) -> IntentMatch:
    """With what keeps a command from being done whose number would have to be calculated."""
    exact = match.source == "template"
    if match.name is None or not caution.calculates(match.name, match.text, language, exact=exact):
        return match
    return msgspec.structs.replace(match, slots={**match.slots, "sum": 1})


def options_of(config: EngineConfig, shape: type[Shape]) -> Shape:
    """Raises `ConfigError`."""
    try:
        return msgspec.convert(dict(config.options), shape)
    except msgspec.ValidationError as error:
        raise ConfigError(f"options of the intent engine: {error}") from None


def _values(names: tuple[str, ...]) -> Iterator[dict[str, str]]:
    for name in names:
        first, *others = (part.strip() for part in name.split("|"))
        for spoken in (first, *others):
            yield {"in": spoken, "out": first}


def _best(ranked: list[Any], words: str) -> Any:
    """The first. Where one verb opens a door and unlocks a lock ("打开"), which are two opposite intents, it is about a
    lock only when a lock is named: we do not know which of the things in the house is one."""
    if not ranked or not _of_locks(ranked[0]) or any(lock in words.casefold() for lock in _LOCKS):
        return ranked[0] if ranked else None
    first, named = ranked[0], ranked[0].entities.get("name")
    for other in ranked[1:]:
        same = (found := other.entities.get("name")) is named or (found and named and found.value == named.value)
        if same and not _of_locks(other) and {first.intent.name, other.intent.name} == _OPPOSITE:
            return other
    return first


def _of_locks(found: Any) -> bool:
    return bool((found.intent_metadata or {}).get(OF_LOCKS))


def _value(entity: Any) -> str | int | float:
    value: str | int | float = entity.value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip() if isinstance(value, str) else value


def is_short(text: str) -> bool:
    """As short as commands are, and not empty."""
    return 0 < len(text.split()) <= MAX_WORDS and len(text) <= MAX_LENGTH


def normalise(text: str, language: str = "en") -> str:
    """One line, plain apostrophes, without the polite words before and after; case is hassil's business."""
    text = stripped(text)
    before, after = _BEFORE.get(language), _AFTER.get(language)
    while before and (found := before.match(text)):
        text = text[found.end() :]
    while after and (found := after.search(text)):
        text = text[: found.start()]
    return text.strip(" .!?,;:\"'-")


def stripped(text: str) -> str:
    """One line, plain apostrophes, no marks at its ends."""
    return " ".join(APOSTROPHES.sub("'", text).split()).strip(" .!?,;:\"'-")
