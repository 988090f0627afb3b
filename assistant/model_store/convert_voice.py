"""A Piper voice for MNN: ONNX -> four networks and voice.json. Imports `errors` and the store's helpers.

Runs as a command in a process of its own (`python -m assistant.model_store.convert_voice ONNX CONFIG OUT --json`):
MNN's converter is C++ that prints to stdout, and its memory goes with the process. It is called through the extension
module `_tools` and never through MNN's own command line, which installs packages and phones home.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from assistant.errors import ModelDamaged, ModelMissing, ModelUnsupported, UsageError
from assistant.model_store import json_command, voice_graph
from assistant.model_store.workspace import need_space, workspace

WINDOWED = ("flow", "decoder", "upsampler")
PARTS = ("encoder", *WINDOWED)
SIXTEEN_BITS = WINDOWED
"""Rounded to 16 bits, the encoder costs a sentence in ten its likeness (correlation 0.988 to the source, 0.998 as it
is): what it says of one phoneme becomes many frames."""
FILES = (*(f"{part}.mnn" for part in PARTS), "voice.json")
STEPS = 1 + len(PARTS) + 1


class Wiring(msgspec.Struct, frozen=True):
    """Names of a part's tensors, in the order of `voice_graph.Thirds`."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reach: int = 0
    """See `voice_wires.Sight`; of the encoder, which takes a sentence whole, these two say nothing."""
    rate: int = 1


class VoiceConversionReport(msgspec.Struct, frozen=True, kw_only=True):
    sample_rate: int
    samples_per_frame: int
    channels: int
    """Height of a frame: flow and decoder take float32 (1, channels, frames)."""
    parts: dict[str, Wiring]
    """Of "encoder", "flow", "decoder" and "upsampler"."""
    files: dict[str, int]
    """Bytes of each file written."""
    seconds: float


def convert_voice(
    onnx: Path, config_json: Path, out_dir: Path, update: json_command.Update = lambda done, total: None
) -> VoiceConversionReport:
    """Makes `out_dir` hold the five files, atomically: all of them or, on any failure, none and no other trace.

    Weights of all but the encoder become float16 (8 bits ruin the sound). `voice.json` is Piper's configuration plus
    the key `mnn`, which holds the report without its files. Raises `ModelMissing`, `ModelDamaged`, `ModelUnsupported`,
    `FetchFailed`.
    """
    began = time.monotonic()
    config = _read_config(config_json)
    model = voice_graph.read_voice(onnx)
    thirds = voice_graph.cut_in_three(model)
    del model
    update(1, STEPS)
    existed = out_dir.parent.is_dir()
    if out_dir.exists() and not out_dir.is_dir():
        raise UsageError(f"{out_dir} is a file; name a folder")
    need_space(out_dir.parent, onnx.stat().st_size * 3 // 2, "converting the voice")
    try:
        with workspace(out_dir.parent) as work:
            for number, stem in enumerate(PARTS):
                _to_mnn(_model(thirds, stem), work, stem, sixteen_bits=stem in SIXTEEN_BITS)
                update(2 + number, STEPS)
            report = _report(thirds, config, began)
            described = msgspec.to_builtins(report)
            del described["files"], described["seconds"]
            (work / "voice.json").write_text(json.dumps(config | {"mnn": described}), "utf-8")
            _publish(work, out_dir)
    except BaseException:
        if not existed:
            with suppress(OSError):  # somebody else's files are in it by now
                out_dir.parent.rmdir()
        raise
    update(STEPS, STEPS)
    return msgspec.structs.replace(report, files={name: (out_dir / name).stat().st_size for name in FILES})


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ModelMissing(f"{path} is not there; a Piper voice is a pair of files, so fetch it again")
    try:
        config: dict[str, Any] = json.loads(path.read_bytes())
        if int(config["audio"]["sample_rate"]) < 1 or not config["phoneme_id_map"]:
            raise ValueError("no sample rate or no phoneme table")
    except (ValueError, KeyError, TypeError) as error:
        raise ModelDamaged(f"{path} is not the configuration of a Piper voice ({error}); fetch it again") from None
    return config


def _to_mnn(part: Any, work: Path, stem: str, *, sixteen_bits: bool) -> None:
    """MNN's converter says True whatever happens, so what counts is the file that it wrote."""
    import _tools
    import onnx

    source, target = work / f"{stem}.onnx", work / f"{stem}.mnn"
    onnx.save(part, str(source))
    command = ["MNNConvert", "-f", "ONNX", "--modelFile", str(source), "--MNNModel", str(target), "--bizCode", "voice"]
    _tools.mnnconvert([*command, *(["--fp16"] if sixteen_bits else [])])
    if not target.is_file() or target.stat().st_size < source.stat().st_size // 10:
        raise ModelUnsupported(f"MNN's converter did not take the voice's {stem}; its messages are on stderr")
    source.unlink()


def _model(thirds: voice_graph.Thirds, stem: str) -> Any:
    return thirds.encoder if stem == "encoder" else getattr(thirds, stem).model


def _report(thirds: voice_graph.Thirds, config: dict[str, Any], began: float) -> VoiceConversionReport:
    latent = thirds.decoder.model.graph.input[0]
    return VoiceConversionReport(
        sample_rate=int(config["audio"]["sample_rate"]),
        samples_per_frame=thirds.decoder.sight.rate * thirds.upsampler.sight.rate,
        channels=int(latent.type.tensor_type.shape.dim[1].dim_value),
        parts={"encoder": _wiring(thirds.encoder), **{part: _windowed(getattr(thirds, part)) for part in WINDOWED}},
        files={},
        seconds=round(time.monotonic() - began, 2),
    )


def _wiring(model: Any) -> Wiring:
    return Wiring(tuple(one.name for one in model.graph.input), tuple(one.name for one in model.graph.output))


def _windowed(part: voice_graph.Part) -> Wiring:
    return msgspec.structs.replace(_wiring(part.model), reach=part.sight.reach, rate=part.sight.rate)


def _publish(work: Path, out_dir: Path) -> None:
    """A new folder appears whole; in one that is there already, voice.json changes last."""
    made = work / "made"
    made.mkdir()
    for name in FILES:
        (work / name).rename(made / name)
    try:
        made.rename(out_dir)
    except OSError:  # not empty
        for name in FILES:
            (made / name).replace(out_dir / name)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="convert_voice", description="Convert a Piper voice to MNN.")
    parser.add_argument("onnx", type=Path)
    parser.add_argument("config", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--json", action="store_true", required=True, help="stdout carries JSON lines")
    given = parser.parse_args(argv)

    return json_command.run(lambda update: convert_voice(given.onnx, given.config, given.out, update))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
