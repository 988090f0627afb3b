"""The prepared files of a voice: trusted when all agrees, made anew on any doubt. Imports `errors`, `model_store`.

`model_store.cut_voice` makes them, in a process of its own. They are never believed on their word: the marker must
name this voice, this onnxruntime and this kind of CPU; sizes and graphs are checked before anything opens them; the
weights' digests are checked while the network starts, and nothing is spoken before that has come out well.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from assistant import errors
from assistant.errors import EngineFailed
from assistant.model_store.cut_voice import FORMAT, MARKER, CutVoice, cpu_signature, sha256_of

BUILD_TIMEOUT_S = 120
_FILES = {"encoder.onnx", "encoder.bin", "decoder.onnx", "decoder.bin"}


def read_marker(onnx: Path, folder: Path, onnxruntime_version: str) -> CutVoice | None:
    """The marker, when the files are there, whole by size, and made of this voice for this machine; else None."""
    try:
        marker = msgspec.json.decode((folder / MARKER).read_bytes(), type=CutVoice)
        sizes = {name: (folder / name).stat().st_size for name in _FILES}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    good = (
        (marker.format, marker.onnxruntime, marker.cpu) == (FORMAT, onnxruntime_version, cpu_signature())
        and sizes == {name: mark.bytes for name, mark in marker.files.items()}
        and _same_source(onnx, marker)
        and _intact(folder, marker, ".onnx")
    )
    return marker if good else None


def _same_source(onnx: Path, marker: CutVoice) -> bool:
    """Size and time say it for nothing; a voice that was only touched or copied is told by its digest."""
    stat, mark = onnx.stat(), marker.source
    if stat.st_size != mark.bytes:
        return False
    return stat.st_mtime_ns == mark.mtime_ns or sha256_of(onnx) == mark.sha256


def _intact(folder: Path, marker: CutVoice, suffix: str) -> bool:
    wanted = {name: mark.sha256 for name, mark in marker.files.items() if name.endswith(suffix)}
    try:
        return all(sha256_of(folder / name) == digest for name, digest in wanted.items())
    except OSError:
        return False


class WeightsCheck:
    """Compares the weights' digests in a thread, for about as long as the network takes to start."""

    def __init__(self, folder: Path, marker: CutVoice) -> None:
        self._good = False
        self._thread = threading.Thread(target=self._run, args=(folder, marker), name="weights-check")
        self._thread.start()

    def _run(self, folder: Path, marker: CutVoice) -> None:
        self._good = _intact(folder, marker, ".bin")

    def good(self) -> bool:
        """Waits for the result."""
        self._thread.join()
        return self._good


def build(onnx: Path, folder: Path, timeout_s: float = BUILD_TIMEOUT_S) -> None:
    """Makes the files, about 1 s. Raises what `cut_voice` raises, and `EngineFailed` when its process died."""
    command = [sys.executable, "-m", "assistant.model_store.cut_voice", str(onnx.resolve()), str(folder)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise EngineFailed(f"preparing the voice took more than {timeout_s:.0f} s; is the disk slow or full?") from None
    lines = done.stdout.splitlines()
    try:
        last = msgspec.json.decode(lines[-1]) if lines else {}
    except msgspec.DecodeError:
        last = {}
    if "report" in last and done.returncode == 0:
        return
    if "error" in last:
        raise errors.by_name(last["error"]["type"])(last["error"]["message"], code=last["error"]["code"])
    raise EngineFailed(f"preparing the voice ended with status {done.returncode}; see the log, and free some memory")
