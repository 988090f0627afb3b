"""A source of tensors -> a model directory for MNN's LLM runtime, without torch. Imports the modules that it names.

Checks and decides everything first (`llm_plan`, `chat_template`), then writes the tokenizer, streams the weights
(`llm_writer`), has MNN translate the graphs (`mnn_graph`, `mnn_tools`), and notes what our own token loop needs
(`vocabulary`).
Weights that MNN can represent are carried over unless other bits were chosen; others are quantised and named in the
report. The directory appears whole or not at all. Never touches a network, never imports MNN's Python tools.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from assistant.errors import ModelError, ModelUnsupported
from assistant.model_store import chat_template, versions, vocabulary
from assistant.model_store.atomic_dir import building
from assistant.model_store.choices import EMERGENCY_GRAPH, OWN, Choices
from assistant.model_store.llm_plan import Plan, make_plan, sizes
from assistant.model_store.llm_writer import llm_config, write_weights
from assistant.model_store.mnn_graph import Json, build
from assistant.model_store.mnn_tokenizer import mtok
from assistant.model_store.mnn_tools import json_to_mnn
from assistant.model_store.tensor_source import TensorSource
from assistant.model_store.workspace import bytes_free, disk_is_full

Progress = Callable[[int, int], None]


class ConversionReport(msgspec.Struct, frozen=True, kw_only=True):
    architecture: str
    shape: dict[str, int | bool]
    """layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_position, tied: what an estimate of memory needs."""
    head_slices: int
    requantised: list[str]
    """`name (type to n bits)` of each tensor whose weights are not exactly the source's."""
    bos_id: int | None
    eos_id: int | None
    stop_ids: list[int]
    chat_format: str
    """`the file's own`, or the known format that takes its place."""
    notes: list[str]
    """What a user should know, in sentences."""
    source_sha256: str
    weight_bytes: int
    """Size of `llm.mnn.weight`."""
    seconds: float
    peak_anon_mib: float
    """Most anonymous memory that this process had while it converted."""
    converter_version: str = versions.GGUF_CONVERTER
    mnn_version: str = versions.mnn_version()
    bits: int | None = None
    """What every matrix was brought to; None = the source's own bits."""
    emergency_skip: list[int] = []
    """Layers that the emergency graph leaves out; empty = there is none."""


