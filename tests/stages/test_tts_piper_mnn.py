"""The Piper engine on MNN, on the real voice, against onnxruntime."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from assistant.bench.conversion import most_anonymous_kib
from assistant.errors import AssistantError, ConfigError, ModelDamaged, ModelMissing, ModelUnsupported
from assistant.messages import AsrRequest, Transcript, TtsRequest
from assistant.model_store.store import ModelInfo
from assistant.stages.asr_whisper import WhisperAsr
from assistant.stages.base import Engine, EngineConfig
from assistant.stages.piper_windows import FIRST_WINDOW, WINDOW, windows
from assistant.stages.tts_piper import PiperTts
from assistant.stages.tts_piper_mnn import PiperMnnTts
from assistant.stages.whisper_features import log_mel
from tests.stages.running import config_of

STILL = {"noise_scale": 0.0, "noise_w_scale": 0.0}
RATE = 22_050
SENTENCES = (
    "The capital of France is Paris.",
    "There are twelve months in a year.",
    "I have set a timer for ten minutes.",
    "The kitchen light is on now.",
    "Tomorrow will be sunny, with a light wind from the west.",
    "We will meet at the station on Friday.",
    "The train to London leaves at half past nine.",
    "My favourite colour is green.",
    "Turn left at the corner and walk to the bridge.",
    "She sells fresh bread every morning.",
)
Samples = NDArray[np.int16]


@pytest.fixture(scope="module")
def model_of(model: Callable[[str], ModelInfo]) -> ModelInfo:
    return model("en_US-joe-medium-mnn")


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def loaded(model: ModelInfo, cache_dir: Path, **options: Any) -> PiperMnnTts:
    engine = PiperMnnTts(config_of(model, cache_dir, **options))
    engine.load()
    return engine


@pytest.fixture(scope="module")
def engine(model_of: ModelInfo, cache_dir: Path) -> Iterator[PiperMnnTts]:
    engine = loaded(model_of, cache_dir, **STILL)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def reference(model: Callable[[str], ModelInfo], cache_dir: Path) -> Iterator[PiperTts]:
    engine = PiperTts(config_of(model("en_US-joe-medium"), cache_dir, **STILL))
    engine.load()
    yield engine
    engine.close()


def speak(engine: Engine[TtsRequest, Any], text: str) -> Samples:
    return np.frombuffer(b"".join(audio.pcm for audio in engine.run(TtsRequest(text=text))), "<i2")


@pytest.mark.engine
def test_a_sentence_becomes_audio_in_windows(engine: PiperMnnTts, reference: PiperTts) -> None:
    text = "The capital of France is Paris."
    parts = list(engine.run(TtsRequest(text=text)))
    assert {part.sample_rate for part in parts} == {RATE}
    assert [len(part.pcm) for part in parts] == [len(part.pcm) for part in reference.run(TtsRequest(text=text))]
    assert len(parts[0].pcm) == FIRST_WINDOW * 256 * 2
    assert all(len(part.pcm) <= (WINDOW + 2) * 256 * 2 for part in parts)
    assert 0.3 < np.abs(speak(engine, text)).max() / 32768 < 1.0
    assert (engine.info.name, engine.info.sample_rate, engine.info.streaming) == ("piper-mnn", RATE, True)


@pytest.mark.engine
def test_without_noise_it_sounds_as_on_onnxruntime(
    engine: PiperMnnTts, reference: PiperTts, record_property: Callable[[str, object], None]
) -> None:
    """A duration just above a whole number of frames may round otherwise, and the rest of a sentence then comes a
    frame later: such a sentence is compared by its length alone."""
    alike, distances = [], []
    for text in SENTENCES:
        mine, theirs = speak(engine, text).astype(np.float64), speak(reference, text).astype(np.float64)
        assert abs(mine.size - theirs.size) <= 0.02 * theirs.size
        if mine.size == theirs.size:
            alike.append(float(np.corrcoef(mine, theirs)[0, 1]))
            distances.append(float(np.abs(mel(mine) - mel(theirs)).mean()))
    record_property("correlations", alike)
    record_property("log_mel_distances", distances)
    assert len(alike) >= 6
    assert min(alike) >= 0.99
    assert max(distances) <= 0.05


def mel(samples: NDArray[np.float64]) -> NDArray[np.float32]:
    return log_mel(soxr.resample(samples.astype(np.float32) / 32768, RATE, 16_000), 80, 800)


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_with_noise_whisper_understands_the_same(
    model_of: ModelInfo, model: Callable[[str], ModelInfo], cache_dir: Path
) -> None:
    ears = WhisperAsr(config_of(model("whisper-tiny.en"), cache_dir))
    ears.load()
    voices: list[Engine[TtsRequest, Any]] = [
        PiperMnnTts(config_of(model_of, cache_dir)),
        PiperTts(config_of(model("en_US-joe-medium"), cache_dir)),
    ]
    for voice in voices:
        voice.load()
    for text in SENTENCES:
        heard = [{understood(ears, voice, text)} for voice in voices]
        for _ in range(4):  # each time is another draw, and whisper mishears some of either engine
            if not heard[0] & heard[1]:
                for said, voice in zip(heard, voices, strict=True):
                    said.add(understood(ears, voice, text))
        assert heard[0] & heard[1]


def understood(ears: WhisperAsr, voice: Engine[TtsRequest, Any], text: str) -> str:
    return " ".join(listen(ears, speak(voice, text)))


def listen(ears: WhisperAsr, samples: Samples) -> list[str]:
    sound = soxr.resample(samples.astype(np.float32) / 32768, RATE, 16_000)
    pcm = (np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes()
    said = [out for out in ears.run(AsrRequest(pcm=pcm)) if isinstance(out, Transcript)][-1]
    return "".join(char for char in said.text.lower() if char.isalnum() or char == " ").split()


@pytest.mark.engine
@pytest.mark.parametrize("count", [1, 2, 20, 34, 42, 43, 76, 130, 300, 900])
def test_the_windows_join_to_a_full_decode(engine: PiperMnnTts, count: int) -> None:
    """From frames as they are; all parts of the network that see neighbours."""
    from assistant.stages import tts_piper_mnn as under_test

    frames = np.random.default_rng(count).standard_normal((1, 192, count), np.float32)
    (whole,) = under_test._run(engine._parts["flow"], [frames, np.ones((1, 1, count), np.float32)])
    for part in ("decoder", "upsampler"):
        (whole,) = under_test._run(engine._parts[part], [whole])
    drawn = under_test._Drawn(frames, frames, np.ones(count, np.float32), 0.0, np.random.default_rng())
    joined = np.concatenate(list(engine._windowed(drawn.steps, count, [])), axis=2)
    assert joined.size == count * 256
    assert np.abs(joined.reshape(-1) - whole.reshape(-1)).max() <= 1e-5


@given(st.integers(1, 5000), st.integers(1, 80), st.integers(1, 600), st.integers(0, 40))
def test_windows_cover_every_step_once_with_their_context(steps: int, first: int, most: int, reach: int) -> None:
    found = list(windows(steps, first, most, reach))
    assert [found[0].begin, *(one.end for one in found)] == [*(one.begin for one in found), steps]
    for one in found:
        assert one.begin < one.end
        assert one.left <= max(0, one.begin - reach)
        assert one.right == min(steps, one.end + reach)
    assert [one.left for one in found] == sorted(one.left for one in found)


@given(st.integers(1, 5000), st.integers(1, 80), st.integers(1, 600), st.integers(0, 40))
def test_windows_are_few_and_alike(steps: int, first: int, most: int, reach: int) -> None:
    found = list(windows(steps, first, most, reach))
    assert found[0].end in (first, steps)
    assert found[0].end <= first + reach
    rest = found[1:]
    assert len(rest) <= -(-max(0, steps - first) // most)
    assert all(one.end - one.begin <= most for one in rest)
    assert len({one.end - one.begin for one in rest[:-1]}) <= 1
    assert len({one.right - one.left for one in rest if one.left > 0}) <= 1
    assert sum(one.right - one.left for one in rest) <= steps - found[0].end + len(rest) * (2 * reach + 1) + most


CHILD = """
import sys; from pathlib import Path
from assistant.messages import TtsRequest
from assistant.stages.base import EngineConfig
from assistant.stages.tts_piper_mnn import PiperMnnTts
name, models, cache, text = sys.argv[1:]
engine = PiperMnnTts(EngineConfig(model=name, model_dir=Path(models), cache_dir=Path(cache), threads=2))
engine.load()
seconds = sum(len(audio.pcm) for audio in engine.run(TtsRequest(text=text))) / 2 / 22050
import os
os.write(1, f"\\n{seconds} {'onnxruntime' in sys.modules or 'piper' in sys.modules}\\n".encode()); os._exit(0)
"""


def peak_of(model: ModelInfo, cache_dir: Path, text: str) -> tuple[float, int, bool]:
    """Seconds of speech, peak of anonymous KiB of a fresh process, and whether it imported what it must not."""
    command = [sys.executable, "-c", CHILD, model.name, str(model.path), str(cache_dir), text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        peak = most_anonymous_kib(child)
        assert child.stdout is not None
        seconds, heavy = child.stdout.read().strip().splitlines()[-1].split()
    return float(seconds), peak, heavy == "True"


@pytest.mark.engine
def test_memory_is_the_same_for_two_seconds_and_for_twenty(
    model_of: ModelInfo, cache_dir: Path, engine: PiperMnnTts
) -> None:
    assert engine.info.model == model_of.name  # the gain is known
    short, few, heavy = peak_of(model_of, cache_dir, "The capital of France is Paris.")
    long, many, _ = peak_of(model_of, cache_dir, "and the wind went over the hills of the old town " * 9)
    assert 1.5 < short < 2.5
    assert long > 20
    assert many <= 1.1 * few
    assert many < 150 * 1024
    assert not heavy


@pytest.mark.engine
@pytest.mark.parametrize("threads", [1, 2])
def test_it_computes_with_as_many_threads_as_it_is_given(model_of: ModelInfo, cache_dir: Path, threads: int) -> None:
    """MNN has four unless told in the one way that it heeds; those beyond the cores take twice the CPU's time."""
    code = """
import os, sys; from pathlib import Path
from assistant.messages import TtsRequest
from assistant.stages.base import EngineConfig
from assistant.stages.tts_piper_mnn import PiperMnnTts
name, models, cache, threads = sys.argv[1:]
before = len(os.listdir("/proc/self/task"))
engine = PiperMnnTts(EngineConfig(model=name, model_dir=Path(models), cache_dir=Path(cache), threads=int(threads)))
engine.load()
list(engine.run(TtsRequest(text="Yes.")))
os.write(1, f"\\n{len(os.listdir('/proc/self/task')) - before}\\n".encode()); os._exit(0)
"""
    command = [sys.executable, "-c", code, model_of.name, str(model_of.path), str(cache_dir), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) == threads - 1


