"""What is wrong with a command line, in our words: which argument, what it may be, and whose help tells more.

Decides from what typer's parser raised. Its classes are private, so they are known by what they carry. Imports nothing
of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_PLAIN = {
    re.compile(r"No such option: (\S+)"): "there is no option {0}",
    re.compile(r"No such command '(.*?)'\.(?: (.*))?", re.DOTALL): "there is no command {0!r}. {1}",
    re.compile(
        r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", re.DOTALL
    ): "these are more arguments than it takes: {0}",
    re.compile(r"Option '(\S+)' requires an argument\."): "{0} needs a value",
    re.compile(r"Option '(\S+)' does not take a value\."): "{0} takes no value",
}
_KINDS = {"int": "a whole number", "float": "a number", "finite": "a number", "bool": "true or false"}


def told(error: Exception, words: Iterable[str], command: Any) -> str:
    """One sentence. `words`: the command line; `command`: typer's, of the whole program. "" where nothing was asked for
    and what there is was shown."""
    said = str(getattr(error, "message", "") or error)
    if not said:
        return ""
    parameter = getattr(error, "param", None)
    if parameter is not None:
        said = _about(error, parameter, said)
    else:
        for pattern, ours in _PLAIN.items():
            if found := pattern.fullmatch(said):
                said = ours.format(*(group or "" for group in found.groups()))
                break
    return f"{said.rstrip('. ')}; see '{_verb(error, words, command)} --help'"


def _about(error: Exception, parameter: Any, said: str) -> str:
    name = parameter.metavar or parameter.name.upper()
    if parameter.param_type_name == "option":
        name = parameter.opts[0]
    if not getattr(error, "message", ""):  # nothing but what the class says: it is missing
        about = (parameter.help or "").rstrip(".")
        return f"{name} is missing" + (f": {about[:1].lower()}{about[1:]}" if about else "")
    cause: Any = error.__cause__
    if not hasattr(cause, "errors"):
        return f"{name}: {said}"
    (first, *_) = cause.errors()
    kind, limits, value = str(first["type"]), first.get("ctx") or {}, first["input"]
    if kind == "less_than_equal":
        return f"{name} is {value}; the most allowed is {limits['le']:g}"
    if kind == "greater_than_equal":
        return f"{name} is {value}; the least allowed is {limits['ge']:g}"
    wanted = _KINDS.get(kind.partition("_")[0])
    return f"{name} must be {wanted}, not {value!r}" if wanted else f"{name}: {said}"


def _verb(error: Exception, words: Iterable[str], command: Any) -> str:
    """As in "assistant models fetch"."""
    context = getattr(error, "ctx", None)
    if context is not None:
        return str(context.command_path)
    path = ["assistant"]
    for word in words:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        path.append(word)
    return " ".join(path)
