"""Text of other programs without what a terminal or a reader would obey. Pure; imports nothing of ours."""

from __future__ import annotations

import re

# C0 but tab and newline, DEL, C1; and what turns the direction of writing, with which text can pose as another
_OBEYED = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069"
_LEFT_OUT = re.compile(f"[{_OBEYED}]")


def plain(text: str) -> str:
    """Without control characters and overrides of the direction; tabs and newlines stay."""
    return _LEFT_OUT.sub("", text)


def escaped(json_text: str) -> str:
    """JSON that means the same, with none of them in it."""
    return _LEFT_OUT.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)
