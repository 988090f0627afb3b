"""The conversion benchmark reports what a child used, and its errors as errors."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from assistant.bench import conversion
from assistant.model_store.gguf import GgufFile
from assistant.model_store.llm_plan import make_plan
from assistant.model_store.synthetic_gguf import ModelSpec, write_model


def test_figures_of_a_small_model_as_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gguf = write_model(tmp_path / "x.gguf", ModelSpec(layers=1), conversion.big_tokenizer(600))
    assert conversion.main(["--gguf", str(gguf), "--json"]) in (0, 1)  # a busy machine may miss the time
    found = msgspec.json.decode(capfd.readouterr().out, type=conversion.Conversions)
    assert found.conversions[0].model == "x"
    assert 5 < found.conversions[0].peak_anon_mib < conversion.EMBEDDED_MIB
    assert [p.name for p in tmp_path.iterdir()] == ["x.gguf"]


def test_an_error_of_the_child_is_ours(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.gguf").write_bytes(b"no model")
    assert conversion.main(["--gguf", str(tmp_path / "x.gguf")]) == 6
    assert "does not begin with GGUF" in capfd.readouterr().err


def test_the_big_vocabulary_is_a_real_one(tmp_path: Path) -> None:
    tokenizer = conversion.big_tokenizer(70_000)
    assert len(set(tokenizer["tokenizer.ggml.tokens"])) == 70_000
    gguf = write_model(tmp_path / "x.gguf", ModelSpec(layers=1, hidden=64, ffn=64, heads=1, kv_heads=1), tokenizer)
    with GgufFile(gguf) as file:
        assert make_plan(file, None).shape.vocab == 70_000
