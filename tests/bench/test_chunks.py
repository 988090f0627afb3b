"""The sweep over prompt chunks: what it takes, how it judges, and a short run of the real thing."""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from assistant.bench import chunks
from assistant.bench.chunks import Row, judged, parsed_chunks, table
from assistant.bench.llm_model import BIG_SHAPE, choose, whole_pieces
from assistant.bench.llm_runs import asking, fitted, mapped, once, text_of
from assistant.errors import ModelMissing, UsageError
from assistant.model_store.store import ModelInfo
from assistant.stages.fork_client import ForkServer

BIG = f"synth-{BIG_SHAPE}"
FIXED_KEYS = ("chunk", "peak_anon_mib", "peak_file_mib", "kv_mib", "first_token_ms", "decode_tps")


def row(chunk: int | None, anon: float = 100, tps: float = 20, against: float | None = 1.0, tokens: int = 512) -> Row:
    return Row(
        chunk=chunk, peak_anon_mib=anon, peak_file_mib=1000, kv_mib=200, first_token_ms=9000, decode_tps=tps,
        kv_measured_mib=190, kv_home="disk", prompt_tokens=tokens, new_tokens=32, load_ms=50, against_no_chunks=against,
        published=chunks.PUBLISHED.get(chunk),
    )  # fmt: skip


# --- what it takes --------------------------------------------------------------------------------------------------
def test_chunks_are_none_or_multiples_of_eight() -> None:
    assert parsed_chunks("none,128, 16,16") == [None, 128, 16]


@pytest.mark.parametrize("wrong", ["", "12", "0", "-8", "all", "8,,16", "٨"])
def test_other_chunks_are_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert chunks.main([f"--chunks={wrong}", "--json"]) == 2
    assert "multiples of 8" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_model_and_a_shape_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="not both"):
        choose(model="embedded", shape="smollm2-135m")


def test_an_unknown_shape_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"qwen1\.5-1\.8b"):
        choose(shape="huge")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="no converted language model"):
        choose(model=str(tmp_path))


@pytest.mark.parametrize(("tokens", "wanted"), [(1, 64), (64, 64), (65, 128), (512, 512)])
def test_room_comes_in_pieces(tokens: int, wanted: int) -> None:
    assert whole_pieces(tokens) == wanted


def test_the_text_goes_on_for_as_long_as_is_wanted() -> None:
    once_over = text_of(100)
    assert once_over.startswith("The history of bread")
    assert len(text_of(10_000)) == 10_000
    assert text_of(10_000).count(once_over) > 1


# --- how it judges --------------------------------------------------------------------------------------------------
def test_all_targets_reached() -> None:
    found = judged(BIG, 2, 2, (row(None), row(128), row(16, against=1.09)))
    assert found.reached
    assert (found.targets.anon_reached, found.targets.decode_reached, found.targets.prefill_reached) == (True,) * 3
    assert found.targets.decode_tps == pytest.approx(12.4)


@pytest.mark.parametrize(
    ("bad", "missed"),
    [
        (row(16, anon=150.1), "anon_reached"),
        (row(16, tps=12.3), "decode_reached"),
        (row(16, against=1.11), "prefill_reached"),
    ],
)
def test_one_bad_row_misses_one_target(bad: Row, missed: str) -> None:
    found = judged(BIG, 2, 2, (row(None), bad))
    targets = msgspec.structs.asdict(found.targets)
    assert not found.reached
    assert [name for name in targets if name.endswith("_reached") and not targets[name]] == [missed]
    assert table(found).count("MISSED") == 1


def test_without_a_row_to_compare_with_nothing_is_said_of_prefill() -> None:
    found = judged(BIG, 2, 1, (row(128, against=None),))
    assert found.targets.prefill_reached is None
    assert found.reached
    assert "not measured" in table(found)


def test_the_table_has_the_published_figures_and_their_ratios() -> None:
    lines = table(judged(BIG, 2, 1, (row(None), row(64, anon=100, tps=28)))).splitlines()
    words = next(line for line in lines if line.split()[:1] == ["64"]).split()
    assert words[-5:] == ["420", "350", "2.8", "0.25", "10.00"]


