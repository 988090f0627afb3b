"""The Piper engine on the real voice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant import paths
from assistant.errors import ConfigError, ModelDamaged, ModelMissing, ModelUnsupported
from assistant.messages import TtsRequest
from assistant.stages.base import EngineConfig
from assistant.stages.piper_voice import cut_phonemes
from assistant.stages.piper_windows import FIRST_WINDOW, WINDOW
from assistant.stages.tts_piper import PiperTts
from tests.lacking import lacks

NAME = "en_US-joe-medium"
STILL = {"noise_scale": 0.0, "noise_w_scale": 0.0}
RATE = 22_050


@pytest.fixture(scope="module")
def model_dir() -> Path:
    folder = paths.models_dir() / NAME
    if not (folder / f"{NAME}.onnx").is_file():
        lacks("models", f"{folder} is not there: scripts/setup fetches it")
    return folder


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def config(model_dir: Path, cache_dir: Path, **options: Any) -> EngineConfig:
    return EngineConfig(model=NAME, model_dir=model_dir, cache_dir=cache_dir, threads=2, options=options)


@pytest.fixture(scope="module")
def engine(model_dir: Path, cache_dir: Path) -> Iterator[PiperTts]:
    engine = PiperTts(config(model_dir, cache_dir, **STILL))
    engine.load()
    yield engine
    engine.close()


def speak(engine: PiperTts, text: str) -> np.ndarray[Any, np.dtype[np.int16]]:
    return np.frombuffer(b"".join(audio.pcm for audio in engine.run(TtsRequest(text=text))), "<i2")


@pytest.mark.engine
def test_a_sentence_becomes_audio_in_windows(engine: PiperTts) -> None:
    parts = list(engine.run(TtsRequest(text="The capital of France is Paris.")))
    assert {part.sample_rate for part in parts} == {RATE}
    assert len(parts[0].pcm) == FIRST_WINDOW * 256 * 2
    assert all(len(part.pcm) <= (WINDOW + 2) * 256 * 2 for part in parts)
    samples = speak(engine, "The capital of France is Paris.")
    assert 1.5 < samples.size / RATE < 2.5
    assert 0.3 < np.abs(samples).max() / 32768 < 1.0
    assert (engine.info.name, engine.info.sample_rate, engine.info.streaming) == ("piper", RATE, True)


@pytest.mark.engine
def test_the_windows_join_to_what_the_uncut_network_says(engine: PiperTts, model_dir: Path) -> None:
    from piper import PiperVoice, SynthesisConfig

    text = "Today is Sunday, and the sun is shining over the hills of the old town."
    voice = PiperVoice.load(model_dir / f"{NAME}.onnx")
    still = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0, normalize_audio=False)
    (chunk,) = voice.synthesize(text, still)
    mine = speak(engine, text).astype(np.float64)
    theirs = chunk.audio_float_array.astype(np.float64)
    assert mine.size == theirs.size
    gain = float(mine @ theirs / (theirs @ theirs))
    assert np.abs(mine - gain * theirs).max() <= 3.0  # of 32,768: rounding


@pytest.mark.engine
@pytest.mark.parametrize("text", ["", "   ", "\n", "...", "?!", "—", "😀", "\x00", "\ud83d", "[[]]", "***"])
def test_nothing_to_say_is_no_audio_and_no_error(engine: PiperTts, text: str) -> None:
    assert list(engine.run(TtsRequest(text=text))) == []


@pytest.mark.engine
@pytest.mark.parametrize(
    "text",
    ["a\x00b", "lone \ud83d half", "[[fəʊ]] raw", "😀 smile", "zażółć", "日本語です", "9" * 40, "x" * 90, "\u202eabc"],
)
def test_odd_text_is_spoken_without_an_error(engine: PiperTts, text: str) -> None:
    assert speak(engine, text).size > 0


@pytest.mark.engine
def test_two_sentences_come_one_after_the_other_and_a_cancel_ends_early(engine: PiperTts) -> None:
    one, two = (speak(engine, text).size for text in ("It is late.", "It is late. Good night."))
    assert two > one * 1.3
    parts = engine.run(TtsRequest(text="This is a long story. " * 50))
    assert next(parts).pcm
    parts.close()  # type: ignore[attr-defined]
    assert speak(engine, "It is late.").size == one


@pytest.mark.engine
def test_memory_does_not_grow_with_the_text(model_dir: Path, cache_dir: Path, engine: PiperTts) -> None:
    """250 characters in one run of the uncut network take 420 MiB."""
    code = """
