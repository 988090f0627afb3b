"""Which of our intents a sentence of a public corpus is taken for, and which are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.nlu.vocabulary import INTENTS
from assistant.training.corpora import CLINC, NONE, SLURP, Labelled, clinc, decided, halves, slurp


@pytest.mark.parametrize(
    ("rules", "text", "intent"),
    [
        (CLINC["time"], "what time is it in tokyo", NONE),
        (CLINC["time"], "what time is it right now", "HassGetCurrentTime"),
        (CLINC["date"], "what is tomorrow's date", "HassGetCurrentDate"),
        (CLINC["date"], "what's the date 400 days from now", None),
        (CLINC["change_volume"], "please increase the volume to 4", "HassSetVolume"),
        (CLINC["change_volume"], "turn up the volume", "HassSetVolumeRelative"),
        (CLINC["change_volume"], "i want you to your volume", None),
        (CLINC["shopping_list_update"], "put milk on my shopping list", "HassShoppingListAddItem"),
        (CLINC["shopping_list_update"], "remove chips from my shopping list", "HassShoppingListCompleteItem"),
        (CLINC["shopping_list_update"], "remove carrots from my shopping list and add soda", None),
        (CLINC["timer"], "set a ten second timer", "HassStartTimer"),
        (CLINC["timer"], "wake me in an hour", None),
        (CLINC["alarm"], "set an alarm for 9 am", NONE),
        (SLURP["iot_hue_lightoff"], "turn off the porch light", "HassTurnOff"),
        (SLURP["iot_hue_lightdim"], "dim the lights to level two", "HassLightSet"),
        (SLURP["play_audiobook"], "resume my audiobook", None),
        (SLURP["play_music"], "play songs by the beatles", "HassMediaSearchAndPlay"),
        (SLURP["lists_remove"], "clear out the shopping list", "AssistantShoppingListClear"),
    ],
)
def test_a_sentence_gets_our_label_only_where_there_is_no_doubt(
    rules: tuple[tuple[str, str | None], ...], text: str, intent: str | None
) -> None:
    assert decided(text, rules) == intent


def test_halves_have_no_sentence_in_common() -> None:
    lines = [Labelled(f"line {number // 2}", NONE) for number in range(20)]
    one, other = halves(lines)
    assert len(one) == len(other) == 5
    assert not set(one) & set(other)


def test_the_corpora_give_thousands_of_sentences_with_labels_that_we_have(corpora: Path) -> None:
    known = {*INTENTS, NONE}
    lines = [*clinc(corpora / "clinc150_full.json", "test"), *slurp(corpora / "slurp_devel_test.tsv")]
    assert len(lines) > 8000
    assert {one.intent for one in lines} <= known
    assert sum(one.intent != NONE for one in lines) > 1000
