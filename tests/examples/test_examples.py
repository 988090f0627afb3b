"""Every program in `examples/`, as a process beside a real daemon with the embedded models."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import signal
import sys
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant import paths
from assistant.api.client import Client
from assistant.messages import Stage
from tests.api.backend import SpeakingVoice, served
from tests.api.daemon_process import Place
from tests.examples.programs import EXAMPLES, Program

FILES = sorted(EXAMPLES.glob("*.py"))
QUESTION = str(paths.data_file("question.wav"))
LONGEST = 60
A_WHOLE_HOME = {"simulated_home": 200}


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with Place() as made:
        made.daemon()
        yield made


def ask(place: Place, text: str) -> dict[str, str]:
    report = place.json("ask", text, "--no-speech")
    return {"reply": report["reply"], "outcome": report["outcome"], "intent": report["intent"]["name"]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_fits_on_a_screen_and_is_in_the_list(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= A_WHOLE_HOME.get(path.stem, LONGEST)
    assert path.name in (EXAMPLES / "README.md").read_text("utf-8")
    if path.stem.startswith("plain_"):
        imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
        assert not [node for node in imports if isinstance(node, ast.ImportFrom)]
        assert {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) == {"zmq"}


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_a_question_is_asked_aloud_and_answered_with_sound(place: Place) -> None:
    answer = place.folder / "answer.wav"
    with Program(place.folder, "ask_aloud.py", QUESTION, str(answer)) as program:
        code, said = program.end()
    assert code == 0, said
    assert "heard: What is the capital of France?" in said
    assert "answered: " in said
    with wave.open(str(answer)) as sound:
        assert sound.getnframes() / sound.getframerate() > 0.5


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_why_there_is_no_answer_is_told(place: Place) -> None:
    silence = place.folder / "silence.wav"
    with wave.open(str(silence), "wb") as sound:
        sound.setparams((1, 2, 16_000, 0, "NONE", ""))
        sound.writeframes(bytes(32_000))
    with Program(place.folder, "ask_aloud.py", str(silence), str(place.folder / "answer.wav")) as program:
        code, said = program.end()
    assert (code, said.strip()) == (1, "failed: nobody said anything")


@pytest.mark.parametrize(("name", "more"), [("ask_aloud.py", ("out.wav",)), ("plain_ask.py", ())])
def test_what_is_no_recording_for_it_is_told_in_a_line(tmp_path: Path, name: str, more: tuple[str, ...]) -> None:
    (tmp_path / "text.wav").write_text("no sound")
    with wave.open(str(tmp_path / "cd.wav"), "wb") as sound:
        sound.setparams((2, 2, 44_100, 0, "NONE", ""))
    for file, words in (("none.wav", "No such file"), ("text.wav", "RIFF"), ("cd.wav", "mono, 16 kHz")):
        with Program(tmp_path, name, str(tmp_path / file), *more) as program:
            code, said = program.end()
        assert (code, len(said.splitlines())) == (1, 1)
        assert words in said


def test_without_a_daemon_it_says_that_it_waits_where_a_daemon_would_be(tmp_path: Path) -> None:
    for environ in ({}, {"XDG_RUNTIME_DIR": "", "XDG_STATE_HOME": str(tmp_path)}):
        place = tmp_path / "assistant"
        if environ:
            place = Path("/run/assistant") if os.geteuid() == 0 else place / "run"
        with Program(tmp_path, "plain_home.py", **environ) as home:
            home.read_until(f"waiting for a daemon at ipc://{place}\n")


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_plain_pyzmq_asks_with_a_recording_and_follows_events(place: Place) -> None:
    with Client(place.runtime) as client:
        client.unload(Stage.ASR)
    with Program(place.folder, "plain_ask.py", QUESTION) as program:
        code, said = program.end()
    assert code == 0, said
    assert "stage-load-end {'stage': 'asr'" in said
    assert "heard: What is the capital of France?" in said
    assert "answered: " in said
    assert "(0 bytes" not in said


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_events_are_followed_whoever_asks(place: Place) -> None:
    with Program(place.folder, "follow_events.py", "run-", "intent-end") as program:
        program.read_until("following")
        time.sleep(0.5)  # until its subscription has arrived
        assert ask(place, "what time is it")["outcome"] == "handled"
        said = program.read_until("run-end")
    assert said.index("run-start") < said.index("intent-end {") < said.index("run-end")
    assert "missed" not in said


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_plain_pyzmq_carries_out_intents_and_says_what_it_cannot(place: Place) -> None:
    with Program(place.folder, "plain_home.py") as home:
        home.read_until("ready")
        assert ask(place, "turn on the fan")["reply"] == "The fan is on."
        assert "the fan is on" in home.read_until("the fan is on")
        failed = place.json("ask", "turn off the lights", "--no-speech", code=1)
        assert failed["outcome"] == "failed"
        assert failed["error"]["code"] == "handler-failed"
        assert failed["reply"] == failed["error"]["message"] == "I only have a fan."
        told = place.run("ask", "turn off the lights", "--no-speech", code=1)
        assert (told.stdout + told.stderr).count("I only have a fan.") == 1


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_a_handler_that_stands_still_costs_three_seconds_and_is_told_aloud(place: Place) -> None:
    with Program(place.folder, "plain_home.py") as home:
        home.read_until("ready")
        home.process.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        failed = place.json("ask", "turn on the fan", "--out", "failed.wav", code=1)
        took = time.monotonic() - started
        home.process.send_signal(signal.SIGCONT)
    assert 3 <= took < 8
    assert failed["error"]["code"] == "handler-no-answer"
    assert "The handler did not answer" in failed["reply"]
    assert failed["audio"]["seconds"] > 0.5


def test_a_text_is_spoken_and_what_goes_wrong_is_told_in_a_line() -> None:
    async def scenario(place: Place) -> None:
        async with served(place.runtime) as backend:
            backend.speaking = SpeakingVoice()
            with Program(place.folder, "say.py", "Dinner is ready.") as program:
                assert await asyncio.to_thread(program.end) == (0, "said: one two\n")
            assert backend.speaking.orders == ["Dinner is ready."]
            with Program(place.folder, "say.py", "busy") as program:
                assert await asyncio.to_thread(program.end) == (4, "busy: busy\n")
            backend.speaking = None
            with Program(place.folder, "say.py", "hello") as program:
                code, said = await asyncio.to_thread(program.end)
                assert (code, said.partition(":")[0]) == (7, "no-voice")
        with Program(place.folder, "say.py", "hello") as program:
            code, said = await asyncio.to_thread(program.end)
            assert (code, said.partition(":")[0]) == (3, "not-running")

    with Place() as place:
        asyncio.run(scenario(place))


def test_who_waits_for_a_daemon_says_so_once_and_says_when_it_is_there() -> None:
    connected = {"home.py": "ready", "follow_events.py": "following", "plain_home.py": "ready"}

    async def scenario(place: Place, programs: dict[str, Program]) -> None:
        for program in programs.values():
            await asyncio.to_thread(program.read_until, "\n")
            assert "daemon" in program.said
        await asyncio.sleep(1.3)  # they look every second
        for program in programs.values():
            assert len((program.said + program.waiting()).splitlines()) == 1
        async with served(place.runtime):
            for name, program in programs.items():
                await asyncio.to_thread(program.read_until, connected[name])

    with Place() as place, contextlib.ExitStack() as stack:
        programs = {name: stack.enter_context(Program(place.folder, name)) for name in connected}
        asyncio.run(scenario(place, programs))
