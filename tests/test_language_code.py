"""One function cuts the codes of languages, and no other place does it by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assistant import language_code
from assistant.language_code import base_of
from assistant.nlu.language import GERMAN, language_of
from assistant.speech_language import language

PACKAGE = Path(language_code.__file__).parent


@pytest.mark.parametrize(
    ("code", "base"),
    [("en", "en"), ("en_US", "en"), ("en-GB", "en"), (" EN_us ", "en"), ("zh-Hans-CN", "zh"), ("cmn", "cmn"), ("", "")],
)
def test_the_base_of_a_code(code: str, base: str) -> None:
    assert base_of(code) == base


@pytest.mark.parametrize("code", ["de", "de_DE", "de-AT", "DE"])
def test_every_room_knows_a_language_by_any_code(code: str) -> None:
    assert language_of(code) is GERMAN
    assert language(code) == language("de")


def test_nobody_cuts_a_code_by_hand() -> None:
    by_hand = re.compile(
        r"(?:lang\w*|code|wanted|plain|voice\w*)[^=]*\.(?:partition|split|rpartition)\(\"[-_]\"|split\(r\"\[[-_]{2}\]"
    )
    found = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if path.name != "language_code.py" and by_hand.search(line)
    ]
    assert found == []
