"""What to play: the words of a search, their class, and where. Rules for English. Pure.

Titles are made of any words ("stop in the name of love", "while my guitar gently weeps"), so only what surely belongs
to the command is taken away.
"""

from __future__ import annotations

import re

from assistant.nlu.fillers import ARTICLES, FILLERS
from assistant.nlu.house import Found, House
from assistant.nlu.slots_media import SILENT
from assistant.nlu.targets import ROOMS, area_slots
from assistant.nlu.vocabulary import Slots
from assistant.nlu.words import joined, word_set

_LEADS = word_set("in on through over at from to")
_SPEAKERS = word_set("speaker speakers")
_POLITE = re.compile(
    r"^(?:(?:hey|hi|ok|okay|um|uh|erm|well|so|oh|yo|please|kindly|now|just|listen|quick|alright|right|and|oi)\s+"
    r"|(?:can|could|would|will) (?:you|we|i|u)(?: please| just| maybe)?\s+|please to\s+|i usually\s+)+"
)
_PLAY = re.compile(
    r"\b(?:(?:start |begin )?playing|play|listen(?:ing)? to|watch(?:ing)?|hear(?:ing)?|shuffle|queue up|stream"
    r"|hit me with"
    r"|(?:put|stick|throw|bang|chuck|whack|pop)(?: me)? on(?=\s\S)|search for|find(?: me)?|look for|look up|feel like"
    r"|in the mood for|fancy|cue up|turn on|switch on|fire up)\b(?: for)?(?: (?:us|me))?\s*(?=\S)"
)
_GET = re.compile(
    r"\b(?:get|put|stick|throw|start|i want|i'?d like|i'?d love|let'?s have|(?:could|can) (?:we|i) have|have"
    r"|give me|gimme|needs?|wants?|pop|begin|bring up|blast|launch)\b(?: (?:us|me))?\s*(?=\S)"
)
_HEARD_PLAY = re.compile(r"^(?:pay|plague|clay|lay|plays|played|plate|place)\b(?=\s\S)")
_TELLS = re.compile(r"(?:i|im|i'm|we|were|we're|its|it's|shes|hes|they|theyre)\b")
_PUT_ON = re.compile(r"\b(?:put|turn|switch|stick|throw|get|bang|have|want) (?!on\b)(.+) (?:on|going|playing)$")
_AGAIN = re.compile(
    r"\s+(?:and|then)\s+(?:please )?(?:play|start|put|stick|turn)\b(?: (?:it|them|that|those|one|that one))?(?: (?:on"
    r"|up))?.*$"
    r"|\s+(?:so )?(?:put|stick|play|turn|throw|get) (?:it|that|them|some|those|that one|this one)(?: on| going)?$"
    r"|\s+(?:would|will|could) (?:go down|be)\b.*$"
)
_FAMILY = (
    r"(?:nana|mum|mom|dad|grandma|granny|grandpa|grandad|granddad|everyone|everybody|me|us"
    r"|(?:the|my|our|your) (?:kids?|children|baby|babies|dog|cat|missus|boys|girls|twins|guests|party|wife|husband"
    r"|family"
    r"|little one|house|room))"
)
_PEOPLE = r"(?:i|im|i'm|ill|i'll|we|were|he|she|they|you|the|my|our|everyone)"
_TAIL = re.compile(
    r"\s+(?:please(?: love)?|(?:would|will|could|can) you|kindly|thanks|thank you|now"
    r"|mate|dear|(?<=\bon )love|darling|bro|dude|yaar|mummy|daddy"
    r"|loud"
    rf"|really (?:fast|loud)|quietly|again and again|quick|right now|instead|for {_FAMILY}(?: and (?:the|my) \w+)?"
    r"|if (?:you|its|it's|possible|that)\b.*|please (?:dear|love|mate|something|nothing|i|we)\b.*"
    rf"|(?:because|cause|cos|coz|cuz) (?:{_PEOPLE}|its|it's|theres)\b.*"
    rf"|(?:so|while|until|till|whilst|when|before|after) (?:that )?{_PEOPLE}\b.*"
    r"|so \w+ (?:finally|can|gets)\b.*|its? (?:reminds|my favou?rite)\b.*"
    r"|to (?:sleep|fall asleep|study|cook|work|relax|dance|chill|wake|help)(?: \w+){0,2}|we can (?:cook|dance) to"
    r"|for (?:cooking|studying|sleeping|working|dinner|bed|bedtime))$"
)
_FRONT = re.compile(
    r"^(?:(?:me|us|(?:any|some) good|some|any|a bit of|a little|a bit|bit of|a lot of|more"
    r"|(?:something|anything|the latest) (?:by|from|of)"
    r"|lots of|like|that|this|by|hearing|listening to|to|of|please|a|an|my(?= \w+ playlist)|on)\s+)+"
)
_BY = re.compile(r"^(?:(?:the|some|a|any) )?(?:music|songs?|tunes?|tracks?|stuff|something) (?:by|from|of) (?=\S)")
_CLASSES = {
    **dict.fromkeys(("song", "track", "tune"), "track"),
    **dict.fromkeys(("album", "record"), "album"),
    **dict.fromkeys(("artist", "band", "singer"), "artist"),
    "playlist": "playlist",
    "podcast": "podcast",
    **dict.fromkeys(("audiobook", "audio book"), "audiobook"),
    **dict.fromkeys(("radio station", "radio", "station"), "radio"),
    **dict.fromkeys(("movie", "film"), "movie"),
    **dict.fromkeys(("tv show", "show", "series", "tv series"), "tv_show"),
}
_CLASS_WORDS = "|".join(sorted(_CLASSES, key=len, reverse=True))
_CLASS_FIRST = re.compile(
    rf"^(?:(?:the|a|an|my|that|this|some) )?(?:new )?({_CLASS_WORDS})(?: (?:called|named|titled|of|about|from"
    rf"|by))? (?=\S)"
)
_CLASS_LAST = re.compile(rf"^(?:(?:the|a|an|my|that|our|your) )?(.+?) ({_CLASS_WORDS})$")
_CLASS_BY = re.compile(rf"^(?:the )?(.+ )({_CLASS_WORDS}) (by|from|about) (.+)$")
_KIND_OF_TITLE = re.compile(r"^the (?=.*\b(?:soundtrack|commentary|latest|newest|new|audio|sound)\b)")
_NOTHING = word_set(
    "my music some song songs something anything it that this on tunes tune stuff sound the a play whatever"
)


