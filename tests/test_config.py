"""Settings: precedence, types, and refusals that name the key and its nearest neighbour."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant import config
from assistant.errors import ConfigError, ExitCode


def load(*sets: str, toml: str = "", environ: dict[str, str] | None = None, tmp: Path | None = None) -> config.Config:
    files = []
    if tmp is not None:
        (tmp / "config.toml").write_text(toml)
        files.append(tmp / "config.toml")
    return config.load(sets, files=files, environ=environ or {})


def test_defaults_are_the_documented_ones() -> None:
    settings = load()
    assert settings.memory.margin_mib == 300
    assert settings.stages.llm.model == "smollm2-135m-instruct"
    assert settings.stages.asr.engine == "whisper"


def test_later_layers_win(tmp_path: Path) -> None:
    toml = "[stages.llm]\nthreads = 1\ncontext_tokens = 512\n[memory]\nbudget_mib = 700\n"
    environ = {"ASSISTANT_STAGES_LLM_THREADS": "2", "ASSISTANT_MEMORY_BUDGET_MIB": "800", "HOME": "/x"}
    settings = load("memory.budget_mib=900.5", toml=toml, environ=environ, tmp=tmp_path)
    assert (settings.stages.llm.context_tokens, settings.stages.llm.threads) == (512, 2)
    assert settings.memory.budget_mib == 900.5


def test_text_values_become_the_type_of_their_key() -> None:
    settings = load("audio.enabled=no", "wake.words=alexa, okay_nabu", "stages.asr.model= x ")
    assert settings.audio.enabled is False
    assert settings.wake.words == ("alexa", "okay_nabu")
    assert settings.stages.asr.model == "x"


@pytest.mark.parametrize(
    ("sets", "environ", "toml", "words"),
    [
        (["stages.llm.thread=2"], {}, "", "stages.llm.threads"),
        (["stages.llm.threads=two"], {}, "", "whole number"),
        (["stages.llm.threads"], {}, "", "key=value"),
        (["stages.llm.threads=-1"], {}, "", "least"),
        (["memory.margin_mib=nan"], {}, "", "least"),
        (["stages.llm.top_p=1.5"], {}, "", "most"),
        (["log.level=loud"], {}, "", "debug"),
        (["audio.enabled=perhaps"], {}, "", "true or false"),
        (["memory.budget_mib=inf"], {}, "", "most"),
        (["stages.llm.seed=99999999999999999999"], {}, "", "most|whole number"),
        (["stages.llm.max_new_tokens=5000"], {}, "", "context_tokens"),
        (["stages.llm.prefill_chunk=100"], {}, "", "multiple of 8, for example 96: MNN computes 4 tokens together"),
        (["stages.llm.prefill_chunk=7"], {}, "", "least"),
        (["stages.llm.kv_cache=ram"], {}, "", "auto, memory or disk"),
        (["stages.llm.attention_mode=9"], {}, "", "8-bit keys .* choose 8, or 0"),
        (["stages.llm.attention_mode=7"], {}, "", "no such mode"),
        (["foo=1"], {}, "", "assistant config"),
        ([], {"ASSISTANT_STAGES_LLM_THREADS": "\udcff"}, "", "whole number"),
        ([], {"ASSISTANT_MEMORY_BUDGET": "1"}, "", "ASSISTANT_MEMORY_BUDGET_MIB"),
        ([], {}, "[memory]\nbudget_mb = 3\n", "memory.budget_mib"),
        ([], {}, "[memory\n", "config.toml"),
        ([], {}, "memory = 3\n", "memory"),
        ([], {}, "[stages.llm]\nthreads = 'two'\n", r"config\.toml: stages\.llm\.threads must be a whole number"),
        ([], {}, "[wake]\nwords = 3\n", "list"),
    ],
)
def test_bad_settings_are_usage_errors_that_say_what_to_write(
    sets: list[str], environ: dict[str, str], toml: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load(*sets, environ=environ, toml=toml, tmp=tmp_path)
    assert caught.value.exit_code is ExitCode.USAGE


def test_a_value_of_another_type_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(toml="[log]\nlevel = 3\n[api]\ntcp = -5\n", tmp=tmp_path)
    assert caught.value.message == (
        f"{tmp_path}/config.toml: log.level must be a text, not 3. Also: api.tcp must be a text, not -5"
    )


def test_all_mistakes_of_a_file_are_named(tmp_path: Path) -> None:
    toml = "[stages.llm]\nmodell = 'x'\nthreads = 'two'\nslots = 0\n[memory]\nbudget_mib = -3\n[log]\nlevel = 'loud'\n"
    with pytest.raises(ConfigError) as caught:
        load(toml=toml, tmp=tmp_path)
    assert caught.value.message == (
        f"{tmp_path}/config.toml: unknown key 'stages.llm.modell'; did you mean 'stages.llm.model'?"
        " Also: stages.llm.threads must be a whole number, not 'two'."
        " Also: stages.llm.slots is 0; the least allowed is 1."
        " Also: memory.budget_mib is -3; the least allowed is 0."
        " Also: log.level is 'loud'; choose debug, info, warning or error"
    )
    with pytest.raises(ConfigError, match=r"budget_mib is -3.* Also: stages\.llm\.slots is 0"):
        load("stages.llm.slots=0", "memory.budget_mib=-3")
    # a value that is too small may be overridden
    assert load("memory.budget_mib=7", toml="[memory]\nbudget_mib = -3\n", tmp=tmp_path).memory.budget_mib == 7


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"[stages.llm]\nmodel = x\n", r'\(at line 2, column 9\): a text needs quotes \(key = "text"\)'),
        (b"[audio]\nenabled = True\n", "true and false have none"),
        (b"[log]\n# caf\xe9\n", r"config\.toml, line 2: this is no UTF-8; save the file as UTF-8"),
        ("[log]".encode("utf-16"), "line 1: this is no UTF-8"),
    ],
)
def test_a_file_that_is_no_toml_is_told_in_plain_words(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(data)
    with pytest.raises(ConfigError, match=words):
        config.load(files=[tmp_path / "config.toml"], environ={})


def test_the_mark_that_some_editors_put_before_utf_8_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[log]\nlevel = 'debug'\n", "utf-8-sig")
    assert config.load(files=[tmp_path / "config.toml"], environ={}).log.level == "debug"


def test_an_unreadable_file_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(ConfigError, match=r"config\.toml"):
        config.load(files=[tmp_path / "config.toml"], environ={})
