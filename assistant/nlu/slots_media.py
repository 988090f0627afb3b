"""Slots of what plays: what to play, where, how loud. Rules for English. Pure."""

from __future__ import annotations

import re

from assistant.nlu import slots_levels
from assistant.nlu.fillers import ARTICLES, FILLERS
from assistant.nlu.house import Found, House
from assistant.nlu.language import Language
from assistant.nlu.targets import Slots, area_slots
from assistant.nlu.words import joined, trimmed, word_set

_SILENT = word_set(
    "lamp light lights door fan machine kettle dishwasher vacuum heater thermostat blinds curtains conditioner humidifier"
    " sprinkler camera lock window plug switch"
)
_PLAYERS = word_set("speaker speakers tv radio stereo music sound volume audio playback telly player")
_PREPOSITIONS = word_set("in on from at through over to via out into for of")
_PLAYER_THINGS = (
    r"(?:speakers?|soundbar|sound bar|stereo|projector|telly|television|hi ?fi|headphones|big screen|computer)"
)
_UNKNOWN_PLACE = re.compile(
    rf"(?:\b(?:in|on|at|for|of|through)\b|\b(?:set|mute|turn|unmute|pause|put|give|make)\b(?: up| down)?)"
    rf" (?:(?:the|my|our) )?((?:(?!the\b|my\b|our\b|on\b|in\b|up\b|down\b|to\b)[\w']+ ){{0,2}}{_PLAYER_THINGS})\b"
)
_GENERIC = frozenset({"speaker", "speakers", "computer speaker"})

