"""Two public corpora with our labels. Pure; imports nothing of ours.

CLINC150 (Larson et al. 2019, CC BY 3.0) and SLURP (Bastianelli et al. 2020, CC BY 4.0) label other intents than we
have. A sentence gets one of ours only where both its label and its words leave no doubt, `-` where its label has
nothing to do with ours, and is left out where one could argue. The corpora are read where they lie and are not copied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

NONE = "-"


class Labelled(NamedTuple):
    text: str
    intent: str
    topic: str = ""
    """CLINC150's own label, which the encoder learns besides: it keeps apart what is all the same to us."""


_Rules = tuple[tuple[str, str | None], ...]
"""Patterns, tried in order; the first that is found decides. None: left out. Nothing found: left out."""

_PLACE = (
    r"\b(?:zones?|est|cst|pst|mst|gmt|utc|eastern|central|pacific|mountain|difference|convert|change|if)\b"
    r"|\b(?:in|at|for|of) (?!the moment|the day|now|this|the (?:week|month|time)|hours|a\.?m|p\.?m)\w+"
)
_TIME: _Rules = (
    (r"how (?:long|many)|until|midnight|sun|day ?light|alarm|meeting|appointment|set|hours|will", None),
    (rf"(?=.*\btime).*(?:{_PLACE})", NONE),
    (r"\b[a-z]+ time\b(?<!the time)(?<!what time)(?<!current time)(?<!exact time)(?<!local time)(?<!of time)", None),
    (r"\btime\b|clock", "HassGetCurrentTime"),
)
_DATE: _Rules = (
    (
        r"\b(?:holiday|birth|birthday|on|fall|off|meeting|event|due|until|from|calend[ae]r|ago|last"
        r"|days|weeks|months?|easter)\b",
        None,
    ),
    (r"\b(?:after|before|next|previous|follows|of (?!the week|today|the month|tomorrow|yesterday))", None),
    (r"\btoday|tomorrow|\bdate\b|\b(?:what|which) day (?:of the week )?is (?:it|today)", "HassGetCurrentDate"),
)
_WEATHER: _Rules = (
    (r"\b(?:alert|notif|remind|tell me (?:if|when)|thermostat|inside|app)\b", None),
    (
        r"\b(?:temp|temperature|degrees|hot|cold|warm|chilly|cool)\b(?!.*\b(?:outside|today"
        r"|tomorrow|tonight|in|week|day))",
        None,
    ),
    (r"", "HassGetWeather"),
)
_SKY = (
    r"^(?!.*(?:weather|rain|snow|umbrella|forecast|cold|hot\b|warm|sun(?:ny|shine|glass|screen)|wind|temperature|jacket|coat"
    r"|cloud|storm|humid|fog|degrees|freez|climat|wear|hail|thunder|wet|dry|boots|gloves|chilly|cool\b|high|low|nice))"
)
"""Without a word of weather: some sentences of SLURP stand under a wrong label."""
_VOLUME: _Rules = (
    (r"\bunmute|un mute|sound (?:back )?on\b", "HassMediaPlayerUnmute"),
    (r"\bmute|silen(?:t|ce)|\bshut up|\bquiet$|turn off|volume off|stop|no (?:more )?(?:sound|noise|volume)", None),
    (r"\bby \w+|\w+ percent (?:up|down|more|less|louder)", "HassSetVolumeRelative"),
    (
        r"\b(?:to|at) (?:the )?(?:number |level )?(?:\d|one|two|three|four|five|six|seven|eight"
        r"|nine|ten|twenty|thirty|forty|fifty"
        r"|sixty|seventy|eighty|ninety|max|full|half|highest|loudest|lowest|minimum|hundred)",
        "HassSetVolume",
    ),
    (r"\d|percent|all the way|\b(?:max|full|four|maximum)", None),
    (
        r"\b(?:up|down|louder|quieter|softer|lower|raise|increase|decrease|reduce|higher|greater)\b",
        "HassSetVolumeRelative",
    ),
)
_PLAY: _Rules = (
    (r"\b(?:resume|continue|pause|stop|next|skip|previous|shuffle|repeat|again|replay|rewind"
     r"|forward|back|last|volume|keep"
     r"|loop|where|left|save|download|add|create|make|turn (?:on|off)|after|before|when|restart|rate|like)\b", None),
    (r"\b(?:game|chess)\b", None),
    (r"^(?:\w+ ){0,6}(?:play|plays|put on|hear|listen(?: to)?|queue up)\b .*\w", "HassMediaSearchAndPlay"),
)  # fmt: skip
_LIST_ADD: _Rules = (
    (
        r"\b(?:remove|delete|take off|if|unless|check|is|are|no longer|new|create|make|contact"
        r"|playlist|to ?do|movie|x)\b",
        None,
    ),
    (r"\b(?:add|put|include|write|insert|place)\b.*\b(?:shopping|grocer(?:y|ies))\b", "HassShoppingListAddItem"),
    (r"\b(?:shopping|grocery)\b.*\b(?:add|put)\b", "HassShoppingListAddItem"),
)
_LIST_DROP: _Rules = (
    (r"\b(?:add|put|if|unless|create|new)\b", None),
    (r"\b(?:clear|empty|erase|wipe|delete|remove|cancel)\b (?:out )?(?:all|everything|my|the|entire"
     r"|whole| )*(?:items? )?(?:from |on |off )?"
     r"(?:my |the )?(?:shopping|grocery) list", "AssistantShoppingListClear"),
    (r"\b(?:all|everything|whole|entire|clear|empty)\b", None),
    (r"\b(?:remove|delete|take|erase|cross)\b .+\b(?:shopping|grocery)\b", "HassShoppingListCompleteItem"),
)  # fmt: skip
_LIST_UPDATE: _Rules = (
    (r"\b(?:add|put|include|write|insert|place)\b.*\b(?:remove|delete|take|erase|cross)\b", None),
    (r"\b(?:removed?|delete|take|erase|cross)\b.*\b(?:add|put|include|write|insert|place)\b", None),
    (r"\b(?:if|unless|is|are|x)\b|\bcheck\b", None),
    *_LIST_ADD[1:],
    *_LIST_DROP[1:],
)
_LIST_READ: _Rules = (
    (r"\b(?:add|remove|delete|reminder|put)\b", None),
    (r"\b(?:what|what's|whats|read|show|tell|list|give|display|see|pull)\b.*\b(?:shopping|grocery|groceries)\b",
     "AssistantShoppingListRead"),
)  # fmt: skip
_COLOURS = "red|blue|green|pink|purple|yellow|orange|white|colou?rs?|dim|dimmer|brighter|brightness|percent|bright"
_LIGHT: _Rules = (
    (r"\band\b|\bwhen\b|\bafter\b|\bscreen\b|disco|\bif\b", None),
    (r"\b(?:off|shut down|kill)\b.*\blights?|\blights?\b.*\b(?:off|out)\b", "HassTurnOff"),
    (r"\b(?:turn|switch|put)\b.*\bon\b", "HassTurnOn"),
    (rf"\b(?:{_COLOURS})\b", "HassLightSet"),
    (r"\b(?:turn (?:up|down)|raise|lower|increase|reduce|brighten|darken|more light)\b", "HassLightSet"),
)
_DEVICE: _Rules = (
    (r"\band\b|\bhow\b|\bwhen\b|\bafter\b|\bif\b|\bat \w+|between|make|tell|remember|schedule|every", None),
    (r"\b(?:turn|switch|power|put|shut)\b.*\boff\b|\b(?:disable|deactivate|unlock|stop)\b", "HassTurnOff"),
    (r"\b(?:turn|switch|power|put)\b.*\bon\b|\b(?:enable|activate|start|run)\b", "HassTurnOn"),
)
_HOME: _Rules = (
    (r"\b(?:make sure|car|vehicle|oven|if|and|when|who|remember|engine|show|camera)\b", None),
    (r"\b(?:what|what's|whats)\b.*\b(?:temp|temperature|thermostat|ac)\b", "HassClimateGetTemperature"),
    (r"\b(?:is|are|did)\b.*\b(?:on|off|locked|unlocked|open|closed)\b", "HassGetState"),
    (r"\b(?:temp|temperature|thermostat|ac|heat|heater)\b.*\b(?:to|at) \d+", "HassClimateSetTemperature"),
    (r"\bdim\b|\bbrighten\b|\bcolor\b", "HassLightSet"),
    (r"\b(?:turn|switch)\b.*\boff\b|\bunlock\b", "HassTurnOff"),
    (r"\b(?:turn|switch)\b.*\bon\b|\bturned on\b|^(?:please |can you |could you )?lock\b", "HassTurnOn"),
)
_TIMER: _Rules = (
    (r"\b(?:wake|how|stop|cancel|alarm|pause|time left|check|ready|off)\b|\(", None),
    (r"timer|\bcount ?down\b", "HassStartTimer"),
)
_NEVERMIND: _Rules = (
    (r"how do|card|order|reservation", None),
    (r"\b(?:never ?mind|cancel|stop|forget|abort|scratch|quit|disregard|shut|quiet|hush|enough)\b", "HassNevermind"),
)
_REPEAT: _Rules = (
    (r"question|song|track|\bplay", None),
    (r"\b(?:repeat|say|said|again|hear|catch|one more time|over)\b", "AssistantRepeat"),
)
_ALARM: _Rules = ((r"\b(?:timer|minutes?|hours?|seconds?|stop|cancel|turn off|snooze)\b", None), (r"", NONE))
_TODO: _Rules = ((r"to ?do|task|chore", NONE),)
_OTHER: _Rules = (
    (
        r"\btimers?\b|shopping list|grocery list|\bvolume\b|turn (?:on|off)|\bnever ?mind\b"
        r"|weather|climatic|the temperature (?:in|outside)|what (?:date|day) is it"
        r"|\bplay (?!.*\bgame)",
        None,
    ),
    (r"", NONE),
)

