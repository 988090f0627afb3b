"""What it costs to wait, and what an hour of somebody's living room leaves behind."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from assistant.audio.cues import ALL_TONES
from assistant.audio.ears import BLOCK_BYTES, Ears
from assistant.audio.front_messages import FrontSettings, Sound, Spoke, WakeSettings, Woke
from assistant.audio.notch import Notch
from assistant.bench.waiting import TARGET_PSS_MIB, measure, table
from assistant.memory_orchestrator.probe import MIB, Probe
from tests.live.living import recording, room, spoken
from tests.sound import SoundSystem

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.usefixtures("speech")]


@pytest.mark.alone("of the processor, some percent")
def test_waiting_takes_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with SoundSystem(tmp_path) as sound:
        found = measure(8, (), sound.environ)
    with capsys.disabled():
        sys.stdout.write("\n" + table(found))
    assert found.pss_mib < TARGET_PSS_MIB * 1.1
    assert found.cpu_percent < 6, "twice the target: other programs run beside the tests"


def test_an_hour_of_sound_leaves_nothing_behind() -> None:
    """Faster than real time: talk, noise, wake words and questions, and sessions that nobody ends."""
    scene = b"".join(
        [
            room(2), recording("two_katiesteve_mono.wav"), recording("noise_sb_1.wav"), room(5),
            recording("wake_hey_jarvis_1.wav"), spoken("cmd_r3_what_time_is_it.wav"), room(2),
            recording("wake_okay_nabu_2.wav"), room(6), recording("neg_computer_2.wav"),
        ]
    )  # fmt: skip
    scene = scene[: len(scene) // BLOCK_BYTES * BLOCK_BYTES]
    seconds = len(scene) / 32_000
    ears = Ears(FrontSettings(wake=WakeSettings(words=("hey_jarvis", "okay_nabu"))), notch=Notch(ALL_TONES))
    seen: dict[str, int] = {}
    sizes, now, hour = [], 0.0, 3600.0
    while now < hour:
        for at in range(0, len(scene), BLOCK_BYTES):
            now += BLOCK_BYTES / 32_000
            for packet in ears.hear(scene[at : at + BLOCK_BYTES], now):
                kind = packet.what if isinstance(packet, Spoke) else type(packet).__name__
                seen[kind] = seen.get(kind, 0) + 1
                if isinstance(packet, Spoke) and packet.what == "end":
                    ears.release(packet.session)
                if isinstance(packet, Sound):
                    assert len(packet.pcm) <= 32_000
        gc.collect()
        sizes.append(Probe().usage(os.getpid()).anon / MIB)
    ears.close()
    rounds = len(sizes)
    assert seen[Woke.__name__] == pytest.approx(2 * rounds, rel=0.1), (seen, rounds, seconds)
    assert seen["end"] == pytest.approx(2 * rounds, rel=0.15)
    first, last = np.mean(sizes[3:6]), np.mean(sizes[-3:])
    assert last - first < 1.0, f"{first:.1f} -> {last:.1f} MiB in an hour"
