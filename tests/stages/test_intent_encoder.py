"""The classifier that ships: what it says, how fast, with how much memory, and damaged files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.errors import ModelDamaged, ModelMissing
from assistant.stages.intent_encoder import META, NONE, WORDS, Prototypes, SentenceClassifier, checked, plain

SHIPPED = Path(__file__).parents[2] / "assistant/data/intents-en"

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def classifier() -> SentenceClassifier:
    return SentenceClassifier.load(SHIPPED)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("could you maybe get a quarter hour countdown going for the lasagne", "HassStartTimer"),
        ("the potatoes are still hard give them four more minutes on the timer", "HassIncreaseTimer"),
        ("hold the egg timer a second", "HassPauseTimer"),
        ("how much longer has my bread timer got", "HassTimerStatus"),
        ("its pitch black in the hallway could somebody put the light on", "HassTurnOn"),
        ("i can barely hear this crank it up", "HassSetVolumeRelative"),
        ("whack the volume up to seventy", "HassSetVolume"),
        ("we have run out of oat milk stick it on the shopping list", "HassShoppingListAddItem"),
        ("whats on my shopping list", "AssistantShoppingListRead"),
        ("What's the weather like, please?", "HassGetWeather"),
        ("what was that you just said", "AssistantRepeat"),
        ("who invented the egg timer", None),
        ("write a poem about the light in the kitchen", None),
        ("set an alarm for seven in the morning", None),
        ("what is the capital of france", None),
    ],
)
def test_what_people_mean(classifier: SentenceClassifier, text: str, name: str | None) -> None:
    assert classifier.classify(text).name == name


def test_scores_are_probabilities_and_name_the_likeliest_command(classifier: SentenceClassifier) -> None:
    found = classifier.classify("turn the kitchen lamp off")
    assert sum(odds for _, odds in found.ranking) == pytest.approx(1)
    assert found.ranking[0] == ("HassTurnOff", found.score)
    none = classifier.classify("who was the first man on the moon")
    assert none.name is None
    assert none.ranking[0][0] == NONE
    assert none.score < classifier.meta.threshold


def test_case_and_punctuation_change_nothing(classifier: SentenceClassifier) -> None:
    assert plain("What's  the_TIME, now?! 50% 20°C") == "whats the time now 50 percent 20 degrees"
    same = [classifier.classify(text).ranking for text in ("What’s the time?", "whats the time")]
    assert same[0] == same[1]


@pytest.mark.parametrize(
    "text", ["", " ", "...", "🎉", "\x00", "播放周杰伦的七里香", "x", "um", "\ud800", "a" * 100_000]
)
def test_odd_text_is_no_command(classifier: SentenceClassifier, text: str) -> None:
    assert classifier.classify(text).name is None


@pytest.mark.alone("within half a second")
def test_ten_thousand_words_take_no_longer_than_a_long_sentence(classifier: SentenceClassifier) -> None:
    started = time.perf_counter()
    found = classifier.classify("turn on the light " * 2500)
    assert time.perf_counter() - started < 0.5
    assert len(found.ranking) == len(classifier.names) + 1
    assert np.isfinite(classifier.embed("word " * 10_000)).all()


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_no_text_is_a_traceback(text: str) -> None:
    found = _kept().classify(text)
    assert 0 <= found.score <= 1


_loaded: list[SentenceClassifier] = []


def _kept() -> SentenceClassifier:
    if not _loaded:
        _loaded.append(SentenceClassifier.load(SHIPPED))
    return _loaded[0]


def test_the_model_is_small() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 20_000_000
    notice = (SHIPPED / "NOTICE").read_text("utf-8")
    assert all(
        name in notice for name in ("all-MiniLM-L6-v2", "Apache-2.0", "CLINC150", "CC BY 3.0", "SLURP", "CC BY 4.0")
    )


@pytest.mark.alone("loads and answers within milliseconds")
def test_it_is_quick_and_light() -> None:
    """In a process of its own: what it takes beyond the libraries, the time to be ready and of a sentence."""
    code = f"""
import json, time
from pathlib import Path
import numpy
from assistant.model_store.mnn_tools import silent_stdout
with silent_stdout():
    import MNN.nn, MNN.expr
from assistant.stages.intent_encoder import SentenceClassifier
def anonymous():
    return sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Anonymous"))
before, loads, times = anonymous(), [], []
encoder = SentenceClassifier.load(Path({str(SHIPPED)!r}))
taken = anonymous() - before
for _ in range(6):
    started = time.perf_counter()
    SentenceClassifier.load(Path({str(SHIPPED)!r}))
    loads.append(time.perf_counter() - started)
for number in range(40):
    started = time.perf_counter()
    encoder.classify(f"set a timer for {{number}} minutes and tell me when the pasta is ready")
    times.append(time.perf_counter() - started)
print(json.dumps([min(loads), min(times), taken]))
"""
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    ready, sentence, kilobytes = (min(run[at] for run in runs) for at in range(3))
    # the best of a few: other work on the machine is not what is measured
    assert ready <= 0.1
    assert sentence <= 0.02
    assert kilobytes <= 15 * 1024, "are the weights unpacked, or there twice?"


@pytest.mark.parametrize("harm", ["cut", "altered", "missing", "no meta", "broken meta", "other format"])
def test_damaged_files_are_found_and_the_user_is_told_what_to_do(tmp_path: Path, harm: str) -> None:
    folder = tmp_path / "intents-en"
    shutil.copytree(SHIPPED, folder)
    table, meta = folder / WORDS, folder / META
    if harm == "cut":
        table.write_bytes(table.read_bytes()[:-1])
    elif harm == "altered":
        data = bytearray(table.read_bytes())
        data[1000] ^= 1
        table.write_bytes(data)
    elif harm == "missing":
        table.unlink()
    elif harm == "no meta":
        meta.unlink()
    elif harm == "broken meta":
        meta.write_text("{")
    else:
        meta.write_text(json.dumps(json.loads(meta.read_text()) | {"format": 99}))
    with pytest.raises((ModelMissing, ModelDamaged), match=r"install|version") as caught:
        SentenceClassifier.load(folder)
    assert isinstance(caught.value, ModelMissing) == (harm in ("missing", "no meta"))


def test_the_marks_in_meta_are_those_of_the_files() -> None:
    assert len(checked(SHIPPED).files) == 4


def test_intents_by_example(classifier: SentenceClassifier) -> None:
    own = Prototypes(classifier)
    assert own.nearest("order me a taxi") == (None, 0.0)
    own.add("OrderTaxi", ["order me a taxi", "i need a cab", "call a taxi to the house", "get me a ride into town"])
    own.add("TellJoke", ["tell me a joke", "make me laugh", "say something funny", "do you know a good joke"])
    own.add("TellJoke", ["crack a joke please"])
    own.add("Nothing", ["", "..."])
    assert own.nearest("could you get me a cab to the station")[0] == "OrderTaxi"
    assert own.nearest("do you know any jokes")[0] == "TellJoke"
    for text in ("", "what is the capital of france", "how tall is mount everest", "turn on the kitchen lamp"):
        assert own.nearest(text)[0] is None, own.nearest(text)
