"""A command that tells about itself in lines of JSON, in a process of its own: how it fails and how it is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

BEGIN = """
import errno, sys, time
from assistant.errors import ModelDamaged
from assistant.model_store import json_command

def work(update):
    update(1, 2)
"""
END = "\nsys.exit(json_command.run(work))"


def started(body: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    code = f"{BEGIN}    {body}{END}"
    return subprocess.Popen([sys.executable, "-c", code], stdout=stdout, stderr=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]]]:
    out, err = process.communicate(timeout=15)
    assert "Traceback" not in err
    return process.returncode, [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize(
    ("error", "code", "kind", "message"),
    [
        ("ModelDamaged('it is damaged')", "model-damaged", "ModelDamaged", "it is damaged"),
        (
            "OSError(errno.ENOSPC, 'No space left', '/full')",
            "disk-full",
            "FetchFailed",
            "No space left: /full; make room",
        ),
        ("OSError(errno.EDQUOT, 'Quota', '/mine')", "disk-full", "FetchFailed", "Quota: /mine; make room"),
        ("OSError(errno.EACCES, 'Denied', '/his')", "model-error", "ModelError", "Denied: /his; check the path"),
        ("OSError('odd')", "model-error", "ModelError", "odd: no file named"),
    ],
)
def test_an_error_is_the_last_line_and_the_exit_code(error: str, code: str, kind: str, message: str) -> None:
    status, lines = told(started(f"raise {error}"))
    assert status != 0
    progress, last = lines
    assert progress == {"done": 1, "total": 2}
    assert (last["error"]["type"], last["error"]["code"]) == (kind, code)
    assert message in last["error"]["message"]


def test_sigterm_unwinds_the_work_and_is_told() -> None:
    process = started("time.sleep(60)")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == {"done": 1, "total": 2}
    process.send_signal(signal.SIGTERM)
    status, lines = told(process)
    assert status == 130
    assert lines[0]["error"]["type"] == "Cancelled"


@pytest.mark.parametrize("body", ["pass", "raise ModelDamaged('x')"])
def test_where_nobody_reads_it_ends_without_a_traceback(body: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = started(body, stdout=writer)
    os.close(writer)
    _, err = process.communicate(timeout=15)
    assert (process.returncode, err) == (1, "")
