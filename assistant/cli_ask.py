"""The verb `ask`: one question in, one answer out, from the running daemon or from a pipeline of its own."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from assistant import cli_ask_parts, cli_client, cli_output
from assistant.cli_ask_parts import Request
from assistant.errors import UsageError

if TYPE_CHECKING:
    from assistant.query import Answer


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
    conversation: Annotated[
        str | None,
        typer.Option("--conversation", metavar="ID", help="Go on with this conversation, or begin it; the daemon's."),
    ] = None,
    urgency: Annotated[
        str, typer.Option("--urgency", metavar="HOW", help="critical, normal or background.")
    ] = "normal",
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a setting; repeatable. A running daemon has its own and refuses it: add --standalone.",
        ),
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="Start a pipeline of its own even when a daemon runs.")
    ] = False,
) -> None:
    """Answers one question: recognised, understood, answered and spoken on this machine.

    Exit code 0: there is an answer. It may be that nobody can do what was asked.
    """
    from assistant.machine import process_age_s
    from assistant.query import checked_conversation, checked_urgency

    started = time.monotonic() - process_age_s()
    with cli_output.reported(as_json):
        text = " ".join(words) if words else None
        if text is None and wav is None:
            raise UsageError("there is no question: give it as TEXT, or as a recording with --wav FILE")
        if text is not None and wav is not None:
            raise UsageError("there are two questions: give TEXT or --wav FILE, not both")
        if out is not None:
            _check_output(out, no_speech)
        named = None if conversation is None else checked_conversation(conversation)
        asked = Request(text, wav, out, not no_speech, as_json, started, named, checked_urgency(urgency))
        answer = _answer(asked, sets or [], standalone)
        if as_json:
            cli_output.emit(msgspec.to_builtins(answer.report))
        else:
            cli_ask_parts.show(answer.report, out is not None)
        if answer.error is not None:
            if as_json:
                sys.exit(int(answer.error.exit_code))
            raise answer.error


def _answer(asked: Request, sets: list[str], standalone: bool) -> Answer:
    """From the running daemon if there is one."""
    client = None if standalone else cli_client.found()
    if client is None:
        import asyncio  # 45 ms, which no other verb has to pay

        from assistant import cli_ask_own

        return asyncio.run(cli_ask_own.answer(asked, sets))
    with client:
        if sets:
            raise UsageError(
                "--set: a daemon is running, and settings belong to it; say --standalone for a pipeline of its own, or"
                " restart the daemon with them"
            )
        from assistant import cli_ask_daemon

        return cli_ask_daemon.answer(asked, client)


def _check_output(out: Path, no_speech: bool) -> None:
    if no_speech:
        raise UsageError("--out and --no-speech exclude each other")
    # a device or a pipe has whatever name it likes; a file that is called .mp3, or a text, must not become a WAV
    if out.suffix.lower() not in (".wav", ".wave") and (out.is_file() or not out.exists()):
        raise UsageError(f"--out {out}: the answer is written as WAV; call the file {out.stem or 'answer'}.wav")
