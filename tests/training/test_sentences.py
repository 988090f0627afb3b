"""Walks over templates, and what happens to sentences on the way to the encoder."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import hassil
import msgspec
import pytest
import yaml  # type: ignore[import-untyped]
from hassil.intents import Intents

from assistant.nlu.vocabulary import INTENTS
from assistant.stages.intent_encoder import plain
from assistant.training.samples import CLASSES, DATA, Share, Sources
from assistant.training.variety import Slips, Variety, digits
from assistant.training.walks import Walker, Words, frames, shipped

WORDS = Words(yaml.safe_load((DATA / "words_en.yaml").read_text("utf-8")))


def test_walks_over_a_template_reach_every_branch_and_nothing_else() -> None:
    data = {
        "language": "en",
        "intents": {"Make": {"data": [{"sentences": ["(make|cook) [some] {dish} [for {count} people]"]}]}},
        "lists": {"dish": {"values": ["soup", "rice"]}, "count": {"range": {"from": 2, "to": 4}}},
    }
    walked = Counter(Walker(data, WORDS, random.Random(1)).sentences("Make", 2000))
    assert {"make soup", "cook some rice", "make some soup for two people", "cook rice for 3 people"} <= set(walked)
    grammar = Intents.from_dict(data)
    assert all(hassil.recognize(text, grammar) for text in walked)
    assert walked["make soup"] > 50, "rare branches are not drowned by numbers"


def test_every_intent_is_walked_in_both_kinds_of_templates() -> None:
    rng = random.Random(2)
    loose = Walker(frames(WORDS, yaml.safe_load((DATA / "frames_en.yaml").read_text("utf-8"))), WORDS, rng)
    for walker, names in ((shipped(WORDS, INTENTS, rng), INTENTS), (loose, (*INTENTS, "Other"))):
        for name in names:
            texts = list(walker.sentences(name, 40))
            assert len(texts) >= 30, name
            assert not [text for text in texts if set("{}<>[]()|") & set(text)], name


def test_the_same_seed_walks_the_same_way() -> None:
    one, other = (list(shipped(WORDS, INTENTS, random.Random(3)).sentences("HassStartTimer", 50)) for _ in range(2))
    assert one == other


@pytest.mark.parametrize(
    ("text", "written"),
    [("twenty five minutes", "25 minutes"), ("one egg", "one egg"), ("ninety", "90"), ("two two", "2 2")],
)
def test_number_words_become_digits(text: str, written: str) -> None:
    assert digits(text) == written


def test_variety_leaves_most_sentences_and_changes_some_a_little() -> None:
    variety = Variety(msgspec.convert(yaml.safe_load((DATA / "slips_en.yaml").read_text("utf-8")), Slips))
    rng = random.Random(4)
    made = Counter(variety.of("set the timer for ten minutes", rng) for _ in range(1000))
    assert 400 < made["set the timer for ten minutes"] < 750
    assert len(made) > 60
    assert {"set the timer for 10 minutes", "set the time are for ten minutes"} <= set(made)


def test_written_sentences_have_known_labels_and_are_in_the_encoder_s_spelling() -> None:
    for path in sorted(DATA.glob("*.tsv")):
        lines = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
        assert lines
        assert {label for _, label in lines} <= set(CLASSES)
        assert all(plain(text) for text, _ in lines)


def test_what_is_kept_for_judging_is_never_learnt(corpora: Path) -> None:
    sources = Sources(sorted(DATA.glob("*.tsv")), corpora, seed=1)
    kept = {one.text for lines in sources.kept.values() for one in lines}
    share = Share(template=2, frame=2, frame_other=20, corpus_other=200)
    epochs = [sources.epoch(number, share) for number in range(2)]
    assert len(kept) > 7000
    assert all(len(lines) > 5000 for lines in epochs)
    assert not kept & {one.text for lines in epochs for one in lines}
    assert sources.epoch(0, share)[:50] != epochs[1][:50]


def test_a_label_that_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("turn it on\tHassTurnOn\nwhat\tHassWhat\n")
    with pytest.raises(ValueError, match=r"a\.tsv, line 2: 'HassWhat' is no intent"):
        Sources([tmp_path / "a.tsv"], tmp_path, seed=1)
