"""The verb `bench`: hands its arguments to a module of `bench`. Imports none of them before it is asked."""

from __future__ import annotations

import importlib
import sys

import typer

from assistant import cli_output

app = typer.Typer(help="Measure what the documentation claims.", no_args_is_help=True)

BENCHES = {
    "e2e": ("e2e", "From the end of speech to the first audio, against the naive way."),
    "memory": ("memory", "The memory of one spoken query over time, and whether the ledger tells the truth."),
    "chunks": ("chunks", "The LLM by the size of its prompt chunks: memory, first token, decode."),
    "llm": ("llm", "The LLM: variants, attention, memory limits, llama.cpp, bandwidth, embedding."),
    "limits": ("limits", "A daemon inside memory cgroups: no OOM kill, and the smallest that works."),
    "soak": ("soak", "A mixed load with faults for a long time, and what grows or is lost."),
    "llm-start": ("llm_start", "The LLM worker from fork to first logits."),
    "accuracy": ("accuracy", "The converted LLM against its dequantised source."),
    "conversion": ("conversion", "Time and memory of the GGUF conversion."),
    "tts": ("tts", "Speech synthesis on MNN against piper-tts and onnxruntime."),
    "load": ("load", "More questions than the machine can answer, and `status` meanwhile."),
    "hostile": ("hostile", "A hundred thousand messages that are wrong in some way, and `status` meanwhile."),
    "waiting": ("waiting", "What a daemon costs that waits for its wake word."),
    "intents": ("intents", "How well sentences are understood, and how fast."),
    "wer": ("wer", "Word error rates of the recogniser on recordings."),
}


def _add(name: str, module: str, help_text: str) -> None:
    @app.command(
        name,
        help=help_text,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def run(context: typer.Context) -> None:
        with cli_output.reported():
            sys.exit(importlib.import_module(f"assistant.bench.{module}").main(context.args))


for _name, (_module, _help) in BENCHES.items():
    _add(_name, _module, _help)