@pytest.mark.parametrize(("model", "tokens"), [("smollm2-135m-instruct", 512), (BIG, 64)])
def test_another_model_or_prompt_is_compared_with_nothing_published(model: str, tokens: int) -> None:
    rows = (row(None, anon=900, tps=1, tokens=tokens), row(16, anon=900, tps=1, tokens=tokens))
    found = judged(model, 2, 1, tuple(msgspec.structs.replace(one, published=None) for one in rows))
    assert (found.targets.anon_reached, found.targets.decode_reached) == (None, None)
    assert found.reached
    text = table(found)
    assert not any(word in text for word in ("published", "ratios", "MISSED", "not measured", "anonymous"))
    assert [line.split()[0] for line in text.splitlines()[1:4]] == ["chunk", "none", "16"]
    assert not judged(model, 2, 1, (rows[0], row(16, against=1.2, tokens=tokens))).reached


def test_a_size_that_nobody_published_is_judged_all_the_same() -> None:
    found = judged(BIG, 2, 1, (row(None), row(256, anon=151)))
    assert found.targets.anon_reached is False
    assert next(line for line in table(found).splitlines() if line.split()[:1] == ["256"]).split()[-5:] == ["-"] * 5


# --- the kernel's word on mappings ----------------------------------------------------------------------------------
def test_mappings_are_summed_by_name(tmp_path: Path) -> None:
    maps = []
    for name in ("a.k", "b.v", "c.other"):
        (tmp_path / name).write_bytes(bytes(8192))
        with (tmp_path / name).open("r+b") as file:
            maps.append(mmap.mmap(file.fileno(), 0))
    held = [one[0] + one[4096] for one in maps]
    found = mapped(os.getpid(), re.compile(r"\.[kv]$"))
    assert held == [0, 0, 0]
    assert found["Rss"] == 16384
    assert mapped(0, re.compile(""))["Rss"] == 0
    for one in maps:
        one.close()


# --- the real thing -------------------------------------------------------------------------------------------------
@pytest.mark.alone("of pages that others map too, a part is counted")
@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_short_sweep_of_the_embedded_model(
    model: Callable[[str], ModelInfo], capsys: pytest.CaptureFixture[str]
) -> None:
    model("smollm2-135m-instruct")
    arguments = ["--model", "embedded", "--prompt-tokens", "64", "--chunks", "none,16", "--rounds", "1", "--json"]
    status = chunks.main(arguments)
    found = json.loads(capsys.readouterr().out)
    assert status == (0 if found["reached"] else 1)
    assert [one["chunk"] for one in found["rows"]] == [None, 16]
    for one in found["rows"]:
        assert all(key in one for key in FIXED_KEYS)
        assert one["prompt_tokens"] == 64
        assert 15 < one["peak_anon_mib"] < 150
        assert 30 < one["peak_file_mib"] < 300  # 130 of laid-out weights, unless others have mapped them, too
        assert 0 < one["kv_measured_mib"] <= one["kv_mib"]
        assert one["first_token_ms"] > 0
        assert one["decode_tps"] > 0
    assert found["targets"]["anon_reached"] is None  # nothing was published of this one
    assert found["rows"][0]["against_no_chunks"] == 1.0


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_a_prompt_has_exactly_the_tokens_that_are_wanted(model: Callable[[str], ModelInfo]) -> None:
    model("smollm2-135m-instruct")
    spec = choose(model="embedded").spec(context_tokens=128, prefill_chunk=64)

    async def run() -> None:
        server = ForkServer()
        server.start()
        try:
            for tokens in (40, 77):
                prompt = await fitted(spec, server, tokens)
                answered = await once(spec, server, asking(prompt, 2))
                assert answered.prompt_tokens == tokens
                assert answered.peak.total == 0  # nobody looked
            with pytest.raises(UsageError, match="shortest prompt"):
                await fitted(spec, server, 5)
        finally:
            await server.close()

    asyncio.run(run())
