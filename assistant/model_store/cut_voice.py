"""A Piper voice for onnxruntime, cut in two and ready to be mapped. Imports `errors` and the store's helpers.

Onnxruntime reads a voice in 0.3-0.6 s and copies its weights into anonymous memory. From a graph that it has optimised
and saved once, with the weights in a file beside it, it needs 0.07 s and maps them: file-backed, reclaimable. This
module writes such files; `stages.tts_piper` uses them. It runs as a command (`python -m
assistant.model_store.cut_voice ONNX FOLDER`), because the memory that it takes is given back by its exit.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import Any

import msgspec

from assistant.errors import ModelUnsupported
from assistant.model_store import json_command, voice_graph
from assistant.model_store.workspace import locked, need_space, workspace

MARKER = "cut.json"
"""Written last: a folder without it, or that does not agree with it, is not used."""

FORMAT = 1


class FileMark(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


class SourceMark(msgspec.Struct, frozen=True):
    bytes: int
    mtime_ns: int
    sha256: str


class CutVoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the marker says."""

    format: int
    onnxruntime: str
    cpu: str
    source: SourceMark
    samples_per_frame: int
    files: dict[str, FileMark]


def cpu_signature() -> str:
    """Changes when the files move to another kind of machine: they may hold layouts that fit one kind."""
    flags = ""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                flags = line
                break
    return f"{platform.machine()}-{hashlib.sha256(flags.encode()).hexdigest()[:12]}"


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cut_voice(onnx: Path, folder: Path, update: json_command.Update = lambda done, total: None) -> CutVoice:
    """Makes `folder` hold {encoder,decoder}.{onnx,bin} and the marker, atomically; replaces what was there.

    Raises `ModelMissing`, `ModelDamaged`, `ModelUnsupported`, and `FetchFailed` (code disk-full).
    """
    model = voice_graph.read_voice(onnx)
    stat = onnx.stat()
    source = SourceMark(bytes=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=sha256_of(onnx))
    halves = voice_graph.cut(model)
    del model
    parent = folder.parent
    need_space(parent, stat.st_size * 11 // 10, "preparing the voice")
    with locked(parent, folder.name), workspace(parent) as work:
        update(1, 3)
        version = _save_optimised(halves.encoder, work / "encoder.onnx")
        update(2, 3)
        _save_optimised(halves.decoder, work / "decoder.onnx")
        marker = CutVoice(
            format=FORMAT,
            onnxruntime=version,
            cpu=cpu_signature(),
            source=source,
            samples_per_frame=halves.samples_per_frame,
            files={path.name: FileMark(path.stat().st_size, sha256_of(path)) for path in sorted(work.iterdir())},
        )
        (work / MARKER).write_bytes(msgspec.json.encode(marker))
        _publish(work, folder)
    update(3, 3)
    return marker


def _save_optimised(half: Any, path: Path) -> str:
    """Writes the half as onnxruntime optimises it; returns onnxruntime's version.

    Extended, not all, optimisations: the last level's layouts bring a voice nothing, and are bound to one CPU.
    """
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state

    kinds = [kind for kind in vars(onnxruntime_pybind11_state).values() if isinstance(kind, type)]
    raised = tuple(kind for kind in kinds if issubclass(kind, Exception))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.enable_mem_reuse = False  # a plan that takes half a second, for a network that is never run here
    options.optimized_model_filepath = str(path)
    beside = path.with_suffix(".bin").name
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", beside)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    try:
        onnxruntime.InferenceSession(half.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except raised as error:
        raise ModelUnsupported(f"onnxruntime cannot run this voice, or not write {path.name}: {error}") from None
    return str(onnxruntime.__version__)


def _publish(work: Path, folder: Path) -> None:
    """Moves the files into place, the marker last; whoever has the old ones mapped keeps them."""
    folder.mkdir(exist_ok=True)
    (folder / MARKER).unlink(missing_ok=True)
    for path in sorted(work.iterdir(), key=lambda path: path.name == MARKER):
        os.replace(path, folder / path.name)


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        sys.stderr.write("usage: python -m assistant.model_store.cut_voice ONNX FOLDER\n")
        return 2
    return json_command.run(lambda update: cut_voice(Path(argv[0]), Path(argv[1]), update))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