@pytest.mark.engine
def test_the_first_sound_does_not_wait_for_the_sentence(engine: PiperMnnTts) -> None:
    """Counted in work, not in seconds: one window of each part."""
    runs: list[str] = []
    for part in ("encoder", "flow", "decoder", "upsampler"):
        engine._parts[part] = _Counted(engine._parts[part], part, runs)
    try:
        parts = engine.run(TtsRequest(text="and the wind went over the hills of the old town " * 4))
        assert next(parts).pcm
        assert runs == ["encoder", "flow", "decoder", "upsampler"]
    finally:
        for part, counted in engine._parts.items():
            engine._parts[part] = counted.inner


class _Counted:
    def __init__(self, inner: Any, name: str, runs: list[str]) -> None:
        self.inner = inner
        self._name = name
        self._runs = runs

    def forward(self, inputs: Any) -> Any:
        self._runs.append(self._name)
        return self.inner.forward(inputs)


@pytest.mark.engine
@pytest.mark.parametrize("text", ["", "   ", "...", "—", "😀", "\x00", "\ud83d", "[[]]"])
def test_nothing_to_say_is_no_audio_and_no_error(engine: PiperMnnTts, text: str) -> None:
    assert list(engine.run(TtsRequest(text=text))) == []


@pytest.mark.engine
@pytest.mark.parametrize("text", ["a", "a\x00b", "[[fəʊ]] raw", "zażółć", "日本語です", "9" * 40, "x" * 90])
def test_odd_text_is_spoken_without_an_error(engine: PiperMnnTts, text: str) -> None:
    assert speak(engine, text).size > 0


