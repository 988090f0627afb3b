"""One request to a real worker of the LLM stage, watched from outside: its times, its memory. A fresh worker each time.

Imports the worker's handle and the probe. Timing and watching are two runs: a look at a gigabyte of mapped pages takes
the kernel milliseconds, which the worker would lose.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from functools import reduce
from pathlib import Path

import msgspec

from assistant import paths
from assistant.bench.observer import Repeating
from assistant.errors import BadText, EngineFailed, UsageError
from assistant.memory_orchestrator.probe import MIB, Probe, Usage
from assistant.messages import LlmDelta, LlmRequest, Progress, Sampling, Stage, Turn
from assistant.stages.fork_client import ForkServer
from assistant.stages.process import Worker
from assistant.stages.registry import engine_path
from assistant.stages.spec import StageSpec

TEXT = "benchmark.txt"
"""Some 640 tokens of English, written for this purpose."""
_LONGEST_TOKEN = 64
"""Characters: more of them for each token that is wanted, and something is wrong."""
_LOOK_S = 0.01
_LOOK_SHARE = 3
"""Looking may take a third of the time, however long a look takes."""
_KV_FILE = re.compile(r"\.[kv](?: \(deleted\))?$")
_GREEDY = Sampling(temperature=0, repetition_penalty=1.0)


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """Times in milliseconds, by the clock of whoever asks."""

    load_ms: float
    """From the order to a loaded engine, in a process that has imported it."""
    first_token_ms: float
    """From the request to the first token of the answer, prefill and all."""
    decode_tps: float
    """Tokens per second after the first one; 0 when there was but one."""
    prompt_tokens: int
    new_tokens: int
    peak: Usage = Usage()
    """Of the worker and of the process that it was forked from, whose pages it shares; zeros when nobody looked."""
    kv_mapped: int = 0
    """Bytes of PSS in files of keys and values, at the end; 0 when nobody looked or they are no files."""


class PeakLog(Repeating):
    """The most that a few processes held together, from looks every 10 ms or so."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(_LOOK_S)
        self._pids, self._probe = pids, Probe()
        self.peak = Usage()
        self.looks = 0

    def look(self) -> bool:
        began = time.perf_counter()
        now = reduce(lambda one, other: one + other, (self._probe.usage(pid) for pid in self._pids))
        self.peak |= now
        self.looks += 1
        self._every_s = max(_LOOK_S, (time.perf_counter() - began) * (_LOOK_SHARE - 1))
        return now.total > 0


