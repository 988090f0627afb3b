"""The baseline: the same work as a plain script would do it, in one process, with the libraries' own defaults.

    python -m assistant.bench.naive QUESTION.wav                    cold
    python -m assistant.bench.naive QUESTION.wav --warm FIRST.wav   warm

faster-whisper → MNN LLM → piper-tts, on the models of the embedded default. Cold: each is loaded, used and dropped, and
times count from the start of the process. Warm: all are loaded and have answered FIRST.wav before, and times count from
the question. Either way the whole recording is there, and the whole reply is written before any of it is spoken. Prints
one JSON line: `Told`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TypedDict

from assistant.machine import process_age_s

WARM_UP = "Say hello."
"""What the LLM is asked before it counts as warm."""


class Told(TypedDict):
    first_audio_ms: float
    """From the start (cold: of the process; warm: of the question) to the first samples; 0 = there were none."""
    total_ms: float
    began_ns: int
    ended_ns: int
    """CLOCK_MONOTONIC."""
    stages: dict[str, float]
    """Milliseconds. Loads have the import in them."""
    transcript: str
    reply: str


class Whisper:
    def __init__(self, model: Path) -> None:
        from faster_whisper import WhisperModel

        self._whisper = WhisperModel(str(model), device="cpu", compute_type="int8", cpu_threads=os.cpu_count() or 1)

    def hear(self, question: str) -> str:
        segments, _ = self._whisper.transcribe(question, language="en", beam_size=1)
        return " ".join(segment.text.strip() for segment in segments)


class Llm:
    def __init__(self, model: Path) -> None:
        import MNN.llm

        self._llm = MNN.llm.create(str(model / "config.json"))
        self._llm.set_config({"thread_num": os.cpu_count() or 1})
        self._llm.load()

    def answer(self, text: str, stages: dict[str, float]) -> str:
        from assistant.config_sections import Llm as Settings

        llm, settings, began = self._llm, Settings(), time.monotonic()
        turns = [{"role": "system", "content": settings.system_prompt}, {"role": "user", "content": text}]
        llm.reset()
        llm.generate_init(None, None)
        logits = llm.forward(llm.tokenizer_encode(llm.apply_chat_template(turns)))
        reply: list[str] = []
        while len(reply) < settings.max_new_tokens:
            token = int(logits.read().argmax())
            stages.setdefault("llm_first_token", _ms_since(began))
            piece = llm.tokenizer_decode(token)
            if piece in ("<|im_end|>", "<|endoftext|>"):
                break
            reply.append(piece)
            logits = llm.forward([token])
        del logits  # one that outlives its model crashes
        stages["llm"] = _ms_since(began)
        return "".join(reply).strip()


class Voice:
    def __init__(self, voice: Path) -> None:
        from piper import PiperVoice

        self._piper = PiperVoice.load(voice / f"{voice.name}.onnx")

    def speak(self, reply: str) -> float:
        """When the first samples were there (monotonic seconds); 0 = never."""
        first = 0.0
        for chunk in self._piper.synthesize(reply):
            if chunk.audio_int16_bytes and not first:
                first = time.monotonic()
        return first


def cold(question: str) -> Told:
    began = time.monotonic() - process_age_s()
    stages: dict[str, float] = {}
    text = _timed(stages, "asr", _loaded(stages, "asr_load", Whisper).hear, question)
    reply = _loaded(stages, "llm_load", Llm).answer(text, stages)
    first = _spoken(stages, _loaded(stages, "tts_load", Voice), reply)
    return _told(began, first, stages, text, reply)


def warm(question: str, before: str) -> Told:
    stages: dict[str, float] = {}
    whisper, llm, voice = _loaded({}, "", Whisper), _loaded({}, "", Llm), _loaded({}, "", Voice)
    whisper.hear(before)
    voice.speak(llm.answer(WARM_UP, {}))
    began = time.monotonic()
    text = _timed(stages, "asr", whisper.hear, question)
    reply = llm.answer(text, stages)
    return _told(began, _spoken(stages, voice, reply), stages, text, reply)


def _loaded(stages: dict[str, float], name: str, kind: type[Any]) -> Any:
    from assistant import paths

    models = {Whisper: "whisper-tiny.en", Llm: "smollm2-135m-instruct", Voice: "en_US-joe-medium"}
    return _timed(stages, name, kind, paths.models_dir() / models[kind])


def _timed(stages: dict[str, float], name: str, work: Any, *args: Any) -> Any:
    began = time.monotonic()
    found = work(*args)
    stages[name] = _ms_since(began)
    return found


def _spoken(stages: dict[str, float], voice: Voice, reply: str) -> float:
    began = time.monotonic()
    first = voice.speak(reply) if reply else 0.0
    if first:
        stages["tts_first_audio"] = round((first - began) * 1000, 1)
    return first


def _told(began: float, first: float, stages: dict[str, float], text: str, reply: str) -> Told:
    ended = time.monotonic()
    return Told(
        first_audio_ms=round((first - began) * 1000, 1) if first else 0.0,
        total_ms=round((ended - began) * 1000, 1),
        began_ns=int(began * 1e9),
        ended_ns=int(ended * 1e9),
        stages=stages,
        transcript=text,
        reply=reply,
    )


def _ms_since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [question]:
            told = cold(question)
        case [question, "--warm", before]:
            told = warm(question, before)
        case _:
            sys.exit("usage: python -m assistant.bench.naive QUESTION.wav [--warm FIRST.wav]")
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a live MNN object crashes in the interpreter's own way out