class _Meter:
    """Progress, and the peak of anonymous memory at each step of it."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done, self.total = 0, total
        self.peak_kib = 0
        self._progress = progress

    def moved(self, count: int) -> None:
        self.done += count
        self.sample()
        if self._progress:
            self._progress(self.done, self.total)

    def sample(self) -> None:
        status = Path("/proc/self/status").read_text()
        self.peak_kib = max(self.peak_kib, int(status.partition("RssAnon:")[2].split(None, 1)[0]))


_CONFIG = {
    "llm_model": "llm.mnn",
    "llm_weight": "llm.mnn.weight",
    "tokenizer_file": "tokenizer.mtok",
    "backend_type": "cpu",
    "thread_num": 2,
    "precision": "high",
    "memory": "low",
    "dynamic_option": 2,
    "sampler_type": "greedy",
}
"""What MNN is told when a user loads the directory by hand; our own stage sets all of it itself."""


def _notes(plan: Plan, remark: str) -> list[str]:
    notes = [remark] if remark else []
    if not plan.tokenizer.pre_named:
        notes.append(f"the file does not say how it splits text into words; taken as {plan.tokenizer.pre!r}")
    if plan.tokenizer.pre == "llama-bpe":
        notes.append("a word that is a token but that no merges build comes in several tokens")
    if plan.unblocked:
        named = ", ".join(plan.unblocked[:3]) + (", ..." if len(plan.unblocked) > 3 else "")
        notes.append(f"{len(plan.unblocked)} matrices have smaller blocks, as the chosen ones do not fit them: {named}")
    return notes


def _facts(plan: Plan, sha256: str, notes: list[str]) -> vocabulary.LlmFacts:
    tokenizer = plan.tokenizer
    ids = {token: i for i, token in enumerate(tokenizer.tokens) if token in (b"<think>", b"</think>")}
    return vocabulary.LlmFacts(
        converter_version=versions.GGUF_CONVERTER,
        mnn_version=versions.mnn_version(),
        source_sha256=sha256,
        architecture=plan.shape.architecture,
        shape=plan.shape.summary(),
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        add_bos=tokenizer.add_bos,
        stop_ids=tokenizer.stop_ids,
        special_ids=tokenizer.special_ids,
        think_ids=[ids[b"<think>"], ids[b"</think>"]] if len(ids) == 2 else [],
        chat_template=tokenizer.chat_template,
        requantised=plan.requantised,
        notes=notes,
        bits=plan.bits,
        emergency_skip=plan.emergency_skip,
    )


def _write_graph(out: Path, graph: Json) -> None:
    described = out.with_name("graph.json")
    described.write_bytes(msgspec.json.encode(graph))
    json_to_mnn(described, out)
    described.unlink()


def _write_all(out: Path, source: TensorSource, plan: Plan, facts: vocabulary.LlmFacts, meter: _Meter) -> None:
    # The tokenizer first: it refuses damaged merges before gigabytes are written.
    (out / "tokenizer.mtok").write_bytes(mtok(plan.tokenizer))
    (out / vocabulary.FILE).write_bytes(vocabulary.vocabulary_bytes(plan.tokenizer.token_bytes()))
    meter.sample()
    parts, words = write_weights(out / "llm.mnn.weight", source, plan, meter.moved)
    _write_graph(out / "llm.mnn", build(plan.shape, parts))
    if plan.emergency_skip:
        _write_graph(out / EMERGENCY_GRAPH, build(plan.shape, parts, plan.emergency_skip))
    (out / "llm_config.json").write_bytes(msgspec.json.encode(llm_config(plan, words, facts)))
    (out / "config.json").write_bytes(msgspec.json.encode(_CONFIG))
    meter.sample()


def convert(
    source: TensorSource,
    out_dir: Path,
    progress: Progress | None = None,
    *,
    sha256: str,
    choices: Choices = OWN,
    head_slices: int | None = None,
    free_bytes: Callable[[Path], int] = bytes_free,
) -> ConversionReport:
    """Writes llm.mnn, llm.mnn.weight, llm_config.json, config.json, tokenizer.mtok and vocabulary.bin to `out_dir`.

    Also llm.emergency.mnn, unless no layer can be spared. An existing `out_dir` is replaced. `progress(done, total)`
    counts bytes of source; what it raises ends the work. `head_slices` overrides `head_slices_for`; `sha256` is the
    source's digest.
    Raises `ModelUnsupported` before anything is written, `ModelDamaged`, and `ModelError` with code `disk-full`.
    """
    began = time.monotonic()
    plan = _plan(source, choices, head_slices)
    reads, writes = sizes(source, plan)
    tokenizer, chat_format, remark = chat_template.choose(plan.tokenizer, source.path)
    plan = msgspec.structs.replace(plan, tokenizer=tokenizer)
    facts = _facts(plan, sha256, _notes(plan, remark))
    meter = _Meter(reads, progress)
    try:
        _check_disk(out_dir, writes, free_bytes)
        with building(out_dir) as work:
            _write_all(work, source, plan, facts, meter)
            weight_bytes = (work / "llm.mnn.weight").stat().st_size
    except OSError as error:
        if disk_is_full(error):
            full = f"the disk of {out_dir.parent} is full; make room and run this again"
            raise ModelError(full, code="disk-full") from None
        raise ModelError(f"{out_dir}: cannot be written ({error.strerror})") from None
    return ConversionReport(
        architecture=facts.architecture,
        shape=facts.shape,
        head_slices=plan.slices,
        requantised=plan.requantised,
        bos_id=facts.bos_id,
        eos_id=facts.eos_id,
        stop_ids=facts.stop_ids,
        chat_format=chat_format,
        notes=facts.notes,
        source_sha256=facts.source_sha256,
        weight_bytes=weight_bytes,
        seconds=round(time.monotonic() - began, 3),
        peak_anon_mib=round(meter.peak_kib / 1024, 1),
        bits=facts.bits,
        emergency_skip=facts.emergency_skip,
    )


def _plan(source: TensorSource, choices: Choices, head_slices: int | None) -> Plan:
    try:
        return make_plan(source, head_slices, choices)
    except ValueError as error:
        raise ModelUnsupported(f"{source.path}: {error}") from None


def _check_disk(out_dir: Path, needed: int, free_bytes: Callable[[Path], int]) -> None:
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    there = free_bytes(out_dir.parent)
    if there < needed:
        raise ModelError(
            f"{out_dir.parent}: {needed >> 20} MiB are needed, {there >> 20} MiB are free; make room", code="disk-full"
        )
