"""One `ask`: what the pipeline does for it becomes replies. Imports `wire`; knows no line and no socket.

Each ends with exactly one last reply: a report, or an error when it never began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

from assistant.api import wire
from assistant.api.admission import Claim
from assistant.api.pace import LlmWork
from assistant.errors import AssistantError, Cancelled
from assistant.messages import QueryReport
from assistant.query import Answer, LiveSpeech, Query, checked_conversation, checked_text, checked_urgency

Tell = Callable[[wire.Reply, bytes], None]
"""Takes a reply and its PCM; called in the loop's thread, returns at once."""

_CHARS_PER_BYTE = 15 / 32_000
"""Somebody who speaks says about 15 characters in a second, which has 32,000 bytes."""
_CHARS_OF_LIVE = 60


class _Voice:
    """The sink of a query: its sound goes to the caller, in pieces or at the end."""

    def __init__(self, tell: Tell, at_once: bool) -> None:
        self._tell, self._at_once = tell, at_once
        self._kept: list[bytes] = []
        self._bytes = 0
        self.sample_rate = 0

    def write(self, pcm: bytes, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self._bytes += len(pcm)
        if self._at_once:
            self._tell(wire.Audio(sample_rate=sample_rate), pcm)
        else:
            self._kept.append(pcm)

    @property
    def seconds(self) -> float:
        return self._bytes / 2 / self.sample_rate if self.sample_rate else 0.0

    def flush(self) -> None:
        if self._kept:
            self._tell(wire.Audio(sample_rate=self.sample_rate), b"".join(self._kept))
            self._kept.clear()

    def forget(self) -> None:
        self._kept.clear()
        self._bytes = 0


class Job:
    def __init__(
        self, ask: wire.Ask, pcm: bytes, tell: Tell, live: LiveSpeech | None = None, client: Hashable = None
    ) -> None:
        """`live`: the recording is still coming. `client`: who asks; None = somebody who asks for nothing else.

        Raises `UsageError` for what is no name of a conversation, no urgency, or no question.
        """
        self._tell, self._stream = tell, ask.stream
        self._voice = _Voice(tell, ask.stream) if ask.speech else None
        self._report: QueryReport | None = None
        self._client: Hashable = object() if client is None else client
        self._answering = self._put_back = False
        self.size = len(pcm)
        self.ended = False
        """Its last reply was told."""
        self.leaving = False
        """It is being stopped in favour of a more urgent one; nothing of that is told."""
        self.llm: LlmWork | None = None
        self.query = Query(
            text=None if ask.text is None else checked_text(ask.text),
            pcm=(lambda: pcm) if ask.text is None and live is None else None,
            live=live,
            sink=self._voice,
            sink_waits=not ask.stream,
            conversation="" if ask.conversation is None else checked_conversation(ask.conversation),
            urgency=checked_urgency(ask.urgency),
            started=time.monotonic() - ask.age_ms / 1000,
        )

    @property
    def id(self) -> str:
        return self.query.id

    @property
    def chars(self) -> int:
        """Of the question; of a recording about as many as it may have, of a live one a guess."""
        if self.query.text is not None:
            return len(self.query.text)
        return _CHARS_OF_LIVE if self.query.live is not None else round(self.size * _CHARS_PER_BYTE)

    def claim(self, work_s: float) -> Claim:
        return Claim(
            client=self._client,
            conversation=self.query.conversation,
            urgency=self.query.urgency,
            size=self.size,
            work_s=work_s,
            leaving=self.leaving,
        )

    # --- what its caller is told ------------------------------------------------------------------------------------
    def accepted(self, ahead: int) -> None:
        self._tell(wire.Accepted(query_id=self.id, ahead=ahead), b"")

    def begin(self) -> None:
        # told whatever `stream` says: a client that has vanished meanwhile is found out before the work is done
        self._tell(wire.Started(query_id=self.id), b"")

    def follow(self, name: str, data: dict[str, Any]) -> None:
        if name == "run-end":
            self._report = data.get("report")
            data = {key: value for key, value in data.items() if key != "report"}  # it comes as the last reply
        elif name == "reply-delta":
            self._answering = True
        elif name == "llm-end":
            self.llm = LlmWork.of_event(data)
        if self._stream and not self.leaving:
            self._tell(wire.Event(name=name, data=data), b"")

    def put_back(self) -> bool:
        """Whether it may be answered anew, after it was stopped: once, and only if nobody has heard or will remember
        anything of its answer."""
        self.leaving = False
        heard = self._answering and (self._stream or self.query.conversation)
        if self._put_back or heard or self.query.live is not None:
            return False
        self._put_back, self._answering, self._report, self.llm = True, False, None, None
        if self._voice is not None:
            self._voice.forget()
        if self._stream:
            self._tell(wire.Event(name="preempted", data={"query_id": self.id}), b"")
        return True

    def end(self, answer: Answer) -> None:
        if self._voice is not None:
            self._voice.flush()
        self.ended = True
        self._tell(wire.report(answer.report, answer.error), b"")

    def fail(self, error: AssistantError) -> None:
        """Ends it without an answer; with a report, if the pipeline gave one before it was cancelled."""
        self.ended = True
        if self._report is not None and isinstance(error, Cancelled):
            self._tell(wire.report(self._report, error), b"")
        else:
            self._tell(wire.failure(error), b"")
