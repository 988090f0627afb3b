"""What people mean, exactly or in their own words: templates first, then a small encoder. Imported by the worker alone.

A template decides when it fits word for word. Where some of its words may be anything ("play ..."), and where none
fits, the encoder says what is meant; slots then come from the same sentence. Phrases that the user gave as examples of
his own intents are compared in the encoder's space. Languages that the encoder does not know have templates alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from assistant.errors import AssistantError
from assistant.messages import IntentMatch, IntentRequest
from assistant.nlu import caution, compound
from assistant.nlu.house import House
from assistant.nlu.several import each_of
from assistant.nlu.slots import slots_of
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.intent_encoder import NONE, Prototypes, SentenceClassifier, plain
from assistant.stages.intent_templates import (
    Options,
    Templates,
    answered,
    counted,
    is_short,
    normalise,
    options_of,
    refined,
)

ENGLISH = "en"
CONTRADICTED = 0.7
"""So sure the encoder must be that something else is meant, to overrule a template in which words may be anything."""


_NUMBERS = ("duration", "hours", "minutes", "seconds", "volume_level", "volume_step", "brightness", "temperature")
_IT = re.compile(r"\b(?:it|that|this)\b", re.I)


class ClassifierOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    threshold: float = 0.0
    """Of the score, from which on a sentence is a command; 0 = as the model was made."""


@dataclass(slots=True)
class _Loaded:
    templates: Templates
    house: House
    encoder: SentenceClassifier | None
    own: Prototypes | None
    """Of the user's intents with examples."""
    examples: dict[str, str]
    """Word for word, and which intent each is of."""


class ClassifierIntent:
    """`IntentRequest` -> one `IntentMatch` for each request of the sentence."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._options = options_of(config, ClassifierOptions)
        self._loaded: _Loaded | None = None
        self._notes: list[str] = []

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(name="classifier", model=self._config.model, notes=tuple(self._notes))

    def load(self) -> None:
        """Raises `ConfigError` for a language that has no sentences, `ModelError` for a damaged encoder."""
        templates = Templates(self._options)
        self._notes = list(templates.notes)
        encoder = own = None
        if templates.language == ENGLISH:
            encoder = SentenceClassifier.load(self._config.model_dir, self._config.threads)
            own = self._own(encoder, templates)
        elif templates.examples:
            self._notes.append(f"examples of intents are for English; {templates.language!r} has its templates alone")
        examples = {_bare(text): name for name, texts in templates.examples.items() for text in texts}
        self._loaded = _Loaded(templates, House.of(self._options.names), encoder, own, examples)

    def _own(self, encoder: SentenceClassifier, templates: Templates) -> Prototypes | None:
        if not templates.examples:
            return None
        own = Prototypes(encoder)
        for name, phrases in templates.examples.items():
            try:
                own.add(name, phrases)
            except AssistantError as error:
                self._notes.append(f"intent {name}: {error.message}")
        return own

    def run(self, request: IntentRequest) -> Iterator[IntentMatch]:
        loaded = self._loaded
        assert loaded is not None, "load comes first"
        another = self._orders_another(request, loaded.encoder)
        completed = None if another else answered(request, loaded.templates, loaded.house)
        if completed is not None:
            yield completed
            return
        english = loaded.templates.language == ENGLISH
        for match in compound.requests(request.text, self._meant, loaded.templates.language):
            each = [match.slots]
            if match.name is not None and match.score < 1:  # "turn off the tv and the heater" are two
                each = each_of(match.name, match.text, match.slots, loaded.house)
            for slots in each:
                one = counted(msgspec.structs.replace(match, slots=slots), loaded.templates.language)
                yield cautious(one) if english else one

    def _orders_another(self, request: IntentRequest, encoder: SentenceClassifier | None) -> bool:
        """Whether it is a whole new command, though it has a number, which was asked for. Without a verb, and of "it",
        it is the answer."""
        pending, text = request.pending, request.text
        if pending is None or request.wanted not in _NUMBERS or encoder is None or not is_short(text):
            return False
        if not compound.orders(text) or _IT.search(text):
            return False
        name, sure = encoder.classify(text).ranking[0]
        return name != NONE and sure >= CONTRADICTED and _kind(name) != _kind(pending.name or "")

    def close(self) -> None:
        self._loaded = None

    def _meant(self, text: str) -> IntentMatch:
        """By a sentence that is one request."""
        loaded = self._loaded
        assert loaded is not None, "load comes first"
        match = refined(loaded.templates.match(text), loaded.house, loaded.templates.language)
        if match.score >= 1 or loaded.encoder is None:
            return match
        if not is_short(text):
            return match
        if (bare := _bare(text)) and (example := loaded.examples.get(bare)):
            return IntentMatch(name=example, score=1.0, source="classifier", text=text)
        own_name, own_score = loaded.own.nearest(text) if loaded.own is not None else (None, 0.0)
        if own_name is not None:  # nearer to an example than sentences of different meanings ever are
            return IntentMatch(name=own_name, score=own_score, source="classifier", text=text)
        found = loaded.encoder.classify(text)
        if match.name is not None:
            other, sure = found.ranking[0]
            if other == match.name or sure < CONTRADICTED:
                return match
        if found.name is None or found.score < self._options.threshold:
            return IntentMatch(name=None, text=text)
        slots = slots_of(found.name, text, loaded.house)
        return IntentMatch(name=found.name, score=min(found.score, 0.99), slots=slots, source="classifier", text=text)


def cautious(match: IntentMatch) -> IntentMatch:
    """With what keeps a command from being done at once, and what an ambiguous verb was meant for."""
    name = match.name
    if name is None:
        return match
    if caution.forbidden(name, match.text):
        return IntentMatch(name=None, text=match.text)
    slots = dict(match.slots)
    if caution.later(name, match.text):
        slots["later"] = 1
    if caution.leaves_out(name, match.text):
        slots["except"] = 1
    if room := caution.room(name, match.text, slots):
        slots["area"] = room
    if kind := caution.kind(name, match.text, slots):
        slots["domain"] = kind
    return msgspec.structs.replace(match, slots=slots)


def _kind(name: str) -> str:
    """ "Add five minutes" is an answer to "for how long?", too."""
    return "Timer" if name.endswith("Timer") else name.removesuffix("Relative")


def _bare(text: str) -> str:
    """Without marks and polite words."""
    return plain(normalise(text, ENGLISH))
