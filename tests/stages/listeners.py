"""Recognisers of the tests that stream: one that reads what it is sent as letters, and one that does as it is told."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from assistant.errors import EngineFailed
from assistant.messages import AsrRequest, Progress, Transcript
from assistant.stages.base import EngineConfig, EngineInfo


class Speller:
    """The "sound" is text. It tells what it has heard after each piece. On a piece with this word in it: "slow" takes
    0.15 s, "hang" for ever, "die" ends the process, "die-once" only if there is no file `options["died"]` yet,
    "enough" ends the request, "quiet" is told as mere progress."""

    def __init__(self, config: EngineConfig) -> None:
        self._died = Path(str(config.options.get("died", "/nowhere")))
        self.info = EngineInfo(name="speller", model="m", streaming=not config.options.get("whole"))

    def load(self) -> None:
        pass

    def run(self, request: AsrRequest) -> Iterator[Progress | Transcript]:
        return self.stream(request, iter(()))

    def stream(self, request: AsrRequest, chunks: Iterator[bytes]) -> Iterator[Progress | Transcript]:
        text = request.pcm.decode()
        for chunk in chunks:
            word = chunk.decode()
            text += word
            if "slow" in word:
                time.sleep(0.15)
            if "hang" in word:
                time.sleep(60)
            if "die" in word and not ("once" in word and self._died.exists()):
                self._died.touch()
                os._exit(3)
            if "enough" in word:
                break
            yield Progress(done=1, total=1) if "quiet" in word else Transcript(text=text, final=False)
        yield Transcript(text=text, final=True)

    def close(self) -> None:
        pass


class Told:
    """Understands `options["texts"]`, one after the other, whatever it hears, with `options["confidence"]`. Writes each
    attempt down in the file `options["heard"]`: a line with its bytes, and one with "done" if it was let finish.

    `options["seconds"]`: how long it takes; `options["streams"]`, with `options["words"]` word by word;
    `options["how"]`: "die-once" while it streams, "raise-once" over a recording."""

    def __init__(self, config: EngineConfig) -> None:
        self._options = config.options
        self._heard = Path(str(config.options["heard"]))
        self.info = EngineInfo(name="told", model="m", streaming=bool(config.options.get("streams")))

    def load(self) -> None:
        self._heard.touch()

    def run(self, request: AsrRequest) -> Iterator[Progress | Transcript]:
        self._note(str(len(request.pcm)))
        if self._options.get("how") == "raise-once" and len(self._heard.read_text().split()) == 1:
            raise EngineFailed("once")
        for _ in range(int(float(self._options.get("seconds", 0)) / 0.02)):
            time.sleep(0.02)
            yield Progress(done=1, total=1)
        yield self._understood()

    def stream(self, request: AsrRequest, chunks: Iterator[bytes]) -> Iterator[Progress | Transcript]:
        died = self._heard.with_name("died")
        heard = len(request.pcm)
        for number, chunk in enumerate(chunks):
            if self._options.get("how") == "die-once" and number == 3 and not died.exists():
                died.touch()
                os._exit(3)
            heard += len(chunk)
            so_far = " ".join(self._text().split()[: number // 2 + 1])
            yield Transcript(text=so_far if self._options.get("words") else f"{number + 1} pieces", final=False)
        self._note(str(heard))
        yield self._understood()

    def _understood(self) -> Transcript:
        said = self._text()
        self._note("done")
        return Transcript(text=said, final=True, confidence=float(self._options.get("confidence", 1.0)))

    def _text(self) -> str:
        texts = list(self._options["texts"])
        return str(texts[min(self._heard.read_text().count("done"), len(texts) - 1)])

    def _note(self, line: str) -> None:
        with self._heard.open("a") as file:
            file.write(f"{line}\n")

    def close(self) -> None:
        pass
