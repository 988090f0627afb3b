"""Sentences of the user's own, files that are broken, and languages other than English."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assistant.messages import IntentMatch, IntentRequest
from assistant.nlu.vocabulary import INTENTS
from assistant.stages.base import EngineConfig
from assistant.stages.intent_templates import LOOSE, TemplateIntent

COFFEE = """
intents:
  OrderCoffee:
    data:
      - sentences: ["(make|brew) [me] [a] {strength} coffee"]
lists:
  strength:
    values: [strong, weak]
"""


def made(language: str = "en", **options: object) -> TemplateIntent:
    options = {"language": language, "intents": list(INTENTS)} | options
    engine = TemplateIntent(
        EngineConfig(model=language, model_dir=Path("/"), cache_dir=Path("/"), threads=1, options=options)
    )
    engine.load()
    return engine


def ask(engine: TemplateIntent, text: str) -> IntentMatch:
    return next(engine.run(IntentRequest(text=text)))


def folder(root: Path, files: dict[str, str | bytes], language: str = "en") -> str:
    place = root / language
    place.mkdir(parents=True)
    for name, content in files.items():
        (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return str(root)


# --- the user's own -------------------------------------------------------------------------------------------------
def test_a_file_of_the_users_adds_an_intent(tmp_path: Path) -> None:
    engine = made(folders=[folder(tmp_path, {"coffee.yaml": COFFEE})])
    match = ask(engine, "Brew me a strong coffee, please")
    assert (match.name, match.slots, engine.info.notes) == ("OrderCoffee", {"strength": "strong"}, ())
    assert ask(engine, "what time is it").name == "HassGetCurrentTime"


def test_it_adds_sentences_to_an_intent_that_we_have(tmp_path: Path) -> None:
    file = 'intents: {HassGetCurrentTime: {data: [{sentences: ["how goes the enemy"]}]}}'
    engine = made(folders=[folder(tmp_path, {"own.yaml": file})])
    assert ask(engine, "how goes the enemy").name == "HassGetCurrentTime"
    assert ask(engine, "what time is it").name == "HassGetCurrentTime"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("intents:\n  A: [\n", "line 3"),
        ("intents:\n  OrderTea:\n    data:\n      - sentences:\n          - 'tea (now'\n", "line 5"),
        ("intents:\n  OrderTea:\n    data:\n      - sentences: ['<drink> now']\n", "<drink>"),
        ("intents: 5", "`intents`"),
        ("- a\n- b\n", "`intents`"),
        ("", "`intents`"),
        ("intents: {'a b': {data: []}}", "no name of an intent"),
        ("intents: {Tea: {sentences: [tea]}}", "`data` or `examples`"),
        ("intents: {Tea: {data: [{sentences: tea}]}}", "a list of texts"),
        ("intents: {Tea: {data: [{sentences: [5]}]}}", "a list of texts"),
        ("intents: {Tea: {examples: [{}]}}", "`examples`"),
        ("intents: {Tea: {data: [{sentences: [tea]}]}}\nlists: [5]", "`lists`"),
        ("intents: {Tea: {data: [{sentences: ['tea {size}']}]}}\nlists: {size: {values: 5}}", "broken.yaml"),
        ("intents: {Tea: {data: 7}}", "`data` is a list"),
        ("intentz: {Tea: {data: []}}\nintents: {}", "intentz"),
        ("intents: {Tea: {data: [{sentences: ['tea {nolist}']}]}}", "{nolist}"),
        ("intents: {Tea: {data: [{sentences: ['<r>']}]}}\nexpansion_rules: {r: '<s>', s: '<r>'}", "leads back"),
        (
            "intents: {Tea: {data: [{sentences: ['tea {n}']}]}}\nlists: {n: {range: {from: 1, to: 5, step: 0}}}",
            "broken.yaml",
        ),
        ("intents: {Tea: {data: [{sentences: ['" + "[" * 300 + "']}]}}", "broken.yaml"),
        (b"intents: {\xff\xfe", "not UTF-8"),
        (b"intents: " + b"[" * 5000, "broken.yaml"),
        (b"#" * (1024 * 1024 + 1), "more than 1024 KiB"),
    ],
)
def test_of_a_broken_file_the_reason_is_told_and_the_rest_is_loaded(
    tmp_path: Path, content: str | bytes, told: str
) -> None:
    files: dict[str, str | bytes] = {"broken.yaml": content, "coffee.yaml": COFFEE}
    engine = made(folders=[folder(tmp_path, files)])
    (note,) = engine.info.notes
    assert str(tmp_path / "en/broken.yaml") in note
    assert told in note
    assert "left out" in note
    assert ask(engine, "make a weak coffee").name == "OrderCoffee"
    assert ask(engine, "what time is it").name == "HassGetCurrentTime"
    assert ask(engine, "tea").name is None


def test_an_unreadable_file_is_told(tmp_path: Path) -> None:
    place = folder(tmp_path, {"coffee.yaml": COFFEE})
    (tmp_path / "en/folder.yaml").mkdir()
    os.mkfifo(tmp_path / "en/pipe.yaml")
    engine = made(folders=[place])
    assert "cannot be read" in engine.info.notes[0]
    assert "pipe.yaml is no file" in engine.info.notes[1]
    assert ask(engine, "make a weak coffee").name == "OrderCoffee"


def test_files_of_other_languages_are_left_alone(tmp_path: Path) -> None:
    engine = made(folders=[folder(tmp_path, {"coffee.yaml": COFFEE}, "de")])
    assert ask(engine, "make a weak coffee").name is None
    assert engine.info.notes == ()


def test_a_thing_of_two_names_is_the_first() -> None:
    engine = made(names={"name": ["kitchen lamp|big light"]})
    assert ask(engine, "turn on the big light").slots == {"name": "kitchen lamp"}


def test_a_match_in_which_words_may_be_anything_is_less_sure() -> None:
    assert ask(made(), "play something nice").score == LOOSE
    assert ask(made(), "pause the music").score == 1


def test_no_sentence_takes_any_words_before_in_five_minutes() -> None:
    assert ask(made(), "what will the weather be like in five minutes").name is None


def test_down_stays_down_after_up_by_as_much() -> None:
    engine = made()
    steps = [ask(engine, f"turn {way} the volume by five percent").slots for way in ("up", "down", "up")]
    assert steps == [{"volume_step": 5}, {"volume_step": -5}, {"volume_step": 5}]
    assert ask(engine, "set the volume to five percent").slots == {"volume_level": 5}


def test_polite_words_may_be_the_beginning_of_a_command() -> None:
    assert ask(made(), "i need dog food on my list").slots == {"item": "dog food"}


# --- languages ------------------------------------------------------------------------------------------------------
PLACES = {"de": "küche", "fr": "cuisine", "zh": "客厅", "ko": "거실"}
ROWS = (Path(__file__).parents[1] / "intents/languages.tsv").read_text("utf-8").splitlines()
SENTENCES = [tuple(row.split("\t")) for row in ROWS if not row.startswith("#")]


@pytest.fixture(scope="module")
def engines() -> dict[str, TemplateIntent]:
    return {language: made(language, names={"area": [area]}) for language, area in PLACES.items()}


@pytest.mark.parametrize(("language", "text", "intent"), SENTENCES)
def test_sentences_of_other_languages(
    engines: dict[str, TemplateIntent], language: str, text: str, intent: str
) -> None:
    assert (ask(engines[language], text).name or "-") == intent


@pytest.mark.parametrize("language", PLACES)
def test_each_language_has_a_few_dozen(language: str) -> None:
    assert sum(one[0] == language for one in SENTENCES) >= 24


def test_rules_of_english_leave_the_words_of_other_languages_alone() -> None:
    engine = made("zh")
    matches = list(engine.run(IntentRequest(text="播放周杰伦的七里香并告诉我这首歌的创作背景")))
    assert [match.name for match in matches] == ["HassMediaSearchAndPlay", None]
    assert matches[0].slots == {"search_query": "周杰伦的七里香"}
    assert "周杰伦的七里香" in matches[1].text


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("play something", {}),
        ("play anything in the kitchen", {"area": "kitchen"}),
        ("play songs by the beatles", {"search_query": "the beatles"}),
        ("play the album thriller", {"search_query": "thriller", "media_class": "album"}),
    ],
)
def test_only_what_is_looked_for_is_the_search(text: str, slots: dict[str, str]) -> None:
    assert ask(made(names={"area": ["kitchen"]}), text).slots == slots


def test_many_examples_are_bounded_over_all_files_and_told(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"{name}.yaml": f"intents: {{{name.upper()}: {{examples: [{', '.join(f'{name} {n}' for n in range(200))}]}}}}"
        for name in ("a", "b")
    }
    engine = made(folders=[folder(tmp_path, files)])
    (note,) = engine.info.notes
    assert "b.yaml" in note
    assert "at most 300" in note


def test_a_list_of_the_users_that_hassil_cannot_use_is_told_though_no_sentence_of_his_needs_it(tmp_path: Path) -> None:
    file = "intents: {Tea: {data: [{sentences: [tea]}]}}\nlists: {volume: {range: {from: 1, to: 5, step: 0}}}"
    engine = made(folders=[folder(tmp_path, {"broken.yaml": file})])
    assert "broken.yaml" in engine.info.notes[0]
    assert ask(engine, "set the volume to 30 percent").slots == {"volume_level": 30}


@pytest.mark.parametrize(
    ("text", "intent", "name"),
    [
        ("打开台灯", "HassTurnOn", "台灯"),
        ("关掉台灯", "HassTurnOff", "台灯"),
        ("把台灯关上", "HassTurnOff", "台灯"),
        ("打开前门", "HassTurnOn", "前门"),
        ("解锁前门", "HassTurnOff", "前门"),
        ("锁上前门", "HassTurnOn", "前门"),
        ("打开门锁", "HassTurnOff", "门锁"),
    ],
)
def test_one_verb_opens_a_lamp_and_unlocks_a_lock(text: str, intent: str, name: str) -> None:
    found = ask(made("zh", names={"name": ["台灯", "前门", "门锁"]}), text)
    assert (found.name, found.slots.get("name")) == (intent, name)
