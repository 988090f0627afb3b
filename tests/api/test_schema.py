"""Every message that there is crosses the wire unchanged, and the written form of the vocabulary says what holds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from assistant.api import framing, schema, wire, wire_events

MESSAGES = [(socket, name, kind) for socket, kinds in schema.SOCKETS.items() for name, kind in kinds.items()]
ALL = schema.schema()


def example(node: inspect.Type, full: bool) -> Any:
    """Plain data of a type: with all fields and entries, or with as few as possible."""
    match node:
        case inspect.StructType(fields=fields):
            wanted = [one for one in fields if full or one.required]
            return {one.encode_name: example(one.type, full) for one in wanted}
        case inspect.UnionType(types=types):
            ordered = sorted(types, key=lambda one: isinstance(one, inspect.NoneType))
            return example(ordered[0] if full else ordered[-1], full)
        case inspect.DictType(value_type=value):
            return {"key": example(value, full)} if full else {}
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return [example(item, full)] * 2 if full else []
        case inspect.EnumType(cls=cls):
            return next(iter(cls)).value
        case inspect.LiteralType(values=values):
            return values[-1]
        case inspect.StrType():
            return "Müller 🕐" if full else ""
        case inspect.BoolType():
            return full
        case inspect.IntType() | inspect.FloatType(ge=None):
            return 7 if full else 0
        case inspect.FloatType():
            return 7.5
        case inspect.NoneType() | inspect.AnyType():
            return None
    raise AssertionError(f"no example of {node}")


def wrong(value: Any, rule: dict[str, Any], place: str = "") -> list[str]:
    """What a value breaks of a JSON Schema, as far as ours use it."""
    if "$ref" in rule:
        rule = {**ALL["$defs"][rule["$ref"].removeprefix("#/$defs/").replace("~1", "/")], **rule}
        rule.pop("$ref")
    found = []
    if "anyOf" in rule and all(wrong(value, one, place) for one in rule["anyOf"]):
        found.append(f"{place}: none of anyOf")
    if "const" in rule and value != rule["const"]:
        found.append(f"{place}: not {rule['const']}")
    if "enum" in rule and value not in rule["enum"]:
        found.append(f"{place}: {value} is not in enum")
    types = rule.get("type", [])
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    names = [types] if isinstance(types, str) else types
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if names and not any(isinstance(value, kinds[one]) if one in kinds else number for one in names):
        found.append(f"{place}: {value!r} is no {types}")
    if number:
        found += [f"{place}: too small"] if value < rule.get("minimum", value) else []
        found += [f"{place}: too large"] if value > rule.get("maximum", value) else []
    if isinstance(value, dict):
        found += [f"{place}: {name} is missing" for name in rule.get("required", []) if name not in value]
        more = rule.get("additionalProperties", True)
        for name, part in value.items():
            below = rule.get("properties", {}).get(name, more)
            if below is False:
                found.append(f"{place}: {name} is unknown")
            elif isinstance(below, dict):
                found += wrong(part, below, f"{place}/{name}")
    if isinstance(value, list) and "items" in rule:
        found += [one for part in value for one in wrong(part, rule["items"], f"{place}[]")]
    return found


@pytest.mark.parametrize("full", [True, False], ids=["full", "least"])
@pytest.mark.parametrize(("socket", "name", "kind"), MESSAGES, ids=[f"{one[0]}-{one[1]}" for one in MESSAGES])
def test_every_message_crosses_the_wire_and_fits_its_schema(
    socket: str, name: str, kind: type[Any], full: bool
) -> None:
    data = msgspec.convert(example(inspect.type_info(kind), full), kind)
    frames = framing.encode(data, id="7", parent=None if socket in ("commands", "controls") else "6")
    received = framing.decode(frames, schema.SOCKETS[socket])
    assert (received.id, received.data) == ("7", data)
    header = json.loads(frames[0])
    assert header["type"] == name
    assert not wrong(header, ALL["$defs"][f"{socket}/{name}"])
    assert not wrong(header, ALL["$defs"][socket])


@pytest.mark.parametrize("name", wire_events.EVENTS)
def test_the_data_of_every_event_fits_its_schema(name: str) -> None:
    kind = wire_events.EVENTS[name]
    plain = example(inspect.type_info(kind), True)
    assert not wrong({name: plain}, ALL["$defs"]["events"])
    assert wrong({name: {**plain, "nothing": 1}}, ALL["$defs"]["events"])
    assert json.loads(msgspec.json.encode(msgspec.convert(plain, kind))) == plain


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("ask", {"text": 5}),
        ("ask", {"nothing": 1}),
        ("load", {}),
        ("load", {"stage": "kaldi"}),
        ("ask", {"age_ms": -1}),
    ],
)
def test_the_schema_refuses_what_the_daemon_refuses(type_: str, data: dict[str, Any]) -> None:
    assert wrong({"v": 1, "id": "a", "type": type_, "data": data}, ALL["$defs"]["commands"])
    assert wrong({"v": 2, "id": "a", "type": "ping"}, ALL["$defs"]["controls"])
    assert not wrong({"v": 1, "id": "a", "type": "ping"}, ALL["$defs"]["controls"])


def test_every_command_says_what_comes_back() -> None:
    assert wire.ANSWERS.keys() == wire.COMMANDS.keys() | wire.CONTROLS.keys()
    assert {one for answers in wire.ANSWERS.values() for one in answers} | {"error"} == set(wire.REPLIES)


def test_every_message_says_what_it_is() -> None:
    kinds = [kind for _, _, kind in MESSAGES] + list(wire_events.EVENTS.values())
    assert not [kind.__name__ for kind in kinds if not (kind.__dict__.get("__doc__") or "").strip()]


def test_the_files_in_docs_are_up_to_date() -> None:
    assert schema.stale(schema.DOCS) == [], "run python -m assistant.api.schema"


def test_stale_files_are_named_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(schema.DOCS / "protocol.md", tmp_path)
    text = (tmp_path / "protocol.md").read_text("utf-8")
    (tmp_path / "protocol.md").write_text(text.replace("| `ping` |", "| `pong` |"), "utf-8")
    assert schema.main(["--check"], tmp_path) == 1
    assert "protocol.md does not say" in capsys.readouterr().err
    assert schema.main([], tmp_path) == 0
    assert schema.main(["--check"], tmp_path) == 0
    assert (tmp_path / "protocol.md").read_text("utf-8") == text
    assert schema.main(["--what"], tmp_path) == 2


def test_a_table_without_a_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "protocol.md").write_text("<!-- table: commands -->\n<!-- end -->\n", "utf-8")
    with pytest.raises(ValueError, match="no place for the tables broadcasts"):
        schema.written(tmp_path)
    (tmp_path / "protocol.md").write_text("<!-- table: other -->\n<!-- end -->\n", "utf-8")
    with pytest.raises(ValueError, match="no table 'other'"):
        schema.written(tmp_path)
