"""Whatever bytes arrive: a checked message, or an error that names the offence."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.api import framing, wire
from assistant.errors import BadAudio, BusyNow, NeverFits, StageDied, UsageError
from assistant.messages import Stage

ALL = {**wire.COMMANDS, **wire.CONTROLS}


def header(**fields: Any) -> bytes:
    return json.dumps({"v": 1, "id": "7", "type": "ask", "data": {"text": "hello"}} | fields).encode()


@pytest.mark.parametrize(
    "command",
    [
        wire.Ask(text="What time is it? 🕐", speech=True, stream=False, age_ms=12.5),
        wire.Ask(text="And now?", conversation="kitchen", urgency="critical"),
        wire.Load(stage=Stage.LLM, keep_alive_s=-1),
        wire.Unload(stage=Stage.TTS),
        wire.Ping(),
        wire.GetStatus(),
        wire.Cancel(query_id="abc"),
        wire.Shutdown(),
    ],
    ids=repr,
)
def test_commands_cross_the_wire_unchanged(command: Any) -> None:
    received = framing.decode(framing.encode(command, id="7"), ALL)
    assert (received.id, received.data, received.pcm) == ("7", command, b"")


def test_sound_travels_raw_behind_the_header_in_any_number_of_frames() -> None:
    frames = framing.encode(wire.Ask(), pcm=b"\x00\xff" * 10)
    assert frames[1] == b"\x00\xff" * 10
    assert framing.decode([frames[0], b"ab", b"cd"], ALL).pcm == b"abcd"


def test_a_long_recording_is_sent_in_frames_that_are_taken() -> None:
    pcm = b"ab" * (framing.MAX_PCM_BYTES // 2)
    frames = framing.encode(wire.Ask(), pcm=pcm)
    assert [len(frame) for frame in frames[1:]] == [2**20] * 30
    assert len(frames) <= framing.MAX_FRAMES
    assert framing.decode(frames, ALL).pcm == pcm


def test_a_reply_names_the_command_that_it_answers() -> None:
    frames = framing.encode(wire.Pong(version="1", pid=3), parent="7")
    assert json.loads(frames[0])["parent"] == "7"
    received = framing.decode(frames, wire.REPLIES)
    assert (received.parent, received.data) == ("7", wire.Pong(version="1", pid=3))


def test_the_smallest_command_has_defaults_for_everything_else() -> None:
    found = framing.decode([b'{"v":1,"id":"a","type":"status"}'], ALL)
    assert found.data == wire.GetStatus()


@pytest.mark.parametrize(
    ("frames", "code", "words"),
    [
        ([], "bad-message", "no header"),
        ([b""], "bad-message", "not JSON"),
        ([b"{"], "bad-message", "not JSON"),
        ([header()[:-5]], "bad-message", "not JSON"),
        ([b"[]"], "bad-message", "object"),
        ([b"null"], "bad-message", "object"),
        ([b"{}"], "bad-message", "version"),
        ([header(v="1")], "bad-message", "version"),
        ([header(v=True)], "bad-message", "version"),
        ([header(v=2, later="field")], "unknown-version", "2"),
        ([header(v=10**30)], "unknown-version", ""),
        ([header(id=7)], "bad-message", "id"),
        ([header(id="")], "bad-message", "id"),
        ([header(id="x" * 129)], "bad-message", "id"),
        ([header(type="format-disk")], "unknown-command", "ask, ask-sound, say, load"),
        ([header(extra=1)], "unknown-field", "extra"),
        ([header(data={"text": "a", "volume": 3})], "unknown-field", "volume"),
        ([header(data={"text": 5})], "bad-message", "text"),
        ([header(data={"text": "a", "age_ms": -1})], "bad-message", "age_ms"),
        ([header(data={"text": "a", "conversation": 5})], "bad-message", "conversation"),
        ([header(data={"text": "a", "urgency": None})], "bad-message", "urgency"),
        ([header(type="load", data={"stage": "llm", "keep_alive_s": 1e300})], "bad-message", "keep_alive_s"),
        ([header(data=[])], "bad-message", "object"),
        (
            [header(type="load", data={"stage": "kaldi"})],
            "unknown-stage",
            "is no stage; there are asr, intent, llm, tts",
        ),
        ([header(type="load", data={})], "bad-message", "stage"),
        ([b'{"v":1,"id":"a","type":"ask","data":{"text":"\xff"}}'], "bad-message", "UTF-8"),
        ([b'{"v":1,"id":"a","type":"ask","data":' + b"[" * 30_000 + b"]" * 30_000 + b"}"], "bad-message", ""),
        ([b"[" * 60_000], "bad-message", ""),
        ([b"x" * 70_000], "bad-message", "65536"),
        ([header()] + [b""] * 32, "bad-message", "33 frames"),
        ([header(), b"\0" * (framing.MAX_PCM_BYTES + 2)], "bad-message", "31457280"),
    ],
)
def test_what_is_wrong_is_named(frames: list[bytes], code: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        framing.decode(frames, ALL)
    assert caught.value.code == code
    assert words in caught.value.message


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=4))
def test_random_bytes_are_refused_and_nothing_else_happens(frames: list[bytes]) -> None:
    with pytest.raises(UsageError):
        framing.decode(frames, ALL)
    assert framing.id_of(frames) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={name: JSON for name in ("v", "id", "parent")} | {"type": st.sampled_from([*ALL, "x"]), "data": JSON},
    )
)
def test_random_json_is_decoded_or_refused(tree: dict[str, Any]) -> None:
    offence = ""
    try:
        found = framing.decode([json.dumps({"v": 1, "id": "a", **tree}).encode()], ALL)
    except UsageError as error:
        offence = error.code
    if offence:
        assert offence in ("bad-message", "unknown-version", "unknown-command", "unknown-field")
    else:
        assert type(found.data) is ALL[tree["type"]]


def test_the_id_of_a_wrong_message_is_found_where_it_can_be() -> None:
    assert framing.id_of([header(v=9, later=True)]) == "7"
    assert framing.id_of([header(id="x" * 500)]) is None
    assert framing.id_of([]) is None


@pytest.mark.parametrize(
    ("error", "exit_code", "more"),
    [
        (BusyNow("full", retry_after_ms=500), 4, {"retryable": True, "retry_after_ms": 500, "status": 429}),
        (BadAudio("no", code="audio-empty"), 2, {"code": "audio-empty", "retryable": False}),
        (NeverFits("no", stage="llm"), 5, {"code": "memory-never-fits", "stage": "llm"}),
        (StageDied("no"), 1, {"retryable": True}),
    ],
)
def test_errors_travel_in_their_public_form(error: Any, exit_code: int, more: dict[str, Any]) -> None:
    told = json.loads(framing.encode(wire.failure(error))[0])["data"]
    assert told["message"] == error.message
    assert told["exit_code"] == exit_code
    assert {name: told[name] for name in more} == more


def test_what_is_no_unicode_or_too_large_is_not_sent() -> None:
    with pytest.raises(UsageError, match="Unicode"):
        framing.encode(wire.Ask(text="a \udc80"))
    with pytest.raises(UsageError, match="65536"):
        framing.encode(wire.Ask(text="x" * 70_000))
    with pytest.raises(UsageError, match="31457280"):
        framing.encode(wire.Ask(), pcm=bytes(framing.MAX_PCM_BYTES + 2))


def test_a_long_answer_is_no_reason_to_lose_it() -> None:
    told = wire.Event(name="reply-delta", data={"text": "x" * 200_000})
    found = framing.decode(framing.encode(told, parent="a"), wire.REPLIES, framing.MAX_REPLY_BYTES)
    assert found.data == told


def test_every_message_has_one_name() -> None:
    kinds = [*ALL.values(), *wire.REPLIES.values()]
    assert len(kinds) == len(set(kinds))
    assert all(issubclass(kind, msgspec.Struct) for kind in kinds)
