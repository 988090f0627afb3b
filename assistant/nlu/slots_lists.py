"""Slots of the shopping list and the calendar: the item, the day. Rules for English. Pure; imports fillers, vocabulary,
words.
"""

from __future__ import annotations

import re

from assistant.nlu.fillers import FILLERS
from assistant.nlu.vocabulary import Slots
from assistant.nlu.words import joined, trimmed, word_set

_OWN = r"(?:(?:the|my|our|this|your|that|a) )*"
_LISTS = r"(?:lists?|lisp)"
_OF_WHAT = r"(?: of (?:shopping|things(?: to (?:buy|get))?|groceries))?"
_SHOP = r"(?:to ?do )?(?:shopping|grocery|groceries|food|supermarket)"
_LIST = rf"{_OWN}(?:{_SHOP}(?: (?:{_LISTS}|bag|cart|basket))?|{_LISTS}){_OF_WHAT}"
_THE_LIST = rf"{_OWN}(?:(?:shopping|grocery|groceries|food) {_LISTS}|{_LISTS}|groceries|shopping)"
_MUST = r"(?:(?:must|has to|have to|had to|needs? to|should|can|could) )?(?:(?:go|goes|be|come|added|put) )?"
_ON_LIST = re.compile(
    rf"\s*\b(?:also )?{_MUST}(?:to|on ?to|on|in|into|from|off of|off|of|at|for|too|two|down on|up on|with|over to) "
    rf"(?:{_LIST}|there)(?: (?:too|also|as well|obviously|again|now|please))*(?=\s|$)"
)
_LIST_FIRST = re.compile(
    rf"^{_THE_LIST}(?: (?:needs?|should have|add|put|has to have|wants?|include|get|also))*\s+(?=\S)"
)
_LIST_LAST = re.compile(rf"\b{_THE_LIST}\s*$")
_ASKING = r"(?:so |and |then |just |better |please |you can |can you |could you |love |dear |mate )*"

_THEM = r"(?:it|them|that|those|this|some more|some|more|one|these)"
_THEM_ALONE = re.compile(rf"{_THEM}(?= (?:to|on|off|in|down|out|please|too|up)\b|$)")
_ADD_WORDS = (
    r"(?:add|ad|put|append|include|chuck|bung|stick|pop|write down|write|jot down|jot|note down|note|get|throw|place"
    r"|enter"
    r"|insert|log|scribble|register|save|record|toss|slap|sling|plop)"
)
_ADD_THEM = re.compile(
    rf"\s+{_ASKING}(?:{_ADD_WORDS}|order|buy) {_THEM}(?: (?:on|down|there|in|to it|on it|please|now|too|for me"
    rf"|again))*$"
)
_ADD = re.compile(
    rf"\b(?:{_ADD_WORDS}|at(?= \w+ (?:and|to|on)))\b(?: (?:down|in|me|us|on|please|also|like|some more))*\s+"
)
_WHO = r"(?:i|we|you|he|she|they|house|kids|dog|cat|list)"
_IS = r"(?:'?re|'?ve|'?m| are| have| am| is)?"
_OFTEN = r"(?: (?:also|really|just|still|do|will|should|must|got to|have to|gotta))?"
_NEED = re.compile(
    r"\b(?:"
    rf"{_WHO}{_IS}{_OFTEN} ?(?:needs?|buy|wants?|get|requires?)(?: (?:to (?:buy|get|pick up|have)|more))*"
    r"|(?:(?:run|ran|running|all|nearly|almost|clean) )?out of|(?:running |getting |a bit )?(?:low on|short (?:of|on))"
    r"|(?:used|ate|finished|drank|had)(?: up)?(?: (?:the|all))? (?:last|end|rest)(?: bit)? of|last of|no more"
    r"|(?:remember|remind me|need|going|forget) to (?:buy|get|pick up)|forget|should (?:buy|get)"
    r"|have no(?: more)?|havent got(?: any)?|without|needs?|buy|pick up|there(?:'?s| is) no(?: more| any)?"
    r"|(?:used|ate) all(?: of)?|(?:(?:can|could|may) (?:we|i|you)|^we) have(?! (?:just |all )?(?:run|ran|none))"
    r")\b\s*(?:any |some |more )?(?=\S)"
)
_FINISHED = re.compile(
    r"^(?:the |our |my )?(.+?) (?:is|are|has|have|ran|run)(?: all| nearly| almost)? (?:finished|gone|empty|out|low)\b"
)
_GO_ON = re.compile(
    r"^(?:the )?(.+?) (?:go|goes|have to go|has to go|needs? to be|should be|as well|also|too|add|too please)$"
)
_ASIDE = re.compile(
    r"^note to self\s+|^make sure (?:that )?(?:we (?:get|buy) )?|\s+gets?(?= added)|\s+and (?:remove|delete|take"
    r"|need) .*$|\s+on it$|\s+left$|\bhow (?:is it|do you|its|is that) (?:called|say|call it)\s+"
)