_VOICE: _Rules = ((r"soft|quiet|loud|volume|\blower", None), (r"", NONE))

CLINC: dict[str, _Rules] = {
    "time": _TIME, "date": _DATE, "weather": _WEATHER, "timer": _TIMER, "alarm": _ALARM, "cancel": _NEVERMIND,
    "next_song": ((r"previous|last|add|play\w* next", None), (r"", "HassMediaNext")),
    "play_music": _PLAY, "change_volume": _VOLUME, "smart_home": _HOME, "shopping_list": _LIST_READ,
    "shopping_list_update": _LIST_UPDATE, "repeat": _REPEAT,
    "what_can_i_ask_you": ((r"", "AssistantHelp"),), "todo_list": _TODO, "todo_list_update": _TODO,
    "reminder": _OTHER, "reminder_update": _OTHER, "whisper_mode": _VOICE, "cook_time": _OTHER, "greeting": _OTHER,
    "no": ((r"cancel|stop|never|forget", None), (r"", NONE)), "goodbye": _OTHER, "user_name": _OTHER,
    "change_speed": _VOICE, "next_holiday": _OTHER, "update_playlist": _OTHER,
}  # fmt: skip
"""What is not here is `_OTHER`."""

SLURP: dict[str, _Rules] = {
    "datetime_query": (*_TIME[:3], (r"\btime\b|clock", "HassGetCurrentTime"), *_DATE),
    "datetime_convert": ((r"\bconvert\b|difference|\bif\b", NONE),),
    "weather_query": ((_SKY, None), *_WEATHER), "alarm_set": _ALARM, "alarm_query": _ALARM, "alarm_remove": (),
    "audio_volume_mute": ((r"unmute|un mute|\bon\b|\band\b|for \w+ (?:min"
     r"|hour)", None), (r"\bmute\b", "HassMediaPlayerMute")),
    "audio_volume_up": _VOLUME, "audio_volume_down": _VOLUME, "audio_volume_other": _VOLUME,
    "iot_hue_lightchange": _LIGHT, "iot_hue_lightoff": _LIGHT, "iot_hue_lighton": _LIGHT, "iot_hue_lightup": _LIGHT,
    "iot_hue_lightdim": _LIGHT, "iot_wemo_on": _DEVICE, "iot_wemo_off": _DEVICE, "iot_cleaning": _DEVICE,
    "iot_coffee": _DEVICE, "lists_createoradd": _LIST_ADD, "lists_remove": _LIST_DROP, "lists_query": _LIST_READ,
    "play_music": _PLAY, "play_radio": _PLAY, "play_podcasts": _PLAY, "play_audiobook": _PLAY,
    "play_game": ((r"\bgame|chess|poker|crossword|temple run|tic tac", NONE),),
    "music_settings": (), "music_dislikeness": (), "music_likeness": _OTHER, "music_query": _OTHER,
    "general_quirky": ((r"\b(?:stop|repeat|cancel|light|music|time|date|day|temperature|rain|hot"
     r"|cold|help|again|remove|play)\b", None),
                       *_OTHER),
    "general_greet": _OTHER, "general_joke": _OTHER,
}  # fmt: skip
_SCENARIOS = ("calendar", "cooking", "email", "news", "qa", "recommendation", "social", "takeaway", "transport")
"""SLURP's, as far as they have nothing of ours in them."""


def decided(text: str, rules: _Rules) -> str | None:
    return next((intent for pattern, intent in rules if re.search(pattern, text)), None)


def clinc(path: Path, part: str) -> Iterator[Labelled]:
    """`part`: train, val or test, with the sentences out of its scope."""
    corpus = json.loads(path.read_text("utf-8"))
    for text, label in corpus[part] + corpus[f"oos_{part}"]:
        lower = text.lower().replace("’", "'")
        if intent := decided(lower, CLINC.get(label, _OTHER)):
            yield Labelled(lower, intent, "" if label == "oos" else label)


def slurp(path: Path) -> Iterator[Labelled]:
    for line in path.read_text("utf-8").splitlines():
        text, _, label = line.partition("\t")
        lower = text.lower()
        rules = SLURP.get(label, _OTHER if label.partition("_")[0] in _SCENARIOS and "_" in label else ())
        if intent := decided(lower, rules):
            yield Labelled(lower, intent)


def halves(lines: list[Labelled]) -> tuple[list[Labelled], list[Labelled]]:
    """Every other one, in the order of their text: no sentence is in both."""
    ordered = sorted(set(lines))
    return ordered[::2], ordered[1::2]
