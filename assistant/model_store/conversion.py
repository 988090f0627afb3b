"""Runs the converters, each in a child process of its own. Imports `errors`, `choices` and `json_command`.

Why a child: its memory and MNN's chatter end with it, and the user's terminal sees neither. The child prints JSON
lines on stdout: `{"done": n, "total": m}` while it works, and last `{"report": {...}}` or
`{"error": {"type", "message"}}`; any other line is a library talking to itself.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from assistant.errors import AssistantError, ModelError, ModelUnsupported, StageError, by_name
from assistant.model_store.choices import OWN, Block, Choices
from assistant.model_store.json_command import child_environment

Update = Callable[[int, int], None]
_PACKAGE = "assistant.model_store."


class Converters:
    """The commands are seams for tests; arguments are added at their end."""

    def __init__(self, *, gguf: Sequence[str] = (), voice: Sequence[str] = (), synthetic: Sequence[str] = ()) -> None:
        self._gguf = list(gguf) or [sys.executable, "-m", _PACKAGE + "convert_gguf"]
        self._voice = list(voice) or [sys.executable, "-m", _PACKAGE + "convert_voice"]
        self._synthetic = list(synthetic) or [sys.executable, "-m", _PACKAGE + "convert_synthetic"]

    def gguf(self, source: Path, out: Path, log: Path, update: Update, choices: Choices = OWN) -> dict[str, int | bool]:
        """Writes an MNN model into `out`; gives its shape. Raises `ModelUnsupported`, or `ModelError` for a crash."""
        command = [*self._gguf, str(source), *choices.arguments(), str(out), "--json"]
        return _shape(run(command, source.name, log, update), source.name)

    def synthetic(self, shape: str, out: Path, log: Path, update: Update, block: Block) -> dict[str, int | bool]:
        """Writes an MNN model of random weights into `out`, in 4-bit blocks of that size; gives its shape."""
        command = [*self._synthetic, shape, str(out), f"--block={block}", "--json"]
        return _shape(run(command, shape, log, update), shape)

    def voice(self, onnx: Path, config: Path, out: Path, log: Path, update: Update) -> None:
        """Writes the MNN form of a Piper voice into `out`."""
        run([*self._voice, str(onnx), str(config), str(out), "--json"], onnx.name, log, update)


def _shape(report: dict[str, Any], what: str) -> dict[str, int | bool]:
    shape = report.get("shape")
    if not isinstance(shape, dict) or not all(isinstance(value, int) for value in shape.values()):
        raise ModelError(f"the conversion of {what} gave no shape of the model: {report!r}")
    return shape


def run(command: Sequence[str], what: str, log: Path, update: Update) -> dict[str, Any]:
    """Runs a converter to its end and gives its report; its stderr goes to the file `log`.

    Raises the error that the converter reports, or `ModelError` when it ended without a word. The child never
    outlives this call.
    """
    last: dict[str, Any] = {}
    with log.open("wb") as errors:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=child_environment()
        )
        assert child.stdout is not None
        try:
            last = _follow(child.stdout, update)
            code = child.wait()
        finally:
            _end(child)
            child.stdout.close()
    if isinstance(last.get("error"), dict):
        raise _reported(last["error"], what)
    report = last.get("report")
    if code != 0 or not isinstance(report, dict):
        tail = log.read_text("utf-8", "replace").strip().splitlines()
        said = f": {tail[-1].strip()}" if tail else ""
        raise ModelError(f"the conversion of {what} ended early (exit code {code}){said}")
    return report


def _end(child: subprocess.Popen[bytes]) -> None:
    """Asks first, so that the converter can undo its work; nothing happens to one that has ended."""
    child.terminate()
    try:
        child.wait(timeout=2)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _follow(lines: IO[bytes], update: Update) -> dict[str, Any]:
    """The last report or error among the lines."""
    last: dict[str, Any] = {}
    for line in lines:
        message = None
        if line.lstrip().startswith(b"{"):
            with contextlib.suppress(ValueError):  # a library's own chatter may look like JSON and not be
                message = json.loads(line)
        if not isinstance(message, dict):
            continue
        if "report" in message or "error" in message:
            last = message
        elif isinstance(message.get("done"), int) and isinstance(message.get("total"), int):
            update(message["done"], message["total"])
    return last


def _reported(error: dict[str, Any], what: str) -> AssistantError:
    kind = by_name(str(error.get("type")))
    if kind is StageError or not issubclass(kind, AssistantError):
        kind = ModelError
    text = str(error.get("message", ""))
    prefix = f"{what} cannot be converted: " if kind in (ModelUnsupported, ModelError) else ""
    code = error.get("code")
    return kind(text if text.startswith(what) else prefix + text, code=code if isinstance(code, str) else None)
