"""Sentences of the user's own that are fine, and that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.doctor.sentences import look_at_sentences
from tests.doctor.machines import Machine, look

GOOD = "intents:\n  FeedCat:\n    data:\n      - sentences: ['feed the cat', 'turn on {name} in the {area}']\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def put(machine: Machine, name: str, text: str) -> Path:
    file = machine.places.config / "intents" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_without_files_and_with_good_ones_all_is_fine(machine: Machine) -> None:
    assert "none of your own" in look(look_at_sentences, machine.scene())["sentences"].found
    file = put(machine, "en/cat.yaml", GOOD)
    machine.write({"etc/assistant/intents/en/dog.yaml": GOOD})
    found = look(look_at_sentences, machine.scene())
    assert [*found] == ["sentences"]
    assert str(file) in found["sentences"].found
    assert "dog.yaml" in found["sentences"].found


def test_a_broken_file_is_named_with_line_reason_and_an_editor(machine: Machine) -> None:
    put(machine, "en/cat.yaml", GOOD)
    file = put(machine, "en/dog.yaml", GOOD.replace("cat'", "dog {portion}'"))
    machine.write({"etc/assistant/intents/en/own.yaml": "intents: ["})
    shared = machine.root / "etc/assistant/intents/en/own.yaml"
    found = {one.fix.split()[-1]: one for one in look_at_sentences(machine.scene())}
    assert {(one.id, one.level) for one in found.values()} == {("sentences-broken", "problem")}
    assert set(found) == {str(file), str(shared)}
    assert "line 4: 'feed the dog {portion}': there is no list {portion}" in found[str(file)].found
    assert found[str(file)].fix == f"${{EDITOR:-nano}} {file}"


def test_what_is_not_taken_of_a_good_file_is_advice(machine: Machine) -> None:
    many = "".join(f"      - feed cat number {number}\n" for number in range(301))
    put(machine, "en/cat.yaml", f"intents:\n  FeedCat:\n    examples:\n{many}")
    assert look(look_at_sentences, machine.scene())["sentences-broken"].level == "advice"


def test_a_language_without_sentences_is_told(machine: Machine) -> None:
    put(machine, "en/cat.yaml", GOOD)
    assert "'tlh'" in look(look_at_sentences, machine.scene("stages.intent.language=tlh"))["settings-refused"].found