_DONE_WORDS = (
    r"(?:done|bought|got|purchased|completed?|finished|sorted|found|checked|ticked|crossed|collected|picked up)"
)
_TAKE_OFF = (
    r"(?:tick(?:ed|ing)?(?: off)?|cross(?:ed|ing)?(?: off| out)?|check(?:ed|ing)?(?: off| out)?|mark(?:ed)?(?: off)?"
    r"|complete(?: the item| item)?|tak(?:e|ing)(?: off| of| out| away)?|remov(?:e|ing)|delet(?:e|ing)"
    r"|scratch(?: off| out)?"
    r"|strike(?: off| out| through)?|drop|ditch|lose|get rid of|erase|clear|scrap|kick|cut|wipe|pull|get"
    r"|forget(?: about)?|scrub(?: off)?|score off|put a line through|(?:check|tick) ?mark (?:next to|on|by)|set"
    r"|bin(?= (?:the|my|that)\b))"
)
_PEOPLE = r"(?:(?:i|we|dad|daddy|mum|mom|mummy|mommy|he|she|they|somebody|someone)\b)?"
_HAVE = (
    rf"(?:{_PEOPLE}(?:'?ve|'?s|'?d| have| has| had)?(?: already| just| now| finally| also)* ?"
    r"(?:bought|got|have(?: already)?|picked up|pick up|grabbed|found|purchased|collected|ordered|brought|put)"
    r"|im holding|i'm holding|(?:we|i)'?ve enough|have enough|no need (?:for|to (?:buy|get)|of)|out of|had no"
    r"|gave (?:me|us)(?: the)?(?: last)?"
    r"|(?:i|we) (?:do not|don'?t|won'?t|no longer) (?:need|want)(?: to buy| to get)?|don'?t need|already (?:have|got))"
)
_THEN_OFF = re.compile(
    rf"\s+{_ASKING}{_TAKE_OFF}(?: {_THEM}| that one)(?: (?:off|out|both|all|now|please|again|done))*$"
    rf"|\s+{_ASKING}{_TAKE_OFF} (?:off|from)$|\s+(?:tick|check|done)(?: tick| check)*$"
    r"|\s+(?:so )?(?:those|these|it|they|that|this) (?:is|are|can|can come|come|can go)\b.*$"
)
_OFF_VERB = re.compile(rf"\b{_TAKE_OFF}\b(?: (?:the last thing|off|like|whatsit|item|please))*\s+(?=\S)")
_HAVE_VERB = re.compile(rf"\b{_HAVE}\b(?: (?:already|the last|just|now))*\s+(?=\S)")
_IS_DONE = re.compile(
    r"^(?:the |our |my )?(.+?)(?: (?:is|are|was|were|can|has|have|theyre|they're|its|it's|i|we))?"
    r"(?: (?:been|be|already|all|now|have|come))*"
    rf" (?:{_DONE_WORDS}|off|in (?:the|my) (?:trolley|basket|cart|bag|fridge|car)|tick|check|have|come off)\b.*$"
)
_REST_OFF = re.compile(
    r"(?:\s+(?:off|out|of|as|from|anymore|any more|already|now|again|is|are|all|too|in|on|to|both|please|dear|love"
    r"|for me"
    rf"|{_DONE_WORDS}|no longer needed|not needed|and|can|could|be|come))+$"
)
_REASONS = re.compile(
    r"\s+(?:(?:i|im|i'm|ive|i've|we|weve|we've|they|theyre|they're|he|she|(?:dad|mum|mom)(?= (?:bought|said|says|got"
    r"|has|wants|needs))|nobody|somebody|its|it's|hes"
    r"|shes|were"
    r"|we're|thats?|you)\b(?! (?:and|to)\b)|because|cause|before|so (?:i|we)|in (?:the|my) (?:trolley|basket|cart)"
    r"|for (?:me|us|tomorrow|tonight|dinner|(?:mon|tues|wednes|thurs|fri|satur|sun)day)$|when"
    r"|(?:at|from) the (?:store|shops?|supermarket|market)$|quick$|my hands"
    r"|the nice ones"
    r"|will you|would you|and that'?s).*$"
)
_FRONT = word_set(
    "the my our some a an any more of also as well too like please that off no with next to and"
    " or plus enough done last item thing was thats is"
)
_FILLERS = FILLERS - {"honey"}  # which people buy
_AFTER = word_set("also well as there obviously down on and off")
_MEASURES = word_set(
    "dozen couple bottle bottles pack packet loaf bag box tin can carton jar pint kilo pound bunch bit lot few half"
    " litre"
)


