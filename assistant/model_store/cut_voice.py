"""A Piper voice for onnxruntime, cut and ready to be mapped. Imports `errors` and the store's helpers.

Onnxruntime reads a voice in 0.3-0.6 s and copies its weights into anonymous memory. From a graph that it has optimised
and saved once, with the weights in a file beside it, it needs 0.07 s and maps them: file-backed, reclaimable. This
module writes such files; `stages.tts_piper` uses them. It runs as a command (`python -m
assistant.model_store.cut_voice ONNX FOLDER`), because the memory that it takes is given back by its exit.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from assistant.errors import FetchFailed, ModelUnsupported
from assistant.model_store import derived_make, json_command, voice_graph
from assistant.model_store.voice_planes import in_planes
from assistant.model_store.voice_wires import Sight
from assistant.model_store.workspace import workspace

FORMAT = 3
"""Raise it when other files are written for the same voice."""

_CRUMBS = 1 << 20
"""A disk with fewer bytes free has no room for what could not be written."""


PARTS = ("encoder", "decoder", "upsampler")
WINDOWED = PARTS[1:]
SIGHTS = "sights.json"
"""Beside the parts, a `Cut`."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """The report."""

    decoder: Sight
    upsampler: Sight


def cut_voice(onnx: Path, folder: Path, update: json_command.Update = lambda done, total: None) -> Cut:
    """Makes `folder` hold {encoder,decoder,upsampler}.{onnx,bin} and `SIGHTS`, or nothing (see `derived_make`).

    Raises `ModelMissing`, `ModelDamaged`, `ModelUnsupported`, and `OSError`.
    """
    halves = voice_graph.cut(voice_graph.read_voice(onnx))
    cut = Cut(decoder=halves.decoder.sight, upsampler=halves.upsampler.sight)
    with workspace(folder.parent) as work:
        update(1, 4)
        _save_optimised(halves.encoder, work / "encoder.onnx")
        for done, part in enumerate(WINDOWED, 2):
            update(done, 4)
            _save_optimised(in_planes(getattr(halves, part).model), work / f"{part}.onnx", for_this_cpu=True)
        (work / SIGHTS).write_bytes(msgspec.json.encode(cut))
        derived_make.publish(work, folder)
    update(4, 4)
    return cut


def _save_optimised(part: Any, path: Path, *, for_this_cpu: bool = False) -> None:
    """Writes the part as onnxruntime optimises it, and reads it back: onnxruntime does not tell of a full disk.

    `for_this_cpu`: with blocks of as many channels as its registers hold numbers; see `voice_planes`.
    """
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state

    kinds = [kind for kind in vars(onnxruntime_pybind11_state).values() if isinstance(kind, type)]
    raised = tuple(kind for kind in kinds if issubclass(kind, Exception))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if for_this_cpu else levels.ORT_ENABLE_EXTENDED
    options.enable_mem_reuse = False  # a plan that takes half a second, for a network that is never run here
    options.optimized_model_filepath = str(path)
    beside = path.with_suffix(".bin").name
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", beside)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    again = onnxruntime.SessionOptions()
    again.log_severity_level = 4
    again.graph_optimization_level = levels.ORT_DISABLE_ALL
    again.enable_mem_reuse = False
    try:
        onnxruntime.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"])
        onnxruntime.InferenceSession(str(path), again, providers=["CPUExecutionProvider"])
    except raised as error:
        if shutil.disk_usage(path.parent).free < _CRUMBS:
            raise FetchFailed(f"the disk of {path.parent} is full", code="disk-full") from None
        raise ModelUnsupported(f"onnxruntime cannot run this voice, or not write {path.name}: {error}") from None


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        sys.stderr.write("usage: python -m assistant.model_store.cut_voice ONNX FOLDER\n")
        return 2
    return json_command.run(lambda update: cut_voice(Path(argv[0]), Path(argv[1]), update))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
