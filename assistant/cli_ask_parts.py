"""What `ask` has in common whoever answers: the request, where the recording comes from and where the answer goes.

The reply goes to stdout and nothing else does (with `--json`, the report instead); everything about it to stderr.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assistant import cli_output
from assistant.errors import BadAudio, BadText, Cancelled, DeviceError

if TYPE_CHECKING:
    from assistant.audio.devices import Speaker
    from assistant.audio.wav_writer import WavWriter
    from assistant.config import Config
    from assistant.messages import QueryReport, Urgency
    from assistant.query import Answer


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for."""

    text: str | None
    wav: str | None
    out: Path | None
    speak: bool
    as_json: bool
    started: float
    """When the command was started (monotonic seconds): what the timings count from."""
    conversation: str | None
    urgency: Urgency


def interrupted(report: QueryReport) -> Answer:
    """Of a query that was stopped before its answer was spoken to the end."""
    from assistant.messages import ErrorReport, Outcome
    from assistant.query import Answer

    error = Cancelled("the query was interrupted")
    told = msgspec.structs.replace(report, outcome=Outcome.CANCELLED, error=ErrorReport(**error.to_dict()), audio=None)
    return Answer(told, error)


def recording(wav: str) -> bytes:
    """s16le mono 16 kHz of a file, or of standard input (-). Raises `BadAudio`."""
    from assistant.audio.formats import read_audio

    if wav != "-":
        return read_audio(Path(wav)).pcm
    try:
        # a descriptor of our own: Python's stdin object, blocked in a thread, would not let the process end
        with io.FileIO(os.dup(0)) as stdin:
            return read_audio(stdin).pcm
    except OSError as error:
        raise BadAudio(f"standard input cannot be read: {error.strerror}", code="audio-unreadable") from None


@contextlib.contextmanager
def opened_sink(config: Config, asked: Request) -> Iterator[WavWriter | Speaker | None]:
    """Where the answer is spoken: the file, else the speaker, else nowhere. Raises `DeviceError` at once, before
    anybody waits for an answer that cannot be spoken; a question that is none has no answer, and fails of itself."""
    from assistant.audio.devices import Speaker, output_device
    from assistant.audio.wav_writer import WavWriter

    if not asked.speak or (asked.out is None and not config.audio.enabled):
        yield None
    elif asked.out is not None:
        with WavWriter(asked.out) as writer:
            yield writer
    else:
        try:
            device = output_device(config.audio.output)
        except DeviceError as error:
            if _is_none(asked):
                yield None
                return
            # here, there is another way
            advice = "or say --out FILE.wav for a file, --no-speech for the text alone"
            raise DeviceError(f"{error.message}; {advice}", code=error.code) from None
        with Speaker(device) as speaker:
            yield speaker


def _is_none(asked: Request) -> bool:
    """Of what can be known without waiting: nobody is kept talking into a pipe for it."""
    from assistant.query import checked_text

    try:
        if asked.wav is None:
            checked_text(asked.text or "")
        elif asked.wav != "-":
            recording(asked.wav)
    except (BadAudio, BadText):
        return True
    return False


def tell_fallback(data: Mapping[str, Any]) -> None:
    """The event `stage-fallback`, for people."""
    what = {
        "query": "the local stage does it instead",
        "pause": "the local stage does it, until the server is tried again",
        "next": "half of the answer was told, so this question fails; the next ones are for the local stage",
    }
    cli_output.say(f"note: {data['stage']}: {data['message']}; {what[data['for']]}")


def show(report: QueryReport, speak: bool) -> None:
    """The reply on stdout, what it cost on stderr. A reply that is the error's text is told once, as the error."""
    if report.reply and (report.error is None or report.reply != report.error.message):
        cli_output.show(report.reply)
    say = cli_output.say
    if report.error is not None:
        return
    if report.audio is not None:
        where = report.audio.path or "the speaker"
        say(f"spoken   {report.audio.seconds:.1f} s to {where}")
    elif speak:
        say("not spoken: there is nothing in the reply that can be said aloud")
    say(f"\n{'stage':<8}{'engine':<11}{'model':<24}{'load ms':>9}{'run ms':>9}{'anon MiB':>10}{'file MiB':>10}")
    for one in report.stages:
        say(
            f"{one.name:<8}{one.engine:<11}{one.model:<24}{one.load_ms:>9.0f}{one.run_ms:>9.0f}"
            f"{one.anon_mib:>10.0f}{one.file_mib:>10.0f}"
        )
    times, memory = report.timings_ms, report.memory
    if times.speech_end_to_first_audio:
        first, last = times.speech_end_to_first_audio / 1000, times.total / 1000
        say(f"\nfirst audio after {first:.2f} s, all of it after {last:.2f} s")
    say(
        f"peak {memory.peak_mib:.0f} MiB of all processes together ({memory.peak_anon_mib:.0f} anonymous);"
        f" budget {memory.budget_mib:.0f} MiB, margin {memory.margin_mib:.0f} MiB, {memory.mode}"
    )
