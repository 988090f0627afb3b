"""Sound of any format, bit by bit; its bounds."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from assistant.api.wyoming.sound import OURS, Format, Recording, Room, checked
from assistant.errors import BadAudio, BusyNow
from tests.api.wyoming.homes import counted_turns
from tests.speech_corpus import tone

TONE = (tone(440, 1.0) * 32767).astype(np.int32)


def recorded(sound: bytes, format: Format, size: int = 1001) -> np.ndarray:
    recording = Recording(Room())
    fed(recording, *((sound[at : at + size], format) for at in range(0, len(sound), size)))
    return np.frombuffer(recording.finish(), "<i2").astype(np.int32)


def fed(recording: Recording, *pieces: tuple[bytes, Format]) -> None:
    async def feed() -> None:
        for sound, format in pieces:
            await recording.add(sound, format)

    asyncio.run(feed())


def sounds() -> dict[str, tuple[bytes, Format]]:
    wide = (TONE * 65_536).astype("<i4").tobytes()
    return {
        "ours": (TONE.astype("<i2").tobytes(), OURS),
        "24 bits": (b"".join(wide[at + 1 : at + 4] for at in range(0, len(wide), 4)), Format(16_000, 3, 1)),
        "32 bits": (wide, Format(16_000, 4, 1)),
        "stereo": (np.repeat(TONE, 2).astype("<i2").tobytes(), Format(16_000, 2, 2)),
    }


@pytest.mark.parametrize("kind", sounds())
def test_what_has_our_rate_comes_through_exactly(kind: str) -> None:
    assert np.array_equal(recorded(*sounds()[kind]), TONE)


def test_bytes_are_unsigned_and_rates_are_converted() -> None:
    eight = recorded((TONE // 256 + 128).astype(np.uint8).tobytes(), Format(16_000, 1, 1))
    assert np.abs(eight - TONE).max() <= 256
    loud = (tone(440, 1.0) * 32767).astype("<i2").tobytes()
    assert len(recorded(loud, Format(44_100, 2, 1))) == pytest.approx(16_000 * 16_000 / 44_100, abs=2)
    of_48k = (0.3 * np.sin(2 * np.pi * 440 * np.arange(48_000) / 48_000) * 32767).astype("<i2").tobytes()
    found = recorded(of_48k, Format(48_000, 2, 1))
    assert len(found) == pytest.approx(16_000, abs=2)
    assert np.abs(found[500:15_500] - TONE[500:15_500]).max() < 100


def test_a_format_may_change_in_between() -> None:
    recording = Recording(Room())
    fed(recording, (bytes(3_200), OURS), (bytes(9_600), Format(48_000, 2, 1)), (bytes(3_200), OURS))
    assert len(recording.finish()) == pytest.approx(9_600, abs=8)


def test_others_have_their_turn_while_sound_is_converted() -> None:
    async def run() -> None:
        recording = Recording(Room())
        async with counted_turns() as turns:
            for number in range(3):
                await recording.add(bytes(2**20), Format(4_000 + number, 1, 1))
        assert len(recording.finish()) == pytest.approx(3 * 2**20 * 4 * 2, rel=0.01)
        assert len(turns) > 3 * 32

    asyncio.run(run())


def test_recordings_have_a_length_and_a_room_together() -> None:
    with pytest.raises(BadAudio, match="too long"):
        fed(Recording(Room(), max_seconds=0.1), (bytes(3_202), OURS))
    room = Room(most=5_000)
    first, second = Recording(room), Recording(room)
    fed(first, (bytes(3_000), OURS))
    with pytest.raises(BusyNow):
        fed(second, (bytes(3_000), OURS))
    first.close()
    first.close()
    assert room.held == 0
    fed(second, (bytes(3_000), OURS))


@pytest.mark.parametrize(
    "wrong", [(0, 2, 1), (10**9, 2, 1), (16_000, 5, 1), (16_000, 0, 1), (16_000, 2, 0), (16_000, 2, 9)]
)
def test_what_no_microphone_gives_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(BadAudio) as told:
        checked(*wrong)
    assert told.value.code == "audio-bad-format"