_FOR_SOMEBODY = re.compile(r"\bfor (?:mum|mom|mummy|mommy|dad|daddy)$")


def item(intent: str, words: list[str]) -> Slots:
    """The item or items, as they were said, in one piece."""
    text = joined(trimmed(words, _FILLERS, frozenset() if _FOR_SOMEBODY.search(joined(words)) else _FILLERS))
    found = _completed(text) if intent.endswith("CompleteItem") else _added(text)
    return {"item": found} if found else {}


def item_answer(words: list[str]) -> Slots | None:
    """Of "milk and eggs please", or of a whole sentence once more."""
    found = _added(joined(trimmed(words, _FILLERS, _FILLERS)))
    return {"item": found} if found else None


def _added(text: str) -> str:
    text = _ASIDE.sub("", text)
    text, on_list = _ON_LIST.subn("", text)
    text = _ADD_THEM.sub("", " " + _LIST_FIRST.sub("", text.strip())).strip()
    text = text if on_list else _LIST_LAST.sub("", text).strip()
    adding = [add for add in _ADD.finditer(text) if not _THEM_ALONE.match(text, add.end())]
    for add in reversed(adding):
        if found := _clean(text[add.end() :]):
            need = _NEED.match(found)
            return found[need.end() :] if need else found
    if need := _NEED.search(text):
        return _clean(text[need.end() :])
    if finished := _FINISHED.match(text):
        return _clean(finished[1])
    if go := _GO_ON.match(text):
        return _clean(go[1])
    return _clean(text)


def _completed(text: str) -> str:
    text = _LIST_FIRST.sub("", text)
    text = _ON_LIST.sub(" off", f" {text}").strip()
    text = _THEN_OFF.sub("", f" {text}").strip()
    offs = [off for off in _OFF_VERB.finditer(text) if not _THEM_ALONE.match(text, off.end())]
    if offs and (found := _clean_done(text[offs[-1].end() :])):
        return found
    if have := _HAVE_VERB.search(text):
        return _clean_done(text[have.end() :])
    text = text.rpartition(" so ")[2]
    text = re.sub(rf"^{_TAKE_OFF} {_THEM}(?: off)? ", "", text)
    if done := _IS_DONE.match(text):
        return _clean(done[1])
    return _clean_done(text)


def _clean_done(text: str) -> str:
    text = _REASONS.sub("", re.sub(r"(?<=\S)\s+off\b.*$", "", text))
    return _clean(_REST_OFF.sub("", text))


def _clean(text: str) -> str:
    """Without a reason behind it, without articles in front: "a dozen eggs" keeps its "a"."""
    text = _REASONS.sub("", text)
    after = frozenset() if _FOR_SOMEBODY.search(text) else _FILLERS | _AFTER
    words = trimmed(text.split(), _FILLERS, after)
    while words and words[0] in _FRONT | _FILLERS:
        if words[0] in ("a", "an") and words[1:2] and words[1] in _MEASURES:
            break
        words = words[1:]
    return joined(words)


_DAYS = (
    (re.compile(r"\bday after tomorrow\b"), 2),
    (re.compile(r"\bday before yesterday\b"), -2),
    (re.compile(r"\btomorrow'?s?\b"), 1),
    (re.compile(r"\byesterday'?s?\b"), -1),
)
_TIME = re.compile(r"\bwhat time\b|\bthe time\b|\btime and (?:the )?(?:date|day)\b|\b(?:date|day) and (?:the )?time\b")
_YEAR = re.compile(r"\byear (?:is|are|it|do|now|we)\b|\b(?:which|what|current|the|whats) year\b")
_MONTH = re.compile(r"\b(?:which|what|current|the|this) month\b|\bmonth (?:is|are|it)\b")
_DAY = re.compile(r"\b(?:date|day|weekday)\b")


def date(words: list[str]) -> Slots:
    """offset_days, part: as our sentences have them."""
    text = joined(words)
    slots: Slots = {}
    for pattern, days in _DAYS:
        if pattern.search(text):
            slots["offset_days"] = days
            break
    if _TIME.search(text):
        slots["part"] = "time"
    elif not _DAY.search(text):
        if _YEAR.search(text):
            slots["part"] = "year"
        elif _MONTH.search(text):
            slots["part"] = "month"
    return slots
