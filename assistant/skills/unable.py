"""What people ask assistants for and this one cannot do. Said honestly: a language model would promise it. English.

Imports nothing of ours.
"""

from __future__ import annotations

import re

_REMINDER = re.compile(
    r"\s*(?:(?:please|hey|can you|could you|would you|will you|i need you to|ok|okay|and|then)[\s,]+)*"
    r"(?:remind (?:me|us)\b|(?:set|create|make|add)(?: up)?(?: me)? an? (?:daily |new )?reminder\b)",
    re.I,
)
_ALARM = re.compile(
    r"\s*(?:(?:please|hey|can you|could you|would you|will you|i need you to|ok|okay|and|then)[\s,]+)*"
    r"(?:(?:set|create|make|add|start)(?: up)?(?: me)? (?:an?|the|my) (?:\w+ ){0,2}alarm\b|wake (?:me|us)(?: up)?"
    r"(?: (?:at|in|tomorrow|by)\b|$)|alarm (?:for|at)\b)",
    re.I,
)
_MESSAGE = re.compile(
    r"\s*(?:(?:please|hey|can you|could you|would you|will you|ok|okay|and|then)[\s,]+)*"
    r"(?:(?:call|phone|ring|text) (?:my \w+|mum|mom|dad|grandma|the (?:doctor|police|ambulance|office|school))\b"
    r"|send (?:an? |the )?(?:message|text|email|mail)\b)",
    re.I,
)
_WHAT = (
    (_REMINDER, "I cannot remind you of things yet. I can set a timer."),
    (_ALARM, "I cannot set alarms for a time of day yet. I can set a timer."),
    (_MESSAGE, "I cannot call anybody or send messages."),
)


def unable(text: str) -> str | None:
    """What the user is told; None: it is worth a try."""
    return next((reply for pattern, reply in _WHAT if pattern.match(text)), None)