_POLITE = re.compile(
    r"^(?:(?:hey|hi|ok|okay|um|uh|erm|well|so|oh|yo|please|kindly|now|just|listen|quick|alright|right|and|oi)\s+"
    r"|(?:can|could|would|will) (?:you|we|i|u)(?: please| just| maybe)?\s+|please to\s+|i usually\s+)+"
)
_PLAY = re.compile(
    r"\b(?:(?:start |begin )?playing|play|listen(?:ing)? to|hear(?:ing)?|shuffle|queue up|stream|hit me with"
    r"|(?:put|stick|throw|bang|chuck|whack|pop)(?: me)? on(?! (?:the|my|our|a)? ?(?:tv|telly|speaker)s?$)"
    r"|search for|find(?: me)?|look for|look up|feel like|in the mood for|fancy|cue up|turn on|switch on|fire up)\b(?: for)?"
    r"(?: (?:us|me))?\s*(?=\S)"
)
_GET = re.compile(
    r"\b(?:get|put|stick|throw|start|i want|i'?d like|i'?d love|lets have|let's have|(?:could|can) (?:we|i) have|have|give me"
    r"|need|want|begin|bring up|blast|launch)\b(?: (?:us|me))?\s*(?=\S)"
)
_AGAIN = re.compile(
    r"\s+(?:and|then)\s+(?:please )?(?:play|start|put|stick|turn)\b(?: (?:it|them|that|those|one))?(?: (?:on|up))?.*$"
    r"|\s+(?:so )?(?:put|stick|play|turn|throw|get) (?:it|that|them|some|those)(?: on| going)?$"
    r"|\s+(?:would|will|could) (?:go down|be)\b.*$"
)
_TAIL = re.compile(
    r"\s+(?:please|kindly|thanks|thank you|now|mate|dear|love|darling|bro|dude|man|yaar|loud|really (?:fast|loud)|quietly"
    r"|for (?:me|us|everyone|everybody|(?:the|my|our|your) (?:kids?|children|baby|babies|dog|cat|missus|boys|girls|twins|guests"
    r"|party|wife|husband|family|little one|house)|nana|mum|mom|dad|grandma|granny|grandpa)(?: and (?:the|my) \w+)?"
    r"|if (?:you|its|it's|possible|that)\b.*|(?:because|cause|cos|coz|cuz|as) (?:i|im|i'm|we|my|its|it's|the|theres|he|she)\b.*"
    r"|(?:so|while|until|till|whilst|when|before|after) (?:that )?(?:i|im|i'm|ill|we|were|he|she|they|you|the|my|our|everyone"
    r"|i'll|tom)\b.*"
    r"|so \w+ (?:finally|can|gets)\b.*|its? (?:reminds|my favou?rite)\b.*"
    r"|(?:to|so) (?:sleep|fall asleep|study|cook|work|relax|dance|chill|wake|help)(?: \w+){0,2}"
    r"|we can (?:cook|dance) to|again|today|tonight|quick|right now|on|going|there|instead|next|mum|and then)$"
)
_TO_THINGS = re.compile(r"\s+(?:for|to) (?:cooking|studying|study to|sleeping|working|the party|dinner|leo)$")
_FRONT = re.compile(
    r"^(?:(?:me|us|some|any|a bit of|a little|a bit|bit of|a lot of|something (?:by|from|of)|anything (?:by|from|of)|more"
    r"|lots of|that|this|by|hearing|listening to|to|of|please|a|an|good|old(?= abba)|my(?= \w+ playlist)|on)\s+)+"
)
_BY = re.compile(r"^(?:(?:the|some|a|any) )?(?:music|songs?|tunes?|tracks?|stuff|something) (?:by|from|of) (?=\S)")
_CLASSES = {
    "song": "track", "track": "track", "tune": "track", "album": "album", "record": "album", "artist": "artist",
    "band": "artist", "singer": "artist", "playlist": "playlist", "podcast": "podcast", "audiobook": "audiobook",
    "audio book": "audiobook", "radio station": "radio", "radio": "radio", "station": "radio", "movie": "movie",
    "film": "movie", "tv show": "tv_show", "show": "tv_show", "series": "tv_show", "tv series": "tv_show",
}  # fmt: skip
_CLASS_WORDS = "|".join(sorted(_CLASSES, key=len, reverse=True))
_CLASS_FIRST = re.compile(
    rf"^(?:(?:the|a|an|my|that|this|some) )?(?:new )?({_CLASS_WORDS})(?: (?:called|named|titled|of|about|from|by))? (?=\S)"
)
_CLASS_LAST = re.compile(rf"^(?:(?:the|a|an|my|that|our|your) )?(.+?) ({_CLASS_WORDS})$")
_CLASS_BY = re.compile(rf"^(?:the )?(.+ )({_CLASS_WORDS}) (by|from|about) (.+)$")
_NOTHING = word_set(
    "music some song songs something anything it that this on tunes tune stuff sound the a play some_music whatever"
)


def place(words: list[str], house: House) -> tuple[Slots, list[Found]]:
    """Where it plays, and the words that say so."""
    found = house.find(words)
    names = [one for one in found if one.kind == "name" and not _SILENT & set(one.value.split())]
    areas = [one for one in found if one.kind != "name" and _plays_there(words, one)]
    slots: Slots = {}
    if names:
        name = min(names, key=lambda one: (one.score < 1, -(one.end - one.start), -one.start))
        slots["name"] = name.value
        used = [name]
        beside = [one for one in areas if one.end == name.start or 0 < one.start - name.end <= 3]
        return ({**slots, **area_slots(beside[0])}, [*used, beside[0]]) if beside else (slots, used)
    if areas:
        return area_slots(areas[-1]), [areas[-1]]
    return {}, []


def _plays_there(words: list[str], area: Found) -> bool:
    before = [word for word in words[max(0, area.start - 2) : area.start] if word not in ARTICLES]
    after = words[area.end : area.end + 2]
    if before and before[-1] in _PREPOSITIONS:
        who = words[max(0, area.start - 4) : area.start]
        return not {"im", "i'm", "was", "were", "someone", "somebody"} & set(who)
    return bool(after and after[0] in _PLAYERS) or bool(set(before) & {"mute", "unmute", "pause", "set", "turn"})


