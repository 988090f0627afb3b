"""How these benchmarks print: a table or JSON on stdout, everything else on stderr. Imports `errors` alone."""

from __future__ import annotations

import sys

import msgspec

from assistant.errors import AssistantError


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
