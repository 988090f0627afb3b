"""The other side of `llm_llama_cpp`, under another Python: one prompt to llama.cpp. Imports nothing of ours.

    PYTHON llama_cpp_child.py MODEL.gguf CONTEXT THREADS TOKENS NEW TEXT

Prints one JSON line. The package's own defaults but for what both sides share: context, threads, greedy choice.
"""

import itertools
import json
import sys
import time

import llama_cpp  # type: ignore[import-not-found]


def main(gguf: str, context: int, threads: int, tokens: int, new: int, text: str) -> dict[str, float]:
    """Times in milliseconds; the prompt is the first `tokens` of `text`."""
    began = time.perf_counter()
    llm = llama_cpp.Llama(gguf, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False)
    load_ms = (time.perf_counter() - began) * 1000
    prompt = llm.tokenize(text.encode(), add_bos=False)[:tokens]
    began = time.perf_counter()
    # as greedy as ours: the best logit, and no penalty
    answer = llm.generate(prompt, top_k=1, temp=0.0, repeat_penalty=1.0)
    at = [time.perf_counter() for _ in itertools.islice(answer, new)]
    return {
        "load_ms": load_ms,
        "first_token_ms": (at[0] - began) * 1000,
        "decode_tps": (len(at) - 1) / (at[-1] - at[0]),
        "prompt_tokens": len(prompt),
        "new_tokens": len(at),
    }


if __name__ == "__main__":
    model, *numbers, words = sys.argv[1:]
    context, threads, tokens, new = map(int, numbers)
    sys.stdout.write(json.dumps(main(model, context, threads, tokens, new, words)) + "\n")
