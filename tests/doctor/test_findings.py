"""The table of findings, and the docs that show it."""

from __future__ import annotations

import re
from pathlib import Path

from assistant.doctor.findings import KINDS, Finding
from tests.doctor.machines import rows

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "assistant/doctor"


def test_every_finding_stands_in_the_docs_as_it_is_told() -> None:
    assert {one: (why, mend) for one, (_, why, mend) in rows().items()} == {
        one: (kind.why, kind.mend or "-") for one, kind in KINDS.items()
    }


def test_every_reason_is_one_sentence() -> None:
    assert [one for one, kind in KINDS.items() if not re.fullmatch(r"(lz4|[A-Z])[^\n]*[^.]\.", kind.why)] == []


def test_every_finding_is_made_somewhere_and_provoked_by_a_test() -> None:
    made = "".join(file.read_text("utf-8") for file in SOURCE.glob("*.py") if file.name != "findings.py")
    tested = "".join(file.read_text("utf-8") for file in HERE.glob("*.py"))
    assert [one for one in KINDS if f'"{one}"' not in made] == []
    assert [one for one in KINDS if f'"{one}"' not in tested] == []


def test_a_finding_as_json_has_all_that_a_program_needs() -> None:
    finding = Finding("swap-missing", "advice", "no swap", "sudo x", lambda: "done")
    assert finding.to_dict() == {
        "id": "swap-missing", "level": "advice", "found": "no swap", "why": KINDS["swap-missing"].why, "fix": "sudo x",
        "fixable": True,
    }  # fmt: skip