import sys; from pathlib import Path
from assistant.messages import TtsRequest
from assistant.stages.base import EngineConfig
from assistant.stages.tts_piper import PiperTts
name, models, cache = sys.argv[1:]
engine = PiperTts(EngineConfig(model=name, model_dir=Path(models), cache_dir=Path(cache), threads=2))
engine.load()
text = "and the wind went over the hills of the old town " * 12
seconds = sum(len(audio.pcm) for audio in engine.run(TtsRequest(text=text))) / 2 / 22050
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
anon = int(status["RssAnon"].split()[0]) // 1024
file = int(status["RssFile"].split()[0]) // 1024
print(seconds, anon, file)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, NAME, str(model_dir), str(cache_dir)], capture_output=True, text=True, check=True
    )
    seconds, anon, file = map(float, done.stdout.split())
    assert engine.info.model == NAME  # the cache is made
    assert seconds > 20
    assert anon < 120
    assert file > 60  # the weights are mapped, not copied


def test_a_missing_voice_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="fetch"):
        PiperTts(config(tmp_path, tmp_path)).load()
    (tmp_path / f"{NAME}.onnx").write_bytes(b"x")
    with pytest.raises(ModelMissing, match="json"):
        PiperTts(config(tmp_path, tmp_path)).load()


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["one byte less", "empty", "text"])
def test_a_damaged_network_is_refused(model_dir: Path, tmp_path: Path, kind: str) -> None:
    content = {"empty": b"", "text": b"hello " * 1000}.get(kind)
    if content is None:
        content = (model_dir / f"{NAME}.onnx").read_bytes()[:-1]
    (tmp_path / f"{NAME}.onnx").write_bytes(content)
    shutil.copy(model_dir / f"{NAME}.onnx.json", tmp_path)
    with pytest.raises(ModelDamaged):
        PiperTts(config(tmp_path, tmp_path / "cache")).load()
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.engine
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("{", ModelDamaged),
        ("[]", ModelDamaged),
        ("\x00\xff", ModelDamaged),
        ({"audio": None}, ModelDamaged),
        ({"audio": {"sample_rate": "x"}}, ModelDamaged),
        ({"phoneme_id_map": {}}, ModelDamaged),
        ({"phoneme_type": "runes"}, ModelDamaged),
        ({"phoneme_type": "pinyin"}, ModelUnsupported),
        ({"espeak": {"voice": "no-such-language"}}, ModelUnsupported),
    ],
)
def test_a_damaged_configuration_is_refused(
    model_dir: Path,
    cache_dir: Path,
    engine: PiperTts,
    tmp_path: Path,
    change: str | dict[str, Any],
    error: type[Exception],
) -> None:
    assert engine.info.model == NAME  # the cache is made
    (tmp_path / f"{NAME}.onnx").symlink_to(model_dir / f"{NAME}.onnx")
    if isinstance(change, dict):
        change = json.dumps(json.loads((model_dir / f"{NAME}.onnx.json").read_text()) | change)
    (tmp_path / f"{NAME}.onnx.json").write_text(change, "latin-1")
    with pytest.raises(error):
        PiperTts(config(tmp_path, cache_dir)).load()


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="speed"):
        PiperTts(config(tmp_path, tmp_path, speed=2))


@pytest.mark.engine
def test_a_greater_length_scale_speaks_slower(model_dir: Path, cache_dir: Path, engine: PiperTts) -> None:
    slow = PiperTts(config(model_dir, cache_dir, length_scale=1.5, **STILL))
    slow.load()
    assert speak(slow, "Good morning to you.").size > 1.3 * speak(engine, "Good morning to you.").size


@given(st.lists(st.sampled_from(["a", " ", "ˈ"]), max_size=200), st.integers(2, 40))
def test_long_phonemes_are_cut_and_none_is_lost(phonemes: list[str], longest: int) -> None:
    parts = list(cut_phonemes(phonemes, longest))
    assert [each for part in parts for each in part] == phonemes
    assert all(len(part) <= longest for part in parts)
