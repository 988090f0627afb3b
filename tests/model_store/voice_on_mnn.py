"""Speaks sentences at noise 0 with onnxruntime and with a converted voice on MNN; prints how well they agree.

Run as a process of its own: `voice_on_mnn.py ONNX CONVERTED_FOLDER`. A JSON list on one line of stdout.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from piper import PiperConfig, PiperVoice

TEXTS = (
    "The capital of France is Paris.",
    "Hello world, how are you?",
    "Today is Sunday, November 29th.",
    "The capital of France is Paris, which lies on the river Seine.",
)
WINDOW, CONTEXT = 64, 12
"""Frames; the decoder and the upsampler behind it see 10 and 9/8."""
Floats = NDArray[np.float32]


def load(path: Path, inputs: list[str], outputs: list[str]) -> Any:
    import MNN

    return MNN.nn.load_module_from_file(str(path), inputs, outputs)


def forward(module: Any, *arrays: NDArray[Any]) -> list[Floats]:
    import MNN

    variables = []
    for array in arrays:
        kind = MNN.expr.int if array.dtype == np.int32 else MNN.expr.float
        variable = MNN.expr.placeholder(list(array.shape), MNN.expr.NCHW, kind)
        variable.write(np.ascontiguousarray(array))
        variables.append(variable)
    found = module.forward(variables)
    return [np.array(MNN.expr.convert(out, MNN.expr.NCHW).read(), np.float32).reshape(list(out.shape)) for out in found]


def main(onnx: Path, folder: Path) -> None:
    config = PiperConfig.from_dict(json.loads(Path(f"{onnx}.json").read_text()))
    session = onnxruntime.InferenceSession(str(onnx), providers=["CPUExecutionProvider"])
    voice = PiperVoice(session=session, config=config)
    mine = json.loads((folder / "voice.json").read_text())["mnn"]
    encoder, flow, *decoder = (
        load(folder / f"{part}.mnn", mine["parts"][part]["inputs"], mine["parts"][part]["outputs"])
        for part in ("encoder", "flow", "decoder", "upsampler")
    )
    results = []
    for text in TEXTS:
        (phonemes,) = voice.phonemize(text)
        ids = np.array([voice.phonemes_to_ids(phonemes)])
        length, scales = np.array([ids.shape[1]]), np.array([0.0, 1.0, 0.0], np.float32)
        reference = session.run(None, {"input": ids, "input_lengths": length, "scales": scales})[0].reshape(-1)
        noise = np.zeros((1, 2, ids.shape[1]), np.float32)
        means, _, durations = forward(encoder, ids.astype(np.int32), length.astype(np.int32), scales, noise)
        frames = np.repeat(means, durations.reshape(-1).astype(int), axis=2)
        (latent,) = forward(flow, frames, np.ones((1, 1, frames.shape[2]), np.float32))
        whole = decoded(decoder, latent)
        results.append(compare(reference, whole, in_windows(decoder, latent, mine["samples_per_frame"])))
    sys.stdout.write("\n" + json.dumps(results) + "\n")
    sys.stdout.flush()


def decoded(decoder: list[Any], latent: Floats) -> Floats:
    for part in decoder:
        (latent,) = forward(part, latent)
    return latent.reshape(-1)


def in_windows(decoder: list[Any], latent: Floats, per_frame: int) -> Floats:
    parts = []
    for begin in range(0, latent.shape[2], WINDOW):
        end = min(begin + WINDOW, latent.shape[2])
        left = max(0, begin - CONTEXT)
        samples = decoded(decoder, latent[:, :, left : end + CONTEXT])
        parts.append(samples[(begin - left) * per_frame : (end - left) * per_frame])
    return np.concatenate(parts)


def compare(reference: Floats, whole: Floats, windowed: Floats) -> dict[str, float]:
    size = min(reference.size, whole.size)
    return {
        "reference_samples": reference.size,
        "samples": whole.size,
        "whole": float(np.corrcoef(reference[:size], whole[:size])[0, 1]),
        "windowed": float(np.corrcoef(reference[:size], windowed[:size])[0, 1]),
        "window_error": float(np.abs(whole - windowed).max()),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
