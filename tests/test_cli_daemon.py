"""The verbs that speak to a running daemon, as a user runs them; one real daemon with real engines for all of them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import soundfile

from assistant import paths
from assistant.api import wire
from assistant.api.client import Client
from assistant.cli_memory import seconds
from assistant.errors import BusyNow, UsageError
from assistant.model_store.store import ModelInfo
from tests.api.daemon_process import LONG, STORY, Place, until

pytestmark = [pytest.mark.timeout(60)]

QUESTION = str(paths.data_file("question.wav"))
SAID = "what time is it"


@pytest.fixture(scope="module")
def place(model: Callable[[str], ModelInfo]) -> Iterator[Place]:
    """With a daemon in it."""
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium"):
        model(name)
    with Place() as one:
        one.daemon(*LONG)
        yield one


@pytest.fixture
def lonely() -> Iterator[Place]:
    """Without a daemon."""
    with Place() as one:
        yield one


def shape(tree: Any) -> Any:
    """Names and types; a list by its first element."""
    if isinstance(tree, dict):
        return {name: shape(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [shape(tree[0])] if tree else []
    return "number" if isinstance(tree, int | float) else type(tree).__name__


# --- ask ------------------------------------------------------------------------------------------------------------
@pytest.mark.engine
def test_a_spoken_question_is_answered_by_the_daemon_as_by_a_pipeline_of_its_own(place: Place) -> None:
    args = ["ask", "--wav", QUESTION, "--out", "answer.wav"]
    through = place.json(*args)
    sound, rate = soundfile.read(place.folder / "answer.wav")
    assert "capital of france" in through["transcript"].lower()
    assert "Paris" in through["reply"]
    assert through["audio"] == {"path": "answer.wav", "sample_rate": rate, "seconds": round(len(sound) / rate, 3)}
    own = place.json(*args, "--standalone", "--set", "stages.llm.system_prompt=Write a long text.")
    assert shape(through) == shape(own)
    assert list(through) == list(own)
    again = place.json(*args)
    assert through["query_id"] != again["query_id"]
    assert place.json("status")["queries"] >= 2


@pytest.mark.engine
def test_people_see_the_same_as_without_a_daemon(place: Place) -> None:
    done = place.run("ask", SAID, "--out", "answer.wav")
    assert done.stdout.startswith("It is ")
    assert len(done.stdout.splitlines()) == 1
    for word in ("spoken", "intent", "tts", "anon MiB", "first audio", "budget"):
        assert word in done.stderr
    heard = place.run("ask", "--wav", QUESTION, "--no-speech")
    assert heard.stderr.startswith("heard    ")


@pytest.mark.engine
def test_stdin_may_be_the_recording_for_the_daemon_too(place: Place) -> None:
    with open(QUESTION, "rb") as file:
        done = place.run("ask", "--wav", "-", "--no-speech", "--json", stdin=file)
    assert "France" in json.loads(done.stdout)["transcript"]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("args", "code", "error"),
    [
        (["--wav", "missing.wav", "--no-speech"], 2, "audio-missing"),
        (["", "--no-speech"], 2, "text-empty"),
        (["x" * 100_000, "--no-speech"], 2, "text-too-long"),
        (["a \udc80 b", "--no-speech"], 2, "text-not-unicode"),
        (["🍕" * 3000, "--no-speech"], 2, "prompt-too-long"),
    ],
)
def test_a_question_that_is_none_has_the_report_and_exit_code_of_a_pipeline_of_its_own(
    place: Place, args: list[str], code: int, error: str
) -> None:
    report = place.json("ask", *args, code=code)
    assert report["error"]["code"] == error
    assert report["outcome"] == "failed"
    assert set(report) == {
        "query_id", "transcript", "intent", "reply", "outcome", "error", "audio", "timings_ms", "stages", "memory",
    }  # fmt: skip


@pytest.mark.engine
def test_silence_is_told_with_the_same_code(place: Place) -> None:
    soundfile.write(place.folder / "silence.wav", [0.0] * 32_000, 16_000)
    report = place.json("ask", "--wav", "silence.wav", "--no-speech", code=1)
    assert report["error"]["code"] == "stt-no-text-recognized"


@pytest.mark.engine
def test_an_error_stands_at_the_same_place_whoever_found_it(place: Place) -> None:
    """As docs/troubleshooting.md says: the report around it where there was a query, else nothing."""
    through, own = (place.json("ask", "", "--no-speech", *more, code=2) for more in ([], ["--standalone"]))
    assert shape(through) == shape(own)
    assert through["error"] == own["error"]
    assert through["error"]["code"] == "text-empty"
    never = [place.json("ask", SAID, "--urgency", "soon", *more, code=2) for more in ([], ["--standalone"])]
    assert never[0] == never[1]
    assert list(never[0]) == ["error"]
    assert set(never[0]["error"]) == set(through["error"])


@pytest.mark.engine
def test_what_nobody_can_do_is_an_answer(place: Place) -> None:
    light = place.json("ask", "turn on the kitchen light", "--no-speech")
    timer = place.json("ask", "set a timer for five minutes", "--no-speech", "--standalone")
    for report in (light, timer):
        assert (report["outcome"], report["error"]) == ("handled", None)
    assert light["reply"].startswith("No program is connected")
    assert timer["reply"].startswith("Timers need the running assistant")


@pytest.mark.engine
def test_settings_belong_to_the_daemon(place: Place) -> None:
    told = place.run("ask", SAID, "--no-speech", "--set", "log.level=info", code=2).stderr
    for word in ("--standalone", "restart", "daemon"):
        assert word in told
    assert place.run("ask", SAID, "--no-speech", "--standalone", "--set", "log.level=error").stdout


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_cancels_the_query_at_the_daemon(place: Place, number: signal.Signals) -> None:
    process = place.start("ask", STORY, "--out", "story.wav", "--json")
    assert until(lambda: place.state() != "idle")
    time.sleep(0.2)
    process.send_signal(number)
    out, err = process.communicate(timeout=10)
    assert process.returncode == 130, err
    report = json.loads(out)
    assert (report["outcome"], report["error"]["code"], report["audio"]) == ("cancelled", "cancelled", None)
    assert not list(place.folder.glob("*story.wav*"))
    assert until(lambda: place.state() == "idle", 3)


@pytest.mark.engine
def test_a_client_that_is_killed_cancels_its_query(place: Place) -> None:
    process = place.start("ask", STORY, "--no-speech")
    assert until(lambda: place.state() != "idle")
    process.kill()
    process.communicate()
    assert until(lambda: place.state() == "idle", 3)


@pytest.mark.alone("how many may wait depends on how quickly it answers")
@pytest.mark.engine
def test_busy_and_cancel(place: Place) -> None:
    running = place.start("ask", STORY, "--no-speech", "--json")
    assert until(lambda: place.state() != "idle")
    with contextlib.ExitStack() as stack:
        ids = []
        with contextlib.suppress(BusyNow):  # the line is full
            for _ in range(20):  # one of each, as one client has its share alone
                client = stack.enter_context(Client(place.runtime))
                ids.append(next(client.replies(client.ask(wire.Ask(text=STORY))))[0].query_id)
        assert 4 <= len(ids) < 20
        refused = place.json("ask", STORY, "--no-speech", code=4)["error"]
        assert (refused["code"], refused["status"], refused["retryable"]) == ("busy", 429, True)
        assert refused["retry_after_ms"] >= 100
        assert place.json("cancel", ids[-1]) == {"query_ids": [ids[-1]]}
        for one in ids[:-1]:
            client.cancel(one)
    stopped = place.json("cancel")["query_ids"]
    out, _ = running.communicate(timeout=5)
    assert running.returncode == 130
    assert [json.loads(out)["query_id"]] == stopped
    assert place.json("cancel") == {"query_ids": []}
    assert place.json("cancel", "nobody", code=2)["error"]["code"] == "query-unknown"


# --- memory ---------------------------------------------------------------------------------------------------------
@pytest.mark.engine
def test_load_ps_and_unload(place: Place) -> None:
    loaded = place.json("load", "llm", "--keep-alive", "5m")
    assert loaded["stage"] == "llm"
    assert loaded["status"]["state"] == "idle"
    assert 290 < loaded["status"]["until_s"] <= 300
    frame = place.json("ps")
    assert list(frame) == ["stages", "memory", "pressure"]
    row = next(one for one in frame["stages"] if one["name"] == "llm")
    assert row["pid"] == loaded["status"]["pid"]
    assert frame["memory"]["used_mib"] >= row["anon_mib"] + row["file_mib"]
    table = place.run("ps").stdout.splitlines()
    assert table[0].split() == ["NAME", "ENGINE", "STATE", "RESERVED", "ANON", "FILE", "MiB", "UNTIL"]
    assert any(line.split()[:3] == ["llm", "mnn", "idle"] and line.endswith("5 min") for line in table)
    assert table[-1].startswith("budget ")
    assert "llm is loaded" in place.run("load", "llm", "--keep-alive", "-1").stdout
    assert any(line.endswith("forever") for line in place.run("ps").stdout.splitlines())
    assert place.json("unload", "llm") == {"stage": "llm", "unloaded": True}
    assert "was not loaded" in place.run("unload", "llm").stdout
    assert "llm" not in [one["name"] for one in place.json("ps")["stages"]]


@pytest.mark.engine
def test_what_is_in_use_is_not_unloaded(place: Place) -> None:
    process = place.start("ask", STORY, "--no-speech")
    assert until(lambda: any(one["state"] == "in-use" for one in place.json("ps")["stages"] if one["name"] == "llm"))
    assert place.json("unload", "llm", code=4)["error"]["code"] == "busy"
    assert "in use" in place.run("ps").stdout
    place.run("cancel")
    assert process.wait(5) == 130


@pytest.mark.engine
def test_status_for_people_and_programs(place: Place) -> None:
    told = place.json("status")
    assert list(told) == ["version", "pid", "uptime_s", "state", "queries", "memory", "pressure", "stages", "voice"]
    text = place.run("status").stdout
    for word in ("idle", f"process {told['pid']}", "budget", "NAME"):
        assert word in text


@pytest.mark.engine
def test_top_prints_a_frame_per_interval_where_there_is_no_terminal(place: Place) -> None:
    started = time.monotonic()
    text = place.run("top", "--interval", "0.2", "--count", "3").stdout
    assert time.monotonic() - started >= 0.4
    assert text.count("NAME") == 3
    lines = place.run("top", "--interval", "0.1", "--count", "2", "--json").stdout.splitlines()
    assert [list(json.loads(line)) for line in lines] == [["stages", "memory", "pressure"]] * 2


@pytest.mark.engine
@pytest.mark.parametrize("how", ["q", "ctrl-c"])
def test_top_ends_at_a_key(place: Place, how: str) -> None:
    ours, theirs = pty.openpty()
    process = place.start("top", stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    seen = b""
    while b"budget" not in seen:
        seen += os.read(ours, 4096)
    if how == "q":
        os.write(ours, b"q")
    else:
        process.send_signal(signal.SIGINT)
    assert process.wait(5) == 0
    os.close(ours)
    assert b"NAME" in seen


# --- without a daemon -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("args", [["ps"], ["top"], ["status"], ["cancel"], ["load", "llm"], ["unload", "llm"]])
def test_without_a_daemon_the_verbs_say_so(lonely: Place, args: list[str]) -> None:
    told = lonely.json(*args, code=3)["error"]
    assert told["code"] == "not-running"
    assert "assistant run" in lonely.run(*args, code=3).stderr


@pytest.mark.engine
def test_a_socket_that_was_left_behind_is_no_daemon(lonely: Place) -> None:
    lonely.runtime.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(lonely.runtime / "control.sock"))
    assert lonely.run("status", code=3).stderr.startswith("error: no daemon listens")
    assert lonely.run("ask", SAID, "--no-speech", "--set", "log.level=error").stdout.startswith("It is ")


@pytest.mark.parametrize("args", [["load", "kaldi"], ["unload", "LLM"], ["load", "llm", "--keep-alive", "soon"]])
def test_nonsense_is_a_usage_error_before_anybody_is_asked(lonely: Place, args: list[str]) -> None:
    told = lonely.json(*args, code=2)["error"]
    assert "asr, intent, llm, tts" in told["message"] or "5m" in told["message"]
    assert told["code"] == ("bad-arguments" if "--keep-alive" in args else "unknown-stage")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("90", 90), ("30s", 30), ("5m", 300), ("1h", 3600), ("1h30m", 5400), ("250ms", 0.25), ("0", 0), ("1.5m", 90),
     ("-1", -1), ("-5m", -1), (" 2S ", 2)],
)  # fmt: skip
def test_lengths_of_time_are_written_as_in_ollama(text: str, wanted: float) -> None:
    assert seconds(text) == wanted


@pytest.mark.parametrize("text", ["", "soon", "5 m", "5d", "m", "1e9", "nan", "--1", "5m3", "١", "9" * 30])
def test_other_lengths_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="length of time"):
        seconds(text)
