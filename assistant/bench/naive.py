"""The baseline: the same work as a plain script would do it, in one process, one engine after another.

    python -m assistant.bench.naive QUESTION.wav ANSWER.wav

faster-whisper → MNN LLM → piper-tts with their own defaults; each is loaded, used and dropped. Prints one JSON line:
seconds from process start to the first audio and to the end, and the peak of RSS.
"""

from __future__ import annotations

import json
import os
import sys
import wave
from pathlib import Path

from assistant.machine import process_age_s


def main(question: str, answer: str) -> dict[str, object]:
    """Returns the figures that are printed. The models are those of the embedded default."""
    from assistant import paths

    models = paths.models_dir()
    text = _transcribe(models / "whisper-tiny.en", question)
    reply = _generate(models / "smollm2-135m-instruct", text)
    first_audio = _speak(models / "en_US-joe-medium", reply, answer)
    status = Path("/proc/self/status").read_text("utf-8")
    peak_kib = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    return {
        "first_audio_s": round(first_audio, 3),
        "total_s": round(process_age_s(), 3),
        "peak_mib": round(peak_kib / 1024, 1),
        "transcript": text,
        "reply": reply,
    }


def _transcribe(model: Path, question: str) -> str:
    from faster_whisper import WhisperModel

    whisper = WhisperModel(str(model), device="cpu", compute_type="int8", cpu_threads=os.cpu_count() or 1)
    segments, _ = whisper.transcribe(question, language="en", beam_size=1)
    text = " ".join(segment.text.strip() for segment in segments)
    del whisper
    return text


def _generate(model: Path, text: str) -> str:
    import MNN.llm

    from assistant.config_sections import Llm

    llm = MNN.llm.create(str(model / "config.json"))
    llm.set_config({"thread_num": os.cpu_count() or 1})
    llm.load()
    turns = [{"role": "system", "content": Llm().system_prompt}, {"role": "user", "content": text}]
    llm.generate_init()
    logits = llm.forward(llm.tokenizer_encode(llm.apply_chat_template(turns)))
    reply: list[str] = []
    while len(reply) < Llm().max_new_tokens:
        token = int(logits.read().argmax())
        piece = llm.tokenizer_decode(token)
        if piece in ("<|im_end|>", "<|endoftext|>"):
            break
        reply.append(piece)
        logits = llm.forward([token])
    del logits, llm
    return "".join(reply).strip()


def _speak(voice: Path, reply: str, answer: str) -> float:
    from piper import PiperVoice

    first_audio = 0.0
    piper = PiperVoice.load(voice / f"{voice.name}.onnx")
    with wave.open(answer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        for chunk in piper.synthesize(reply):
            if not first_audio:
                first_audio = process_age_s()
                file.setframerate(chunk.sample_rate)
            file.writeframes(chunk.audio_int16_bytes)
    return first_audio


if __name__ == "__main__":
    figures = main(sys.argv[1], sys.argv[2])
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a live MNN object crashes in the interpreter's own way out
