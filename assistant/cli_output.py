"""How every verb of the command line speaks: data on stdout, people on stderr, errors with their exit code.

Imports `errors` and `plain_text`. With `--json`, stdout carries JSON and nothing else, an error included. What a
terminal would obey is never written, whoever said it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, TextIO

from assistant.errors import AssistantError, Cancelled, ExitCode
from assistant.plain_text import escaped, plain


def say(text: str) -> None:
    """One line for the person at the terminal; nothing where there is no stderr, or a full disk behind it."""
    if sys.stderr is not None:
        try:
            print(plain(text), file=sys.stderr, flush=True)
        except OSError:
            _to_nowhere(sys.stderr)


def show(text: str) -> None:
    """The verb's result for people, on stdout; characters that the terminal does not have become "?"."""
    _write(plain(text).encode(getattr(sys.stdout, "encoding", None) or "utf-8", "replace"))


def emit(data: Any) -> None:
    """The verb's result as JSON on stdout, in UTF-8 whatever the locale; lone surrogates (odd file names) escaped."""
    text = escaped(json.dumps(data, indent=2, ensure_ascii=False))
    try:
        _write(text.encode("utf-8"))
    except UnicodeEncodeError:
        _write(json.dumps(data, indent=2).encode("ascii"))


def _write(line: bytes) -> None:
    """Raises `OSError` when nobody can receive it: a result that is lost must not look like success."""
    if sys.stdout is None:
        raise BrokenPipeError("there is no stdout")
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def fail(error: AssistantError, json_mode: bool = False, data: dict[str, Any] | None = None) -> NoReturn:
    """Says what went wrong and leaves with the error's exit code; `data` joins the error in JSON mode."""
    if json_mode:
        emit({**(data or {}), "error": error.to_dict()})
    else:
        say(f"error: {_one_line(error.message)}")
    sys.exit(int(error.exit_code))


def _one_line(text: str) -> str:
    """Control characters in a file's name must not break the line or colour the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _to_nowhere(stream: TextIO) -> None:
    """What is still in its buffer must not make the interpreter's last flush fail, which would change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def reported(json_mode: bool = False) -> Iterator[None]:
    """Around the body of a verb: our errors, Ctrl-C and a closed stdout end it without a traceback.

    SIGTERM and SIGHUP end it like Ctrl-C does, so that temporary files and children are cleaned up.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    at_rest = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except AssistantError as error:
        fail(error, json_mode)
    except KeyboardInterrupt:
        fail(Cancelled("interrupted"), json_mode)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # whoever read us has left, and wants to hear nothing
            where = f"{error.filename!s}: " if error.filename is not None and error.strerror else ""
            say(f"error: {where}{error.strerror or error}")
        if sys.stdout is not None:
            _to_nowhere(sys.stdout)
        sys.exit(int(ExitCode.FAILED))
    finally:
        # everything is cleaned up; a second Ctrl-C must not break into the interpreter's own way out
        signal.signal(signal.SIGINT, at_rest)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    sys.exit(128 + number)
