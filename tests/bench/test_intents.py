"""How it is counted what sentences and recordings of commands are understood as."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assistant.bench import intents, intents_speech
from assistant.bench.intents import Line, Seen, intent_figures, read_lines
from assistant.bench.intents_speech import Meant, Spoken
from assistant.errors import UsageError
from assistant.messages import AsrRequest, IntentMatch, IntentRequest, Transcript

LOCK = IntentMatch(name="HassTurnOn", slots={"name": "front door"}, score=1.0)
NOTHING = IntentMatch(name=None)


def test_lines_are_read_with_and_without_slots(tmp_path: Path) -> None:
    file = tmp_path / "f.tsv"
    file.write_text('# a note\n\nlock it\tHassTurnOn\t{"name": "front door"}\nhi\t-\n')
    assert read_lines(file) == [Line("lock it", "HassTurnOn", {"name": "front door"}), Line("hi", "-", None)]


@pytest.mark.parametrize(
    ("text", "told"),
    [("hi\t-\nlock it\n", "line 2"), ("hi\t-\tno json\n", "line 1"), ("hi\t-\t[]\n", "line 1"), ("# no\n", "no sent")],
)
def test_a_file_that_is_none_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "f.tsv"
    file.write_text(text)
    with pytest.raises(UsageError, match=told):
        read_lines(file)


def test_slots_count_where_they_are_labelled() -> None:
    right = Seen(Line("lock it", "HassTurnOn", {"name": "front door"}), LOCK, 1.0)
    other = Seen(Line("lock it", "HassTurnOn", {"name": "back door"}), LOCK, 1.0)
    assert intent_figures([right, other]) == {"n": 2, "intent_acc": 1.0, "slot_acc": 0.5}
    assert intent_figures([right, Seen(Line("hi", "-"), LOCK, 1.0)]) == {"n": 2, "intent_acc": 0.5}


@pytest.mark.parametrize(
    ("intent", "slots", "requests", "acted"),
    [
        ("HassTurnOn", {"name": "front door"}, [LOCK], True),
        ("HassTurnOn", {"name": "back door"}, [LOCK], False),
        ("HassTurnOff", {"name": "front door"}, [LOCK], False),
        ("HassTurnOn", {"name": "front door"}, [LOCK, LOCK], False),  # more than what was meant
        ("HassTurnOn", {"name": "front door"}, [], False),
        ("-", {}, [], True),
        ("-", {}, [NOTHING], True),
        ("-", {}, [LOCK], False),
        ("-", {}, [LOCK, NOTHING], False),
    ],
)
def test_acted_upon_as_meant_is_all_of_it_and_nothing_more(
    intent: str, slots: dict[str, Any], requests: list[IntentMatch], acted: bool
) -> None:
    assert Spoken(Meant("a.wav", intent, slots), "text", requests).acted is acted


def test_figures_of_recordings_name_the_commands_apart() -> None:
    command, other = Meant("a.wav", "HassTurnOn", {"name": "front door"}), Meant("b.wav", "-", {})
    found = [Spoken(command, "lock it", [LOCK]), Spoken(command, "", []), Spoken(other, "", []), Spoken(other, "", [])]
    assert intents_speech.figures(found) == {"n": 4, "acted": 0.75, "commands": 2, "commands_acted": 0.5}


class Ear:
    """Hears the same in every recording."""

    def __init__(self, text: str, confidence: float) -> None:
        self._text, self._confidence = text, confidence

    def run(self, request: AsrRequest) -> Iterator[Transcript]:
        assert request.pcm
        yield Transcript(text=self._text, confidence=self._confidence, final=True)


class Lock:
    def run(self, request: IntentRequest) -> Iterator[IntentMatch]:
        assert request.text == "lock the front door"
        yield LOCK


@pytest.mark.parametrize(("confidence", "acted"), [(0.9, True), (0.1, False)])
def test_what_the_recogniser_is_not_sure_of_is_no_command(speech: Path, confidence: float, acted: bool) -> None:
    meant = [Meant("cmd_lock_the_front_door.wav", "HassTurnOn", {"name": "front door"}), Meant("none.wav", "-", {})]
    ear: Any = Ear("lock the front door", confidence)
    (found,) = intents_speech.spoken(speech, meant, ear, Lock())
    assert found.acted is acted


def test_a_folder_without_recordings_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="no recordings"):
        intents_speech.spoken(tmp_path, [], None, None)  # type: ignore[arg-type]
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(UsageError, match="none of the recordings"):
        intents_speech.spoken(tmp_path, [Meant("a.wav", "-", {})], None, None)  # type: ignore[arg-type]
    (tmp_path / "f.tsv").write_text("nonsense\n")
    assert intents.main(["--file", str(tmp_path / "f.tsv"), "--engine", "templates", "--json"]) == 2
    assert "line 1" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_a_file_of_ones_own_is_measured_beside_the_templates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.tsv"
    file.write_text('what time is it\tHassGetCurrentTime\t{}\nlock it\tHassTurnOn\t{"name": "x"}\nwho is who\t-\n')
    assert intents.main(["--file", str(file), "--engine", "classifier", "--errors", "--json"]) == 0
    told = capsys.readouterr()
    report = msgspec.json.decode(told.out, type=intents.Report)
    assert report.engine == "classifier"
    assert report.templates["n"] > 500
    assert report.templates["intent_acc"] > 0.98
    assert report.paraphrases == {"n": 2, "intent_acc": 1.0, "slot_acc": 0.5}
    assert report.ood == {"n": 1, "false_accept": 0.0}
    assert 0 < report.latency_ms.exact_p50 < report.stage.ready_ms
    assert report.stage.anon_mib > 5
    assert any(line.startswith('lock it\tHassTurnOn {"name": "x"}\t') for line in told.err.splitlines())
    table = intents.table(report)
    assert "in people's own words           2  intent 100.0%, every slot right 50.0%" in table
    assert "no commands                     1  taken for one 0.0%" in table
