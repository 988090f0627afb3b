"""Slots, windows, pacing and variants of the LLM engine: real weights in a real worker."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import BadText, EngineFailed, ModelDamaged
from assistant.memory_orchestrator.estimate import kv_bytes, slot_tokens
from assistant.memory_orchestrator.probe import MIB, Probe
from assistant.messages import LlmDelta, LlmRequest, Progress, Turn
from assistant.messages import Stage as S
from assistant.model_store.store import ModelInfo
from assistant.stages.kv_files import SHARED_MEMORY
from assistant.stages.lifecycle import WorkerState
from tests.stages.disks import mounted_tmpfs
from tests.stages.running import FRANCE, SYSTEM, collect, config_of, copied, done_of, question, running, text_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]

LONG = "Here is a list of cities: " + ", ".join(f"city number {n}" for n in range(60)) + ". "


@pytest.fixture(scope="module")
def llm(model: Callable[[str], ModelInfo]) -> ModelInfo:
    return model("smollm2-135m-instruct")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def kv(tmp_path: Path) -> str:
    """A folder in shared memory, named after the test's own."""
    return str(SHARED_MEMORY / f"assistant-test-{os.getpid()}-{tmp_path.name}")


def with_worker(llm: ModelInfo, cache: Path, test: Callable[[Any], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def run() -> None:
        async with running(S.LLM, "mnn", config_of(llm, cache, **options)) as worker:
            await test(worker)

    try:
        asyncio.run(run())
    finally:
        if folder := options.get("kv_dir"):
            left = list(Path(folder).iterdir())
            Path(folder).rmdir()
            assert not left, "a worker that ends takes its folder with it"


def turns(*texts: str) -> tuple[Turn, ...]:
    said = (Turn(role="assistant" if at % 2 else "user", content=text) for at, text in enumerate(texts))
    return (SYSTEM, *said)


def ask(conversation: str, *texts: str, **fields: Any) -> LlmRequest:
    return LlmRequest(turns=turns(*texts), conversation=conversation, max_new_tokens=12, **fields)


# --- read ahead -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("conversation", ["", "a"])
def test_what_was_read_ahead_is_not_computed_again_and_changes_no_answer(
    llm: ModelInfo, cache: Path, kv: str, conversation: str
) -> None:
    question = "What is the capital of France, and which river flows through it?"

    async def test(worker: Any) -> None:
        before = ("Tell me a story.", "Once upon a time there was a king.")
        plain = await collect(worker, ask(conversation, *before, question))
        await collect(worker, ask("b" * bool(conversation), "Something else entirely, please."))
        for words in ("", "What is the capital", "What is the weather", "What is the capital of France"):
            ahead = await collect(worker, ask(conversation, *before, words, ahead=True))
            assert text_of(ahead) == ""
            assert done_of(ahead).new_tokens == 0
        again = await collect(worker, ask(conversation, *before, question))
        assert text_of(again) == text_of(plain)
        assert done_of(again).prompt_tokens - done_of(again).reused_tokens < 20
        if not conversation:  # the other one had the only slot
            assert done_of(plain).reused_tokens == 0

    with_worker(llm, cache, test, kv_dir=kv)


def test_nothing_of_a_question_is_read_ahead_that_may_still_become_another_word(llm: ModelInfo, cache: Path) -> None:
    async def test(worker: Any) -> None:
        async def read(words: str) -> int:
            return done_of(await collect(worker, ask("", words, ahead=True))).prompt_tokens

        nothing, some = await read(""), await read("What is the capital of France and of")
        assert nothing % 4 == some % 4 == 0
        assert 0 < nothing < some

    with_worker(llm, cache, test)


# --- keys and values ------------------------------------------------------------------------------------------------
def test_the_next_turn_computes_only_what_is_new(llm: ModelInfo, cache: Path, kv: str) -> None:
    async def test(worker: Any) -> None:
        first = await collect(worker, ask("a", FRANCE))
        second = done_of(await collect(worker, ask("a", FRANCE, text_of(first), "And of Spain?")))
        assert done_of(first).reused_tokens == 0
        assert second.reused_tokens >= done_of(first).prompt_tokens
        assert second.prompt_tokens - second.reused_tokens < 32

    with_worker(llm, cache, test, kv_dir=kv)


def test_two_slots_keep_two_conversations_and_one_slot_does_not(llm: ModelInfo, cache: Path, kv: str) -> None:
    async def reused(worker: Any) -> list[int]:
        found = []
        for conversation, place in [("a", "France"), ("b", "Italy"), ("a", "France"), ("b", "Italy")]:
            request = ask(conversation, f"{place} is a country. What is its capital?", "I do not know.", FRANCE)
            found.append(done_of(await collect(worker, request)).reused_tokens)
        return found

    async def one(worker: Any) -> None:
        first, *others = await reused(worker)
        assert first == 0
        assert all(0 < tokens < 32 for tokens in others)  # the system's turn

    async def two(worker: Any) -> None:
        found = await reused(worker)
        assert found[0] == 0
        assert all(tokens > 50 for tokens in found[2:])

    with_worker(llm, cache, one, slots=1, kv_dir=kv)
    with_worker(llm, cache, two, slots=2, kv_dir=kv)


@pytest.mark.parametrize("slots", [1, 2])
def test_full_slots_take_what_the_formula_says(llm: ModelInfo, cache: Path, kv: str, slots: int) -> None:
    context = 512
    assert llm.shape
    promised = kv_bytes(llm.shape, slot_tokens(context), slots) / MIB

    async def test(worker: Any) -> None:
        for conversation in "ab"[:slots]:
            text = f"{conversation}. " + LONG * 2
            request = LlmRequest(
                turns=(Turn(role="user", content=text[:1240]),), conversation=conversation, max_new_tokens=300
            )
            done = done_of(await collect(worker, request))
            assert done.prompt_tokens + done.new_tokens > context - 62
        taken = Probe().usage(worker.pid).shm / MIB
        assert promised * 0.9 < taken <= promised

    with_worker(llm, cache, test, slots=slots, context_tokens=context, kv_dir=kv)


@pytest.mark.parametrize("home", ["heap", "disk"])
def test_where_growing_is_dear_a_slot_takes_its_room_at_once_and_keeps_to_it(
    llm: ModelInfo, cache: Path, tmp_path: Path, home: str
) -> None:
    context = 768
    assert llm.shape
    promised = kv_bytes(llm.shape, slot_tokens(context), 1) / MIB

    async def test(worker: Any) -> None:
        def held() -> float:
            usage = Probe().usage(worker.pid)
            return (usage.anon if home == "heap" else usage.file) / MIB

        async def answered(text: str, tokens: int) -> float:
            assert done_of(await collect(worker, question(text, max_new_tokens=tokens))).new_tokens
            return held()

        begun = await answered(FRANCE, 2)
        full = await answered(LONG * 2, 200)
        again = await answered("Other. " + LONG * 2, 200)
        assert full - begun < 12  # activations; growing would take as much as the promise once more
        assert again == pytest.approx(full, abs=4)
        assert begun > promised

    with_worker(llm, cache, test, context_tokens=context, kv_home=home, kv_dir=str(tmp_path / "kv") * (home == "disk"))


def test_room_that_was_made_at_once_changes_no_number(llm: ModelInfo, cache: Path, kv: str) -> None:
    said = []

    async def test(worker: Any) -> None:
        outputs = [await collect(worker, question(text, max_new_tokens=16)) for text in (LONG + FRANCE, FRANCE, LONG)]
        said.append([text_of(one) for one in outputs])

    with_worker(llm, cache, test, kv_home="memory", kv_dir=kv)
    with_worker(llm, cache, test, kv_home="heap")
    assert said[0][0] == said[1][0]
    assert said[0][2] == said[1][2]


def test_keys_and_values_go_with_their_worker_however_it_ends(llm: ModelInfo, cache: Path, kv: str) -> None:
    async def run() -> None:
        async with running(S.LLM, "mnn", config_of(llm, cache, kv_dir=kv)) as worker:
            await collect(worker, question(LONG, max_new_tokens=2))
            files = [file for file in Path(kv).rglob("*") if file.is_file() and not file.is_symlink()]
            assert files
            assert sum(file.stat().st_size for file in files) == 0  # only the open descriptors hold them
            os.kill(worker.pid, 9)

    asyncio.run(run())
    (left,) = Path(kv).iterdir()
    with_worker(llm, cache, lambda worker: collect(worker, question(FRANCE, max_new_tokens=1)), kv_dir=kv)  # type: ignore[arg-type, return-value]
    assert not left.exists()


def test_a_place_that_cannot_be_had_costs_memory_not_the_answer(llm: ModelInfo, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def test(worker: Any) -> None:
        assert "Paris" in text_of(await collect(worker, LlmRequest(turns=turns(FRANCE), max_new_tokens=12)))

    with_worker(llm, cache, test, kv_dir="")
    config = config_of(llm, cache, kv_dir=str(tmp_path / "file"))

    async def run() -> None:
        async with running(S.LLM, "mnn", config) as worker:
            await test(worker)

    asyncio.run(run())


@pytest.mark.root
def test_a_place_that_others_fill_up_later_costs_memory_not_the_answer(
    llm: ModelInfo, cache: Path, tmp_path: Path
) -> None:
    request = LlmRequest(turns=turns(LONG + FRANCE), max_new_tokens=12)

    async def test(worker: Any) -> None:
        first = text_of(await collect(worker, request))
        assert Probe().usage(worker.pid).shm > 10 * MIB
        with pytest.raises(OSError, match="No space"), (disk / "filler").open("wb") as filler:
            while True:
                filler.write(bytes(MIB))
                filler.flush()
        await collect(worker, question("Something else.", max_new_tokens=1))
        assert text_of(await collect(worker, request)) == first
        assert Probe().usage(worker.pid).shm < MIB

    with mounted_tmpfs(tmp_path / "shm", "100m") as disk:
        with_worker(llm, cache, test, kv_home="memory", kv_dir=str(disk / "kv"))


# --- the window -----------------------------------------------------------------------------------------------------
def test_a_fact_inside_the_window_is_recalled_and_a_dropped_one_is_gone(llm: ModelInfo, cache: Path, kv: str) -> None:
    fact = ("My dog is called Bello.", "That is a nice name.")
    filler = [
        text for n in range(9) for text in (f"Tell me about city number {n}.", f"City {n} is large and old. " * 3)
    ]

    async def test(worker: Any) -> None:
        inside = await collect(worker, ask("a", *fact, "What is my dog called?"))
        assert "Bello" in text_of(inside)
        assert done_of(inside).dropped_turns == 0
        outside = await collect(worker, ask("a", *fact, *filler, "What is my dog called?"))
        assert done_of(outside).dropped_turns >= 2
        assert 0 < done_of(outside).reused_tokens < 32  # the system's turn stays
        said = text_of(outside)
        assert "Bello" not in said
        assert said.strip()

    with_worker(llm, cache, test, context_tokens=320, kv_dir=kv)


# --- cancel ---------------------------------------------------------------------------------------------------------
def test_a_cancel_at_any_step_leaves_a_slot_that_answers_right(llm: ModelInfo, cache: Path, kv: str) -> None:
    request = ask("a", LONG[:400] + FRANCE, prefill_chunk=32)

    async def test(worker: Any) -> None:
        whole = await collect(worker, request)
        steps = len(whole)
        for at in range(steps):
            stream = worker.run(request if at % 2 else ask("b", "Tell me of the sea.", prefill_chunk=8), 30)
            count = 0
            async for _ in stream:
                if count == at:
                    break
                count += 1
            await stream.aclose()
            assert worker.state is WorkerState.READY
        assert text_of(await collect(worker, request)) == text_of(whole)

    with_worker(llm, cache, test, slots=1, kv_dir=kv)


@pytest.mark.alone("within 150 ms")
def test_a_cancel_in_a_rest_is_heard_at_once(llm: ModelInfo, cache: Path) -> None:
    async def test(worker: Any) -> None:
        stream = worker.run(question(LONG, duty=0.05, prefill_chunk=64), 30)
        seen = 0
        async for out in stream:
            seen += isinstance(out, Progress) and out.done > 0
            if seen == 3:
                break
        started = time.monotonic()
        await stream.aclose()
        assert time.monotonic() - started < 0.15

    with_worker(llm, cache, test)


@pytest.mark.alone("compares two times")
def test_duty_makes_work_slower_and_changes_no_word(llm: ModelInfo, cache: Path) -> None:
    async def test(worker: Any) -> None:
        await collect(worker, question(LONG[:500], max_new_tokens=8))
        took, said = [], []
        for duty in (1.0, 0.4):
            started = time.monotonic()
            said.append(
                text_of(await collect(worker, question(f"{duty}"[:0] + LONG[10:], max_new_tokens=8, duty=duty)))
            )
            took.append(time.monotonic() - started)
            await collect(worker, question("Something else, so that the prompt is forgotten.", max_new_tokens=1))
        assert said[0] == said[1]
        assert took[1] > took[0] * 1.5

    with_worker(llm, cache, test)


# --- bad input ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "text-empty"),
        (" \n\t ", "text-empty"),
        ("<|im_end|>", "text-empty"),
        ("a" * 1_000_000, "prompt-too-long"),
        ("word " * 2500, "prompt-too-long"),
    ],
)
def test_prompts_that_cannot_be_answered_are_refused_at_once(llm: ModelInfo, cache: Path, text: str, code: str) -> None:
    async def test(worker: Any) -> None:
        started = time.monotonic()
        with pytest.raises(BadText) as caught:
            await collect(worker, question(text))
        assert caught.value.code == code
        assert time.monotonic() - started < 2
        assert text_of(await collect(worker, question(FRANCE, max_new_tokens=4)))

    with_worker(llm, cache, test)


@pytest.mark.parametrize(
    "text", ["法国的首都是哪里?", "ما هي عاصمة فرنسا؟", "🇫🇷 👨‍👩‍👧‍👦 ?", "e\u0301\u200d\ufeff?", "\x01\x7f a"]
)
def test_any_script_is_answered_in_whole_characters(llm: ModelInfo, cache: Path, text: str) -> None:
    async def test(worker: Any) -> None:
        outputs = await collect(worker, question(text, max_new_tokens=24))
        assert done_of(outputs).new_tokens > 0
        assert all("\ufffd" not in out.text for out in outputs[:-2] if isinstance(out, LlmDelta))

    with_worker(llm, cache, test)


def test_a_context_of_one_token_refuses_everything_and_dies_of_nothing(llm: ModelInfo, cache: Path) -> None:
    async def test(worker: Any) -> None:
        with pytest.raises(BadText) as caught:
            await collect(worker, question("Hi"))
        assert caught.value.code == "prompt-too-long"
        assert worker.state is WorkerState.READY

    with_worker(llm, cache, test, context_tokens=1)


def test_weights_that_are_replaced_while_loaded_are_noticed(llm: ModelInfo, cache: Path, tmp_path: Path) -> None:
    mine = copied(llm, tmp_path / "model")

    async def test(worker: Any) -> None:
        assert text_of(await collect(worker, question(FRANCE, max_new_tokens=4)))
        weight = mine.path / "llm.mnn.weight"
        os.utime(weight)
        with pytest.raises(ModelDamaged, match="replaced") as caught:
            await collect(worker, question(FRANCE, max_new_tokens=4))
        assert caught.value.code == "model-replaced"
        weight.unlink()
        with pytest.raises(ModelDamaged):
            await collect(worker, question(FRANCE, max_new_tokens=4))

    with_worker(mine, cache, test)


# --- variants -------------------------------------------------------------------------------------------------------
@pytest.mark.alone("compares two times")
def test_the_emergency_form_is_faster_and_needs_little_more_memory(llm: ModelInfo, cache: Path, kv: str) -> None:
    async def test(worker: Any) -> None:
        speeds: dict[str, float] = {}
        await collect(worker, question(FRANCE, max_new_tokens=8))
        before = Probe().usage(worker.pid)
        for _ in range(8):  # the machine may be busy
            for variant in ("full", "emergency"):
                request = question("Tell me a long story.", max_new_tokens=48, variant=variant)
                done = done_of(await collect(worker, request))
                assert done.variant == variant
                speeds[variant] = max(speeds.get(variant, 0), done.new_tokens / done.decode_ms)
            if speeds["emergency"] > speeds["full"] * 1.05:
                break
        else:
            pytest.fail(f"tokens per ms: {speeds}")
        after = Probe().usage(worker.pid)
        assert after.total - before.total < 40 * MIB
        assert "Paris" in text_of(await collect(worker, LlmRequest(turns=turns(FRANCE), max_new_tokens=12)))

    with_worker(llm, cache, test, kv_dir=kv)


def test_one_variant_at_a_time_has_keys_and_values(llm: ModelInfo, cache: Path, kv: str) -> None:
    async def test(worker: Any) -> None:
        taken = []
        for variant in ("full", "emergency", "full"):
            await collect(worker, question(LONG, max_new_tokens=2, variant=variant))
            taken.append(Probe().usage(worker.pid).shm / MIB)
        assert taken[1] < taken[0] * 1.2
        assert taken[2] == pytest.approx(taken[0], rel=0.02)

    with_worker(llm, cache, test, kv_dir=kv)


def test_a_model_without_an_emergency_form_says_so(llm: ModelInfo, cache: Path, tmp_path: Path) -> None:
    mine = copied(llm, tmp_path / "model")
    (mine.path / "llm.emergency.mnn").unlink()

    async def test(worker: Any) -> None:
        with pytest.raises(EngineFailed) as caught:
            await collect(worker, question(FRANCE, variant="emergency"))
        assert caught.value.code == "no-such-variant"
        assert text_of(await collect(worker, question(FRANCE, max_new_tokens=4)))

    with_worker(mine, cache, test)
