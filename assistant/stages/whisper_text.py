"""What surrounds whisper's network: its prompt, its tokens, and its habit of inventing. Pure; imports nothing of ours.

Whisper was trained on subtitles. Given noise it writes what subtitles say over noise ("Thank you.", "Thanks for
watching!"), or says one phrase over and over. Text is therefore believed by its probability, and the usual inventions
only when the model was sure.
"""

from __future__ import annotations

import unicodedata

MAX_NEW_TOKENS = 220
"""Half of the model's context of 448, less the prompt."""
TOKENS_PER_S, SPARE_TOKENS = 8, 10
"""Nobody speaks more than 8 tokens a second; what goes beyond is a loop."""
MAX_WORDS_PER_S = 3.0
"""Whoever repeats a phrase speaks slower than this."""
MAX_REPEATS = 6
MIN_LOGPROB = -1.8
"""Of "pause", misheard, -2.5; of the faintest command that was understood, -1.5."""
NO_SPEECH, NO_SPEECH_LOGPROB = 0.6, -1.0
SURE_LOGPROB = -0.7
INVENTIONS = frozenset(
    {
        "thank you", "thank you very much", "thank you so much", "thanks", "thanks for watching", "you", "bye",
        "bye bye", "thank you for watching", "please subscribe", "subscribe", "the end", "oh", "im sorry", "so",
        "okay bye",
        "im going to go to the bathroom", "im gonna go to the bathroom", "ill see you next time", "see you next time",
    }
)  # fmt: skip
"""Phrases, folded by `folded`, that whisper writes over noise."""


def _byte_of() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes stand for themselves, the others for the code points from 256 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTE_OF = _byte_of()


def prompt(language: str | None) -> list[str]:
    """Tokens before the text. `language` like "<|fr|>" for a multilingual model, None for an English one."""
    middle = [language, "<|transcribe|>"] if language else []
    return ["<|startoftranscript|>", *middle, "<|notimestamps|>"]


def max_tokens(seconds: float) -> int:
    return min(MAX_NEW_TOKENS, SPARE_TOKENS + int(TOKENS_PER_S * seconds))


def decode(tokens: list[str]) -> str:
    """The text of byte-level tokens, control tokens left out, spaces at the ends dropped."""
    joined = "".join(token for token in tokens if not (token.startswith("<|") and token.endswith("|>")))
    data = bytes(_BYTE_OF[char] for char in joined if char in _BYTE_OF)
    return data.decode("utf-8", "replace").replace("\N{REPLACEMENT CHARACTER}", "").strip()


def folded(text: str) -> str:
    """Lower case, letters and digits of any script, single spaces."""
    kept = (char for char in text.lower() if char.isspace() or unicodedata.category(char)[0] in "LNM")
    return " ".join("".join(kept).split())


def without_loops(text: str, seconds: float) -> str:
    """Leaves one of a phrase that ends `text` again and again, said faster than anyone speaks, or too often."""
    words = text.split()
    plain = [folded(word) for word in words]
    too_fast = len(words) > MAX_WORDS_PER_S * seconds
    for period in range(1, len(words) // 2 + 1):
        again = 0  # words at the end that repeat the one a period before; the last copy may be broken off
        while again < len(words) - period and plain[-1 - again] == plain[-1 - again - period]:
            again += 1
        if again >= period * (MAX_REPEATS - 1) or (again >= period and too_fast):
            return " ".join(words[: len(words) - again])
    return text


def believable(text: str, logprob: float, no_speech: float) -> bool:
    """Whether somebody said it. `logprob`: mean per token; `no_speech`: the model's probability of silence."""
    plain = folded(text)
    if not plain or logprob < MIN_LOGPROB or (no_speech > NO_SPEECH and logprob < NO_SPEECH_LOGPROB):
        return False
    return logprob >= SURE_LOGPROB or plain not in INVENTIONS
