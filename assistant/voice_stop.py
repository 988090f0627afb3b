"""Which utterances mean nothing but "stop". Pure; imports nothing of ours."""

from __future__ import annotations

import re

LONGEST_S = 2.0
"""Nobody takes longer to say it."""
_PHRASES = frozenset(
    {
        "stop", "stop it", "stop that", "please stop", "stop please", "stop talking", "cancel", "cancel that", "quiet",
        "be quiet", "silence", "shut up", "enough", "thats enough", "never mind", "nevermind", "forget it", "okay stop",
        "ok stop", "no stop",
    }
)  # fmt: skip
_WHILE_IT_RINGS = frozenset(
    {
        "stop the timer", "stop the alarm", "stop timer", "stop ringing", "turn it off", "turn off", "turn that off",
        "turn off the timer", "turn the timer off", "turn off the alarm", "turn the alarm off", "cancel the timer",
        "cancel timer", "timer off", "okay", "ok", "okay thanks", "thank you", "thanks", "got it", "dismiss",
    }
)  # fmt: skip
_REPEATED = re.compile(r"\b(\w+)( \1\b)+")


def means_stop(text: str, ringing: bool = False) -> bool:
    """Whether an utterance says to stop, and no more: "Stop.", "Stop, stop!", but not "stop the timer" unless one
    rings."""
    words = re.sub(r"[^\w ]+", "", text.lower().replace("-", " ").replace("'", ""))
    plain = _REPEATED.sub(r"\1", " ".join(words.split()))
    return plain in _PHRASES or (plain in _WHILE_IT_RINGS and ringing)
