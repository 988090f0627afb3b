"""The written form of the vocabulary: docs/protocol.schema.json and the tables in docs/protocol.md.

Both are made from the structs and their docstrings. `python -m assistant.api.schema` writes them, `--check` only says
whether they are up to date. The daemon imports nothing of this.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from assistant.api import framing, wire, wire_events

DOCS = Path(__file__).parents[2] / "docs"
SOCKETS: dict[str, Mapping[str, type[Any]]] = {
    "commands": wire.COMMANDS,
    "controls": wire.CONTROLS,
    "replies": wire.REPLIES,
    "broadcasts": wire_events.BROADCASTS,
}
"""What travels as a message of its own: at command.sock, at control.sock, back to the client, at events.sock."""
_JSON = {"None": "null", "False": "false", "True": "true"}
_MARKED = re.compile(r"(<!-- table: ([a-z]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


# --- what the sources say -------------------------------------------------------------------------------------------
def described(kind: type[Any]) -> tuple[str, dict[str, str]]:
    """The docstring of a struct (its own, "" without one), and those of its fields by their names on the wire."""
    about: dict[str, str] = {}
    names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    for base in reversed(kind.__mro__):
        if not issubclass(base, msgspec.Struct) or base is msgspec.Struct:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, note in zip(body.body, body.body[1:], strict=False):
            if isinstance(note, ast.Expr) and isinstance(note.value, ast.Constant) and isinstance(field, ast.AnnAssign):
                assert isinstance(field.target, ast.Name)
                about[names[field.target.id]] = _in_json(str(note.value.value))
    return _in_json(kind.__dict__.get("__doc__") or ""), about


def _in_json(text: str) -> str:
    """On one line, with JSON's names for what Python calls None, False and True."""
    return re.sub(r"\b(None|False|True)\b", lambda found: _JSON[found[0]], " ".join(text.split()))


# --- JSON Schema ----------------------------------------------------------------------------------------------------
def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the first frame of every message, and of the data of every event."""
    kinds = [kind for socket in SOCKETS.values() for kind in socket.values()] + list(wire_events.EVENTS.values())
    refs, defs = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for kind in _structs(kinds):
        _describe(defs[kind.__name__], kind)
    found = {kind: ref for kind, ref in zip(kinds, refs, strict=True)}
    for socket, messages in SOCKETS.items():
        for name, kind in messages.items():
            defs[f"{socket}/{name}"] = _message(name, found[kind], socket)
        defs[socket] = {"anyOf": [{"$ref": f"#/$defs/{socket}~1{name}"} for name in messages]}
    defs["events"] = {
        "description": "The data of an event, by its name.",
        "type": "object",
        "properties": {name: found[kind] for name, kind in wire_events.EVENTS.items()},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Messages of the assistant's sockets: the JSON header in front of their PCM frames",
        "description": "Commands are refused for fields that are not here; clients ignore such fields of replies.",
        "anyOf": [{"$ref": f"#/$defs/{socket}"} for socket in SOCKETS],
        "$defs": dict(sorted(defs.items())),
    }


def _structs(kinds: list[type[Any]]) -> set[type[Any]]:
    """All of them, and those that they are made of."""
    found: set[type[Any]] = set()

    def visit(node: Any) -> None:
        if isinstance(node, msgspec.inspect.StructType):
            if node.cls in found:
                return
            found.add(node.cls)
        for name in getattr(node, "__struct_fields__", ()):
            below = getattr(node, name)
            for one in below if isinstance(below, tuple) else (below,):
                if isinstance(one, msgspec.inspect.Type | msgspec.inspect.Field):
                    visit(one)

    for kind in kinds:
        visit(msgspec.inspect.type_info(kind))
    return found


def _describe(definition: dict[str, Any], kind: type[Any]) -> None:
    """With the docstrings of the fields; msgspec knows that of the struct alone, and gives it its parent's."""
    about, fields = described(kind)
    definition.pop("description", None)
    if about:
        definition["description"] = about
    for name, note in fields.items():
        definition["properties"][name] = {"description": note, **definition["properties"][name]}


def _message(name: str, data: dict[str, Any], socket: str) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "v": {"const": framing.VERSION},
        "id": {"type": "string", "minLength": 1, "maxLength": 128},
        "type": {"const": name},
        "data": data,
        "parent": {"type": ["string", "null"]},
    }
    if socket in ("commands", "controls"):  # clients are asked to be exact; they themselves read on
        required, more = ["v", "id", "type"], {"additionalProperties": False}
    else:
        required, more = ["v", "id", "type", "data"], {}
    return {"type": "object", "properties": properties, "required": required, **more}


# --- tables ---------------------------------------------------------------------------------------------------------
def tables() -> dict[str, str]:
    return {
        "commands": _table(wire.COMMANDS, answers=True),
        "controls": _table(wire.CONTROLS, answers=True),
        "replies": _table(wire.REPLIES),
        "broadcasts": _table(wire_events.BROADCASTS),
        "events": _table(wire_events.EVENTS, type_of="name"),
    }


def _table(kinds: Mapping[str, type[Any]], *, answers: bool = False, type_of: str = "type") -> str:
    head = [type_of, "data", "what", *(["replies"] if answers else [])]
    lines = [_row(head), _row(["---"] * len(head))]
    for name, kind in kinds.items():
        about, notes = described(kind)
        fields = [_field(one) for one in msgspec.structs.fields(kind)]
        what = [about, *(f"`{field}`: {note[:1].lower() + note[1:]}" for field, note in notes.items())]
        cells = [f"`{name}`", ", ".join(fields), " ".join(one.removesuffix(".") + "." for one in what if one)]
        if answers:
            cells.append(", ".join(f"`{one}`" for one in wire.ANSWERS[name]))
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |".replace("  ", " ")


def _field(field: msgspec.structs.FieldInfo) -> str:
    """Its name, and its default, if it has one that says something."""
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    if default in (msgspec.NODEFAULT, msgspec.UNSET):
        return f"`{field.encode_name}`"
    return f"`{field.encode_name}` ({json.dumps(msgspec.to_builtins(default))})"


# --- files ----------------------------------------------------------------------------------------------------------
def written(docs: Path) -> dict[Path, str]:
    """What each file should hold. Raises `ValueError` for a marker that is unknown, or missing."""
    protocol, made, seen = docs / "protocol.md", tables(), set()

    def fill(match: re.Match[str]) -> str:
        seen.add(match[2])
        if match[2] not in made:
            raise ValueError(f"{protocol}: there is no table {match[2]!r}")
        return f"{match[1]}{made[match[2]]}{match[4]}"

    text = _MARKED.sub(fill, protocol.read_text("utf-8"))
    if missing := made.keys() - seen:
        raise ValueError(f"{protocol}: no place for the tables {', '.join(sorted(missing))}")
    return {protocol: text, docs / "protocol.schema.json": json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"}


def stale(docs: Path) -> list[Path]:
    return [path for path, text in written(docs).items() if not path.exists() or path.read_text("utf-8") != text]


def main(args: list[str], docs: Path = DOCS) -> int:
    """The exit code: 1 when `--check` finds something stale."""
    found = stale(docs)
    if args not in ([], ["--check"]):
        sys.stderr.write("usage: python -m assistant.api.schema [--check]\n")
        return 2
    for path in found:
        if args:
            sys.stderr.write(f"{path.name} does not say what the structs say; run python -m assistant.api.schema\n")
        else:
            path.write_text(written(docs)[path], "utf-8")
    return 1 if args and found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
