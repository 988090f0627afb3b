"""Overlap and drafts with the real engines: whatever the budget and the pauses, the same words and the same samples."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from assistant import config
from assistant.daemon import Assistant
from assistant.messages import Mode, Stage
from assistant.model_store.store import ModelInfo
from assistant.query import LiveEvent, Query
from assistant.stages.spec import StageSpec
from assistant.stages.supervisor import Supervisor
from tests.house import held_mib, run
from tests.live_speech import END, PAUSE, RESUMED, SPEECH, Speaker, Step, sound
from tests.test_pipeline import speech
from tests.test_pipeline_draft import Heard

pytestmark = [pytest.mark.engine, pytest.mark.timeout(90)]


class Still(Assistant):
    """An assistant whose voice says the same samples each time."""

    def _supervisor_of(self, spec: StageSpec) -> Supervisor:
        if spec.stage is Stage.TTS:
            spec = replace(spec, options={**(spec.options or {}), "noise_scale": 0.0, "noise_w_scale": 0.0})
        return super()._supervisor_of(spec)


def ways(pcm: bytes) -> dict[str, list[Step]]:
    pieces = sound(pcm)
    half, rest = pieces[:12], pieces[12:]
    silence: list[Step] = [LiveEvent("sound", pcm=bytes(9600)), 0.7]
    return {
        "at once": [*pieces, SPEECH],
        "after a pause": [*pieces, SPEECH, PAUSE, *silence],
        "in two parts": [*half, SPEECH, PAUSE, 0.8, RESUMED, *rest, PAUSE, *silence],
    }


async def answer(budget_mib: int, steps: list[Step], engine: str) -> tuple[str, str, str, Mode]:
    events: list[tuple[str, dict[str, Any]]] = []
    sets = (f"memory.budget_mib={budget_mib}", "memory.margin_mib=50", *engine.split())
    settings = config.load(sets, files=[], environ={})
    async with asyncio.timeout(40), Still(settings, emit=lambda name, data: events.append((name, data))) as assistant:
        found = await assistant.answer(Query(live=Speaker(*steps, END), sink=(sink := Heard())))
    report = found.report
    assert report.error is None, report.error
    assert [name for name, _ in events].count("run-end") == 1
    assert "".join(data["text"] for name, data in events if name == "reply-delta").strip() == report.reply
    return report.transcript, report.reply, hashlib.sha256(sink.pcm).hexdigest(), report.memory.mode


@pytest.mark.parametrize(
    "engine", ["", "stages.tts.engine=piper-mnn stages.tts.model=en_US-joe-medium-mnn"], ids=["piper", "piper-mnn"]
)
def test_overlap_and_drafts_change_neither_words_nor_samples(model: Callable[[str], ModelInfo], engine: str) -> None:
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium", "en_US-joe-medium-mnn"):
        model(name)
    steps = ways(speech())

    async def test() -> None:
        found = {}
        for room in (0, 500, 360):  # MiB beside this process, which counts as the daemon
            for way in steps if room != 500 else ["in two parts"]:
                *said, mode = await answer(room and room + int(held_mib()), steps[way], engine)
                found[room, way] = tuple(said), mode
        assert len({said for said, _ in found.values()}) == 1, found
        assert {mode for _, mode in found.values()} >= {"resident", "sequential"}, found

    run(test)
