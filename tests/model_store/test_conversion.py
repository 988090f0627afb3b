"""What a converter says, in whatever company, becomes progress, a report or an error of ours; its process ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from assistant.errors import AssistantError, FetchFailed, ModelDamaged, ModelError, ModelUnsupported
from assistant.model_store.conversion import Converters, run


def say(*lines: str, code: int = 0) -> list[str]:
    return [sys.executable, "-c", f"import sys\nfor line in {lines!r}: print(line)\nsys.exit({code})"]


def test_progress_and_report_are_found_among_chatter(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    lines = (
        "Start!",
        '{"done": 1, "total": 4}',
        "{",
        '{"done": "x", "total": 4}',
        "[1]",
        '{"report": {"a": 1}}',
        "End",
    )
    report = run(say(*lines), "m.gguf", tmp_path / "log", lambda done, total: seen.append((done, total)))
    assert report == {"a": 1}
    assert seen == [(1, 4)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("ModelUnsupported", ModelUnsupported), ("ModelDamaged", ModelDamaged), ("MemoryError", ModelError)],
)
def test_a_reported_error_keeps_its_type(name: str, kind: type[AssistantError], tmp_path: Path) -> None:
    line = f'{{"error": {{"type": "{name}", "message": "tensor type 99 is not known"}}}}'
    with pytest.raises(kind, match="tensor type 99 is not known") as caught:
        run(say(line, code=6), "m.gguf", tmp_path / "log", lambda done, total: None)
    assert type(caught.value) is kind


def test_a_reported_error_keeps_its_code(tmp_path: Path) -> None:
    line = '{"error": {"type": "FetchFailed", "code": "disk-full", "message": "full; make room"}}'
    with pytest.raises(FetchFailed, match="make room") as caught:
        run(say(line, code=7), "m.gguf", tmp_path / "log", lambda done, total: None)
    assert caught.value.code == "disk-full"


@pytest.mark.parametrize("lines", [(), ('{"done": 1, "total": 1}',), ('{"report": 5}',)])
def test_an_end_without_a_report_is_an_error(lines: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"m\.gguf ended early \(exit code 0\)"):
        run(say(*lines), "m.gguf", tmp_path / "log", lambda done, total: None)


def test_a_report_does_not_outweigh_a_failed_exit(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="exit code 3"):
        run(say('{"report": {}}', code=3), "m.gguf", tmp_path / "log", lambda done, total: None)


def test_a_gguf_report_needs_a_shape(tmp_path: Path) -> None:
    converters = Converters(gguf=say('{"report": {"shape": {"layers": "many"}}}'))
    with pytest.raises(ModelError, match="no shape"):
        converters.gguf(tmp_path / "m.gguf", tmp_path / "out", tmp_path / "log", lambda done, total: None)


def test_the_real_converter_refuses_what_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"no gguf at all" * 100)
    with pytest.raises(ModelError) as caught:
        Converters().gguf(tmp_path / "m.gguf", tmp_path / "out", tmp_path / "log", lambda done, total: None)
    assert "Traceback" not in caught.value.message
    assert not (tmp_path / "out").exists()
