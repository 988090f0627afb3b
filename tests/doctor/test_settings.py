"""Settings that are broken in one place, or in several, or only together."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.doctor.settings import readable
from assistant.errors import ConfigError


def test_the_defaults_are_fine(tmp_path: Path) -> None:
    config, (finding,) = readable((), [tmp_path / "none.toml"], {})
    assert (finding.id, finding.level, finding.found) == ("settings", "ok", "the defaults")
    assert config.memory.margin_mib == 300


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"[memory\n", "line 1"),
        (b"[memory]\nmargin_mb = 100\n", "did you mean 'memory.margin_mib'?"),
        (b"[memory]\nmargin_mib = 'much'\n", "must be a number"),
        (b"\xff\xfe", "UTF-8"),
        (b"[memory]\nmargin_mib = -1\n", "least allowed"),
    ],
)
def test_a_broken_file_hides_nothing_of_another(tmp_path: Path, data: bytes, words: str) -> None:
    broken, good = tmp_path / "broken.toml", tmp_path / "good.toml"
    broken.write_bytes(data)
    good.write_text("[memory]\nkeep_alive_s = 7\n")
    config, (finding,) = readable((), [broken, good], {})
    assert (finding.id, finding.level) == ("settings-broken", "problem")
    assert words in finding.found
    assert finding.fix == f"${{EDITOR:-nano}} {broken}"
    assert config.memory.keep_alive_s == 7


def test_every_broken_variable_is_named() -> None:
    environ = {"ASSISTANT_MEMORY_MARGIN_MIB": "lots", "ASSISTANT_NOTHING": "1", "ASSISTANT_MEMORY_KEEP_ALIVE_S": "9"}
    config, found = readable((), [], environ)
    assert [one.fix for one in found] == ["unset ASSISTANT_MEMORY_MARGIN_MIB", "unset ASSISTANT_NOTHING"]
    assert config.memory.keep_alive_s == 9


def test_what_does_not_go_together_is_told(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[stages.llm]\ncontext_tokens = 256\n")
    _, (finding,) = readable((), [file], {"ASSISTANT_STAGES_LLM_MAX_NEW_TOKENS": "500"})
    assert finding.found.startswith("files and environment do not go together: ")


def test_what_was_typed_just_now_is_no_finding() -> None:
    with pytest.raises(ConfigError, match="--set"):
        readable(["nothing=1"], [], {})


def test_a_file_of_root_is_edited_by_root(tmp_path: Path) -> None:
    _, (finding,) = readable((), [Path("/etc/hostname")], {})
    assert finding.fix == "sudoedit /etc/hostname"
