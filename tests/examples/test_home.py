"""The simulated home, controlled by a real daemon in people's own words: what is said, and what becomes of the home."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator

import pytest

from assistant.api import wire
from assistant.api.client import Client
from assistant.messages import Outcome
from tests.api.daemon_process import Place
from tests.examples.programs import Program

pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]

DAY: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("could you pop the kitchen light on please", "The kitchen lamp is on.", {"kitchen lamp": "on"}),
    ("would you mind putting the desk lamp on", "The desk lamp is on.", {"desk lamp": "on"}),
    ("dim the floor lamp to about thirty percent", "The floor lamp is on at 30 percent.",
     {"floor lamp": "on at 30 percent"}),
    ("a little brighter in the living room", "The floor lamp is on at 50 percent.",
     {"floor lamp": "on at 50 percent"}),
    ("make the night light red", "The night light is on, red.", {"night light": "on, red"}),
    ("can you kill the lights in the kitchen", "The kitchen lamp is off.", {"kitchen lamp": "off"}),
    ("are there any lights on in the bedroom", "Yes, the night light is on, red.", {}),
    ("i'm boiling, get the ceiling fan going", "The ceiling fan is on.", {"ceiling fan": "on"}),
    ("switch everything off in the bedroom", "The night light and the ceiling fan are off.",
     {"night light": "off", "ceiling fan": "off"}),
    ("start the coffee machine would you", "The coffee machine is on.", {"coffee machine": "on"}),
    ("is the coffee machine still on", "Yes, the coffee machine is on.", {}),
    ("open the blinds in the bedroom", "The bedroom blinds are open.", {"bedroom blinds": "open"}),
    ("close the living room curtains for me", "The living room curtains are closed.",
     {"living room curtains": "closed"}),
    ("is the front door locked", "Yes, the front door is locked.", {}),
    ("unlock the front door", "The front door is unlocked.", {"front door": "unlocked"}),
    ("did i lock the front door", "No, the front door is unlocked.", {}),
    ("close the front door", "The front door is locked.", {"front door": "locked"}),
    ("has anybody left the garage door open", "No, the garage door is closed.", {}),
    ("open the garage", "The garage door is open.", {"garage door": "open"}),
    ("how warm is it in the bedroom", "It is 17.5 degrees in the bedroom; the heating is set to 20.", {}),
    ("make the bedroom twenty two degrees", "The heating in the bedroom is set to 22 degrees.",
     {"heating of the bedroom": "22 degrees"}),
    ("put some miles davis on", "Playing miles davis.", {"stereo": "playing miles davis, volume 40"}),
    ("skip this one", "The stereo is playing miles davis, track 2, volume 40.",
     {"stereo": "playing miles davis, track 2, volume 40"}),
    ("go back to the song before", "The stereo is playing miles davis, volume 40.",
     {"stereo": "playing miles davis, volume 40"}),
    ("hold the music for a second", "The stereo is paused in miles davis, volume 40.",
     {"stereo": "paused in miles davis, volume 40"}),
    ("carry on with the music", "The stereo is playing miles davis, volume 40.",
     {"stereo": "playing miles davis, volume 40"}),
    ("can you turn it up a notch", "The volume is 50 percent.", {"stereo": "playing miles davis, volume 50"}),
    ("volume at thirty five percent", "The volume is 35 percent.", {"stereo": "playing miles davis, volume 35"}),
    ("shut the sound off", "The sound is off.", {"stereo": "playing miles davis, muted"}),
    ("let me hear the sound again", "The volume is 35 percent.", {"stereo": "playing miles davis, volume 35"}),
    ("do i need an umbrella today",
     "The weather station says: light rain, 12 degrees, wind from the west.", {}),
    ("turn on the desk lamp and play some blues", "The desk lamp is on. Playing blues.",
     {"stereo": "playing blues, volume 35"}),
    ("turn off all the lights", "The kitchen lamp and the floor lamp and the desk lamp and the night light are off.",
     {"floor lamp": "off", "desk lamp": "off"}),
    ("good night, turn everything off",
     "The kitchen lamp and the floor lamp and the desk lamp and the night light and the ceiling fan"
     " and the coffee machine are off. The stereo is paused in blues, volume 35.",
     {"coffee machine": "off", "stereo": "paused in blues, volume 35"}),
)  # fmt: skip
"""What is said, what is answered, and all that changes in the home; one after the other."""

CANNOT = (
    ("turn on the lamp in the sauna", "There is no sauna here."),
    ("is the fish tank on", "There is no fish tank here."),
    ("make the bedroom sixty eight degrees", "The heating can be set to 5 to 30 degrees Celsius."),
    ("play some jazz in the kitchen", "There is no player in the kitchen."),
    ("turn the coffee machine red", "The coffee machine is not one of the lights."),
    ("lock the garage door", "The garage door has no lock."),
    ("skip this song", "Nothing is playing."),
)


class Household:
    """A daemon with the home beside it."""

    def __init__(self, home: Program, client: Client) -> None:
        self._home, self._client = home, client

    def ask(self, text: str) -> wire.Report:
        asked = self._client.ask(wire.Ask(text=text, speech=False))
        *_, last = (told for told, _ in self._client.replies(asked, within_s=30))
        assert isinstance(last, wire.Report)
        return last

    def changes(self) -> dict[str, str]:
        """All that changed by what was asked; the home prints it before it answers."""
        self._home.read_until("}\n")
        said, self._home.said = self._home.said + self._home.waiting(), ""
        found: dict[str, str] = {}
        for changed in re.findall(r": (\{.*\})\n", said):
            found |= json.loads(changed)
        return found


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with Place() as made:
        made.daemon()
        yield made


@contextlib.contextmanager
def home_at(place: Place) -> Iterator[Household]:
    with Program(place.folder, "home.py") as home, Client(place.runtime) as client:
        home.read_until("ready")
        home.said = ""
        yield Household(home, client)


@pytest.fixture
def household(place: Place) -> Iterator[Household]:
    with home_at(place) as one:
        yield one


def test_a_day_in_the_home_in_peoples_own_words(household: Household) -> None:
    for text, reply, changed in DAY:
        report = household.ask(text)
        assert (text, report.reply, report.outcome) == (text, reply, Outcome.HANDLED)
        assert (text, household.changes()) == (text, changed)


def test_what_the_home_cannot_do_is_said_and_changes_nothing(household: Household) -> None:
    for text, reply in CANNOT:
        report = household.ask(text)
        assert (text, report.reply, report.outcome) == (text, reply, Outcome.FAILED)
        assert report.error is not None
        assert report.error.code == "handler-failed"
        assert household.changes() == {}


def test_what_a_command_for_the_home_lacks_is_asked_for(household: Household) -> None:
    assert household.ask("turn it on").reply == "What shall I turn on?"  # and the home hears nothing of it
    assert household.ask("the night light").reply == "The night light is on."
    assert household.changes() == {"night light": "on"}
    assert household.ask("make it two degrees warmer").reply == "To how many degrees?"


def test_music_is_played_and_the_question_beside_it_goes_to_the_llm(household: Household) -> None:
    report = household.ask("play some jazz and tell me who invented it")
    assert report.intent.name == "HassMediaSearchAndPlay"
    assert report.intent.slots == {"search_query": "jazz"}
    assert household.changes() == {"stereo": "playing jazz, volume 40"}
    assert report.outcome is Outcome.ANSWERED
    assert report.reply.startswith("Playing jazz. ")
    assert len(report.reply) > len("Playing jazz. ") + 10
    assert report.timings_ms.llm > 0


def test_questions_are_no_commands_beside_a_home(household: Household) -> None:
    for text in ("how does a thermostat work", "why is the sky blue", "what does a lamp cost"):
        report = household.ask(text)
        assert (text, report.outcome, report.intent.name) == (text, Outcome.ANSWERED, None)


def test_when_the_home_leaves_its_names_go_and_it_is_said_that_nobody_can_do_it(place: Place) -> None:
    with Client(place.runtime) as client:
        report = Household(Program.__new__(Program), client).ask("turn on the kitchen lamp")
    assert report.outcome is Outcome.HANDLED
    assert report.reply.startswith("No program is connected that controls ")


def test_a_song_and_its_story_in_chinese() -> None:
    with Place() as place:
        place.daemon("--set", "stages.intent.language=zh")
        with home_at(place) as household:
            report = household.ask("播放周杰伦的七里香并告诉我这首歌的创作背景")
            assert report.intent.name == "HassMediaSearchAndPlay"
            assert report.intent.slots == {"search_query": "周杰伦的七里香"}
            assert household.changes() == {"stereo": "playing 周杰伦的七里香, volume 40"}
            assert report.outcome is Outcome.ANSWERED
            assert report.reply.startswith("Playing 周杰伦的七里香. ")
            assert report.timings_ms.llm > 0
            assert household.ask("下一首").reply == "The stereo is playing 周杰伦的七里香, track 2, volume 40."
