"""One sentence, several requests: "play some jazz and tell me who invented it". Pure.

A cut is made where a conjunction stands between a command and another request, never inside a command that is
understood as a whole ("add eggs and bacon", "an hour and a half", "play rock and roll").
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from assistant.language_code import base_of
from assistant.messages import IntentMatch

MAX_WORDS = 60
"""What is longer is a story."""
MAX_CUTS = 4
_BY_NAME = ("HassTurnOn", "HassTurnOff")
"""Templates know bare names as switching on: "turn off the tv and the heater" has one verb."""
_ENDS = " ,.;!?，。？！"
_POINTING = frozenset({"it", "them", "that", "this", "those", "these"})

One = Callable[[str], IntentMatch]
"""What a sentence means by itself."""


@dataclass(frozen=True, slots=True)
class _Words:
    """Of a language: what stands between requests, what begins one, what points back to the thing named before."""

    between: re.Pattern[str]
    asks: re.Pattern[str]
    """Begins a question, or a request for words."""
    orders: re.Pattern[str] | None
    """Begins a command; None = the sentence alone must show it."""
    supposes: re.Pattern[str] | None
    """In a question: what follows is no request."""
    back: re.Pattern[str]
    spaced: bool = True
    alone: Mapping[str, str] = field(default_factory=dict)
    """Conjunctions that are the end of a verb, and how it ends alone."""


def _between(conjunctions: str, more: str = "") -> re.Pattern[str]:
    """Marks, or conjunctions (with `more` behind them) that may have marks before them."""
    return re.compile(rf"(?:\s*[,;.]\s*|\s+)(?:(?:{conjunctions})\s+)+{more}|\s*[,;.?!]\s+", re.I)


_EN = _Words(
    between=_between("and|then|also|plus", more=r"(?:after that\s+|please\s+)?"),
    asks=re.compile(
        r"(?:please |can you |could you |would you )?(?:tell|explain|describe|say|who|whos|what|whats|when|where|which"
        r"|why|how|is|are|was|were|do|does|did|has|have|give me|define|name|recommend|suggest|sing|read|write"
        r"|translate|i want to know|i wonder|let me know|teach)\b",
        re.I,
    ),
    orders=re.compile(
        r"(?:please |can you |could you |would you |also |then )*(?:turn|switch|set|put|play|stop|pause|resume|start"
        r"|begin|add|open|close|shut|lock|unlock|cancel|delete|remove|mute|unmute|dim|brighten|make|lower|raise"
        r"|increase|decrease"
        r"|skip|next|kill|clear|check|cross|take|crank|bring|draw|pull|run|activate|deactivate|continue|shuffle)\b",
        re.I,
    ),
    supposes=re.compile(r"\b(?:if|when|whether|should|because|happens|suppose|why|how (?:do|does|can|to))\b", re.I),
    back=re.compile(r"\b(?:it|this song|that song|the song|this one|that one|this track|that|this)\b(?!\s+is\b)", re.I),
)
_DE = _Words(
    between=_between("und|dann|danach|außerdem"),
    asks=re.compile(
        r"(?:bitte )?(?:sage?|erzähle?|erkläre?|nenne?|wer|was|wann|wo|warum|wie|welche\w*|ist|sind)\b", re.I
    ),
    orders=None,
    supposes=re.compile(r"\b(?:wenn|falls|ob)\b", re.I),
    back=re.compile(r"\b(?:dieses lied|diesen song|das lied|es)\b", re.I),
)  # fmt: skip
_FR = _Words(
    between=_between("et|puis|ensuite|aussi"),
    asks=re.compile(
        r"(?:dis|dites|raconte|explique|donne|qui|que|quoi|quand|où|pourquoi|comment|quel\w*|est-ce)\b", re.I
    ),
    orders=None,
    supposes=re.compile(r"\b(?:si|quand)\b", re.I),
    back=re.compile(r"\b(?:cette chanson|ce morceau|la chanson)\b", re.I),
)  # fmt: skip
_ZH = _Words(
    between=re.compile(r"\s*(?:[，,；;。？！]\s*(?:并且|然后|而且|再|并|顺便|还有)?|并且|然后|而且|顺便|并|再(?=告诉|讲|说|播放|打开|关))\s*"),
    asks=re.compile(r"(?:请|再|顺便|也)*(?:告诉|讲|说|介绍|解释|谁|什么|为什么|为何|怎么|怎样|哪|是|给我讲|给我介绍|描述|推荐)"),
    orders=None,
    supposes=re.compile(r"如果|假如|要是"),
    back=re.compile(r"这首歌|这首曲子|该歌曲|它|这张专辑"),
    spaced=False,
)  # fmt: skip
_KO = _Words(
    between=re.compile(
        r"(?:하고|주고|해주고|틀고|켜고|끄고|재생하고)\s+|\s*(?:,|그리고|그런 다음|그 다음에)\s+|\s*[;.?!]\s+"
    ),
    asks=re.compile(r".*(?:알려|말해|설명|누구|무엇|뭐|왜|언제|어디|어떻게|이야기)"),
    orders=None,
    supposes=re.compile(r"만약"),
    back=re.compile(r"이 노래|그 노래|이 곡"),
    alone={
        "하고": "해줘",
        "주고": "줘",
        "해주고": "해줘",
        "틀고": "틀어줘",
        "켜고": "켜줘",
        "끄고": "꺼줘",
        "재생하고": "재생해줘",
    },
)
_LANGUAGES = {"en": _EN, "de": _DE, "fr": _FR, "zh": _ZH, "ko": _KO}


def orders(text: str) -> bool:
    """Whether an English sentence begins as a command does."""
    return _EN.orders is not None and _EN.orders.match(text) is not None


def requests(text: str, one: One, language: str = "en") -> list[IntentMatch]:
    """The requests of a sentence: commands in their order, and behind them at most one question (`name` None), whose
    `text` is what the LLM shall be asked. `one` says what a sentence means by itself; it is asked a few times."""
    one = functools.lru_cache(None)(one)  # a sentence that has no cut is asked about again at the end
    whole = one(text)
    if whole.name and whole.score >= 1:
        return [whole]
    words = _LANGUAGES.get(base_of(language))
    if words is None or len(text) > 400 or len(text.split()) > MAX_WORDS:
        return [whole]
    found = _Cutter(one, words).cut(text, MAX_CUTS)
    commands = [part for part in found if part.name]
    questions = [part.text for part in found if not part.name]
    if not questions and (_said_twice(found, whole) or _points_back(found, whole)):
        return [whole]
    if not commands or not questions:
        return found if commands else [whole]
    asked = (" " if words.spaced else "，").join(questions)
    return [*commands, IntentMatch(name=None, text=_resolved(asked, commands, words))]


def _said_twice(found: list[IntentMatch], whole: IntentMatch) -> bool:
    """A wish and its reason are one request: "it's too dark in here, make it brighter" is done once."""
    slots: dict[str, str | int | float] = {}
    for part in found:
        if part.name != whole.name or any(slots.get(name, value) != value for name, value in part.slots.items()):
            return False
        slots |= part.slots
    return slots == whole.slots and any(part.score < 1 for part in found)


def _points_back(found: list[IntentMatch], whole: IntentMatch) -> bool:
    """ "We are out of eggs, put them on the list": "them" alone is nothing to put there."""
    if len(found) != 2 or found[1].name != whole.name:
        return False
    return not _POINTING & set(map(str, whole.slots.values())) and bool(
        _POINTING & set(map(str, found[1].slots.values()))
    )


class _Cutter:
    def __init__(self, one: One, words: _Words) -> None:
        """`one` remembers what it was asked."""
        self._one, self._words = one, words

    def cut(self, text: str, cuts: int) -> list[IntentMatch]:
        """At the first place that holds, and so on with the rest."""
        if cuts:
            for left, right in self._places(text):
                first = self._one(left)
                if not first.name and not self._is_question(left):
                    continue
                rest = self.cut(right, cuts - 1)
                if self._is_order(rest[0]) or (first.name and self._words.asks.match(rest[0].text)):
                    return [first, *rest]
        return [self._one(text)]

    def _places(self, text: str) -> Iterator[tuple[str, str]]:
        for found in itertools.islice(self._words.between.finditer(text), MAX_CUTS * 2):
            left = (text[: found.start()] + self._words.alone.get(found[0].strip(), "")).strip(_ENDS)
            right = text[found.end() :].strip(_ENDS)
            if left and right:
                yield left, right

    def _is_question(self, text: str) -> bool:
        """Whole by itself: what follows "what happens if" is no request."""
        words = self._words
        return bool(words.asks.match(text)) and not (words.supposes and words.supposes.search(text))

    def _is_order(self, part: IntentMatch) -> bool:
        orders = self._words.orders
        if not part.name or (orders is None and part.source == "template"):
            return bool(part.name)
        if orders is not None and orders.match(part.text):
            return True
        return part.score >= 1 and part.name not in _BY_NAME


def _resolved(question: str, commands: list[IntentMatch], words: _Words) -> str:
    """The question with the thing that was named before it in the place of "it", when there is exactly one."""
    things = {str(part.slots["search_query"]) for part in commands if part.slots.get("search_query")}
    if len(things) != 1:
        return question
    thing = things.pop()
    return words.back.sub(lambda found: thing, question, count=1)
