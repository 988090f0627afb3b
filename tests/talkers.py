"""An LLM and a voice that do as the user's words say, for the tests of conversations. Real child processes run them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from assistant.errors import EngineFailed
from assistant.messages import LlmDelta, LlmDone, LlmRequest, Progress, TtsAudio, TtsRequest
from assistant.stages.base import EngineConfig, EngineInfo

STORY = ("One was here. ", "Two was there. ", "Three was late. ", "Four was lost. ")
STEP_S = 0.3
"""Between two sentences of the story."""
RATE = 8000


class Storyteller:
    """Writes what it is asked into the file `options["asked"]`, a line each. The last words of the user decide:
    "tell" gives a story sentence by sentence, "rush" without pauses, "fail" breaks off after two ("once": the first
    time alone), "wait" thinks for `STEP_S` first, "drop N" says that N turns had no room; others are repeated."""

    def __init__(self, config: EngineConfig) -> None:
        self._asked = Path(str(config.options["asked"]))
        self.info = EngineInfo(name="storyteller", model=config.model)

    def load(self) -> None:
        self._asked.touch()

    def run(self, request: LlmRequest) -> Iterator[LlmDelta | LlmDone | Progress]:
        if request.ahead:
            yield LlmDone(reason="length", prompt_tokens=1, new_tokens=0, prefill_ms=1, decode_ms=0)
            return
        with self._asked.open("ab") as file:
            file.write(msgspec.json.encode(request) + b"\n")
        said = request.turns[-1].content
        fails = "fail" in said and not ("once" in said and len(asked(self._asked)) > 1)
        if "wait" in said:
            yield Progress(done=0, total=1)
            time.sleep(STEP_S)
        story = STORY[:2] if fails else STORY if "tell" in said or "rush" in said else (f"You said {said}.",)
        for number, sentence in enumerate(story):
            if number and "rush" not in said:
                time.sleep(STEP_S)
            yield LlmDelta(text=sentence, tokens=3)
        if fails:
            raise EngineFailed("it broke off")
        dropped = int(said.split()[-1]) if said.startswith("drop") else 0
        yield LlmDone(
            reason="stop", prompt_tokens=1, new_tokens=3, prefill_ms=1, decode_ms=1, dropped_turns=dropped
        )  # fmt: skip

    def close(self) -> None:
        pass


class Beeper:
    """A tenth of a second per text, in two pieces, made as fast as they are played."""

    def __init__(self, config: EngineConfig) -> None:
        self.info = EngineInfo(name="beeper", model=config.model, sample_rate=RATE)

    def load(self) -> None:
        pass

    def run(self, request: TtsRequest) -> Iterator[TtsAudio]:
        del request
        for _ in range(2):
            time.sleep(0.05)
            yield TtsAudio(pcm=bytes(RATE // 10), sample_rate=RATE)

    def close(self) -> None:
        pass


def asked(path: Path) -> list[LlmRequest]:
    return [msgspec.json.decode(line, type=LlmRequest) for line in path.read_bytes().splitlines()]
