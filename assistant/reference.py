"""The generated parts of the user's guide: the settings, the command line, the engines and the models.

Made from the structs of the settings and their docstrings, the verbs of the command line, the registry and the catalog.
`python -m assistant.reference` writes them between the markers in docs/, `--check` only says whether they are up to
date. Nothing imports this.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import typer

from assistant import cli, cli_bench, config, config_checks, paths
from assistant.api.schema import described
from assistant.errors import ExitCode
from assistant.model_store.catalog import Catalog
from assistant.model_store.progress import size_text
from assistant.stages.registry import ENGINES, REMOTE

DOCS = Path(__file__).parents[1] / "docs"
_MARKED = re.compile(r"(<!-- made: ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_UNITS = {"mib": "MiB", "s": "s", "percent": "%", "tokens": "tokens", "days": "days", "ms": "ms"}
_TYPES = {bool: "true or false", int: "whole number", float: "number", str: "text"}


# --- settings -------------------------------------------------------------------------------------------------------
def settings(section: type[Any] = config.Config, prefix: str = "") -> Iterator[tuple[str, type[Any], Any, str]]:
    """Key, type, default and meaning of each setting, in the order of the structs."""
    kinds, (_, notes) = get_type_hints(section), described(section)
    for field in msgspec.structs.fields(section):
        kind = kinds[field.name]
        if hasattr(kind, "__struct_fields__"):
            yield from settings(kind, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, kind, field.default, notes.get(field.name, "")


def unit_of(key: str) -> str:
    """What the name says: `memory.budget_mib` -> "MiB"."""
    return _UNITS.get(key.rpartition("_")[2] if "_" in key else "", "")


def _type(key: str, kind: type[Any]) -> str:
    if key in config_checks.CHOICES:
        return " / ".join(f"`{one}`" for one in config_checks.CHOICES[key])
    if kind not in (int, float):
        return _TYPES.get(kind, "list of texts")
    least, most = config_checks.limits(key)
    ends = f"{least:g} to {most:g}" if most < config_checks.MOST else f"from {least:g}"
    return f"{_TYPES[kind]}, {ends}"


def settings_tables() -> str:
    """A heading, what the section is for, and a table, for each section."""
    lines: list[str] = []
    section = ""
    about = {f"{name}.": described(kind)[0] for name, kind in _sections(config.Config)}
    for key, kind, default, meaning in settings():
        if (head := key[: key.rindex(".") + 1]) != section:
            section = head
            lines += ["", f"## {head[:-1]}", "", *([about[head], ""] if about[head] else [])]
            lines += _rows([["key", "type", "default", "unit", "meaning"]], head=True)
        shown = json.dumps(msgspec.to_builtins(default), ensure_ascii=False)
        lines += _rows([[f"`{key}`<br>`{_variable(key)}`", _type(key, kind), f"`{shown}`", unit_of(key), meaning]])
    return "\n".join(lines[1:]) + "\n"


def _sections(section: type[Any], prefix: str = "") -> Iterator[tuple[str, type[Any]]]:
    for name, kind in get_type_hints(section).items():
        if hasattr(kind, "__struct_fields__"):
            yield prefix + name, kind
            yield from _sections(kind, f"{prefix}{name}.")


def _variable(key: str) -> str:
    return config.ENV_PREFIX + key.upper().replace(".", "_")


# --- the command line -----------------------------------------------------------------------------------------------
def verbs() -> Iterator[tuple[str, Any]]:
    """Every verb that does something, as it is typed, and its command."""

    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        below = getattr(command, "commands", {})
        if path != "assistant" and (not below or command.invoke_without_command):
            yield path, command
        for name, one in below.items():
            if not one.hidden:
                yield from walk(one, f"{path} {name}")

    return walk(typer.main.get_command(cli.app), "assistant")


@dataclass(frozen=True, slots=True)
class Option:
    names: tuple[str, ...]
    value: str
    """What stands behind it; empty = nothing."""
    help: str
    default: str = ""


def options_of(path: str, command: Any) -> list[Option]:
    if path.startswith("assistant bench "):
        return list(_of_a_benchmark(path.rpartition(" ")[2]))
    return [
        Option(
            (*one.opts, *one.secondary_opts),
            "" if one.is_flag else one.metavar or _kind(one),
            one.help or "",
            _default(one),
        )
        for one in command.params
        if one.opts[0].startswith("-") and not one.hidden and one.name != "help"
    ]


@functools.cache
def _of_a_benchmark(name: str) -> tuple[Option, ...]:
    """Benchmarks read their arguments themselves: taken from what they print of them."""
    module = importlib.import_module(f"assistant.bench.{cli_bench.BENCHES[name][0]}")
    columns, printed = os.environ.get("COLUMNS"), io.StringIO()
    os.environ["COLUMNS"] = "1000"
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            module.main(["--help"])
    finally:
        del os.environ["COLUMNS"]
        if columns is not None:
            os.environ["COLUMNS"] = columns
    found = re.findall(
        r"^  (--[a-z][a-z0-9-]*)(?: (\S+(?: \S+)*?))?(?: {2,}|\n {10,}|$)(.*)$", printed.getvalue(), re.M
    )
    return tuple(Option((option,), value, about[:1].upper() + about[1:]) for option, value, about in found)


def _arguments_of(command: Any) -> list[Any]:
    return [one for one in command.params if not one.opts[0].startswith("-") and not one.hidden]


def verb_sections() -> str:
    lines: list[str] = []
    for path, command in verbs():
        given, options = _arguments_of(command), options_of(path, command)
        words = [path, *(_metavar(one) for one in given), *(["[OPTION]..."] if options else [])]
        about = " ".join((command.help or "").split())
        lines += ["", f"### {path}", "", f"`{' '.join(words)}`", "", about, ""]
        rows = [[f"`{_metavar(one)}`", one.help or "", _default(one)] for one in given if one.help]
        for option in options:
            names = ", ".join(f"`{name}`" for name in option.names)
            rows.append([f"{names} {option.value}".strip(), option.help, option.default])
        if rows:
            lines += [*_rows([["argument or option", "what", "default"]], head=True), *_rows(rows)]
    return "\n".join(lines[1:]) + "\n"


def _metavar(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _kind(option: Any) -> str:
    names: dict[Any, str] = {int: "NUMBER", float: "NUMBER", Path: "PATH"}
    return names.get(option.type_descriptor.annotation, "TEXT")


def _default(param: Any) -> str:
    value = param.default
    if callable(value) or value in (None, False, "", ()):
        return ""
    return f"`{value}`"


def exit_codes() -> str:
    meanings = {
        ExitCode.OK: "done",
        ExitCode.FAILED: "anything else: no speech in a recording, a failed worker, a missed target of a benchmark",
        ExitCode.USAGE: "what was asked makes no sense: an option, a setting, a file that is no recording",
        ExitCode.NOT_RUNNING: "no daemon runs, or it does not answer",
        ExitCode.BUSY: "busy: others hold the memory, or too many wait; try again later",
        ExitCode.MEMORY: "refused by memory: it can never fit",
        ExitCode.MODEL: "a model is missing, damaged or not supported",
        ExitCode.AUDIO_DEVICE: "no microphone or speaker",
        ExitCode.CANCELLED: "interrupted or cancelled",
    }
    rows = [[str(int(code)), meanings[code]] for code in ExitCode]
    return "\n".join([*_rows([["code", "meaning"]], head=True), *_rows(rows)]) + "\n"


# --- engines and models ---------------------------------------------------------------------------------------------
def engine_table() -> str:
    rows = [[f"`{stage}`", f"`{name}`", "a server of yours" if name in REMOTE else "this machine"]
            for stage, name in ENGINES]  # fmt: skip
    return "\n".join([*_rows([["stage", "engine", "runs on"]], head=True), *_rows(rows)]) + "\n"


def model_table() -> str:
    rows = []
    for one in Catalog.load(paths.catalog_file()).entries():
        name = f"`{one.name}`" + (" (default)" if one.default else "")
        size = size_text(one.download_bytes)
        rows.append([name, one.stage or one.kind, one.engine, one.language, size, one.licence, one.description])
    head = [["name", "stage", "engine", "language", "to download", "licence", "what"]]
    return "\n".join([*_rows(head, head=True), *_rows(rows)]) + "\n"


def _rows(rows: list[list[str]], *, head: bool = False) -> list[str]:
    if head:
        rows = [*rows, ["---"] * len(rows[0])]
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in escaped]


# --- files ----------------------------------------------------------------------------------------------------------
PARTS: dict[str, Callable[[], str]] = {
    "settings": settings_tables,
    "verbs": verb_sections,
    "exit-codes": exit_codes,
    "engines": engine_table,
    "models": model_table,
}


def written(docs: Path) -> dict[Path, str]:
    """What each file with markers should hold. Raises `ValueError` for a part that is unknown, or has no place."""
    seen: set[str] = set()

    def fill(match: re.Match[str]) -> str:
        if match[2] not in PARTS:
            raise ValueError(f"there is no part {match[2]!r}")
        seen.add(match[2])
        return f"{match[1]}{PARTS[match[2]]()}{match[4]}"

    texts = {path: path.read_text("utf-8") for path in sorted(docs.glob("*.md"))}
    made = {path: _MARKED.sub(fill, text) for path, text in texts.items() if _MARKED.search(text)}
    if missing := PARTS.keys() - seen:
        raise ValueError(f"no place in {docs} for the parts {', '.join(sorted(missing))}")
    return made


def main(args: list[str], docs: Path = DOCS) -> int:
    """The exit code: 1 when `--check` finds something stale."""
    if args not in ([], ["--check"]):
        sys.stderr.write("usage: python -m assistant.reference [--check]\n")
        return 2
    stale = {path: text for path, text in written(docs).items() if path.read_text("utf-8") != text}
    for path, text in stale.items():
        if args:
            sys.stderr.write(f"{path.name} does not say what the sources say; run python -m assistant.reference\n")
        else:
            path.write_text(text, "utf-8")
    return 1 if args and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
