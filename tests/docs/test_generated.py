"""The generated parts of the guide are what the sources say, and say something of everything."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from assistant import config, reference
from assistant.errors import ExitCode


def test_nothing_is_stale(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--check"]) == 0, capsys.readouterr().err


def test_every_setting_has_a_meaning_and_its_variable_works() -> None:
    assert [key for key, _, _, meaning in reference.settings() if not meaning] == []
    keys = [key for key, *_ in reference.settings()]
    assert set(keys) == set(config.flatten(msgspec.to_builtins(config.Config())))
    text = reference.settings_tables()
    for key in keys:
        variable = config.ENV_PREFIX + key.upper().replace(".", "_")
        assert f"`{key}`<br>`{variable}`" in text
    assert config.load(files=[], environ={"ASSISTANT_LISTEN_MAX_S": "20"}).listen.max_s == 20


def test_every_verb_and_option_is_told_with_a_sentence() -> None:
    text = reference.verb_sections()
    verbs = dict(reference.verbs())
    assert {"assistant ask", "assistant models fetch", "assistant config", "assistant config keys"} <= verbs.keys()
    for path, command in verbs.items():
        assert f"### {path}\n" in text
        assert command.help, path
        assert [one.names for one in reference.options_of(path, command) if not one.help] == [], path


def test_every_exit_code_is_told() -> None:
    assert [f"| {int(code)} |" in reference.exit_codes() for code in ExitCode] == [True] * len(ExitCode)


def test_what_is_stale_is_noticed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for page in reference.DOCS.glob("*.md"):
        shutil.copy(page, tmp_path)
    page = tmp_path / "configuration.md"
    page.write_text(page.read_text("utf-8").replace("memory.margin_mib", "memory.marjin_mib"), "utf-8")
    assert reference.main(["--check"], tmp_path) == 1
    assert "configuration.md does not say" in capsys.readouterr().err
    assert reference.main([], tmp_path) == 0
    assert reference.main(["--check"], tmp_path) == 0
    assert page.read_text("utf-8") == (reference.DOCS / "configuration.md").read_text("utf-8")
    assert reference.main(["--what"], tmp_path) == 2


def test_a_marker_that_is_unknown_or_lost_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("<!-- made: nothing-of-the-kind -->\n<!-- end -->\n")
    with pytest.raises(ValueError, match="nothing-of-the-kind"):
        reference.written(tmp_path)
    (tmp_path / "a.md").write_text("nothing\n")
    with pytest.raises(ValueError, match="no place"):
        reference.written(tmp_path)
