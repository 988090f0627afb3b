"""Speech recognition by a Wyoming server (wyoming-faster-whisper, wyoming-vosk, ...): recordings go there.

Protocol: transcribe, audio-start, audio-chunk..., audio-stop → transcript. Imports `stages.remote` and
`stages.wyoming_wire`; no engine library.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from assistant.errors import RemoteFailed
from assistant.messages import ASR_RATE, AsrRequest, Progress, Transcript
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.remote import GARBAGE, WYOMING_PORTS, Link, address_of, clean, options_of, results
from assistant.stages.wyoming_wire import Stream

_CHUNK = ASR_RATE * 2 // 4
"""Bytes of a quarter of a second."""
_MAX_CHARS = 20_000
"""Of a transcript: two minutes of the fastest speech have 4,000."""
_FORMAT = {"rate": ASR_RATE, "width": 2, "channels": 1}


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uri: str
    deadline_s: float = 10
    """To the first result, and between results."""
    name: str = ""
    """The model that the server shall use; empty = its own choice."""
    language: str = ""


class WyomingAsr:
    """`Engine[AsrRequest, Progress | Transcript]`."""

    def __init__(self, config: EngineConfig) -> None:
        """Raises `ConfigError`."""
        self._model = config.model
        self._options = options_of(config.options, Options, "asr")
        self._where = address_of(self._options.uri, "stages.asr.uri", WYOMING_PORTS)

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(name="wyoming", model=self._model, sample_rate=ASR_RATE)

    def load(self) -> None:
        """Nothing: a server that is away now may be there when somebody has spoken."""

    def run(self, request: AsrRequest) -> Iterator[Progress | Transcript]:
        """Raises `RemoteFailed`. Nothing understood gives the text "". The protocol knows no confidence: it is 1."""
        for found in results(lambda link: self._recognised(link, request.pcm), self._where, self._options.deadline_s):
            yield Progress(done=0, total=1) if found is None else found

    def close(self) -> None:
        pass

    def _recognised(self, link: Link, pcm: bytes) -> Iterator[Transcript]:
        """Blocks. Partial texts, where the server sends any, and the last one."""
        stream = Stream(link)
        wanted = {"name": self._options.name, "language": self._options.language}
        stream.send("transcribe", {key: value for key, value in wanted.items() if value})
        stream.send("audio-start", _FORMAT)
        for at in range(0, len(pcm), _CHUNK):
            stream.send("audio-chunk", _FORMAT, pcm[at : at + _CHUNK])
        stream.send("audio-stop")
        so_far = ""
        while True:
            event = stream.next()
            if event.type == "transcript-chunk":
                before, so_far = so_far, self._text(link, so_far + str(event.data.get("text", "")))
                if so_far != before:  # what says nothing is no result
                    yield Transcript(text=so_far.strip(), final=False)
            elif event.type == "transcript":
                text = event.data.get("text")
                if not isinstance(text, str):
                    raise RemoteFailed(f"{link.where} sent a transcript without a text", code=GARBAGE)
                yield Transcript(text=self._text(link, text).strip(), final=True)
                return

    def _text(self, link: Link, text: str) -> str:
        return clean(text, _MAX_CHARS, link.where)
