"""The sections of `bench llm`: what they take, how they judge; the cheap ones run for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from assistant.bench import llm, llm_attention, llm_bandwidth, llm_embedding, llm_limits, llm_llama_cpp, llm_variants
from assistant.bench.llama_cpp_python import python_of
from assistant.bench.llm_child import Split, Splits, Splitting, ask, model_of
from assistant.bench.llm_limits import AtLimit, Limits
from assistant.bench.llm_llama_cpp import At, Pair
from assistant.bench.llm_options import Options
from assistant.bench.llm_runs import text_of
from assistant.bench.llm_variants import Variant
from assistant.bench.read_bandwidth import buffer_bytes, last_cache, read_bandwidth
from assistant.errors import UsageError
from assistant.model_store.store import ModelInfo

MIB = 1 << 20
EMBEDDED = "smollm2-135m-instruct"


# --- the command ----------------------------------------------------------------------------------------------------
def test_the_comparison_that_compiles_runs_only_when_asked_for() -> None:
    assert llm.LLAMA_CPP not in llm.parsed_sections(None, compare=False)
    assert llm.parsed_sections(None, compare=True)[-1] == llm.LLAMA_CPP
    assert llm.parsed_sections("embedding, embedding", compare=True) == ["embedding", llm.LLAMA_CPP]


@pytest.mark.parametrize(
    "wrong", [["--sections", "speed"], ["--sections", ""], ["--limits", "900,many"], ["--limits", "0"]]
)
def test_bad_arguments_are_typed_errors(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert llm.main([*wrong, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "bad-arguments"


def test_a_section_that_cannot_be_measured_keeps_the_others_from_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--sections", "embedding,variants", "--model", str(tmp_path), "--json"]
    assert llm.main(arguments) == 1
    found = json.loads(capsys.readouterr().out)
    assert set(found["errors"]) == {"embedding", "variants"}
    assert found["errors"]["variants"]["code"] == "model-missing"
    # the only one's error is the command's
    assert llm.main(["--sections", "embedding", "--model", str(tmp_path)]) == 6


class Found(msgspec.Struct, frozen=True):
    reached: bool


def test_what_stands_below_the_tables() -> None:
    found = llm.LlmBench(
        sections={"embedding": Found(True), "variants": Found(False)},
        errors={"memory-limits": {"message": "only root can"}}, reached=False,
    )  # fmt: skip
    *_, title, verdict = lines = llm.closing(found).splitlines()
    assert lines[:2] == ["=== memory-limits", "not measured: only root can"]
    assert (title, verdict) == ("=== targets", "missed: variants; not measured: memory-limits")
    assert llm.closing(llm.LlmBench(sections={"a": Found(True)}, errors={}, reached=True)).endswith("all reached")


# --- judgements -----------------------------------------------------------------------------------------------------
def variant(name: str, perplexity: float, speed: float) -> Variant:
    return Variant(
        variant=name, model="m", perplexity=perplexity, against_full=1, decode_tps=100, speed=speed, weight_mib=1,
        laid_out_mib=1, layers=30, tokens=600,
    )  # fmt: skip


def test_an_emergency_graph_must_be_faster() -> None:
    full = variant("full", 20, 1)
    assert llm_variants.judged((full, variant("emergency", 45, 1.2), variant("w8", 20, 0.9)))
    assert not llm_variants.judged((full, variant("emergency", 45, 0.99)))
    assert not llm_variants.judged((full, variant("w4", float("nan"), 1)))


def splits(difference: float, same: int, ragged: float = 0.4) -> Splits:
    return Splits(as_we_cut={8: Split(difference=difference, same=same)}, evenly={8: Split(difference=ragged, same=1)})


@pytest.mark.parametrize(
    ("found", "agrees"),
    [(splits(0, 3), True), (splits(0, 2), False), (splits(0.1, 3), False), (splits(0, 3, ragged=8), True)],
)
def test_a_mode_agrees_when_neither_answers_nor_logits_move(found: Splits, agrees: bool) -> None:
    assert llm_attention.judged(8, found, 3).agrees is agrees
    assert llm_attention.judged(8, found, 3).allowed
    assert not llm_attention.judged(10, found, 3).allowed


def at(tokens: int, first: float = 0.5, decode: float = 1.2, load: float = 0.15, anon: float = 0.4) -> At:
    return At(
        prompt_tokens=tokens,
        first_token_ms=Pair(1, 1, first),
        decode_tps=Pair(1, 1, decode),
        load_ms=Pair(1, 1, load),
        anon_mib=Pair(1, 1, anon),
    )


@pytest.mark.parametrize(
    ("last", "missed"),
    [
        (at(512), ()),
        (at(512, first=0.56), ("first token at 512",)),
        (at(512, anon=0.51), ("anonymous memory",)),
        (at(512, load=0.5), ()),  # the median counts
    ],
)
def test_each_ratio_with_llama_cpp_has_its_target(last: At, missed: tuple[str, ...]) -> None:
    found = llm_llama_cpp.judged("m", 1.15, (at(33), at(128), last))
    assert found.missed == missed


def test_decode_is_judged_by_what_the_model_is() -> None:
    rows = tuple(at(tokens, decode=1.1) for tokens in llm_llama_cpp.PROMPTS)
    assert llm_llama_cpp.judged("m", llm_llama_cpp.DECODE, rows).missed == ()
    assert llm_llama_cpp.judged("m", llm_llama_cpp.DECODE_W4, rows).missed == ("decode",)


def test_the_distance_to_the_limit() -> None:
    found = llm_bandwidth.distance("m", 2, 100 * MIB, 110 * MIB, 60, 10_000 * MIB, 260 * MIB)
    assert (found.limit_tps, found.share, found.fits_cache) == (100, 0.6, True)
    assert llm_bandwidth.distance("m", 2, 0, 0, 60, 1e10, 0).share == 0  # nothing was seen


def limit(mib: int, tps: float = 5, kills: int = 0, ledger: str = "answered") -> AtLimit:
    return AtLimit(
        limit_mib=mib, answered=tps > 0, decode_tps=tps, first_token_ms=1, faults_per_token=0, read_mib_per_token=0,
        cached_mib=0, oom_kills=kills, error="", ledger=ledger, ledger_exit_code=0, ledger_message="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "below", "reached"),
    [
        ([limit(900), limit(500, ledger=llm_limits.REFUSED)], limit(160, 1, 0, llm_limits.REFUSED), True),
        ([limit(900), limit(500, 0)], limit(160, 0, 0, llm_limits.REFUSED), False),
        ([limit(900), limit(500, 5, 1)], limit(160, 0, 0, llm_limits.REFUSED), False),
        ([limit(900)], limit(160, 0, 0, "answered"), False),
        ([limit(900)], limit(160, 0, 0, "not-running"), False),
    ],
)
def test_limits_are_kept_when_all_answer_and_the_ledger_refuses(
    rows: list[AtLimit], below: AtLimit, reached: bool
) -> None:
    assert llm_limits.judged(rows, below) is reached


def test_the_plot_of_speed_over_the_limit_needs_nothing_but_itself() -> None:
    rows = (limit(2048, 15), limit(900, 6), limit(500, 1.5, ledger=llm_limits.REFUSED))
    found = Limits(
        model="m", weights_mib=1100, at=rows, below=limit(160, 0, 0, llm_limits.REFUSED), least_admitted_mib=900,
        reached=True,
    )  # fmt: skip
    root = ElementTree.fromstring(llm_limits.plot(found))
    text = " ".join(node.text or "" for node in root.iter())
    assert not [node for node in root.iter() if node.tag.endswith("script")]
    assert all(word in text for word in ("tokens per second", "the ledger lets it in", "size of the mapped weights"))
    table = llm_limits.table(found)
    assert [line.split()[0] for line in table.splitlines()[2:6]] == ["2048", "900", "500", "160"]


# --- llama.cpp's Python ---------------------------------------------------------------------------------------------
def test_a_python_without_the_package_is_refused(tmp_path: Path) -> None:
    for python in (Path(sys.executable), tmp_path / "none"):
        with pytest.raises(UsageError, match="no llama-cpp-python"):
            python_of(python)


def test_an_environment_that_is_there_is_used_as_it_is(tmp_path: Path) -> None:
    from assistant.bench.llama_cpp_python import VERSION

    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\necho {VERSION}\n")
    python.chmod(0o755)
    found = python_of(None, tmp_path)
    assert (found.path, found.version) == (python, VERSION)


# --- bandwidth ------------------------------------------------------------------------------------------------------
def test_the_buffer_is_larger_than_the_caches_and_leaves_memory() -> None:
    assert buffer_bytes(cache=2 * MIB, available=4096 * MIB) == 128 * MIB
    assert buffer_bytes(cache=64 * MIB, available=4096 * MIB) == 256 * MIB
    assert buffer_bytes(cache=64 * MIB, available=800 * MIB) == 200 * MIB


def test_the_last_cache_is_the_largest(tmp_path: Path) -> None:
    for name, size in (("index0", "32K"), ("index3", "8M"), ("index4", "what")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "size").write_text(size + "\n")
    assert last_cache(tmp_path) == 8 * MIB
    assert last_cache(tmp_path / "none") == 0


@pytest.mark.alone("bandwidth of the memory")
@pytest.mark.slow
def test_this_machine_reads_some_gigabytes_in_a_second() -> None:
    bandwidth, size = read_bandwidth(1, times=1)
    assert 2e8 < bandwidth < 2e12
    assert size >= 64 * MIB


# --- the real thing -------------------------------------------------------------------------------------------------
@pytest.fixture
def cheap(model: Callable[[str], ModelInfo]) -> Options:
    model(EMBEDDED)
    return Options(rounds=1, shape="")


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_word_table_is_found_and_costs_what_it_weighs(cheap: Options) -> None:
    found = llm_embedding.measure(cheap)
    assert (found.rows, found.prompt_tokens) == (49_152, 40)
    assert found.table_mib == pytest.approx(49_152 * 576 * 34 / 32 / MIB, rel=0.01)  # 8 bits, and 16 for each 32
    assert 20 < found.without_mib - found.with_mib < 35
    assert found.row_cold_us > found.row_warm_us > 0
    assert str(found.rows) in llm_embedding.table(found)


@pytest.mark.alone("bandwidth of the memory")
@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_bytes_that_a_token_touches_are_those_of_the_weights(cheap: Options) -> None:
    found = llm_bandwidth.measure(cheap)
    (one,) = found.models
    assert 100 < one.touched_mib <= one.mapped_mib < 200
    assert 0 < one.share < 5
    assert f"{one.touched_mib:.1f}" in llm_bandwidth.table(found)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_variants_have_their_price(cheap: Options, capsys: pytest.CaptureFixture[str]) -> None:
    assert llm.main(["--sections", "variants", "--rounds", "1", "--json"]) in (0, 1)  # a busy machine may be slow
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["sections"]["variants"]
    by_name = {one["variant"]: one for one in found["variants"]}
    assert 10 < by_name["full"]["perplexity"] < 30
    assert set(by_name) | set(found["missing"]) == {"full", "emergency", "w4", "w8"}
    if "emergency" in by_name:
        assert by_name["emergency"]["layers"] < by_name["full"]["layers"]
        assert 1 < by_name["emergency"]["against_full"] < 10
    if "w4" in by_name:
        assert by_name["w4"]["laid_out_mib"] < by_name["full"]["laid_out_mib"]
        assert 0.9 < by_name["w4"]["against_full"] < 1.5


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_interrupt_loses_no_table_that_was_measured(cheap: Options) -> None:
    command = [
        sys.executable,
        "-m",
        "assistant",
        "bench",
        "llm",
        "--sections",
        "embedding,attention,bandwidth",
        "--rounds",
        "1",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as bench:
        assert bench.stdout is not None
        assert bench.stdout.readline() == "=== embedding\n"  # at once, not with all the rest
        bench.send_signal(signal.SIGINT)
        rest = bench.stdout.read()
    assert bench.returncode == 130
    assert "49152" in rest
    assert "bandwidth" not in rest  # one that comes while something is imported may cost a section more, and no two


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("mode", "agrees"), [(8, True), (10, False)])
def test_only_modes_that_are_refused_change_the_answer(cheap: Options, mode: int, agrees: bool) -> None:
    model = model_of(cheap.small().spec(context_tokens=256, prefill_chunk=64))
    order = Splitting(model=model, attention_mode=mode, prompts=[text_of(300)], pieces=[16], steps=4)
    found = llm_attention.judged(mode, ask(order, Splits), 1)
    assert found.agrees is found.allowed is agrees
    assert (found.splits.as_we_cut[16].difference == 0) is agrees


@pytest.mark.alone("memory at its limit")
@pytest.mark.root
@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_small_model_in_real_cgroups(cheap: Options, tmp_path: Path) -> None:
    options = msgspec.structs.replace(cheap, limits_mib=(700,), below_mib=96, plot=tmp_path / "plot.svg")
    try:
        found = llm_limits.measure(options)
    except UsageError as error:
        pytest.skip(f"no memory cgroup: {error.message}")
    assert found.reached, llm_limits.table(found)
    assert (found.at[0].ledger, found.at[0].oom_kills, found.least_admitted_mib) == ("answered", 0, 700)
    assert found.below.ledger == llm_limits.REFUSED
    assert found.below.ledger_exit_code == 5
    assert (tmp_path / "plot.svg").stat().st_size > 1000
    assert not list(Path("/sys/fs/cgroup").glob(f"*/assistant-bench-{os.getpid()}"))


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(60)
def test_llama_cpp_answers_where_it_was_compiled() -> None:
    from assistant import paths
    from assistant.bench.embedded import embedded_gguf
    from assistant.bench.llama_cpp_python import VERSION

    python = paths.cache_dir() / f"bench-llama-cpp-{VERSION}/bin/python"
    if not python.is_file():
        pytest.skip("'assistant bench llm --compare-llama-cpp' was not run here: it compiles for ten minutes")
    found, anon = llm_llama_cpp._Other(python, embedded_gguf(), 1).once(33, watched=True)
    assert (found.prompt_tokens, found.new_tokens) == (33, 32)
    assert 20 * MIB < anon < 400 * MIB