_VERBS_ALONE = word_set("put turn switch stick play start get listen")


def search(words: list[str], house: House) -> Slots:
    """search_query as it was said, media_class when its word was said, and name or area."""
    where, used = _place(words, house)
    kept = [word for index, word in enumerate(words) if index not in used]
    query, media_class = _class_of(_wanted(joined(kept)))
    if query in _VERBS_ALONE and where.get("name") == "radio":
        return {"media_class": "radio", **{slot: value for slot, value in where.items() if slot != "name"}}
    slots: Slots = {}
    if query and query not in _NOTHING | _VERBS_ALONE:
        slots["search_query"] = query
    if media_class:
        slots["media_class"] = media_class
    return {**slots, **where}


def _place(words: list[str], house: House) -> tuple[Slots, set[int]]:
    """Where, and its words. Titles hold names of rooms, too: only "in the", "on the" count, and little is misheard."""
    slots: Slots = {}
    used: set[int] = set()
    found = house.find(words)
    before: Found | None
    for one in reversed(found):
        sure = one.score >= 0.99 or one.end == len(words)
        if not sure or (one.kind == "name" and (SILENT & set(one.value.split()) or _is_station(words, one))):
            continue
        end = one.end + (words[one.end : one.end + 1] in (["speaker"], ["speakers"]))
        of_player = any(other.kind == "name" and other.start == one.end for other in found)
        before = next((other for other in found if other.kind == "area" and other.end == one.start), None)
        lead = _lead(words, before.start if before and one.kind == "name" else one.start)
        if lead is None or (one.kind == "area" and words[lead] == "on" and end == one.end and not of_player):
            continue
        for slot, value in ({"name": one.value} if one.kind == "name" else area_slots(one)).items():
            slots.setdefault(slot, value)
        used.update(range(lead, end))
    if not slots:
        return _unknown_place(words)
    return slots, used


