"""ZeroMQ's protocol by hand: messages arrive whole in whatever pieces, and what is too large is kept by nobody."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.api.zmtp import GREETING, Limits, Message, NotZmtp, Reader, Room, command, encoded, ready
from assistant.errors import BusyNow, UsageError

LIMITS = Limits(header_bytes=1000, body_bytes=5000, frames=4)
HELLO = GREETING + ready()


def reader(room: Room | None = None) -> Reader:
    return Reader(LIMITS, room or Room(10_000))


def heard(one: Reader, data: bytes, step: int = 0) -> list[Message]:
    """What comes out when `data` goes in, `step` bytes at a time."""
    found: list[Message] = []
    for start in range(0, len(data), step or len(data) or 1):
        one.feed(data[start : start + (step or len(data))])
        while (item := one.next()) is not None:
            if isinstance(item, Message):
                found.append(item)
    return found


@settings(deadline=None)
@given(
    st.lists(st.lists(st.binary(max_size=400), min_size=1, max_size=4), max_size=4), st.integers(1, 700), st.booleans()
)
def test_messages_arrive_as_they_were_sent_in_whatever_pieces(
    messages: list[list[bytes]], step: int, enveloped: bool
) -> None:
    messages = [[b"h", *frames[1:]] for frames in messages]
    room = Room(10_000)
    found = heard(reader(room), HELLO + b"".join(encoded(frames, enveloped) for frames in messages), step)
    assert [one.frames for one in found] == messages
    assert all(one.enveloped == enveloped and one.refused is None for one in found)
    assert room.held == 0


@pytest.mark.parametrize("step", [0, 1, 37])
@pytest.mark.parametrize(
    ("frames", "words", "kept"),
    [
        ([b"h" * 1001, b"p"], "1001", []),
        ([b"h", b"p" * 5001], "5000", [b"h"]),
        ([b"h", b"p" * 3000, b"p" * 3000, b"p"], "5000", [b"h"]),
        ([b"h", *[b"p"] * 4], "4 frames", [b"h"]),
    ],
)
def test_what_is_too_large_is_read_to_its_end_and_not_kept(
    frames: list[bytes], words: str, kept: list[bytes], step: int
) -> None:
    room = Room(10_000)
    one = reader(room)
    bad, good = heard(one, HELLO + encoded(frames, False) + encoded([b"next"], False), step)
    assert isinstance(bad.refused, UsageError)
    assert words in bad.refused.message
    assert bad.frames == kept
    assert (good.frames, good.refused) == ([b"next"], None)
    assert (room.held, one.unfinished) == (0, False)


def test_a_size_beyond_all_bounds_is_only_a_number() -> None:
    room = Room(10_000)
    one = reader(room)
    heard(one, HELLO + b"\1\1h" + struct.pack(">BQ", 3, 2**63) + b"x" * 100_000)
    assert room.held == 1
    assert one.unfinished
    one.drop()
    assert room.held == 0


def test_the_room_is_shared_and_given_back() -> None:
    room = Room(6000)
    slow, other, third = reader(room), reader(room), reader(room)
    heard(slow, HELLO + b"\1\1h" + struct.pack(">BQ", 2, 4000) + b"x" * 3900)
    [refused] = heard(other, HELLO + encoded([b"h", b"y" * 4000], False))
    assert isinstance(refused.refused, BusyNow)
    assert refused.refused.retryable
    assert refused.frames == [b"h"]
    [small] = heard(third, HELLO + encoded([b"h", b"y" * 1000], False))
    assert small.refused is None
    [whole] = heard(slow, b"x" * 100)
    assert whole.frames == [b"h", b"x" * 4000]
    [again] = heard(other, encoded([b"h", b"y" * 4000], False))
    assert (again.refused, room.held) == (None, 0)


def test_endless_frames_are_not_read_to_their_end() -> None:
    with pytest.raises(NotZmtp):
        heard(reader(), HELLO + b"\1\1h" + b"\1\0" * 1000)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\xff" + bytes(63),
        GREETING[:10] + b"\1" + GREETING[11:],
        GREETING.replace(b"NULL\0", b"CURVE"),
        GREETING + encoded([b"a message before READY"], False),
        GREETING + command(b"ERROR", b"\0"),
        GREETING + command(b"READY", bytes(2000)),
        HELLO + b"\xf0\1x",
        HELLO + b"\5\1x",
    ],
)
def test_what_is_no_zeromq_is_noticed(data: bytes) -> None:
    with pytest.raises(NotZmtp):
        heard(reader(), data)


def test_a_ping_is_a_command_and_no_message() -> None:
    one = reader()
    one.feed(HELLO + command(b"PING", b"\0\1context"))
    assert one.next() == ready()[2:]
    assert one.next() == b"\4PING\0\1context"
    assert one.next() is None
    assert not one.unfinished


@settings(deadline=None)
@given(st.binary(max_size=2000), st.booleans())
def test_noise_is_refused_or_waits_for_more(noise: bytes, greeted: bool) -> None:
    room = Room(10_000)
    one = reader(room)
    try:
        found = heard(one, (HELLO if greeted else b"") + noise, 50)
    except NotZmtp:
        found = []
    one.drop()
    assert room.held == 0
    assert all(sum(map(len, message.frames)) <= 6000 for message in found)
