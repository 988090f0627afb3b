"""One engine of `bench tts`, in a process of its own: `python -m assistant.bench.tts_child ENGINE TEXT CACHE`.

Loads, speaks once, and prints one JSON line. "piper-tts" is the published package as it comes: its own loader, its own
`synthesize`. Imports are timed apart: the product's workers have theirs done before they are asked.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from assistant.messages import Stage, TtsRequest
from assistant.model_store.store import ModelStore
from assistant.stages.base import EngineConfig
from assistant.stages.registry import engine_path

MODELS = {"piper-tts": "en_US-joe-medium", "piper": "en_US-joe-medium", "piper-mnn": "en_US-joe-medium-mnn"}
Speak = Callable[[str], Iterator[tuple[bytes, int]]]
"""Text -> (s16le mono, Hz) as it comes."""


def published(voice: Path) -> Callable[[], Speak]:
    from piper import PiperVoice

    def load() -> Speak:
        piper = PiperVoice.load(voice / f"{voice.name}.onnx")
        return lambda text: ((one.audio_int16_bytes, one.sample_rate) for one in piper.synthesize(text))

    return load


def ours(name: str, cache: Path) -> Callable[[], Speak]:
    model = ModelStore.default().open(MODELS[name])
    module, _, kind = engine_path(Stage.TTS, name).partition(":")
    engine = getattr(importlib.import_module(module), kind)(
        EngineConfig(
            model=model.name,
            model_dir=model.path,
            digest=model.digest,
            cache_dir=cache,
            threads=os.cpu_count() or 1,
        )
    )

    def load() -> Speak:
        engine.load()
        return lambda text: ((one.pcm, one.sample_rate) for one in engine.run(TtsRequest(text=text)))

    return load


def main(name: str, text: str, cache: Path) -> dict[str, float]:
    began = time.monotonic()
    load = published(ModelStore.default().open(MODELS[name]).path) if name == "piper-tts" else ours(name, cache)
    imported = time.monotonic()
    speak = load()
    loaded = time.monotonic()
    first, seconds = 0.0, 0.0
    for pcm, rate in speak(text):
        first = first or time.monotonic() - loaded
        seconds += len(pcm) / 2 / rate
    return {
        "import_s": imported - began,
        "load_s": loaded - imported,
        "first_audio_s": first,
        "whole_s": time.monotonic() - loaded,
        "speech_s": seconds,
    }


if __name__ == "__main__":
    figures = main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    sys.stdout.write("\n" + json.dumps(figures) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a live MNN object crashes in the interpreter's own way out
