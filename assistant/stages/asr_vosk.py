"""Vosk (Kaldi) as a streaming ASR engine. Imports vosk; imported by the worker alone.

The library logs to stderr and raises bare `Exception`s; both end here. It closes a segment at each pause, so the text
of a request is the sum of its segments.

One recogniser serves all requests: it composes its graph as it goes, so a new one takes three times as long (1.2 s
against 0.4 s for nine seconds of Korean).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from assistant.errors import EngineFailed, ModelDamaged, ModelMissing
from assistant.messages import ASR_RATE, AsrRequest, Progress, Transcript
from assistant.stages.base import EngineConfig, EngineInfo

BLOCK_S = 0.2
"""Audio between two looks at the partial text, and so between two chances to cancel."""
TAIL_S = 0.4
"""Zeros after the audio: the decoder lags behind by its right context and would lose the last word."""
PARTIAL_CONFIDENCE = 0.5
"""Of text that only a partial result had, because the segment ended empty."""
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
"""Japanese kana and Chinese characters: Vosk puts spaces between their words, as nobody writes them."""
_SPACE_THAT_NOBODY_WRITES = re.compile(f"(?<=[{_UNSPACED}]) (?=[{_UNSPACED}])")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Vosk has no settings of its own: language and vocabulary are the model's."""


class VoskAsr:
    """See `stages.base.StreamingEngine`. `run` gives `Transcript(final=False)` as words come."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        msgspec.convert(dict(config.options), Options)
        self._recogniser: Any = None
        self._unfinished = False

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(name="vosk", model=self._config.model, sample_rate=ASR_RATE, streaming=True)

    def load(self) -> None:
        """Raises `ModelMissing`, `ModelDamaged`, `EngineFailed`."""
        name, directory = self._config.model, self._config.model_dir
        _check_files(name, directory)
        try:
            import vosk
        except (ImportError, OSError) as error:
            raise EngineFailed(f"The speech recogniser cannot be loaded: {error}. Run scripts/setup again.") from None
        vosk.SetLogLevel(-1)
        try:
            recogniser = vosk.KaldiRecognizer(vosk.Model(str(directory)), ASR_RATE)
        except Exception as error:  # noqa: BLE001 - vosk raises nothing narrower
            raise ModelDamaged(
                f"Model {name} cannot be loaded from {directory}: {error}. Run `assistant models verify {name}`."
            ) from None
        recogniser.SetWords(True)
        _accept(recogniser, bytes(int(TAIL_S * ASR_RATE) * 2))  # composes the first part of the graph: 0.6 s
        recogniser.FinalResult()
        self._recogniser = recogniser

    def run(self, request: AsrRequest) -> Iterator[Progress | Transcript]:
        """Raises `EngineFailed`. Nothing understood gives the text ""."""
        return self.stream(request, iter(()))

    def stream(self, request: AsrRequest, chunks: Iterator[bytes]) -> Iterator[Progress | Transcript]:
        """Like `run`; tells of a segment that Vosk closes with `segment_end`."""
        recogniser = self._recogniser
        if recogniser is None:
            raise EngineFailed("The speech recogniser was asked before its model was loaded. Load the stage first.")
        if self._unfinished:
            recogniser.FinalResult()  # drops what a cancelled request left, its speaker adaptation too
        self._unfinished = True
        heard, done = Heard(), 0
        for block in blocks_of(itertools.chain([request.pcm], chunks)):
            before = heard.text
            if closed := _accept(recogniser, block):
                heard.segment(recogniser.Result())
            else:
                heard.partial(recogniser.PartialResult())
            done += len(block)
            if heard.text != before or (closed and heard.text):
                yield Transcript(text=heard.text, final=False, confidence=heard.confidence, segment_end=closed)
            else:
                yield Progress(done=done, total=max(done, len(request.pcm)))
        heard.segment(recogniser.FinalResult())
        self._unfinished = False
        yield Transcript(text=heard.text, final=True, confidence=heard.confidence)

    def close(self) -> None:
        self._recogniser = None


def blocks_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole samples in blocks of `BLOCK_S`, and the zeros of `TAIL_S` after them. Does not wait for a chunk before it
    has given what it has."""
    size = int(BLOCK_S * ASR_RATE) * 2
    left = bytearray()
    for chunk in chunks:
        left += chunk
        while len(left) >= size:
            yield bytes(left[:size])
            del left[:size]
    left = left[: len(left) // 2 * 2] + bytes(int(TAIL_S * ASR_RATE) * 2)
    yield from (bytes(left[at : at + size]) for at in range(0, len(left), size))


class Heard:
    """Adds up a recogniser's JSON results. Pure."""

    def __init__(self) -> None:
        self._segments: list[str] = []
        self._confidences: list[float] = []
        self._partial = ""

    @property
    def text(self) -> str:
        spoken = [*self._segments, self._partial] if self._partial else self._segments
        return _SPACE_THAT_NOBODY_WRITES.sub("", " ".join(spoken))

    @property
    def confidence(self) -> float:
        """Mean over the words, 0..1; 0 while there is none."""
        known = self._confidences + [PARTIAL_CONFIDENCE] * len(self._partial.split())
        return sum(known) / len(known) if known else 0.0

    def partial(self, result: str) -> None:
        self._partial = str(json.loads(result).get("partial", "")).strip()

    def segment(self, result: str) -> None:
        """Closes a segment. One that ends empty keeps what its last partial result said."""
        parsed = json.loads(result)
        text = str(parsed.get("text", "")).strip() or self._partial
        confidences = [float(word["conf"]) for word in parsed.get("result", ()) if "conf" in word]
        self._partial = ""
        if text:
            self._segments.append(text)
            self._confidences += confidences or [PARTIAL_CONFIDENCE] * len(text.split())


def _accept(recogniser: Any, block: bytes) -> bool:
    """Whether a segment has ended."""
    try:
        return bool(recogniser.AcceptWaveform(block))
    except Exception as error:  # noqa: BLE001 - vosk raises nothing narrower
        raise EngineFailed(f"The speech recogniser failed: {error}. Try again.") from None


def _check_files(model: str, directory: Path) -> None:
    """What no Vosk model lacks: Kaldi ends the process over some missing files, so look first."""
    acoustic = [path for path in (directory / "am/final.mdl", directory / "final.mdl") if path.is_file()]
    graph = [path for path in directory.rglob("*.fst") if path.is_file()]
    if not acoustic or not graph:
        raise ModelMissing(
            f"Model {model} is not complete: {directory} has no {'*.fst' if acoustic else 'am/final.mdl'}. "
            f"Get it with `assistant models fetch {model}`."
        )
    for path in (*acoustic, *graph):
        if not path.stat().st_size:
            raise ModelDamaged(
                f"Model {model} is damaged: {path} is empty. "
                f"Remove it with `assistant models rm {model}` and fetch it again."
            )
