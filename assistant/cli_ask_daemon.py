"""`ask` through the running daemon. The recording is read and the answer spoken here, the rest is done there."""

from __future__ import annotations

import contextlib
import signal
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from assistant import cli_output
from assistant.api import wire
from assistant.api.client import Client, raised
from assistant.cli_ask_parts import Request, interrupted, opened_sink, recording, tell_fallback
from assistant.errors import AssistantError, BadAudio, BadText, Cancelled
from assistant.messages import (
    ErrorReport,
    IntentReport,
    MemoryReport,
    Outcome,
    QueryReport,
    Timings,
)
from assistant.query import Answer, AudioSink, checked_text

if TYPE_CHECKING:
    from types import FrameType

_CANCEL_S = 5.0
_ACCEPT_S = 1.0
"""For the id of a query that was just sent. Without one we leave, and the daemon ends what its caller has left."""


class _Call:
    """One query at the daemon."""

    def __init__(self, client: Client, asked: Request) -> None:
        self._client, self._asked = client, asked
        self._sent = ""
        self._query_id: str | None = None

    def send(self, pcm: bytes, *, speech: bool) -> None:
        asked = self._asked
        age_ms = (time.monotonic() - asked.started) * 1000
        ask = wire.Ask(
            text=asked.text,
            speech=speech,
            age_ms=min(max(0.0, age_ms), wire.MAX_AGE_MS),
            conversation=asked.conversation,
            urgency=asked.urgency,
        )
        self._sent = self._client.ask(ask, pcm)

    def follow(self, sink: AudioSink | None) -> wire.Report:
        """Until the report. A sink that fails ends the query: whoever cannot speak the answer needs none."""
        for reply, pcm in self._client.replies(self._sent):
            match reply:
                case wire.Accepted(query_id=query_id):
                    self._query_id = query_id
                case wire.Event(name="stt-end") if not self._asked.as_json:
                    cli_output.say(f"heard    {reply.data['text']}")
                case wire.Event(name="stage-fallback") if not self._asked.as_json:
                    tell_fallback(reply.data)
                case wire.Audio(sample_rate=rate) if sink is not None:
                    try:
                        sink.write(pcm, rate)
                    except AssistantError as error:
                        return self._failed(error)
                case wire.Report():
                    return reply
        raise AssertionError("replies end with a report")

    def _failed(self, error: AssistantError) -> wire.Report:
        told = self.cancel()
        if told is None:
            raise error
        report = ErrorReport(**error.to_dict())
        return msgspec.structs.replace(
            told, outcome=Outcome.FAILED, error=report, audio=None, exit_code=int(error.exit_code)
        )

    def cancel(self) -> wire.Report | None:
        """Stops it at the daemon, at once; its report, or None when it never began or the report is late."""
        if not self._sent:
            return None
        self._stop()
        with contextlib.suppress(AssistantError):  # the daemon may have gone, or the query never began
            for reply, _ in self._client.replies(self._sent, within_s=_CANCEL_S if self.began else _ACCEPT_S):
                if isinstance(reply, wire.Report):
                    return reply
                if isinstance(reply, wire.Accepted):
                    self._query_id = reply.query_id
                    self._stop()
        return None

    def _stop(self) -> None:
        if self._query_id is not None:
            with contextlib.suppress(AssistantError):  # it may just have ended: its report is on its way
                self._client.cancel(self._query_id)

    @property
    def began(self) -> bool:
        """Whether the daemon has taken it."""
        return self._query_id is not None


def answer(asked: Request, client: Client) -> Answer:
    """Raises what kept the query from beginning; everything later is in the answer."""
    from assistant import config as settings

    config, call = settings.load(), _Call(client, asked)
    found: wire.Report | None = None
    with _interruptible():
        try:
            with opened_sink(config, asked) as sink:
                try:
                    pcm = _question(asked)
                except (BadAudio, BadText) as error:
                    return _failed(client, asked, error)
                call.send(pcm, speech=sink is not None)
                told = call.follow(sink)
                if sink is not None:
                    sink.close()
            found = told  # from here on nothing is lost by an interruption
        except KeyboardInterrupt:
            stopped = found or call.cancel()
            if stopped is None:
                raise Cancelled(
                    "interrupted; the daemon was told to stop the query, and has not said yet that it did"
                    if call.began
                    else "interrupted before the query began"
                ) from None
            return _answer(asked, stopped) if found else interrupted(wire.plain(stopped))
    return _answer(asked, found)


def _question(asked: Request) -> bytes:
    """The recording; nothing for a text that is one. Raises `BadAudio`, `BadText`."""
    if asked.wav is not None:
        return recording(asked.wav)
    checked_text(asked.text or "")
    return b""


def _answer(asked: Request, told: wire.Report) -> Answer:
    report = wire.plain(told)
    if report.audio is not None and asked.out is not None:
        report = msgspec.structs.replace(report, audio=msgspec.structs.replace(report.audio, path=str(asked.out)))
    if report.error is None:
        return Answer(report, None)
    return Answer(report, raised(wire.Failure(**msgspec.structs.asdict(report.error), exit_code=told.exit_code)))


def _failed(client: Client, asked: Request, error: AssistantError) -> Answer:
    """The report of a question that was none; the same as a pipeline of its own would give."""
    memory = client.status().memory
    report = QueryReport(
        query_id=uuid.uuid4().hex[:12],
        transcript="",
        intent=IntentReport(),
        reply="",
        outcome=Outcome.FAILED,
        error=ErrorReport(**error.to_dict()),
        audio=None,
        timings_ms=Timings(total=round((time.monotonic() - asked.started) * 1000, 1)),
        stages=(),
        memory=MemoryReport(
            budget_mib=memory.budget_mib,
            margin_mib=memory.margin_mib,
            peak_mib=memory.peak_mib,
            peak_anon_mib=memory.peak_anon_mib,
            mode=memory.mode,
        ),
    )
    return Answer(report, error)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP are a Ctrl-C, too: the daemon shall not go on for somebody who has left."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt
