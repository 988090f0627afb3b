"""The utterances that are being heard, by the number of their session with the audio process."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from assistant.audio.front_messages import Attend, Release, Sound, Spoke, ToFront, Woke
from assistant.errors import DeviceError
from assistant.voice_live import Utterance

PATIENCE_S = 8.0
"""From the wake word on, for a question that does not come at once."""


class Sessions:
    def __init__(self, send: Callable[[ToFront], None]) -> None:
        self._send = send
        self._next = 1
        self._utterances: dict[int, Utterance] = {}

    def woken(self, packet: Woke) -> Utterance:
        """One that has begun by itself."""
        utterance = Utterance(packet.session, self._send, wake_phrase=packet.phrase, patience_s=PATIENCE_S)
        self._utterances[packet.session] = utterance
        return utterance

    def listening(self) -> Utterance:
        """Of somebody who is waited for."""
        return self.open(Attend(session=0), PATIENCE_S)

    def open(self, order: Attend, patience_s: float = math.inf) -> Utterance:
        """As ordered, under a number of its own."""
        session, self._next = self._next, self._next + 2
        utterance = self._utterances[session] = Utterance(session, self._send, patience_s=patience_s)
        self._send(msgspec.structs.replace(order, session=session))
        return utterance

    def take(self, packet: Sound | Spoke) -> None:
        """What comes of a session that is over is nobody's."""
        if (utterance := self._utterances.get(packet.session)) is not None:
            utterance.take(packet)

    def close(self, session: int) -> None:
        if self._utterances.pop(session, None) is not None:
            self._send(Release(session=session))

    def lost(self, why: str) -> None:
        """The microphone."""
        for utterance in self._utterances.values():
            utterance.lost(DeviceError(f"the microphone is lost: {why}", code="audio-device-lost"))
