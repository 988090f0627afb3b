"""Takes the words that woke the assistant off the beginning of what it heard. Pure; imports nothing of ours.

A wake word's last second is recognised together with the question, so that both may be said in one breath. The
recogniser does not know the name, and often hears its end alone: "Hey, Jervis.", "Okay, Naboo,", "my craft". So letters
are compared, roughly as they sound, and only at the beginning. The values were chosen on whisper's transcripts of human
wake words, cut at several places, in front of human commands.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

ALIKE, NAME_ALIKE = 0.54, 0.45
"""Of several words with the whole phrase, and of those behind the first one with the name: "hey jeremys" has 0.63 and
0.46 to "hey jarvis"; "he was" has 0.57 and 0.44."""
LONGER_NAME_ALIKE = 0.6
"""The latter, of more words than the phrase has: "hey my graph" has it to "hey mycroft", "hey play jazz" not."""
LONG_NAME, ALIKE_ALONE, SHORT_ALIKE_ALONE = 6, 0.7, 0.88
"""Of the name without the words before it; a short one is soon like another word ("abu", "alec")."""
ALIKE_TAIL, LONG_TAIL = 0.82, 5
"""Of what is left of a phrase whose beginning was cut off, from so many letters on: "may naboo"."""
LEAST_TAIL = 3
"""Letters of a shorter rest, which must be there exactly: "vis, what time is it"."""

_WORD = re.compile(r"[^\W_]+(?:['\N{RIGHT SINGLE QUOTATION MARK}][^\W_]+)*")
_SENTENCE_END = re.compile(r"[.!?\N{HORIZONTAL ELLIPSIS}]")
_SOUNDS = (("ph", "f"), ("oo", "u"), ("c", "k"), ("q", "k"), ("z", "s"))
_ALIASES = {"ok": "okay"}


def without_wake_phrase(text: str, phrase: str) -> str:
    """`text` from behind `phrase` ("hey jarvis") on, or as it is when it does not begin with it.

    >>> without_wake_phrase("Hey, Jervis. What time is it?", "hey jarvis")
    'What time is it?'
    """
    wanted = [_sound(word) for word in _WORD.findall(phrase)]
    words = list(_WORD.finditer(text))
    count = 0
    if wanted and words:
        heard = [_sound(word.group()) for word in words]
        count = max(_leading(heard, wanted), _sentence(text, words, heard, wanted))
    return text[words[count].start() :].strip() if count < len(words) else ""


def _leading(heard: list[str], wanted: list[str]) -> int:
    """How many words at the beginning are the phrase; as many as resemble it most."""
    scores = [_score(heard[:count], wanted) for count in range(1, min(len(heard), len(wanted) + 2) + 1)]
    best = max(scores)
    return scores.index(best) + 1 if best else 0


def _score(heard: list[str], wanted: list[str]) -> float:
    """How much these words resemble the phrase or its end; 0 = not enough."""
    said, whole, name = "".join(heard), "".join(wanted), wanted[-1]
    alone = ALIKE_ALONE if len(name) >= LONG_NAME else SHORT_ALIKE_ALONE
    rests = [whole[at:] for at in range(len(whole) - LEAST_TAIL + 1)]
    return max(
        _as_a_whole(heard, wanted),
        _at_least(alone, said, name) if len(heard) == 1 or said[0] == name[0] else 0.0,
        *(_at_least(ALIKE_TAIL if len(rest) >= LONG_TAIL else 1.0, said, rest) for rest in rests),
        0.5 if heard == wanted[:1] != wanted else 0.0,  # "Okay. What time is it?": the name was not understood at all
    )


def _as_a_whole(heard: list[str], wanted: list[str]) -> float:
    if len(heard) < 2 or len(wanted) < 2 or heard[0][0] != wanted[0][0]:
        return 0.0
    name_alike = NAME_ALIKE if len(heard) <= len(wanted) else LONGER_NAME_ALIKE
    if not _at_least(name_alike, "".join(heard[1:]), "".join(wanted[1:])):
        return 0.0
    return _at_least(ALIKE, "".join(heard), "".join(wanted))


def _at_least(limit: float, said: str, wanted: str) -> float:
    ratio = SequenceMatcher(None, said, wanted, autojunk=False).ratio()
    return ratio if ratio >= limit else 0.0


def _sentence(text: str, words: list[re.Match[str]], heard: list[str], wanted: list[str]) -> int:
    """Words of a sentence before the question that begins like the phrase and is no longer: "Okay, you know me. What
    time is it?" """
    if len(wanted) < 2 or heard[0] != wanted[0]:
        return 0
    for count in range(1, min(len(words) - 1, len(wanted) + 2) + 1):
        if _SENTENCE_END.search(text, words[count - 1].end(), words[count].start()):
            return count
    return 0


def _sound(word: str) -> str:
    """Letters as they roughly sound, doubled ones once."""
    letters = "".join(char for char in word.lower() if char.isalnum())
    letters = _ALIASES.get(letters, letters)
    for written, sounds in _SOUNDS:
        letters = letters.replace(written, sounds)
    return "".join(char for at, char in enumerate(letters) if not at or char != letters[at - 1])
