"""Whether two sets of slots mean the same: for measuring, where a label was written by a person. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_UNITS = {"hours": 3600, "minutes": 60, "seconds": 1}
_ARTICLES = re.compile(r"\b(?:the|a|an|my|our|some)\b")


def same_slots(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Every slot that is wanted, and no other but those that follow from it (a lamp's `domain`). "90 seconds" are "1
    minute 30"; articles and case in names do not count."""
    return _plain(wanted) == _plain(found, known=wanted)


def _plain(slots: Mapping[str, Any], known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for prefix in ("", "start_"):
        parts = [(slots[prefix + unit], size) for unit, size in _UNITS.items() if prefix + unit in slots]
        if parts:
            out[prefix + "seconds"] = sum(float(value) * size for value, size in parts)
    for name, value in slots.items():
        if name.removeprefix("start_") in _UNITS:
            continue
        if known is not None and name in ("domain", "device_class") and name not in known:
            continue
        if isinstance(value, str):
            out[name] = " ".join(_ARTICLES.sub(" ", value.lower().replace("'", "")).split())
        else:
            out[name] = float(value)
    return out
