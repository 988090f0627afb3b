"""Languages and models that clients name in their requests: nothing follows from them, and the log says so once each.

Home Assistant sends the language of its own voice assistant with everything ("en-GB"); what hears and speaks here is
what is configured. Imports `messages` and `language_code`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from wyoming.event import Event

from assistant.api.wyoming.describing import languages_of
from assistant.language_code import base_of
from assistant.messages import Stage
from assistant.messages_status import ProgramStatus

log = logging.getLogger(__name__)

_STAGES = {
    "transcribe": Stage.ASR,
    "synthesize": Stage.TTS,
    "synthesize-start": Stage.TTS,
    "recognize": Stage.INTENT,
    "transcript": Stage.INTENT,
}
_MOST = 64
"""Different ones that are remembered: whatever a client says, the log does not grow by it."""
_LONGEST = 40


class Wishes:
    """Of all clients of a bridge."""

    def __init__(
        self, programs: Callable[[], Iterable[ProgramStatus]], warn: Callable[[str], object] = log.warning
    ) -> None:
        self._programs, self._warn = programs, warn
        self._seen: set[tuple[Stage, str, str]] = set()

    def look(self, event: Event) -> None:
        """Raises nothing: a request is worked off in whatever language there is."""
        stage = _STAGES.get(event.type)
        if stage is None:
            return
        for what, wish in _wishes(event):
            if (stage, what, wish) in self._seen or len(self._seen) >= _MOST:
                continue
            self._seen.add((stage, what, wish))
            for one in self._programs():
                if one.stage is stage and not _granted(one, what, wish):
                    there = f"{one.model or one.engine} ({', '.join(languages_of(one)[:4])})"
                    self._warn(f"a Wyoming client asks {stage} for the {what} {wish!a}; it gets {there}")


def _wishes(event: Event) -> Iterator[tuple[str, str]]:
    voice = event.data.get("voice")
    for told in (event.data, voice if isinstance(voice, dict) else {}):
        for key, what in (("language", "language"), ("name", "model")):
            if isinstance(wish := told.get(key), str) and wish:
                yield what, wish[:_LONGEST]


def _granted(one: ProgramStatus, what: str, wish: str) -> bool:
    if what == "model":
        return wish.casefold() in (one.model.casefold(), one.engine.casefold())
    return base_of(wish) in map(base_of, languages_of(one))
