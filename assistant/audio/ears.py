"""What is heard: wake words always, and in a session also where somebody speaks. Imports `vad`, `wake`, `endpointing`.

Takes the microphone's sound in blocks of 32 ms, s16le mono at 16 kHz, and says what the daemon is to be told. A wake
word begins a session by itself, with the sound before it, so that nothing is lost however long the daemon takes to get
ready. Opens no device and no socket, and does not know what time it is: everything is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from assistant.audio.endpointing import Endpointer
from assistant.audio.front_messages import (
    MAX_PCM,
    Attend,
    EndpointSettings,
    FromFront,
    FrontSettings,
    Sound,
    Spoke,
    Woke,
)
from assistant.audio.vad import WINDOW_BYTES, WINDOW_S, VoiceActivity, spans_of
from assistant.audio.wake import RATE_BYTES, Detection, WakeWords, listening
from assistant.closing import Closing

BLOCK_BYTES = WINDOW_BYTES
"""What `hear` takes: 512 samples."""
PIECE_BYTES = 3 * BLOCK_BYTES
"""Sound of a session is told in pieces of 96 ms: a third of the packets, and no recogniser is in more of a hurry."""
WORDS_BYTES = 3 * BLOCK_BYTES
"""Wake words are looked for in so much sound at once while nothing goes on: at every block it takes twice the time,
since a processor that was asleep must fetch everything anew. Recognised up to 64 ms later, which the pre-roll holds."""
WARM_UP_S = 1.0
"""What the voice activity detector hears before a session, and is asked about by the gate; at least this is kept."""
SAME_UTTERANCE_S = 0.7
"""Two models may know one utterance; what comes this soon after a wake word is no other one."""
GAP_S = 1.0
"""A longer time between two blocks than this one: the microphone was away, and what it heard before is of no use."""
CUE_TAIL_S = 1.0
"""How long a cue may still be heard after it was to end: it waits in buffers, and the room holds it."""


class BlockFilter(Protocol):
    """Takes our cues out of the microphone's sound (`notch`)."""

    def feed(self, block: bytes, *, through: bool = False) -> bytes:
        """As many samples as it was given. `through`: unchanged, but remembered."""
        ...