def text_of(characters: int) -> str:
    """The first `characters` of the shipped text, again and again if need be."""
    text = paths.data_file(TEXT).read_text("utf-8")
    return (text * (characters // len(text) + 1))[:characters]


def asking(prompt: str, new_tokens: int) -> LlmRequest:
    """Greedy, without any penalty: the same tokens each time."""
    return LlmRequest(turns=(Turn(role="user", content=prompt),), max_new_tokens=new_tokens, sampling=_GREEDY)


async def once(
    spec: StageSpec,
    server: ForkServer,
    request: LlmRequest,
    *,
    watched: bool = False,
    loaded: Callable[[int], None] = lambda pid: None,
    token: Callable[[int, int], None] = lambda pid, number: None,
    patience_s: float = math.inf,
) -> Answered:
    """`loaded` is called with the worker's process id before the request goes out, `token` with it and the number of
    the token after each one. No more tokens are wanted `patience_s` after the first. Raises what the worker raises."""
    worker = Worker(Stage.LLM, server)
    try:
        await worker.prepare(engine_path(spec.stage, spec.engine), spec.start_timeout_s, spec.placement)
        _, load_ms = await worker.load(spec.engine_config(spec.threads), spec.start_deadline_s)
        loaded(worker.pid)
        if not watched:
            return await _asked(worker, spec, request, load_ms, token, patience_s)
        with PeakLog((worker.pid, server.pid)) as log:
            answered = await _asked(worker, spec, request, load_ms, token, patience_s)
        log.look()
        return msgspec.structs.replace(answered, peak=log.peak, kv_mapped=mapped(worker.pid, _KV_FILE)["Pss"])
    finally:
        await worker.stop()


async def _asked(
    worker: Worker,
    spec: StageSpec,
    request: LlmRequest,
    load_ms: float,
    token: Callable[[int, int], None],
    patience_s: float,
) -> Answered:
    asked, prompt, prefilled, at = time.perf_counter(), 0, False, list[float]()
    counts, spoken = list[int](), 0
    async with aclosing(worker.run(request, spec.step_timeout_s)) as outputs:
        async for out in outputs:
            if not prefilled and isinstance(out, Progress):
                prompt, prefilled = out.total, out.done >= out.total
            elif isinstance(out, Progress) or (isinstance(out, LlmDelta) and out.tokens):
                at.append(time.perf_counter())
                spoken += out.tokens if isinstance(out, LlmDelta) else 0
                counts.append(out.done if isinstance(out, Progress) else spoken)
                token(worker.pid, counts[-1])
                if at[-1] - at[0] > patience_s:
                    break
    if not at:
        raise EngineFailed("the model ended its answer before the first token; give another prompt length")
    return Answered(
        load_ms=load_ms,
        first_token_ms=(at[0] - asked) * 1000,
        decode_tps=(counts[-1] - counts[0]) / (at[-1] - at[0]) if len(at) > 1 else 0.0,
        prompt_tokens=prompt,
        new_tokens=counts[-1],
    )


# --- prompts of a given length --------------------------------------------------------------------------------------
async def fitted(spec: StageSpec, server: ForkServer, tokens: int, before: str = "") -> str:
    """A text that makes a prompt of exactly `tokens`, the model's chat format included. `before`: what it begins with.

    Raises `UsageError` when the format alone is longer.
    """
    worker = Worker(Stage.LLM, server)
    try:
        await worker.prepare(engine_path(spec.stage, spec.engine), spec.start_timeout_s, spec.placement)
        await worker.load(spec.engine_config(spec.threads), spec.start_deadline_s)
        # reads the weights from the disk, and makes room; while it does, a worker hears no cancel
        with suppress(BadText):
            await _asked(worker, spec, asking("Hi.", 1), 0.0, lambda pid, number: None, math.inf)

        async def length(characters: int) -> int:
            return await _tokens_of(worker, spec, before + text_of(characters), tokens)

        low, high = 1, 2
        if (least := await length(low)) > tokens:
            raise UsageError(f"the shortest prompt of this model takes {least} tokens; ask for as many or more")
        while high <= tokens * _LONGEST_TOKEN and await length(high) <= tokens:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if await length(middle) <= tokens else (low, middle)
        # one character more may join or split tokens, so the length wanted may lie a little further on
        for characters in range(low, low + 40):
            if await length(characters) == tokens:
                return before + text_of(characters)
        raise EngineFailed(
            f"no part of {TEXT} makes a prompt of exactly {tokens} tokens, or the model's context is shorter; ask for"
            " another length"
        )
    finally:
        await worker.stop()


async def _tokens_of(worker: Worker, spec: StageSpec, text: str, wanted: int) -> int:
    """Of the whole prompt; some number above `wanted` when the context cannot hold it."""
    request = msgspec.structs.replace(asking(text, 1), prefill_chunk=8)
    try:
        async with aclosing(worker.run(request, spec.step_timeout_s)) as outputs:
            async for out in outputs:
                if isinstance(out, Progress):
                    return out.total  # and the rest of it is called off
    except BadText:
        return wanted + 1
    raise EngineFailed("the worker told no progress of a prompt")


# --- mapped files ---------------------------------------------------------------------------------------------------
def mapped(pid: int, names: re.Pattern[str]) -> dict[str, int]:
    """Sums of `Rss`, `Pss` and `Referenced`, in bytes, over the mappings whose file name matches. Zeros for nobody."""
    sums, inside = {"Rss": 0, "Pss": 0, "Referenced": 0}, False
    try:
        text = Path(f"/proc/{pid}/smaps").read_text("utf-8", "replace")
    except OSError:
        return sums
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        if inside and key in sums:
            sums[key] += int(rest.split()[0]) * 1024
        elif "-" in line.partition(" ")[0]:  # the first line of a mapping: its addresses
            inside = names.search(line) is not None
    return sums


def forget_references(pid: int) -> bool:
    """From now on the kernel notes anew which pages `pid` touches. False where it does not let us."""
    try:
        fd = os.open(f"/proc/{pid}/clear_refs", os.O_WRONLY)
        try:
            os.write(fd, b"1")
        finally:
            os.close(fd)
    except OSError:
        return False
    return True


def laid_out(weights: Path) -> int:
    """Bytes on the disk of the files that are mapped; they are sparse, so their size says nothing."""
    return sum(file.stat().st_blocks * 512 for file in weights.glob("*.static"))


def mib(size: float) -> float:
    return round(size / MIB, 1)
