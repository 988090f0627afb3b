"""The prepared files of a voice: trusted when all agrees, made anew on any doubt. Imports `errors`, `model_store`.

`model_store.cut_voice` makes them, in a process of its own. They are never believed on their word: the marker must
name this voice, this onnxruntime and this kind of CPU; sizes and graphs are checked before anything opens them; the
weights' digests are checked while the network starts, and nothing is spoken before that has come out well.
"""

from __future__ import annotations

import hashlib
import mmap
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
        and _graphs_intact(folder, marker)
    )
    return marker if good else None


def _same_source(onnx: Path, marker: CutVoice) -> bool:
    """Size and time say it for nothing; a voice that was only touched or copied is told by its digest."""
    stat, mark = onnx.stat(), marker.source
    if stat.st_size != mark.bytes:
        return False
    return stat.st_mtime_ns == mark.mtime_ns or sha256_of(onnx) == mark.sha256


def _graphs_intact(folder: Path, marker: CutVoice) -> bool:
    try:
        graphs = [(folder / name, mark) for name, mark in marker.files.items() if name.endswith(".onnx")]
        return all(sha256_of(path) == mark.sha256 for path, mark in graphs)
    except OSError:
        return False


class WeightsCheck:
    """Compares the weights' digests in a thread, for about as long as the network takes to start.

    Onnxruntime holds the GIL while it starts a network, so each file is digested in one call that does not need it.
    """

    def __init__(self, folder: Path, marker: CutVoice) -> None:
        self._good = False
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(folder, marker), name="weights-check")
        self._thread.start()
        self._begun.wait()

    def _run(self, folder: Path, marker: CutVoice) -> None:
        try:
            wanted = {name: mark.sha256 for name, mark in marker.files.items() if name.endswith(".bin")}
            mapped = {name: _mapped(folder / name) for name in sorted(wanted, reverse=True)}  # the large one first
            self._begun.set()
            self._good = all(hashlib.sha256(data).hexdigest() == wanted[name] for name, data in mapped.items())
        except (OSError, ValueError):
            self._good = False  # gone, or empty
        finally:
            self._begun.set()

    def good(self) -> bool:
        """Waits for the result."""
        self._thread.join()
        return self._good


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


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