class Ears(Closing):
    """Not for several threads."""

    playing = False
    """Set by the front: we speak or ring, so stop words count."""

    def __init__(
        self,
        settings: FrontSettings,
        *,
        explained: Callable[[float], bool] = lambda now_s: False,
        notch: BlockFilter | None = None,
        words: tuple[WakeWords, tuple[str, ...]] | None = None,
        last_session: int = 0,
    ) -> None:
        """`explained`: whether our own voice is why a word is recognised at this time. `words`: as `wake.listening`
        gives them, which is asked otherwise.

        Raises `ConfigError` for settings that cannot be, `ModelError` for a damaged model, `EngineFailed` for a missing
        library.
        """
        self._settings = settings
        self._explained = explained
        self._notch = notch
        self._words, self.stop_words = words or listening(settings.wake)
        self._vad = VoiceActivity()
        self._muted = settings.muted
        self._session: _Session | None = None
        self._number = last_session
        self._past = bytearray()
        self._unsearched = bytearray()
        self._past_bytes = _bytes_of(max(settings.pre_roll_s, WARM_UP_S))
        self._now_s = float("-inf")
        self._woke_s = float("-inf")
        self._cue_until_s = float("-inf")
        self._next_cue_s = 0.0

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word for word in self._words.words if word not in self.stop_words)

    @property
    def in_session(self) -> bool:
        return self._session is not None

    def hear(self, block: bytes, now_s: float) -> list[FromFront]:
        """The next `BLOCK_BYTES`, heard until `now_s` of any steady clock. What the daemon is to be told, in order."""
        if self._muted:
            return []
        if now_s - self._now_s > GAP_S:
            self._forget()
        self._now_s = now_s
        if self._next_cue_s:
            self._cue_until_s = max(self._cue_until_s, now_s + self._next_cue_s + CUE_TAIL_S)
            self._next_cue_s = 0.0
        self._past += block
        del self._past[: -self._past_bytes]
        told: list[FromFront] = []
        if self._session is not None:
            told += self._session.hear(self._filtered(block))
        self._unsearched += block
        if self.playing or self._session is not None or len(self._unsearched) >= WORDS_BYTES:
            sound = bytes(self._unsearched)
            self._unsearched.clear()
            for one in self._words.feed(sound):
                told += self._recognised(one)
        return told

    # --- what the daemon asks for -----------------------------------------------------------------------------------
    def attend(self, order: Attend) -> list[FromFront]:
        """Begins a session of the daemon's; another one is over. A muted microphone ends it at once."""
        self._session = None
        if self._muted:
            return [_nothing(order.session)]
        self._begin(order.session, order.endpoint or self._settings.endpoint, order.pre_roll_s, after_wake=False)
        return []

    def release(self, session: int) -> None:
        if self._session is not None and self._session.number == session:
            self._session = None

    def go_on(self, session: int) -> None:
        if self._session is not None and self._session.number == session:
            self._session.endpointer.go_on()

    def mute(self, on: bool) -> list[FromFront]:
        """From now on nothing is heard, or is again; what was heard before is forgotten."""
        if on == self._muted:
            return []
        self._muted = on
        self._forget()
        session, self._session = self._session, None
        return [_nothing(session.number)] if session is not None else []

    def cue(self, seconds: float) -> None:
        """A cue of ours of this length is about to be played: a session hears through the notch meanwhile."""
        self._next_cue_s = max(seconds, self._next_cue_s)

    # --- inside -----------------------------------------------------------------------------------------------------
    def _recognised(self, found: Detection) -> list[FromFront]:
        stop = found.word in self.stop_words
        if (stop and not self.playing) or self._explained(self._now_s):
            return []
        if not stop and self._now_s - self._woke_s < SAME_UTTERANCE_S:
            return []
        if self._settings.wake.vad_gate and not self._speech_in_the_past():
            return []
        if stop:
            return [Woke(word=found.word, phrase=found.phrase, score=found.score, kind="stop")]
        self._woke_s = self._now_s
        self._number += 2
        self._begin(self._number, self._settings.endpoint, self._settings.pre_roll_s, after_wake=True)
        session = self._session
        assert session is not None
        woke = Woke(word=found.word, phrase=found.phrase, score=found.score, kind="wake", session=session.number)
        return [woke, *session.flush()]

    def _begin(self, number: int, endpoint: EndpointSettings, pre_roll_s: float, *, after_wake: bool) -> None:
        """A session whose first sound is the last `pre_roll_s` of what was heard, this block included."""
        past = self._filtered(bytes(self._past))
        self._vad.reset()
        self._vad.feed(_last_windows(past))
        wanted = _bytes_of(pre_roll_s)
        self._session = _Session(
            number, Endpointer(endpoint, after_wake=after_wake), self._vad, past[-wanted:] if wanted else b""
        )

    def _filtered(self, sound: bytes) -> bytes:
        if self._notch is None:
            return sound
        return self._notch.feed(sound, through=self._now_s > self._cue_until_s)

    def _speech_in_the_past(self) -> bool:
        self._vad.reset()
        probabilities = self._vad.feed(_last_windows(bytes(self._past)))
        return bool(spans_of(probabilities, len(probabilities) * WINDOW_S))

    def _forget(self) -> None:
        self._past.clear()
        self._unsearched.clear()
        self._words.reset()

    def close(self) -> None:
        self._words.close()


class _Session:
    """Somebody is listened to: their sound, in pieces, and where in it they speak."""

    def __init__(self, number: int, endpointer: Endpointer, vad: VoiceActivity, before: bytes) -> None:
        self.number = number
        self.endpointer = endpointer
        self._vad = vad
        self._unsent = bytearray(before)

    def hear(self, block: bytes) -> list[FromFront]:
        self._unsent += block
        (probability,) = self._vad.feed(block)
        turns = self.endpointer.feed(WINDOW_S, probability)
        # the sound of which something is told is there before that
        told = self.flush() if turns or len(self._unsent) >= PIECE_BYTES else []
        for turn in turns:
            told.append(
                Spoke(
                    session=self.number, what=turn.what, reason=turn.reason,
                    speech_s=turn.speech_s, silence_s=turn.silence_s,
                )
            )  # fmt: skip
        return told

    def flush(self) -> list[FromFront]:
        sound = bytes(self._unsent)
        self._unsent.clear()
        return [Sound(session=self.number, pcm=sound[at : at + MAX_PCM]) for at in range(0, len(sound), MAX_PCM)]


def _bytes_of(seconds: float) -> int:
    return round(seconds * RATE_BYTES / 2) * 2


def _last_windows(sound: bytes) -> bytes:
    """The end of it, in whole windows: `WARM_UP_S`, or what there is."""
    count = min(len(sound), _bytes_of(WARM_UP_S)) // WINDOW_BYTES
    return sound[len(sound) - count * WINDOW_BYTES :]


def _nothing(session: int) -> Spoke:
    return Spoke(session=session, what="end", reason="no-speech")
