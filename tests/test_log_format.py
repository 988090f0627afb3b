"""One record is one line that a machine can read, or one that a person can."""

from __future__ import annotations

import io
import json
import logging
import math
import sys
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.log_format import JsonFormatter, TextFormatter, set_up


def record(message: str = "hello", *args: object, **extra: Any) -> logging.LogRecord:
    return logging.getLogger("assistant.test").makeRecord(
        "assistant.test", logging.INFO, __file__, 1, message, args, None, extra=extra
    )


def as_json(one: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(one)
    assert len(line.splitlines()) == 1
    assert line.isascii()
    found: dict[str, Any] = json.loads(line)
    return found


def test_the_parts_of_a_line() -> None:
    one = record("%s of %d", "one", 2, fields={"run": "ab12", "seconds": 1.25}, retried=True)
    one.created = 1_796_000_000.1239
    assert as_json(one) == {
        "time": "2026-11-30T00:53:20.123Z",
        "level": "info",
        "logger": "assistant.test",
        "message": "one of 2",
        "retried": True,
        "run": "ab12",
        "seconds": 1.25,
    }
    assert TextFormatter().format(one).endswith("INFO assistant.test: one of 2 retried=true run=ab12 seconds=1.25")


def test_a_traceback_is_in_the_line() -> None:
    one = record()
    try:
        raise ValueError("two\nlines")
    except ValueError:
        one.exc_info = sys.exc_info()
    found = as_json(one)
    assert found["exception"].startswith("Traceback")
    assert found["exception"].endswith("ValueError: two\nlines")
    one.exc_text = found["exception"]
    one.exc_info = None
    assert as_json(one) == found
    one.stack_info = "Stack:\n  here"
    assert as_json(one)["stack"] == "Stack:\n  here"


def test_our_own_names_are_not_overwritten() -> None:
    found = as_json(record("m", fields={"level": 7, "message": "x", "time": None}))
    assert (found["level"], found["message"]) == ("info", "m")
    assert (found["level_"], found["message_"], found["time_"]) == (7, "x", None)


class Colour(IntEnum):
    RED = 1


def test_what_json_has_not_is_said_in_words() -> None:
    loop: list[Any] = []
    loop.append(loop)
    found = as_json(
        record(fields={"path": Path("/x"), "inf": math.inf, "set": {1}, "red": Colour.RED, 5: b"b", "loop": loop})
    )
    assert found["path"] == "/x"
    assert found["inf"] == "inf"
    assert found["set"] == [1]
    assert found["red"] == 1
    assert found["5"] == "b'b'"
    assert "[...]" in json.dumps(found["loop"])
    assert as_json(record(fields=3))["fields"] == 3


def test_wrong_arguments_are_no_traceback() -> None:
    assert as_json(record("%d apples", "two"))["message"] == "%d apples ('two',)"
    assert "one" in as_json(record("nothing", "one"))["message"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(), st.dictionaries(st.text(), json_values, max_size=4))
def test_whatever_is_said_it_is_one_line_of_json(message: str, fields: dict[str, Any]) -> None:
    found = as_json(record(message.replace("%", "%%"), fields=fields))
    assert found["message"] in (message, message.replace("%", "%%"))
    assert (
        len(found) == len({*fields, "time_", "level_", "logger_", "message_", "exception_", "stack_"} & set(found)) + 4
    )


@given(st.dictionaries(st.from_regex(r"[a-z]+", fullmatch=True), json_values, max_size=4))
def test_fields_in_text_never_break_the_line(fields: dict[str, Any]) -> None:
    line = TextFormatter().format(record("m", fields=fields))
    assert len(line.splitlines()) == 1


def test_text_is_quoted_where_it_must_be() -> None:
    line = TextFormatter().format(
        record("m", fields={"a": "two words", "b": "", "c": "x=1", "d": None, "e": 1 / 3, "f": "größer", "g": [1, "x"]})
    )
    assert line.endswith('m a="two words" b="" c="x=1" d=null e=0.333333 f="größer" g=[1, "x"]')


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    level, handlers = logger.level, logger.handlers[:]
    yield logger
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.mark.parametrize("form", ["text", "json"])
def test_it_becomes_the_only_handler(root: logging.Logger, form: str) -> None:
    out = io.StringIO()
    set_up("debug", "text", io.StringIO())
    set_up("warning", form, out)
    logging.getLogger("assistant.x").info("no")
    logging.getLogger("assistant.x").warning("yes", extra={"fields": {"k": "v"}})
    assert len(root.handlers) == 1
    (line,) = out.getvalue().splitlines()
    assert (json.loads(line)["k"] == "v") if form == "json" else line.endswith("WARNING assistant.x: yes k=v")