def anywhere(words: list[str], house: House) -> Slots:
    """Mute, pause, next and the like: only where."""
    where, _ = place(words, house)
    if where:
        return where
    unknown = _UNKNOWN_PLACE.search(joined(words))
    name = joined(trimmed(unknown[1].split(), FILLERS | ARTICLES, FILLERS)) if unknown else ""
    return {"name": name} if name and name not in _GENERIC else {}


def volume(words: list[str], house: House, language: Language, *, relative: bool) -> Slots:
    where = anywhere(words, house)
    if relative:
        change = slots_levels.step(words, language)
        return {**({"volume_step": change} if change is not None else {}), **where}
    level = slots_levels.level(words, language)
    return {**({"volume_level": level} if level is not None else {}), **where}


def search(words: list[str], house: House) -> Slots:
    """What to play: the words of the search as they were said, its class, and where."""
    where, used = _place_of_search(words, house)
    kept = list(words)
    for one in sorted(used, key=lambda one: -one.start):
        start = one.start
        while start > 0 and kept[start - 1] in ARTICLES | _PREPOSITIONS:
            start -= 1
        kept[start : one.end] = []
    query, media_class = _class_of(_wanted(joined(kept)))
    slots: Slots = {}
    if query and query not in _NOTHING:
        slots["search_query"] = query
    if media_class:
        slots["media_class"] = media_class
    return {**slots, **where}


def _place_of_search(words: list[str], house: House) -> tuple[Slots, list[Found]]:
    """Titles hold names of rooms, too: only "in the", "on the" count here, and no misheard words."""
    found = [
        one
        for one in house.find(words)
        if (one.score >= 0.99 or one.end == len(words))
        and one.start > 0
        and _led(words, one)
        and not (one.kind == "name" and _SILENT & set(one.value.split()))
    ]
    slots: Slots = {}
    for one in reversed(found):
        for key, value in ({"name": one.value} if one.kind == "name" else area_slots(one)).items():
            slots.setdefault(key, value)
    return slots, found


def _led(words: list[str], one: Found) -> bool:
    at = one.start - 1
    while at > 0 and words[at] in ARTICLES:
        at -= 1
    if words[at] in ("in", "on", "through", "over", "at", "from", "to"):
        return one.kind != "area" or words[at] != "on" or words[one.end : one.end + 1] in (["speaker"], ["speakers"])
    return False


def _wanted(text: str) -> str:
    """The part of the sentence that says what to play."""
    text = re.sub(r"\bon (?:the )?(?:[\w']+ )?speakers?\b", "", text).strip()
    text = _AGAIN.sub("", _POLITE.sub("", text))
    led = _PLAY.search(text) or _GET.search(text)
    if led and text[led.end() :].strip():
        text = text[led.end() :].strip()
    before = None
    while before != text:
        before = text
        text = _TO_THINGS.sub("", _TAIL.sub("", text)).strip()
    text = _FRONT.sub("", text)
    return text.strip()


def _class_of(query: str) -> tuple[str, str]:
    """The search without the word of its class, and the class."""
    if by := _BY.match(query):
        rest = query[by.end() :]
        single = re.search(r"\b(song|track)\b", by[0])
        return rest, "track" if single else ""
    if query in _CLASSES:
        return "", _CLASSES[query]
    if first := _CLASS_FIRST.match(query):
        word, rest = first[1], query[first.end() :]
        if word in ("radio",):
            return query, "radio"
        return (re.sub(r"^that goes ", "", rest), _CLASSES[word]) if not rest.startswith("in ") else (query, "")
    if by := _CLASS_BY.match(query):
        return f"{by[1]}{by[3]} {by[4]}" if by[1].strip() not in ("new", "latest") else query, _CLASSES[by[2]]
    if last := _CLASS_LAST.match(query):
        return last[1], _CLASSES[last[2]]
    if radio := re.search(r"\bradio\b", query):
        return query, "radio" if radio.start() else ""
    query = re.sub(r"^the (?=.*\b(?:soundtrack|commentary|latest|newest|new|audio|sound)\b)", "", query)
    music = re.fullmatch(r"(.+?) (?:music|tunes)", query)
    return (music[1] if music else query), ""
