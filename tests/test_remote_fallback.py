"""Queries whose servers fail: they go on with the local stage, under the ledger, and the server is left alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from assistant.conversations import Conversations
from assistant.errors import StageError
from assistant.memory_orchestrator.ledger import LedgerReader
from assistant.memory_orchestrator.probe import MIB
from assistant.messages import LlmRequest, Outcome, Sampling, Stage, Turn
from assistant.pipeline import Pipeline
from assistant.pipeline_llm import LlmSettings
from assistant.pipeline_say import at_rate
from assistant.query import Query
from assistant.stages.registry import REMOTE
from assistant.stages.spec import StageSpec
from assistant.stages.supervisor import Supervisor
from tests.house import NOW, House, run
from tests.housekept import housekept
from tests.live_speech import END, PAUSE, SPEECH, Speaker, sound
from tests.stages.remote_servers import RATE, free_port, openai_server, scripted, sends, silent, wyoming_server
from tests.stages.test_remote_openai import ASKED, HEAD, ask, event
from tests.talkers import STORY
from tests.test_pipeline import speech


class Speech:
    """A sink that takes one rate, as a file does."""

    def __init__(self) -> None:
        self.sample_rate = 0
        self.seconds = 0.0

    def write(self, pcm: bytes, sample_rate: int) -> None:
        assert self.sample_rate in (0, sample_rate)
        self.sample_rate = sample_rate
        self.seconds += len(pcm) / 2 / sample_rate


class RemoteHouse(House):
    """`remote`: stages with the options of their engines on servers; what fails stays away."""

    def __init__(self, tmp_path: Path, remote: dict[Stage, dict[str, Any]], *, fallback: bool = True, **more: Any):
        super().__init__(tmp_path, 5, **more)
        self._fallback = fallback
        self.remote = {stage: self._of(stage, options) for stage, options in remote.items()}
        self.away: list[Stage] = []
        self.failed: dict[Stage, StageError] = {}
        self.pipeline = Pipeline(
            memory=self.memory,
            stages=self.lookup,
            llm=LlmSettings(system_prompt="", sampling=Sampling(), max_new_tokens=50),
            conversations=more.get("conversations"),
            instead=self._instead,
            away=lambda local: None if local.engine in REMOTE else self.failed.get(local.spec.stage),
            emit=self._emit,
            now=lambda: NOW,
        )

    async def lookup(self, stage: Stage) -> Supervisor:
        return self.remote[stage] if self._there(stage) else self._supervisor(stage)

    def _there(self, stage: Stage) -> bool:
        return stage in self.remote and stage not in self.away

    def _of(self, stage: Stage, options: dict[str, Any]) -> Supervisor:
        spec = StageSpec(
            stage=stage, engine="openai" if stage is Stage.LLM else "wyoming", model="server", model_dir=Path(),
            digest="", weight_bytes=0, cache_dir=self.ledger.parent / "cache", threads=1, start_timeout_s=10,
            step_timeout_s=5, options=options,
        )  # fmt: skip
        return Supervisor(spec, self.server, self._calibration, self._emit)

    async def _instead(self, failed: Supervisor, error: StageError) -> Supervisor | None:
        if failed.engine not in REMOTE or not self._fallback:
            return None
        self.away.append(failed.spec.stage)
        self.failed[failed.spec.stage] = error
        return self._supervisor(failed.spec.stage)

    def fallbacks(self) -> list[tuple[str, str]]:
        return [(data["stage"], data["reason"]) for name, data in self.events if name == "stage-fallback"]

    def told_for(self) -> list[str]:
        return [data["for"] for name, data in self.events if name == "stage-fallback"]


@asynccontextmanager
async def remote_house(tmp_path: Path, remote: dict[Stage, dict[str, Any]], **more: Any) -> AsyncIterator[RemoteHouse]:
    one = RemoteHouse(tmp_path, remote, **more)
    one.server.start()
    async with housekept(one.memory, one.housekeeper, one.server):
        yield one


def nowhere() -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{free_port()}/v1", "deadline_s": 2}


# --- the pipeline ---------------------------------------------------------------------------------------------------
def test_servers_that_work_answer_a_spoken_question_and_hold_next_to_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        with wyoming_server() as (uri, heard), openai_server("Paris. It is big.") as (url, asked):
            remote = {Stage.ASR: {"uri": uri}, Stage.LLM: {"url": url}, Stage.TTS: {"uri": uri}}
            async with remote_house(tmp_path, remote) as one:
                sink = Speech()
                report = (await one.pipeline.answer(Query(pcm=speech, sink=sink))).report
                assert (report.outcome, report.error) == (Outcome.ANSWERED, None)
                assert report.transcript.endswith("bytes, é.")
                assert report.reply == "Paris. It is big."
                assert asked.bodies[0]["messages"][-1]["content"] == report.transcript
                assert [part.text for part in heard.synthesize] == ["Paris.", "It is big."]
                assert (sink.sample_rate, round(sink.seconds, 2)) == (RATE, 0.4)
                assert one.fallbacks() == []
                rows = LedgerReader("ledger", tmp_path).read().rows
                remotes = [row for row in rows if row.stage != "intent"]
                assert {row.engine for row in remotes} == {"openai", "wyoming"}
                assert all(0 < row.reserved <= 24 * MIB for row in remotes)
                assert all(row.anon <= row.reserved for row in remotes)

    run(test)


def test_a_query_goes_on_with_the_local_llm_when_nobody_is_there(tmp_path: Path) -> None:
    async def test() -> None:
        async with remote_house(tmp_path, {Stage.LLM: nowhere()}) as one:
            report = (await one.pipeline.answer(Query(text="Why?"))).report
            assert (report.outcome, report.error) == (Outcome.ANSWERED, None)
            assert "Why?" in report.reply
            assert one.fallbacks() == [("llm", "remote-unreachable")]
            assert [(stage.name, stage.engine) for stage in report.stages][-2:] == [("llm", "openai"), ("llm", "mnn")]
            rows = LedgerReader("ledger", tmp_path).read().rows
            assert [row.engine for row in rows if row.stage == "llm"] == ["mnn"]
            again = (await one.pipeline.answer(Query(text="Why?"))).report
            assert [(stage.name, stage.engine) for stage in again.stages][-1] == ("llm", "mnn")
            # whoever asks in the pause is told, too; not for a stage that his question does not need
            assert one.fallbacks() == [("llm", "remote-unreachable")] * 2
            assert one.told_for() == ["query", "pause"]
            assert (await one.pipeline.answer(Query(text="what time is it"))).report.outcome is Outcome.HANDLED
            assert len(one.fallbacks()) == 2

    run(test)


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_server_that_refuses_is_replaced(tmp_path: Path, status: int) -> None:
    async def test() -> None:
        with openai_server(status=status) as (url, _):
            async with remote_house(tmp_path, {Stage.LLM: {"url": url}}) as one:
                report = (await one.pipeline.answer(Query(text="Why?", sink=Speech()))).report
                assert (report.outcome, one.fallbacks()) == (Outcome.ANSWERED, [("llm", "remote-refused")])

    run(test)


def test_what_was_told_is_not_taken_back(tmp_path: Path) -> None:
    async def test() -> None:
        with scripted(sends(HEAD + event("Half an "), ASKED)) as port:
            async with remote_house(tmp_path, {Stage.LLM: {"url": f"http://127.0.0.1:{port}/v1"}}) as one:
                report = (await one.pipeline.answer(Query(text="Why?"))).report
                assert report.error is not None
                assert (report.outcome, report.error.code) == (Outcome.FAILED, "remote-broke-off")
                assert report.reply.strip() == "Half an"
                assert one.away == [Stage.LLM]  # the next query does not go there
                assert one.told_for() == ["next"]

    run(test)


def test_without_a_local_model_the_query_fails_and_says_why(tmp_path: Path) -> None:
    async def test() -> None:
        async with remote_house(tmp_path, {Stage.LLM: nowhere()}, fallback=False) as one:
            report = (await one.pipeline.answer(Query(text="Why?"))).report
            assert report.error is not None
            assert (report.error.code, report.error.retryable) == ("remote-unreachable", True)
            assert (report.error.stage, one.fallbacks()) == ("llm", [])

    run(test)


def test_a_recogniser_that_is_too_late_is_replaced_whether_somebody_speaks_or_has_spoken(tmp_path: Path) -> None:
    async def test() -> None:
        with scripted(silent) as port:
            remote = {Stage.ASR: {"uri": f"tcp://127.0.0.1:{port}", "deadline_s": 0.3}}
            async with remote_house(tmp_path, remote) as one:
                live = Speaker(*sound(speech()), SPEECH, PAUSE, 0.1, END)
                for query in (Query(pcm=speech), Query(live=live)):
                    one.away.clear()
                    async with asyncio.timeout(10):
                        report = (await one.pipeline.answer(query)).report
                    assert (report.outcome, report.transcript) == (Outcome.HANDLED, "what time is it")
                assert one.fallbacks() == [("asr", "remote-late")] * 2

    run(test)


def test_a_voice_that_fails_in_the_middle_is_replaced_and_the_rest_is_said(tmp_path: Path) -> None:
    async def test() -> None:
        with wyoming_server() as (uri, heard):
            heard.bad_word = "Three"
            async with remote_house(tmp_path, {Stage.TTS: {"uri": uri}}, conversations=Conversations()) as one:
                sink = Speech()
                report = (await one.pipeline.answer(Query(text="tell", conversation="c", sink=sink))).report
                assert (report.outcome, report.reply) == (Outcome.ANSWERED, "".join(STORY).strip())
                assert one.fallbacks() == [("tts", "remote-refused")]
                # three words each by the server, then two sentences by the local voice, at the server's rate
                assert sink.sample_rate == RATE
                assert sink.seconds == pytest.approx(0.3 + 0.3 + 0.1 + 0.1, abs=0.01)
                assert (one.names().count("tts-start"), one.names().count("tts-end")) == (1, 1)
                assert one.names().count("llm-end") == 1  # written once

    run(test)


def test_a_voice_that_is_away_is_replaced_where_a_text_is_spoken(tmp_path: Path) -> None:
    async def test() -> None:
        remote = {Stage.TTS: {"uri": f"tcp://127.0.0.1:{free_port()}"}}
        async with remote_house(tmp_path, remote, conversations=Conversations()) as one:
            sink = Speech()
            report = (await one.pipeline.answer(Query(text="Hello. You.", verbatim=True, sink=sink))).report
            assert (report.outcome, sink.sample_rate) == (Outcome.HANDLED, 8000)
            assert sink.seconds == pytest.approx(0.2)

    run(test)


def test_a_cancel_while_a_server_is_waited_for_is_no_failure_of_it(tmp_path: Path) -> None:
    async def test() -> None:
        with scripted(silent) as port:
            remote = {Stage.LLM: {"url": f"http://127.0.0.1:{port}/v1", "deadline_s": 30}}
            async with remote_house(tmp_path, remote) as one:
                task = asyncio.create_task(one.pipeline.answer(Query(text="Why?")))
                async with asyncio.timeout(5):
                    while "stage-load-end" not in one.names() or not one.memory.holdings.entries.get("llm"):
                        await asyncio.sleep(0.02)
                await asyncio.sleep(0.3)
                started = time.monotonic()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert time.monotonic() - started < 0.5
                assert (one.fallbacks(), one.away) == ([], [])

    run(test)


def test_sound_at_another_rate_keeps_its_length_and_its_level() -> None:
    square = (b"\x10\x27" * 50 + b"\xf0\xd8" * 50) * 20
    out = at_rate(square, 8000, 22_050)
    assert len(out) == pytest.approx(len(square) * 22_050 / 8000, abs=2)
    assert max(memoryview(out).cast("h")) == 10_000
    assert at_rate(b"", 8000, 22_050) == b""
    assert at_rate(square, 8000, 8000) is square


def test_a_worker_that_crashes_counts_as_a_server_that_fails(tmp_path: Path) -> None:
    async def test() -> None:
        with scripted(silent) as port:
            remote = {Stage.LLM: {"url": f"http://127.0.0.1:{port}/v1", "deadline_s": 30}}
            async with remote_house(tmp_path, remote) as one:
                task = asyncio.create_task(one.pipeline.answer(Query(text="Why?")))
                async with asyncio.timeout(8):
                    while "intent-end" not in [name for name, _ in one.events] or not one.remote[Stage.LLM].pid:
                        await asyncio.sleep(0.02)
                    await asyncio.sleep(0.4)  # the server has been asked by then
                one.remote[Stage.LLM].kill("it held too much")
                report = (await task).report
                assert report.outcome is Outcome.ANSWERED
                assert one.fallbacks() == [("llm", "stage-over-memory")]

    run(test)


def test_a_request_has_no_field_of_ours() -> None:
    with openai_server() as (url, asked):
        ask(url, LlmRequest(turns=(Turn(role="user", content="x"),), conversation="private", max_new_tokens=5))
    assert set(asked.bodies[0]) == {"messages", "stream", "max_tokens", "temperature"}
