"""How these benchmarks print: a table or JSON on stdout, everything else on stderr. Imports `errors` alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from assistant.errors import AssistantError

Judged = TypeVar("Judged", bound=Any)
"""A struct with a field `reached`."""


def say(result: msgspec.Struct, text: str, *, as_json: bool) -> None:
    """One JSON document, or the text."""
    sys.stdout.write((msgspec.json.encode(result).decode() if as_json else text) + "\n")
    sys.stdout.flush()


def say_aside(text: str) -> None:
    sys.stderr.write(text + "\n")


def say_error(error: AssistantError, *, as_json: bool) -> int:
    """Returns the exit status."""
    if as_json:
        sys.stdout.write(msgspec.json.encode({"error": error.to_dict()}).decode() + "\n")
    else:
        say_aside(f"error: {error.message}")
    return int(error.exit_code)


def said(reached: bool | None) -> str:
    """In a table; None = it was not measured."""
    return "not measured" if reached is None else "reached" if reached else "MISSED"


def judge(measure: Callable[[], Judged], table: Callable[[Judged], str], *, as_json: bool) -> int:
    """Measures and prints. The exit status: 0 when the targets are reached, 1 when not, or that of the error."""
    try:
        found = measure()
    except AssistantError as error:
        return say_error(error, as_json=as_json)
    say(found, table(found), as_json=as_json)
    return 0 if found.reached else 1
