"""Slots of the shopping list and the calendar: the item, the day. Rules for English. Pure; imports fillers, words."""

from __future__ import annotations

import re

from assistant.nlu.fillers import FILLERS
from assistant.nlu.targets import Slots
from assistant.nlu.words import joined, trimmed, word_set

_LIST = (
    r"(?:(?:the|my|our|this|your|that|a) )*(?:(?:(?:shopping|grocery|groceries|food|supermarket|todo)(?: (?:lists?|lisp))?"
    r"|lists?|lisp)(?: of (?:shopping|things to (?:buy|get)|groceries))?)"
)
_LIST_ALONE = (
    rf"(?:(?:the|my|our|this|your) )*(?:(?:shopping|grocery|groceries|food) (?:lists?|lisp)|lists?|groceries|shopping)"
)
_ON_LIST = re.compile(
    rf"\s*\b(?:also )?(?:(?:must|has to|have to|needs? to|should|can|could)? ?(?:go|goes|be|come|added|put) )?"
    rf"(?:to|on ?to|onto|on|in|into|from|off of|off|of|at|for|too|two|down on|up on|with|over to) {_LIST}"
    r"(?: (?:too|also|as well|obviously|again|now|please))*(?=\s|$)"
)
_LIST_FIRST = re.compile(
    rf"^{_LIST_ALONE}(?: (?:needs?|should have|add|put|has to have|wants?|include|get|also))*\s+(?=\S)"
)
_LIST_SOMEWHERE = re.compile(rf"\b{_LIST_ALONE}\s*$")
_THEM = r"(?:it|them|that|those|this|some|one|these|him)"
_ADD_THEM = re.compile(
    rf"\s+(?:so |and |then |just |better )*(?:please |can you |could you |you can )?(?:add|put|write|note|stick|get|pop|jot|include|chuck|order|buy)"
    rf" {_THEM}(?: (?:on|down|there|in))?(?: (?:to|on|in) (?:there|it))?(?: .{{0,12}})?$"
)
_ADD = re.compile(
    r"\b(?:add|ad|at(?= \w+ (?:and|to|on))|put|append|include|chuck|bung|stick|pop|write down|write|jot down|jot|note down|note"
    r"|get|throw|place|enter|insert|log|scribble|whack|register|save|record|toss|slap|sling|plop)\b"
    r"(?: (?:down|in|me|us|on|please|also|like|some more))*\s+(?=\S)"
)
_NEED = re.compile(
    r"\b(?:(?:i|we|you|he|she|they|house|kids|dog|cat|list)(?:'?re|'?ve|'?m| are| have| am| is)?(?: (?:also|really|just|still|do|will|should|must|got to|have to|gotta))?"
    r" ?(?:need|needs|buy|want|wants|get|require)(?: (?:to (?:buy|get|pick up|have)|more))*"
    r"|(?:run|ran|running|all|nearly|almost|clean)? ?out of|(?:running |getting |a bit )?low on|short of"
    r"|(?:used|ate|finished|drank|had)(?: up)?(?: (?:the|all))? (?:last|end|rest)(?: bit)? of|last of|no more|no"
    r"|remember to (?:buy|get)|remind me to (?:buy|get)|forget(?: to (?:buy|get|pick up))?|should (?:buy|get)|need to (?:buy|get)"
    r"|have no more|without|need|buy|pick up|there(?:'?s| is) no(?: more)?|theres no(?: more)?|going to need|(?:used|ate) all(?: of)?)\b\s*(?:any |some )?(?=\S)"
)
_FINISHED = re.compile(
    r"^(?:the |our |my )?(.+?) (?:is|are|has|have|ran|run)(?: all| nearly| almost)? (?:finished|gone|empty|out|low)\b"
)
_GO_ON = re.compile(
    r"^(?:the )?(.+?) (?:go|goes|have to go|has to go|need to be|needs to be|should be|as well|also|too|add|too please)$"
)

