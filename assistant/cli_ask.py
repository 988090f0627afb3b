"""The verb `ask`: one question in, one answer out. Starts a pipeline of its own.

The reply goes to stdout and nothing else does (with `--json`, the report instead); everything about it to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from assistant import cli_output
from assistant.errors import Cancelled, UsageError

if TYPE_CHECKING:
    from assistant.audio.devices import Speaker
    from assistant.audio.wav_writer import WavWriter
    from assistant.config import Config
    from assistant.messages import QueryReport
    from assistant.query import Answer


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for."""

    text: str | None
    wav: str | None
    out: Path | None
    speak: bool
    as_json: bool


def ask(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]", help="The question, typed.", show_default=False)
    ] = None,
    wav: Annotated[
        str | None, typer.Option("--wav", metavar="FILE", help="The question, spoken: any sound file; - for stdin.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.wav", help="Speak the answer into this file.")
    ] = None,
    no_speech: Annotated[bool, typer.Option("--no-speech", help="Do not speak the answer.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; repeatable.")
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="Start a pipeline of its own even when a daemon runs.")
    ] = False,
) -> None:
    """Answers one question: recognised, understood, answered and spoken on this machine."""
    from assistant.machine import process_age_s

    started = time.monotonic() - process_age_s()
    del standalone  # there is no daemon to ask yet, so each query has a pipeline of its own
    with cli_output.reported(as_json):
        text = " ".join(words) if words else None
        if (text is None) == (wav is None):
            raise UsageError("give a question as TEXT or with --wav FILE, and not both")
        if out is not None:
            _check_output(out, no_speech)
        answer = asyncio.run(_ask(Request(text, wav, out, not no_speech, as_json), sets or [], started))
        if as_json:
            cli_output.emit(msgspec.to_builtins(answer.report))
        else:
            _show(answer.report, out is not None)
        if answer.error is not None:
            if as_json:
                sys.exit(int(answer.error.exit_code))
            raise answer.error


def _check_output(out: Path, no_speech: bool) -> None:
    if no_speech:
        raise UsageError("--out and --no-speech exclude each other")
    # a device or a pipe has whatever name it likes; a file that is called .mp3, or a text, must not become a WAV
    if out.suffix.lower() not in (".wav", ".wave") and (out.is_file() or not out.exists()):
        raise UsageError(f"--out {out}: the answer is written as WAV; call the file {out.stem or 'answer'}.wav")


async def _ask(asked: Request, sets: list[str], started: float) -> Answer:
    from assistant import config as settings
    from assistant.daemon import Assistant
    from assistant.query import Query

    config = settings.load(sets)
    logging.basicConfig(level=config.log.level.upper(), format="%(levelname)s %(name)s: %(message)s")
    _end_on_signals()
    last: list[QueryReport] = []

    def follow(name: str, data: dict[str, Any]) -> None:
        if name == "run-end":
            last.append(data["report"])
        elif name == "stt-end" and not asked.as_json:
            cli_output.say(f"heard    {data['text']}")

    answer = None
    try:
        async with Assistant(config, emit=follow) as assistant:
            with _sink(config, asked.out, asked.speak) as sink:
                query = Query(
                    text=asked.text,
                    pcm=functools.partial(_read, asked.wav) if asked.wav is not None else None,
                    sink=sink,
                    sink_path=str(asked.out) if asked.out is not None else None,
                    started=started,
                )
                found = await assistant.answer(query)
                if sink is not None:
                    await asyncio.to_thread(sink.close)
            answer = found  # from here on nothing is lost by an interruption
    except asyncio.CancelledError:
        if answer is None and not last:
            raise Cancelled("interrupted before the query began") from None
    return answer or _interrupted(last[0])


def _interrupted(report: QueryReport) -> Answer:
    """Of a query that was stopped before its answer was spoken to the end."""
    from assistant.messages import ErrorReport, Outcome
    from assistant.query import Answer

    error = Cancelled("the query was interrupted")
    told = msgspec.structs.replace(report, outcome=Outcome.CANCELLED, error=ErrorReport(**error.to_dict()), audio=None)
    return Answer(told, error)


def _end_on_signals() -> None:
    """Ctrl-C, SIGTERM and SIGHUP cancel the query: everything it started is stopped and removed, however often they
    come meanwhile."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def _read(wav: str) -> bytes:
    from assistant.audio.formats import read_audio
    from assistant.errors import BadAudio

    if wav != "-":
        return read_audio(Path(wav)).pcm
    try:
        # a descriptor of our own: Python's stdin object, blocked in a thread, would not let the process end
        with io.FileIO(os.dup(0)) as stdin:
            return read_audio(stdin).pcm
    except OSError as error:
        raise BadAudio(f"standard input cannot be read: {error.strerror}", code="audio-unreadable") from None


@contextlib.contextmanager
def _sink(config: Config, out: Path | None, speak: bool) -> Iterator[WavWriter | Speaker | None]:
    """Where the answer is spoken: the file, else the speaker, else nowhere. Raises `DeviceError` at once, before
    anybody waits for an answer that cannot be spoken."""
    from assistant.audio.devices import Speaker, output_device
    from assistant.audio.wav_writer import WavWriter

    if not speak or (out is None and not config.audio.enabled):
        yield None
    elif out is not None:
        with WavWriter(out) as writer:
            yield writer
    else:
        with Speaker(output_device(config.audio.output)) as speaker:
            yield speaker


def _show(report: QueryReport, speak: bool) -> None:
    """The reply on stdout, what it cost on stderr."""
    if report.reply:
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
