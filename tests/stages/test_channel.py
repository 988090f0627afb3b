"""Frames between daemon and worker: every message round-trips, in any slicing; garbage is a typed error."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant import messages
from assistant.errors import StageError
from assistant.messages import AsrRequest, IntentMatch, LlmDelta, LlmRequest, Transcript, TtsAudio, Turn
from assistant.stages import channel
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.channel import MAX_FRAME, Splitter, decode_from_worker, decode_to_worker, encode

CONFIG = EngineConfig(model="m", model_dir=Path("/m"), cache_dir=Path("/c"), threads=2, options={"a": 1, "b": [1]})
TO_WORKER: list[channel.ToWorker] = [
    channel.Prepare(stage="asr", engine="a:B"),
    channel.Load(config=CONFIG),
    channel.Run(id=1, request=AsrRequest(pcm=bytes(range(256)))),
    channel.Run(id=2, request=LlmRequest(turns=(Turn(role="user", content="héllo 🌍"),))),
    channel.Run(id=3, request=messages.IntentRequest(text="x")),
    channel.Run(id=4, request=messages.TtsRequest(text="x")),
    channel.More(id=4, pcm=b"\0\1", last=True),
    channel.Cancel(id=1),
    channel.Stop(),
]
FROM_WORKER: list[channel.FromWorker] = [
    channel.Prepared(import_ms=1.5),
    channel.Ready(info=EngineInfo(name="n", model="m", sample_rate=16000), load_ms=2),
    channel.Output(id=1, body=TtsAudio(pcm=b"\0\1" * 100, sample_rate=22050)),
    channel.Output(id=1, body=Transcript(text="hi", final=True)),
    channel.Output(id=1, body=IntentMatch(name="X", slots={"a": 1, "b": "c"})),
    channel.Output(id=1, body=LlmDelta(text="🌍", tokens=1)),
    channel.Waiting(id=1, taken=3),
    channel.Done(id=1, cancelled=True),
    channel.Failure(id=0, error="ModelDamaged", code="model-damaged", message="m"),
]


@pytest.mark.parametrize("frame", [*TO_WORKER, *FROM_WORKER], ids=lambda frame: type(frame).__name__)
def test_every_message_round_trips(frame: channel.ToWorker | channel.FromWorker) -> None:
    (body,) = Splitter().feed(encode(frame))
    decode = decode_to_worker if frame in TO_WORKER else decode_from_worker
    assert decode(body) == frame


def test_every_kind_of_frame_has_an_example() -> None:
    kinds = set(channel.ToWorker.__args__) | set(channel.FromWorker.__args__)
    assert {type(frame) for frame in (*TO_WORKER, *FROM_WORKER)} == kinds


@given(st.lists(st.integers(1, 40), min_size=1))
def test_frames_survive_any_slicing(cuts: list[int]) -> None:
    stream = b"".join(encode(frame) for frame in FROM_WORKER)
    splitter, bodies, at = Splitter(), [], 0
    for cut in cuts:
        bodies += splitter.feed(stream[at : at + cut])
        at += cut
    bodies += splitter.feed(stream[at:])
    assert [decode_from_worker(body) for body in bodies] == FROM_WORKER


@given(st.binary(max_size=200))
def test_garbage_is_a_typed_error(body: bytes) -> None:
    decoded = []
    for decode in (decode_to_worker, decode_from_worker):
        with contextlib.suppress(StageError):
            decoded.append(decode(body))
    assert all(isinstance(frame, channel._Frame) for frame in decoded)


def test_a_silly_length_is_refused_before_it_is_waited_for() -> None:
    with pytest.raises(StageError, match="limit"):
        Splitter().feed(struct.pack("<I", MAX_FRAME + 1))


def test_a_message_that_no_worker_would_take_is_not_sent() -> None:
    with pytest.raises(StageError, match="larger"):
        encode(channel.Run(id=1, request=AsrRequest(pcm=bytes(MAX_FRAME))))