_DONE_WORDS = (
    r"(?:done|bought|got|purchased|complete[d]?|finished|sorted|found|checked|ticked|crossed|collected|picked up)"
)
_TAKE_OFF = (
    r"(?:tick(?:ed)? off|ticked?|cross(?:ed)? off|cross(?:ed)? out|cross|check(?:ed)? off|check(?:ed)? out|check|mark(?:ed)? off|mark"
    r"|complete(?: the item| item)?|take off|take of|take out|take|remove|delete|scratch(?: off| out)?|strike(?: off| out| through)?"
    r"|drop|ditch|lose|get rid of|erase|clear|scrap|kick|cut|wipe|bin|pull|get|forget(?: about)?|scrub(?: off)?|score off|put a line through)"
)
_HAVE = (
    r"(?:(?:i|we|dad|daddy|mum|mom|mummy|he|she|they|somebody|someone)?(?:'?ve|'?s|'?d| have| has| had)?(?: already| just| now| finally| also)*"
    r" ?(?:bought|got|have|picked up|pick up|grabbed|found|purchased|collected|ordered|brought|put)|no need (?:for|to (?:buy|get)|of)"
    r"|(?:i|we) (?:do not|don'?t|won'?t|wont|no longer) (?:need|want)(?: to buy| to get)?|dont need|don't need|already (?:have|got))"
)
_THEN_OFF = re.compile(
    rf"\s+(?:so |and |then |please |you can |can you |could you |love |dear )*(?:{_TAKE_OFF}) {_THEM}\b.*$"
    r"|\s+(?:tick|check|done)(?: tick| check)*$"
)
_OFF_VERB = re.compile(rf"\b{_TAKE_OFF}\b(?: (?:the last thing|off|like|whatsit|item))*\s+(?=\S)")
_HAVE_VERB = re.compile(rf"\b{_HAVE}\b(?: (?:already|the last|just))*\s+(?=\S)")
_IS_DONE = re.compile(
    rf"^(?:the |our |my )?(.+?)(?: (?:is|are|was|were|can|has|have|theyre|they're|its|it's|i|we))?(?: (?:been|be|already|all|now|have|come))*"
    rf" (?:{_DONE_WORDS}|off|in (?:the|my) (?:trolley|basket|cart|bag|fridge|car)|tick|check|have|come off)\b.*$"
)
_REST_OFF = re.compile(
    rf"(?:\s+(?:off|out|of|as|from|anymore|any more|already|now|again|is|are|all|too|in|on|{_DONE_WORDS}|no longer needed))+$"
)
_REASONS = re.compile(
    r"\s+(?:(?:i|ive|i've|we|weve|we've|they|theyre|they're|he|she|dad|mum|mom|sarah|nobody|somebody|its|it's|hes|shes|were|we're|the \w+s)\b"
    r"(?! (?:and|to)\b)|because|cause|before|so (?:i|we)|in the (?:trolley|basket|cart)|for (?:me|us|sunday|saturday|tomorrow|tonight|dinner)$|when|quick$"
    r"|thats?|my hands|\bthe nice ones).*$"
)
_FRONT = word_set("the my our some a an any more of also as well too like please that")
_KEEP_ARTICLE = word_set("a an")
_UNITS = word_set(
    "dozen couple bottle pack packet loaf bag box tin can carton jar pint kilo pound bunch bit lot few half litre"
)


def item(intent: str, words: list[str]) -> Slots:
    """The item or items, as they were said, in one piece."""
    text = joined(trimmed(words, FILLERS, FILLERS))
    found = _completed(text) if intent.endswith("CompleteItem") else _added(text)
    return {"item": found} if found else {}


def item_answer(words: list[str]) -> Slots | None:
    found = _clean(joined(words)) or _added(joined(words))
    return {"item": found} if found else None


def _added(text: str) -> str:
    text, on_list = _ON_LIST.subn("", text)
    text = text.strip()
    text = _LIST_FIRST.sub("", text)
    text = _ADD_THEM.sub("", f" {text}").strip()
    text = _LIST_SOMEWHERE.sub("", text).strip() if on_list == 0 else text
    add = None
    for add in _ADD.finditer(text):
        if not re.match(rf"{_THEM}\b", text[add.end() :]):
            break
    if add is not None and _clean(text[add.end() :]):
        return _clean(text[add.end() :])
    if finished := _FINISHED.match(text):
        return _clean(finished[1])
    if need := _NEED.search(text):
        return _clean(text[need.end() :])
    if go := _GO_ON.match(text):
        return _clean(go[1])
    return _clean(text)


def _completed(text: str) -> str:
    text = _ON_LIST.sub(" off", f" {text}").strip()
    text = _THEN_OFF.sub("", f" {text}").strip()
    off = _OFF_VERB.search(text)
    have = _HAVE_VERB.search(text)
    if off and not re.match(rf"{_THEM}\b", text[off.end() :]):
        return _clean(_REST_OFF.sub("", _REASONS.sub("", _REST_OFF.sub("", text[off.end() :]))))
    if have:
        return _clean(_REST_OFF.sub("", _REASONS.sub("", text[have.end() :])))
    if done := _IS_DONE.match(text):
        return _clean(done[1])
    return _clean(_REST_OFF.sub("", text))


def _clean(text: str) -> str:
    """Without a reason behind it, without articles in front: "a dozen eggs" keeps its "a"."""
    words = trimmed(
        _REASONS.sub("", f" {text}").split(),
        FILLERS,
        FILLERS | {"also", "well", "as", "there", "obviously", "down", "on"},
    )
    while words and words[0] in _FRONT | FILLERS:
        if words[0] in _KEEP_ARTICLE and words[1:2] and words[1] in _UNITS:
            break
        words = words[1:]
    return joined(words)


_DAYS = (
    (re.compile(r"\bday after tomorrow\b"), 2),
    (re.compile(r"\bday before yesterday\b"), -2),
    (re.compile(r"\btomorrow'?s?\b"), 1),
    (re.compile(r"\byesterday'?s?\b"), -1),
)
_PARTS = (
    (
        re.compile(r"\bwhat time\b|\bthe time\b|\btime and (?:the )?(?:date|day)\b|\b(?:date|day) and (?:the )?time\b"),
        "time",
    ),
    (re.compile(r"\byear (?:is|are|it|do|now|we)\b|\b(?:which|what|current|the) year\b(?!.*\bdate\b)"), "year"),
    (re.compile(r"\b(?:which|what|current|the|this) month\b(?!.*\bday\b)|\bmonth (?:is|are|it)\b"), "month"),
)


def date(words: list[str]) -> Slots:
    """offset_days, part: as our sentences have them."""
    text = joined(words)
    slots: Slots = {}
    for pattern, days in _DAYS:
        if pattern.search(text):
            slots["offset_days"] = days
            break
    part = next((part for pattern, part in _PARTS if pattern.search(text)), None)
    if part and not re.search(r"day of the month|date.*with the year", text):
        slots["part"] = part
    return slots