@pytest.mark.engine
def test_a_cancel_ends_early_and_the_next_sentence_is_whole(engine: PiperMnnTts) -> None:
    one = speak(engine, "It is late.").size
    parts = engine.run(TtsRequest(text="This is a long story. " * 50))
    assert next(parts).pcm
    parts.close()  # type: ignore[attr-defined]
    assert speak(engine, "It is late.").size == one


@pytest.mark.engine
def test_scales_are_heeded(model_of: ModelInfo, cache_dir: Path, engine: PiperMnnTts) -> None:
    text = "Good morning to you."
    slow = loaded(model_of, cache_dir, length_scale=1.5, **STILL)
    assert speak(slow, text).size > 1.3 * speak(engine, text).size
    assert (speak(engine, text) == speak(engine, text)).all()
    noisy = loaded(model_of, cache_dir, noise_w_scale=0.0)
    first, second = speak(noisy, text), speak(noisy, text)
    assert first.size == second.size == speak(engine, text).size
    assert (first != second).any()
    free = loaded(model_of, cache_dir)
    assert len({speak(free, text).size for _ in range(6)}) > 1, "the lengths of sounds vary, too"
    loud = statistics.fmean(float(np.abs(speak(noisy, text)).max()) for _ in range(2))
    assert 0.3 < loud / 32768 <= 1.0


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    config = EngineConfig(model="x", model_dir=tmp_path, cache_dir=tmp_path, threads=1, options={"speed": 2})
    with pytest.raises(ConfigError, match="speed"):
        PiperMnnTts(config)


