"""Templates, encoder and slots together: the engine that is the default."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant import paths
from assistant.config_sections import House
from assistant.errors import ConfigError, ModelDamaged, ModelMissing
from assistant.messages import IntentMatch, IntentRequest
from assistant.nlu.vocabulary import INTENTS
from assistant.stages.base import EngineConfig
from assistant.stages.intent_classifier import ClassifierIntent

MODEL = paths.data_file("intents-en")
HOUSE = msgspec.toml.decode((Path(__file__).parents[1] / "intents/house.toml").read_bytes(), type=House)
COFFEE = """
intents:
  OrderCoffee:
    examples:
      - i could do with a coffee
      - make me an espresso
      - brew some coffee
      - id love a cup of coffee
      - can i have a cappuccino
"""


def made(folder: Path = MODEL, **options: object) -> ClassifierIntent:
    known: dict[str, object] = {
        "language": "en",
        "intents": list(INTENTS),
        "names": {"name": HOUSE.names, "area": HOUSE.areas},
    }
    engine = ClassifierIntent(
        EngineConfig(model="en", model_dir=folder, cache_dir=Path("/"), threads=1, options=known | options)
    )
    engine.load()
    return engine


@pytest.fixture(scope="module")
def engine() -> ClassifierIntent:
    return made()


def ask(engine: ClassifierIntent, text: str, **more: object) -> list[IntentMatch]:
    return list(engine.run(IntentRequest(text=text, **more)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "name", "slots"),
    [
        ("um could you give me another five minutes on the pasta", "HassIncreaseTimer",
         {"minutes": 5, "name": "pasta"}),
        ("make it a good bit louder in the kitchen would you", "HassSetVolumeRelative",
         {"volume_step": "up", "area": "kitchen"}),
        ("we have run out of oat milk stick it on the list", "HassShoppingListAddItem", {"item": "oat milk"}),
        ("what is it like outside do i need a coat", "HassGetWeather", {}),
        ("did anybody leave the front door open", "HassGetState", {"name": "front door", "state": "open"}),
    ],
)  # fmt: skip
def test_peoples_own_words_are_understood(
    engine: ClassifierIntent, text: str, name: str, slots: dict[str, object]
) -> None:
    (match,) = ask(engine, text)
    assert (match.name, match.slots, match.source) == (name, slots, "classifier")
    assert 0.5 < match.score < 1


def test_a_template_decides_where_it_fits_word_for_word(engine: ClassifierIntent) -> None:
    (match,) = ask(engine, "turn on the kitchen lamp")
    assert (match.source, match.score, match.slots) == ("template", 1, {"name": "kitchen lamp"})


@pytest.mark.parametrize(
    "text", ["play a trick on my brother", "what is the best way to add eggs to a cake", "why is the sky blue"]
)
def test_a_question_stays_one(engine: ClassifierIntent, text: str) -> None:
    assert ask(engine, text) == [IntentMatch(name=None, text=text)]


def test_several_things_are_several_commands(engine: ClassifierIntent) -> None:
    found = ask(engine, "could you turn off the tv and the heater please")
    assert [(one.name, one.slots) for one in found] == [
        ("HassTurnOff", {"name": "tv"}),
        ("HassTurnOff", {"name": "heater"}),
    ]


def test_two_requests_in_peoples_own_words(engine: ClassifierIntent) -> None:
    music, question = ask(engine, "put on some jazz for us and tell me who invented it")
    assert (music.name, music.slots) == ("HassMediaSearchAndPlay", {"search_query": "jazz"})
    assert (question.name, question.text) == (None, "tell me who invented jazz")


def test_what_was_asked_for_completes_the_command(engine: ClassifierIntent) -> None:
    pending = IntentMatch(
        name="HassStartTimer", slots={"name": "tea"}, score=0.9, source="classifier", text="tea timer"
    )
    (match,) = ask(engine, "oh four minutes", pending=pending, wanted="duration")
    assert (match.name, match.slots, match.text) == (
        "HassStartTimer",
        {"name": "tea", "minutes": 4},
        "tea timer oh four minutes",
    )
    (other,) = ask(engine, "what time is it", pending=pending, wanted="duration")
    assert other.name == "HassGetCurrentTime"
    (none,) = ask(engine, "why is the sky blue", pending=pending, wanted="duration")
    assert none.name is None


@pytest.mark.parametrize(
    ("text", "name", "slots"),
    [
        ("set the volume to -20 percent", "HassSetVolume", {"volume_level": -20}),
        ("set the volume to minus 20", "HassSetVolume", {"volume_level": -20}),
        ("turn the volume down to about 20", "HassSetVolume", {"volume_level": 20}),
        ("set it to five minutes", "HassStartTimer", {"minutes": 5}),
        ("add five minutes", "HassStartTimer", {"minutes": 5}),
        ("-5", "HassStartTimer", {"minutes": -5}),
        ("ten to the power of nine minutes", "HassStartTimer", {}),  # it is asked again
    ],
)
def test_a_whole_command_is_no_answer_though_it_has_a_number(
    engine: ClassifierIntent, text: str, name: str, slots: dict[str, object]
) -> None:
    pending = IntentMatch(name="HassStartTimer", score=0.9, source="classifier", text="a timer")
    (match,) = ask(engine, text, pending=pending, wanted="duration")
    assert (match.name, match.slots) == (name, slots)


# --- the user's intents ---------------------------------------------------------------------------------------------
def test_an_intent_of_the_users_is_understood_by_its_examples(tmp_path: Path) -> None:
    (tmp_path / "en").mkdir()
    (tmp_path / "en/coffee.yaml").write_text(COFFEE)
    engine = made(folders=[str(tmp_path)])
    assert engine.info.notes == ()
    for text in ("brew some coffee", "make me an espresso please"):
        assert ask(engine, text)[0].name == "OrderCoffee", text
    for text in ("what time is it", "turn on the kitchen lamp", "why is the sky blue", "how is coffee made"):
        assert ask(engine, text)[0].name != "OrderCoffee", text


def test_examples_in_another_language_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "de").mkdir()
    (tmp_path / "de/kaffee.yaml").write_text("intents: {Kaffee: {examples: [mach kaffee]}}")
    engine = made(language="de", folders=[str(tmp_path)])
    assert "English" in engine.info.notes[0]
    assert ask(engine, "wie spät ist es")[0].name == "HassGetCurrentTime"


# --- settings and files ---------------------------------------------------------------------------------------------
def test_a_higher_threshold_leaves_more_to_the_llm() -> None:
    assert ask(made(threshold=0.999), "make it a good bit louder in the kitchen would you")[0].name is None


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ConfigError, match="thresholt"):
        made(thresholt=1)


def test_a_damaged_model_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    whole = (folder / "encoder.mnn").read_bytes()
    (folder / "encoder.mnn").write_bytes(whole[:-100])
    with pytest.raises(ModelDamaged, match=r"encoder\.mnn"):
        made(folder)
    (folder / "encoder.mnn").write_bytes(whole[:5000] + b"x" + whole[5001:])
    with pytest.raises(ModelDamaged, match=r"encoder\.mnn"):
        made(folder)
    (folder / "encoder.mnn").unlink()
    with pytest.raises((ModelDamaged, ModelMissing), match=r"encoder\.mnn"):
        made(folder)


@pytest.mark.parametrize(
    "text", ["", " ", "x", "um", "um uh er", "?!", "\x00", "\ud83d", "fish " * 10_000, "播放 jazz music bitte"]
)
def test_odd_texts_are_no_commands_and_no_trouble(engine: ClassifierIntent, text: str) -> None:
    assert all(one.name is None or one.name.startswith("HassMedia") for one in ask(engine, text))


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=100)
    | st.lists(st.sampled_from(["set", "a", "timer", "five", "minutes", "and", "play", "tell", "me"])).map(" ".join)
)
def test_any_text_gets_an_answer(text: str) -> None:
    assert ask(_SHARED, text)


_SHARED = made()


@pytest.mark.parametrize(
    ("text", "name", "hindrance"),
    [
        ("don't turn on the kitchen lamp", None, None),
        ("in ten minutes turn off the kitchen lamp", "HassTurnOff", "later"),
        ("turn off all the lights except the desk lamp", "HassTurnOff", "except"),
        ("turn off the kitchen lamp", "HassTurnOff", None),
        ("set a timer for ten to the power of nine minutes", "HassStartTimer", "sum"),
        ("set a timer for 5 minutes minus 3 minutes", "HassStartTimer", "sum"),
        ("set a timer for 1 hour -10 minutes", "HassStartTimer", "sum"),
        ("set the volume to half of 50 percent", "HassSetVolume", "sum"),
        ("turn the volume up by -5 percent", "HassSetVolumeRelative", "sum"),
        ("set a timer for half of an hour", "HassStartTimer", None),
    ],
)
def test_nothing_is_done_that_was_not_wanted_so(
    engine: ClassifierIntent, text: str, name: str | None, hindrance: str | None
) -> None:
    (match,) = ask(engine, text)
    assert match.name == name
    assert {"later", "except", "sum"} & set(match.slots) == ({hindrance} if hindrance else set())
