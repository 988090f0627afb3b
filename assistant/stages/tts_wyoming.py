"""Speech synthesis by a Wyoming server (wyoming-piper, ...): text goes there, sound comes back as it is made.

Protocol: synthesize → audio-start, audio-chunk..., audio-stop. Imports `stages.remote` and `stages.wyoming_wire`; no
engine library.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import msgspec

from assistant.errors import RemoteFailed
from assistant.messages import Progress, TtsAudio, TtsRequest
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.remote import GARBAGE, WYOMING_PORTS, Link, address_of, options_of, results
from assistant.stages.wyoming_wire import Event, Stream

_RATES = range(8000, 48_001)
_LONGEST_S, _LONGEST_CHAR_S = 30.0, 1.0
"""Sound that a text may give, and more for each of its letters: nobody speaks so slowly, "999,999,999" included."""
_SPOKEN_PER_S = 10
"""Letters, at the least."""
_WINDOW_S = 0.1
"""Sound that is handed on together: servers send pieces of 50 ms and less, and each wakes the daemon."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uri: str
    deadline_s: float = 10
    """To the first sound, and between pieces of it."""
    voice: str = ""
    """Empty = the server's own."""


class WyomingTts:
    """`Engine[TtsRequest, Progress | TtsAudio]`."""

    def __init__(self, config: EngineConfig) -> None:
        """Raises `ConfigError`."""
        self._model = config.model
        self._options = options_of(config.options, Options, "tts")
        self._where = address_of(self._options.uri, "stages.tts.uri", WYOMING_PORTS)

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(name="wyoming", model=self._model, streaming=True)

    def load(self) -> None:
        """Nothing: see `WyomingAsr`."""

    def run(self, request: TtsRequest) -> Iterator[Progress | TtsAudio]:
        """Raises `RemoteFailed`."""
        work = functools.partial(self._spoken, text=request.text)
        for found in results(work, self._where, self._options.deadline_s, len(request.text) / _SPOKEN_PER_S):
            yield Progress(done=0, total=1) if found is None else found

    def close(self) -> None:
        pass

    def _spoken(self, link: Link, text: str) -> Iterator[TtsAudio]:
        """Blocks."""
        stream = Stream(link)
        voice = {"voice": {"name": self._options.voice}} if self._options.voice else {}
        stream.send("synthesize", {"text": text, **voice})
        sound = Sound(_LONGEST_S + len(text) * _LONGEST_CHAR_S)
        while (event := stream.next()).type != "audio-stop":
            if event.type in ("audio-start", "audio-chunk"):
                try:
                    found = sound.take(event)
                except ValueError as error:
                    raise RemoteFailed(f"{link.where} sent {error}", code=GARBAGE) from None
                if found is not None:
                    yield found
        if (rest := sound.rest()) is not None:
            yield rest
        if not sound.any:
            raise RemoteFailed(f"{link.where} gave no sound for a text", code=GARBAGE)


class Sound:
    """A server's chunks as s16le mono of one rate, in pieces of `_WINDOW_S` and more. Pure."""

    def __init__(self, longest_s: float) -> None:
        self.any = False
        self._longest_s = longest_s
        self._rate = self._channels = 0
        self._bytes = bytearray()
        """As the server sent them, so that a sample may be cut in two between chunks."""
        self._seconds = 0.0

    def take(self, event: Event) -> TtsAudio | None:
        """Raises `ValueError` that says what is wrong with it."""
        rate, width, channels = (event.number(key, 0) for key in ("rate", "width", "channels"))
        if rate not in _RATES or width != 2 or channels not in (1, 2):
            raise ValueError(f"sound of {rate} Hz, {width} bytes and {channels} channels, which cannot be played")
        if self._rate and (rate, channels) != (self._rate, self._channels):
            raise ValueError("sound that changes its format in the middle")
        self._rate, self._channels = rate, channels
        self._bytes += event.payload
        self._seconds += len(event.payload) / (2 * channels * rate)
        if self._seconds > self._longest_s:
            raise ValueError(f"more than {self._longest_s:g} s of sound for a short text")
        return self.rest() if len(self._bytes) >= _WINDOW_S * rate * 2 * channels else None

    def rest(self) -> TtsAudio | None:
        """What was not handed on yet; None when that is not one sample."""
        if not self._rate:
            return None
        whole = len(self._bytes) // (2 * self._channels) * 2 * self._channels
        samples = memoryview(bytes(self._bytes[:whole])).cast("h")[:: self._channels]  # of two channels the left one
        del self._bytes[:whole]
        if not whole:
            return None
        self.any = True
        return TtsAudio(pcm=samples.tobytes(), sample_rate=self._rate)
