"""What is missing skips a test on a user's machine and fails it in CI, and nothing that CI can have goes past that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assistant import paths
from assistant.model_store.store import ModelStore
from tests.conftest import opener
from tests.lacking import MAY_LACK, lacks

TESTS = Path(__file__).parent
NOT_TO_BE_HAD = re.compile(
    r"root|kernel|mount|cgroup|memory|seccomp|namespace|forbidden|file system|/dev/fuse|somebody else|"
    r"files at most|torch|autogroup|compiles for|cannot work here"
)
"""What a plain skip speaks of: rights, kernels, and two things that take longer than all tests."""


@pytest.mark.parametrize("environ", [{}, {"CI": ""}, {"CI": "false"}, {"CI": "true", MAY_LACK: "models sound"}])
def test_a_user_s_machine_skips_what_it_lacks(environ: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="no sound here"):
        lacks("sound", "no sound here", environ)
    with pytest.raises(pytest.skip.Exception, match=r"whisper-tiny\.en"):
        opener(ModelStore(tmp_path, paths.catalog_file()), environ)("whisper-tiny.en")


@pytest.mark.parametrize("environ", [{"CI": "true"}, {"CI": "1", MAY_LACK: "recordings"}])
def test_ci_fails_over_what_it_lacks(environ: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=f"no sound here.*{MAY_LACK}=sound"):
        lacks("sound", "no sound here", environ)
    with pytest.raises(pytest.fail.Exception, match=r"whisper-tiny\.en"):
        opener(ModelStore(tmp_path, paths.catalog_file()), environ)("whisper-tiny.en")


def test_a_thing_that_no_test_knows_is_not_allowed_silently() -> None:
    with pytest.raises(ValueError, match="soundd"):
        lacks("models", "gone", {"CI": "true", MAY_LACK: "soundd"})


def test_plain_skips_are_for_what_no_script_can_bring() -> None:
    said = re.compile(r"(?:pytest\.skip\(|skipif\(|importorskip\()(.*)")
    plain = [
        f"{path.relative_to(TESTS)}:{number}: {found[1]}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.name not in ("lacking.py", "test_lacking.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (found := said.search(line))
    ]
    assert len(plain) > 20  # they were found at all
    assert [one for one in plain if not NOT_TO_BE_HAD.search(one)] == []
