"""What becomes of commands that people really said: recordings through speech recognition and the intent stage.

The recordings are not part of the project (`assistant bench wer` says what their folder holds); what people meant in
them is in a table of the tests. As in a query, only speech is recognised, and what the recogniser is not sure of is no
question. Imports `bench.wer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant.bench import wer
from assistant.errors import NoSpeech, UsageError
from assistant.messages import AsrRequest, IntentMatch, IntentRequest
from assistant.nlu.same import same_slots
from assistant.pipeline_words import Heard, question
from assistant.stages.base import Engine

OUT_OF_DOMAIN = "-"


@dataclass(frozen=True, slots=True)
class Meant:
    """Of a recording."""

    file: str
    intent: str
    slots: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spoken:
    meant: Meant
    text: str
    """"" = nothing that would be a question."""
    requests: Sequence[IntentMatch]

    @property
    def acted(self) -> bool:
        """Whether exactly what was meant would be done: nothing, where it was no command."""
        commands = [request for request in self.requests if request.name]
        if self.meant.intent == OUT_OF_DOMAIN:
            return not commands
        return (
            len(self.requests) == 1
            and self.requests[0].name == self.meant.intent
            and same_slots(self.meant.slots, self.requests[0].slots)
        )


def spoken(folder: Path, meant: Iterable[Meant], asr: Engine[AsrRequest, Any], intents: Any) -> list[Spoken]:
    """By engines that are loaded; recordings that are not in the folder are left aside. Raises `UsageError` when none
    is."""
    if not (folder / "manifest.json").is_file():
        raise UsageError(wer.NO_RECORDINGS.format(folder).strip())
    clips = {clip.file: clip for clip in wer.corpus(folder)}
    wanted = {one.file: one for one in meant if one.file in clips}
    if not wanted:
        raise UsageError(f"none of the recordings whose meaning is known is in {folder}")
    found = []
    for heard in wer.hear(asr, folder, [clips[file] for file in wanted]):
        try:
            text = question(Heard(heard.text, heard.confidence))
        except NoSpeech:
            text = ""
        requests = list(intents.run(IntentRequest(text=text))) if text else []
        found.append(Spoken(wanted[heard.clip.file], text, requests))
    return found


def figures(found: Sequence[Spoken]) -> dict[str, float]:
    """`acted`: the share of all recordings in which exactly what was meant would be done; the same of the commands
    among them."""
    commands = [one for one in found if one.meant.intent != OUT_OF_DOMAIN]
    return {
        "n": len(found),
        "acted": share(one.acted for one in found),
        "commands": len(commands),
        "commands_acted": share(one.acted for one in commands),
    }


def share(hits: Iterable[bool]) -> float:
    values = list(hits)
    return round(sum(values) / len(values), 4) if values else 0.0