def _is_station(words: list[str], one: Found) -> bool:
    """ "radio four" is something to hear, not the thing to hear it on."""
    after = words[one.end : one.end + 1]
    return (
        one.value == "radio"
        and bool(after)
        and after[0] not in _LEADS | FILLERS | ARTICLES | {"and", "because", "while"}
    )


def _lead(words: list[str], start: int) -> int | None:
    """Where "in the" begins that stands before a place."""
    at = start - 1
    while at > 0 and words[at] in ARTICLES:
        at -= 1
    return at if at >= 0 and words[at] in _LEADS else None


def _unknown_place(words: list[str]) -> tuple[Slots, set[int]]:
    """ "on the porch speaker", "in the study" of a house without."""
    for at, word in enumerate(words):
        if word in _SPEAKERS and at:
            start = at
            while start > 0 and at - start < 2 and words[start - 1] not in ARTICLES | _LEADS:
                start -= 1
            lead = _lead(words, start)
            if lead is not None:
                return ({"name": joined(words[start : at + 1])} if start < at else {}), set(range(lead, at + 1))
        if word in ROOMS and (lead := _lead(words, at)) is not None and words[lead] == "in" and lead < at - 1:
            return {"area": word}, set(range(lead, at + 1))
    return {}, set()


def _wanted(text: str) -> str:
    """The part of the sentence that says what to play."""
    text = _POLITE.sub("", _HEARD_PLAY.sub("play", text))
    text = _kept(text, _shortened(_AGAIN.sub("", _kept(text, _shortened(text))).strip()))
    if _TELLS.match(text) and " so " in text:
        text = text.rpartition(" so ")[2]
    if put_on := _PUT_ON.search(text):
        text = put_on[1]
    elif (led := _PLAY.search(text) or _GET.search(text)) and text[led.end() :].strip():
        text = text[led.end() :].strip()
    text = re.sub(r" the$", "", _FRONT.sub("", _shortened(text)))
    return text.strip()


def _kept(text: str, shorter: str) -> str:
    """Not so short that nothing but the verb is left: "while" begins a title, too."""
    return text if set(shorter.split()) <= _VERBS_ALONE | {"on", ""} else shorter


def _shortened(text: str) -> str:
    before = None
    while before != text:
        before, text = text, _TAIL.sub("", text).strip()
    return text


def _class_of(query: str) -> tuple[str, str]:
    """The search without the word of its class, and the class."""
    if by := _BY.match(query):
        return query[by.end() :], "track" if re.search(r"\b(?:song|track)\b", by[0]) else ""
    if query in _CLASSES:
        return "", _CLASSES[query]
    if first := _CLASS_FIRST.match(query):
        rest = query[first.end() :]
        if first[1] == "radio":
            return query, "radio"
        return (query, "") if rest.startswith("in ") else (re.sub(r"^that goes ", "", rest), _CLASSES[first[1]])
    if by := _CLASS_BY.match(query):
        return by[4] if by[3] == "about" else f"{by[1]}{by[3]} {by[4]}", _CLASSES[by[2]]
    if last := _CLASS_LAST.match(query):
        return last[1], _CLASSES[last[2]]
    if re.search(r"\S radio\b", query):
        return query, "radio"
    query = _KIND_OF_TITLE.sub("", query)
    music = re.fullmatch(r"(.+?) (?:music|tunes)", query)
    return (music[1] if music else query), ""
