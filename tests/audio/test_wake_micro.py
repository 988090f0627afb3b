"""The engine `micro`: the scores of its package, and files that are no models."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pymicro_wakeword
import pytest
from pymicro_wakeword import MicroWakeWord, MicroWakeWordFeatures, Model

from assistant.audio.wake import WakeWords, engine
from assistant.audio.wake_files import MAX_JSON_BYTES, MAX_MODEL_BYTES, read_model
from assistant.audio.wake_micro import FEATURES, MicroFeatures, MicroWake, try_apart
from assistant.errors import ModelDamaged, ModelError, ModelUnsupported
from tests.speech_corpus import clip_pcm

PACKAGE = Path(pymicro_wakeword.__file__).parent / "models"
GOOD = json.loads((PACKAGE / "okay_nabu.json").read_text())


def described(folder: Path, network: bytes | None = None, **changes: Any) -> Path:
    """A description in a folder, and its model beside it."""
    (folder / "okay_nabu.tflite").write_bytes(
        (PACKAGE / "okay_nabu.tflite").read_bytes() if network is None else network
    )
    path = folder / "mine.json"
    path.write_text(json.dumps({**GOOD, **changes}))
    return path


# --- the package's scores -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", list(Model), ids=lambda model: model.value)
def test_the_scores_are_those_of_the_package(model: Model, speech: Path) -> None:
    pcm = b"".join(clip_pcm(speech, f"wake_{name}.wav") for name in ("hey_jarvis_1", "alexa_3", "okay_nabu_2"))
    theirs_of, theirs = MicroWakeWord.from_builtin(model), []
    for features in MicroWakeWordFeatures().process_streaming(pcm):
        theirs.append(theirs_of.process_streaming_prob(features))
    detector = MicroWake().open(model.value)
    ours = [detector.feed(frame) for frame in MicroFeatures().feed(pcm)]
    # between two steps and until enough have come, the package says 0
    assert [0.0 if score is None else score for score in ours] == pytest.approx(theirs, abs=1e-9)
    assert detector.threshold == theirs_of.probability_cutoff


def test_a_detector_that_was_reset_hears_as_if_for_the_first_time(speech: Path) -> None:
    frames = MicroFeatures().feed(clip_pcm(speech, "wake_alexa_3.wav"))
    detector = MicroWake().open("alexa")
    first = [detector.feed(frame) for frame in frames]
    assert [detector.feed(frame) for frame in frames] != first
    detector.reset()
    assert [detector.feed(frame) for frame in frames] == first
    detector.close()


def test_phrases_are_what_people_say() -> None:
    known = MicroWake()
    assert {known.phrase(word) for word in known.names} == {"alexa", "hey jarvis", "hey mycroft", "okay nabu"}


@pytest.mark.alone("processor time, which cores that are shared make longer")
def test_two_words_take_less_than_a_hundredth_of_a_core() -> None:
    """Sound of ten seconds, faster than it comes; the best of three, since other work is not what is measured."""
    pcm = (np.random.default_rng(0).normal(0, 500, 160_000)).astype("<i2").tobytes()
    took = []
    with WakeWords(engine("micro"), ["hey_jarvis", "okay_nabu"]) as words:
        for _ in range(3):
            started = time.process_time()
            for at in range(0, len(pcm), 1024):
                words.feed(pcm[at : at + 1024])
            took.append(time.process_time() - started)
    assert min(took) / 10 < 0.01


# --- files that are no models ---------------------------------------------------------------------------------------
def micro(**changes: Any) -> dict[str, Any]:
    return {**GOOD["micro"], **changes}


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"type": "macro"}, ModelUnsupported, 'only models of type "micro"'),
        ({"version": 1}, ModelUnsupported, "version 2"),
        ({"micro": micro(feature_step_size=20)}, ModelUnsupported, "steps of 10 ms"),
        ({"micro": micro(probability_cutoff=0)}, ModelDamaged, "probability_cutoff"),
        ({"micro": micro(probability_cutoff=1.5)}, ModelDamaged, "probability_cutoff"),
        ({"micro": micro(sliding_window_size=0)}, ModelDamaged, "sliding_window_size"),
        ({"micro": micro(sliding_window_size=10**9)}, ModelDamaged, "sliding_window_size"),
        ({"micro": micro(sliding_window_size="5")}, ModelDamaged, "sliding_window_size"),
        ({"micro": None}, ModelDamaged, "micro"),
        ({"wake_word": " \n "}, ModelDamaged, "must have a wake_word"),
        ({"wake_word": 5}, ModelDamaged, "wake_word"),
        ({"model": "../okay_nabu.tflite"}, ModelDamaged, "name of a file beside it"),
        ({"model": "/etc/passwd"}, ModelDamaged, "name of a file beside it"),
        ({"model": "absent.tflite"}, ModelDamaged, "There is no file"),
    ],
)
def test_a_description_that_cannot_be_is_refused(
    changes: dict[str, Any], error: type[ModelError], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says):
        read_model(described(tmp_path, **changes))


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b"null", b"\xff\xfe", b"[" * 60_000, b"x" * (MAX_JSON_BYTES + 1)], ids=repr
)
def test_what_is_no_description_is_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_bytes(text)
    with pytest.raises(ModelDamaged, match=r"mine\.json"):
        read_model(tmp_path / "mine.json")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.json")
    with pytest.raises(ModelDamaged, match="There is no file"):
        read_model(tmp_path / "mine.json")


@pytest.mark.parametrize(
    "model",
    [b"", b"TFL3", b"abcdefghijkl", bytes(4) + b"TFL3", bytes(4) + b"TFL3" + bytes(MAX_MODEL_BYTES)],
    ids=["empty", "short", "letters", "head alone", "too large"],
)
def test_a_file_that_is_no_network_is_refused(model: bytes, tmp_path: Path) -> None:
    described(tmp_path, model)
    with pytest.raises(ModelDamaged, match=r"okay_nabu\.tflite"):
        MicroWake([tmp_path]).open("mine")


def test_damaged_networks_are_refused_or_run_and_never_end_the_process(tmp_path: Path) -> None:
    """Cut, and with bytes changed at random places: the ones that still load must also run."""
    whole = (PACKAGE / "okay_nabu.tflite").read_bytes()
    chance = random.Random(5)
    refused = 0
    cuts = [whole[: len(whole) * part // 20] for part in range(1, 20)]
    for data in (*cuts, *(changed(whole, chance) for _ in range(60))):
        described(tmp_path, data)
        try:
            detector = MicroWake([tmp_path]).open("mine")
        except ModelError:
            refused += 1
            continue
        scores = [detector.feed(frame) for frame in MicroFeatures().feed(bytes(16_000))]
        assert any(score is not None for score in scores)
        detector.close()
    assert refused > len(cuts)


class Deadly:
    """A library that ends the process which gives it a model, as one with a fault in it does."""

    def __init__(self, how: signal.Signals) -> None:
        self._how = how

    def TfLiteModelCreateFromFile(self, path: bytes) -> None:
        os.kill(os.getpid(), self._how)


@pytest.mark.parametrize("how", [signal.SIGSEGV, signal.SIGALRM, signal.SIGKILL])
def test_a_network_that_ends_its_process_ends_a_child(how: signal.Signals, tmp_path: Path) -> None:
    model = read_model(described(tmp_path))
    with pytest.raises(ModelDamaged, match="ends the process which runs it"):
        try_apart(Deadly(how), model)


def changed(whole: bytes, chance: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(chance.choice([1, 5, 50])):
        data[chance.randrange(8, len(data))] = chance.randrange(256)
    return bytes(data)


def test_features_come_every_10_ms_once_there_are_30() -> None:
    frames = MicroFeatures().feed(bytes(32_000))
    assert [frame.samples for frame in frames] == [480 + 160 * at for at in range(98)]
    assert all(len(frame.values) == FEATURES for frame in frames)


def test_a_folder_of_ones_own_comes_before_the_package(tmp_path: Path) -> None:
    shutil.copy(PACKAGE / "okay_nabu.tflite", tmp_path / "computer.tflite")
    described = (PACKAGE / "okay_nabu.json").read_text()
    (tmp_path / "computer.json").write_text(described.replace("okay_nabu.tflite", "computer.tflite"))
    (tmp_path / "alexa.json").write_text(described.replace("Okay Nabu", "Someone else"))
    shutil.copy(PACKAGE / "okay_nabu.tflite", tmp_path / "okay_nabu.tflite")
    chosen = engine("micro", [tmp_path, tmp_path / "nowhere"])
    assert {"computer", "alexa", "hey_jarvis"} <= set(chosen.names)
    assert chosen.phrase("alexa") == "someone else"
    with WakeWords(chosen, ["computer"]) as words:
        assert words.phrase("computer") == "okay nabu"
        assert words.feed(bytes(40_960)) == []