def test_a_missing_voice_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="fetch"):
        PiperMnnTts(EngineConfig(model="x", model_dir=tmp_path, cache_dir=tmp_path, threads=1)).load()


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("voice.json", b"{", ModelDamaged),
        ("voice.json", {"mnn": None}, ModelDamaged),
        ("voice.json", {"mnn": {"samples_per_frame": 256, "parts": {}}}, ModelDamaged),
        (
            "voice.json",
            {"mnn": {"parts": {"flow": {"inputs": [], "outputs": [], "reach": -1, "rate": 1}}}},
            ModelDamaged,
        ),
        ("voice.json", {"phoneme_type": "pinyin"}, ModelUnsupported),
        ("voice.json", {"espeak": {"voice": "no-such-language"}}, ModelUnsupported),
        ("flow.mnn", None, ModelMissing),
        ("flow.mnn", b"", ModelDamaged),
        ("encoder.mnn", b"hello " * 1000, ModelDamaged),
    ],
)
def test_a_damaged_voice_is_refused(
    model_of: ModelInfo, tmp_path: Path, name: str, content: Any, error: type[AssistantError]
) -> None:
    folder = tmp_path / "voice"
    shutil.copytree(model_of.path, folder)
    if content is None:
        (folder / name).unlink()
    elif isinstance(content, bytes):
        (folder / name).write_bytes(content)
    else:
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | content))
    with pytest.raises(error):
        PiperMnnTts(EngineConfig(model="x", model_dir=folder, cache_dir=tmp_path, threads=1)).load()
