"""How a line of the log looks: text for people, or one JSON object for machines. Imports nothing of ours.

Facts beside the message come in by `log.info("answered", extra={"fields": {"run": "ab12", "seconds": 1.2}})`; what else
stands in `extra` is shown as well. A record is one line in JSON, with its traceback in it.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

FORMATS = ("text", "json")

_OWN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime", "taskName", "fields"}
"""What every record has."""
_HEAD = ("time", "level", "logger", "message", "exception", "stack")
_PLAIN = re.compile(r"[\w.:/@%+,-]+", re.ASCII)
_DEEPEST = 8


def set_up(level: str, form: str = "text", stream: TextIO | None = None) -> None:
    """The root logger writes to `stream` (stderr) alone. `level`: debug | info | warning | error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


class TextFormatter(logging.Formatter):
    """`2026-11-30 02:55:20,123 INFO assistant.voice: answered run=ab12 seconds=1.2`"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        return " ".join([line, *(f"{key}={_shown(value)}" for key, value in _fields(record).items())])


class JsonFormatter(logging.Formatter):
    """`{"time": "2026-11-30T02:55:20.123Z", "level": "info", "logger": ..., "message": ..., fields...}`

    A field whose name is one of ours has an underscore behind it.
    """

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        out: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        for key, value in _fields(record).items():
            out[f"{key}_" if key in _HEAD else key] = _plain(value)
        if record.exc_info and record.exc_info[0] is not None:
            out["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            out["exception"] = record.exc_text
        if record.stack_info:
            out["stack"] = record.stack_info
        # ASCII alone: no terminal or reader takes an odd character for the end of a line, or for no character at all
        return json.dumps(out, ensure_ascii=True, allow_nan=False)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        # logging would print a traceback of many lines instead
        return f"{record.msg} {record.args!r}"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    given = record.__dict__.get("fields")
    extra = {key: value for key, value in record.__dict__.items() if key not in _OWN}
    if isinstance(given, Mapping):
        return {**extra, **{str(key): value for key, value in given.items()}}
    return extra if given is None else {**extra, "fields": given}


def _shown(value: object) -> str:
    """For eyes: bare where that is clear, else quoted, and never of two lines."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    plain = _plain(value)
    text = json.dumps(plain, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(plain)


def _plain(value: object, depth: int = 0) -> Any:
    """Something that JSON has; what it has not is said in words."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {str(key): _plain(inner, depth + 1) for key, inner in value.items()}
    if depth < _DEEPEST and isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner, depth + 1) for inner in value]
    return str(value)
