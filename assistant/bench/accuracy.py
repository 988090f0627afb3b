"""How close the converted LLM is to its source: `assistant bench accuracy`. Imports `model_store` and `mnn_logits`.

Two comparisons on five questions. With `memory: high`, MNN computes exactly, and its greedy tokens must be those of the
numpy reference. With the settings that users get, activations are int8: the distributions over the next token are
compared with the exact ones while both are fed the same tokens (teacher forcing), as mean Kullback-Leibler divergence
KL(exact || user's) in nats and as the share of steps with the same best token.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from assistant.bench import mnn_logits
from assistant.bench.embedded import embedded_gguf
from assistant.bench.output import judge, say_aside
from assistant.model_store.convert_gguf import convert_gguf
from assistant.model_store.numpy_llm import NumpyLlm

QUESTIONS = (
    "What is the capital of France?",
    "How do I boil an egg?",
    "Tell me a short story about a cat and a dog.",
    "What is the difference between weather and climate?",
    "Why is the sky blue?",
)
SETTINGS: dict[str, Mapping[str, Any]] = {
    "low, attention 8": {"memory": "low", "dynamic_option": 2, "attention_mode": 8},
    "low, attention 9": {"memory": "low", "dynamic_option": 2, "attention_mode": 9},
    "low, dynamic 0": {"memory": "low", "dynamic_option": 0, "attention_mode": 8},
}
"""The first is what users get; the others say what the choice is worth."""
MAX_KL = 5e-3
MIN_TOP1 = 0.95
_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    settings: str
    kl_prefill: float
    """Mean over the tokens of the prompts."""
    kl_decode: float
    """Mean over the tokens of the answers, the first included."""
    top1: float
    """Of the answers' tokens."""
    steps: int


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    greedy_equal: int
    """Questions whose exact greedy answer is the numpy reference's, token for token."""
    questions: int
    greedy_steps: int
    max_logit_difference: float
    """Between MNN with `memory: high` and numpy, over all steps."""
    agreements: list[Agreement]

    @property
    def reached(self) -> bool:
        first = self.agreements[0]
        close = max(first.kl_prefill, first.kl_decode) <= MAX_KL and first.top1 >= MIN_TOP1
        return self.greedy_equal == self.questions and close


def chat_prompt(question: str) -> str:
    """The question as the embedded model's chat template writes it."""
    return f"<|im_start|>system\n{_SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Float64, along the last axis."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    out: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return out


def divergence(exact: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """KL(exact || other) in nats of each row of logits, [n]."""
    p, q = log_softmax(exact), log_softmax(other)
    out: NDArray[np.float64] = (np.exp(p) * (p - q)).sum(axis=-1)
    return out


def compare(name: str, exact: Sequence[mnn_logits.Run], other: Sequence[mnn_logits.Run]) -> Agreement:
    prefill, decode, same = [], [], []
    for a, b in zip(exact, other, strict=True):
        first = len(a.prompt) - 1  # the row that chooses the first token of the answer
        kl = divergence(a.logits, b.logits)
        prefill.append(kl[:first])
        decode.append(kl[first:])
        same.append(a.logits[first:].argmax(axis=-1) == b.logits[first:].argmax(axis=-1))
    steps = np.concatenate(same)
    return Agreement(
        settings=name,
        kl_prefill=float(np.concatenate(prefill).mean()),
        kl_decode=float(np.concatenate(decode).mean()),
        top1=float(steps.mean()),
        steps=len(steps),
    )


def against_numpy(gguf: Path, runs: Sequence[mnn_logits.Run]) -> tuple[int, float]:
    """How many runs chose what numpy would choose at every step, and the largest difference of a logit.

    Fed the same tokens, equal choices at every step are equal greedy answers; one pass per question is enough.
    """
    equal, difference = 0, 0.0
    with NumpyLlm(gguf) as llm:
        for run in runs:
            llm.reset()
            logits = llm.forward([*run.prompt, *run.tokens])
            first = len(run.prompt) - 1
            equal += logits[first:-1].argmax(axis=-1).tolist() == run.tokens
            difference = max(difference, float(np.abs(logits[: len(run.logits)] - run.logits).max()))
    return equal, difference


def measure(gguf: Path, *, steps: int = 36, tell: Callable[[str], None] = lambda _: None) -> Accuracy:
    """Converts into a temporary directory and compares. About a minute and 1.2 GiB for the embedded model."""
    with tempfile.TemporaryDirectory(prefix="assistant-accuracy-") as temp:
        model = Path(temp, "model")
        tell("converting")
        report = convert_gguf(gguf, model)
        tell("answering exactly")
        jobs = [mnn_logits.Job(prompt=chat_prompt(q), steps=steps, stop=report.stop_ids) for q in QUESTIONS]
        exact = mnn_logits.run(model, mnn_logits.REFERENCE, jobs)
        tell("answering in numpy")
        equal, difference = against_numpy(gguf, exact)
        forced = [mnn_logits.Job(prompt=run.prompt, forced=run.tokens) for run in exact]
        agreements = []
        for name, settings in SETTINGS.items():
            tell(f"answering with {name}")
            agreements.append(compare(name, exact, mnn_logits.run(model, settings, forced)))
    return Accuracy(
        greedy_equal=equal,
        questions=len(exact),
        greedy_steps=sum(len(run.tokens) for run in exact),
        max_logit_difference=difference,
        agreements=agreements,
    )


def table(found: Accuracy) -> str:
    lines = [
        f"memory high against numpy: greedy tokens equal on {found.greedy_equal}/{found.questions} questions "
        f"({found.greedy_steps} tokens), logits within {found.max_logit_difference:.1e}",
        "",
        f"{'settings':<20}{'KL prefill':>12}{'KL decode':>12}{'top-1':>8}{'steps':>7}",
    ]
    lines += [
        f"{a.settings:<20}{a.kl_prefill:>12.1e}{a.kl_decode:>12.1e}{a.top1:>8.3f}{a.steps:>7}" for a in found.agreements
    ]
    verdict = "reached" if found.reached else "MISSED"
    return "\n".join([*lines, "", f"target for the first row (KL <= {MAX_KL:g}, top-1 >= {MIN_TOP1}): {verdict}"])


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 0 when the targets are reached, 1 when not, or the exit status of the error."""
    parser = argparse.ArgumentParser(prog="assistant bench accuracy", description="Is the converted LLM its source?")
    parser.add_argument("--gguf", type=Path, help="another file than the embedded model's")
    parser.add_argument("--steps", type=int, default=36, help="tokens per answer (default 36)")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    args = parser.parse_args(argv)
    return judge(
        lambda: measure(embedded_gguf(args.gguf), steps=args.steps, tell=lambda what: say_aside(f"{what} ...")),
        table,
        as_json=args.json,
    )
