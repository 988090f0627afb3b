"""A daemon that lives with a virtual microphone and speaker, and somebody who speaks to it in human recordings."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assistant import paths
from assistant.api.client import Client
from assistant.audio import vad
from assistant.audio.formats import read_audio
from assistant.bench.daemons import OwnDaemon
from assistant.bench.observer import descendants
from assistant.messages import ASR_RATE, AsrRequest, Transcript
from assistant.messages_status import Status
from assistant.model_store.store import ModelStore
from assistant.stages.asr_whisper import WhisperAsr
from assistant.stages.base import EngineConfig
from tests.sound import SoundSystem

QUIET = 60.0
"""RMS of 16-bit samples below which nobody speaks."""
PATIENCE_S = 25.0


class Living:
    def __init__(self, sound: SoundSystem, daemon: OwnDaemon, recordings: Path) -> None:
        self.sound, self.daemon, self._recordings = sound, daemon, recordings

    # --- what it does -----------------------------------------------------------------------------------------------
    @property
    def status(self) -> Status:
        return self.daemon.client.status()

    def until(self, there: Callable[[Status], object], within_s: float = PATIENCE_S) -> Status:
        deadline = time.monotonic() + within_s
        while not there(status := self.status):
            assert time.monotonic() < deadline, f"{status.state}, {status.voice}\n{self.daemon.log}"
            time.sleep(0.02)
        return status

    def until_state(self, state: str, within_s: float = PATIENCE_S) -> Status:
        return self.until(lambda status: status.state == state, within_s)

    def until_woken(self, times: int) -> None:
        self.until(lambda status: status.voice is not None and status.voice.wakes >= times, 6)

    def reports(self, count: int, within_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Of the spoken queries so far, as its debug recordings have them."""
        deadline = time.monotonic() + within_s
        while len(found := sorted(self._recordings.glob("*.json"))) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} queries ended\n{self.daemon.log}"
            time.sleep(0.05)
        return [json.loads(path.read_text()) for path in found]

    def process_of(self, name: str) -> int:
        """The one of its processes that has this name; the daemons of others may run beside it."""
        (found,) = [
            pid for pid in descendants(self.daemon.pid) if Path(f"/proc/{pid}/comm").read_text("utf-8").strip() == name
        ]
        return found

    # --- what it hears ----------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def speaking(self, pcm: bytes) -> Iterator[None]:
        """Somebody speaks while the block runs, and no longer."""
        playing = self.sound.start(pcm)
        try:
            yield
        finally:
            playing.stop()

    # --- what it says -----------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def saying(self, text: str) -> Iterator[Callable[[float], str]]:
        """It is told to say this, by somebody who waits for the end; behind the block, too. Ask for that, which has to
        come within so many seconds: the name of the error, "" when all of it was heard."""
        failed: list[Exception] = []

        def say() -> None:
            with Client(self.daemon.folder) as client:
                try:
                    client.say(text)
                except Exception as error:  # noqa: BLE001 - its name is told
                    failed.append(error)

        def ended(within_s: float) -> str:
            thread.join(within_s)
            assert not thread.is_alive(), f"it still speaks\n{self.daemon.log}"
            return type(failed[0]).__name__ if failed else ""

        thread = threading.Thread(target=say, daemon=True)
        thread.start()
        try:
            yield ended
        finally:
            thread.join(PATIENCE_S)

    @contextlib.contextmanager
    def heard(self) -> Iterator[Callable[[], str]]:
        """The words that come out of the speaker inside the block; ask for them behind it."""
        text: list[str] = []
        with self.sound.recording() as recording:
            yield lambda: text[0]
            self.until_state("idle")
        text.append(words_of(recording.pcm))


@contextlib.contextmanager
def living(folder: Path, *sets: str, sound: SoundSystem | None = None) -> Iterator[Living]:
    """`sets`: settings. `sound`: a sound system of one's own; it is entered here."""
    with sound or SoundSystem(folder) as system:
        environ = {
            **{name: value for name, value in system.environ.items() if not name.startswith("ASSISTANT_")},
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        settings = ("audio.enabled=true", "debug.recordings=true", "log.level=info", *sets)
        with OwnDaemon(settings, environ=environ) as daemon:
            one = Living(system, daemon, folder / "state/assistant/recordings")
            one.until(lambda status: status.voice is not None and status.voice.input.state == "ok", 10)
            yield one


# --- what is said to it ---------------------------------------------------------------------------------------------
def recording(name: str) -> bytes:
    """A human recording, s16le mono 16 kHz."""
    return read_audio(folder() / name).pcm


def folder() -> Path:
    return (paths.checkout() or Path()).parent / "shared/speech"


def spoken(name: str, pad_s: float = 0.1) -> bytes:
    """The part of a recording in which somebody speaks."""
    pcm = recording(name)
    spans = vad.speech_spans(pcm)
    begin = max(0, int((spans[0].start_s - pad_s) * ASR_RATE)) * 2
    return pcm[begin : int((spans[-1].end_s + pad_s) * ASR_RATE) * 2]


def room(seconds: float, level: float = 12.0) -> bytes:
    """The hiss of a quiet room."""
    noise = np.random.default_rng(7).normal(0, level, int(seconds * ASR_RATE))
    return noise.astype(np.int16).tobytes()


def mixed(speech: bytes, noise: bytes, snr_db: float) -> bytes:
    """`noise`, repeated, under `speech`: so many dB weaker than the loud half of it."""
    first, second = samples(speech), samples(noise)
    second = np.resize(second, len(first))
    levels = np.sort(loudness(speech))[len(first) // 320 :]
    gain = np.sqrt((levels**2).mean()) / np.sqrt((second**2).mean()) / 10 ** (snr_db / 20)
    return bytes(np.clip(first + second * gain, -32768, 32767).astype(np.int16).tobytes())


# --- what is heard of it --------------------------------------------------------------------------------------------
def samples(pcm: bytes) -> NDArray[np.float64]:
    return np.frombuffer(pcm, np.int16).astype(np.float64)


def loudness(pcm: bytes, step_s: float = 0.01) -> NDArray[np.float64]:
    """RMS of each step."""
    step = int(step_s * ASR_RATE)
    whole = samples(pcm)[: len(pcm) // 2 // step * step].reshape(-1, step)
    return np.asarray(np.sqrt((whole**2).mean(axis=1)))


@cache
def _whisper() -> WhisperAsr:
    info = ModelStore.default().open("whisper-tiny.en")
    engine = WhisperAsr(
        EngineConfig(model=info.name, model_dir=info.path, digest=info.digest, cache_dir=paths.cache_dir(), threads=2)
    )
    engine.load()
    return engine


def words_of(pcm: bytes) -> str:
    """What is said in it; "" when nobody speaks."""
    spans = vad.speech_spans(pcm)
    if not spans:
        return ""
    request = AsrRequest(pcm=vad.trim_to_speech(pcm, spans))
    *_, last = (out for out in _whisper().run(request) if isinstance(out, Transcript))
    return last.text
