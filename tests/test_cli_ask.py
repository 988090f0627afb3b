"""`assistant ask` as a user runs it: real engines, real files, every kind of bad input, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

from assistant import paths
from assistant.memory_orchestrator.ledger import SHM
from assistant.model_store.store import ModelInfo

pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]

QUESTION = paths.data_file("question.wav")


class Box:
    """Runs the command in a place of its own and knows what it left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self._mark = f"box-{uuid.uuid4()}"
        self._pids: set[str] = set()
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ASSISTANT_")},
            "TMPDIR": str(self.temporary),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_RUNTIME_DIR": str(folder / "run"),  # no daemon of the user's
            "BOX": self._mark,
        }

    def start(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **more}
        process = subprocess.Popen(
            [sys.executable, "-m", "assistant", "ask", *args],
            cwd=self.folder, env=self.environ, text=True, start_new_session=True, **more,
        )  # fmt: skip
        self._pids.add(str(process.pid))
        return process

    def ask(self, *args: str, code: int = 0) -> dict[str, Any]:
        """The JSON report of a query that must end with `code`."""
        process = self.start(*args, "--json")
        out, err = process.communicate(timeout=50)
        assert process.returncode == code, f"{err}\n{out}"
        assert "Traceback" not in err
        report: dict[str, Any] = json.loads(out)
        return report

    def leftovers(self) -> list[str]:
        """Processes, temporary files and shared memory of ours; waits a moment for the kernel to reap."""
        deadline = time.monotonic() + 3
        while (left := self._look()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def _look(self) -> list[str]:
        # PulseAudio's library makes a folder of its own when a speaker is looked for
        left = [str(path) for path in self.temporary.iterdir() if not path.name.startswith("pulse-")]
        left += [str(path) for path in self.folder.glob(".*")]
        segments = [path for path in SHM.glob("*assistant-*") if set(re.findall(r"[0-9a-z]+", path.name)) & self._pids]
        left += [str(path) for path in segments]
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (process / "environ").read_bytes():
                    left.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return left


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    one = Box(tmp_path)
    yield one
    assert one.leftovers() == []


@pytest.fixture(scope="module", autouse=True)
def models(model: Callable[[str], ModelInfo]) -> None:
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "en_US-joe-medium"):
        model(name)


# --- what it is for -------------------------------------------------------------------------------------------------
def test_a_spoken_question_is_answered_aloud(box: Box) -> None:
    report = box.ask("--wav", str(QUESTION), "--out", "answer.wav")
    assert report["transcript"].lower().strip(" ?.") == "what is the capital of france"
    assert report["intent"] == {"name": None, "score": 0.0, "slots": {}, "source": "none"}
    assert "Paris" in report["reply"]
    assert (report["outcome"], report["error"]) == ("answered", None)
    assert [stage["name"] for stage in report["stages"]] == ["asr", "intent", "llm", "tts"]
    for stage in report["stages"]:
        assert stage["run_ms"] > 0
        assert stage["anon_mib"] > 1
    sound, rate = soundfile.read(box.folder / "answer.wav")
    assert report["audio"] == {"path": "answer.wav", "sample_rate": rate, "seconds": round(len(sound) / rate, 3)}
    assert np.abs(sound).max() > 0.05
    timings = report["timings_ms"]
    assert all(timings[name] > 0 for name in timings)
    assert timings["asr"] < timings["speech_end_to_first_audio"] <= timings["total"]
    assert timings["llm_first_token"] <= timings["llm"]
    memory = report["memory"]
    assert memory["mode"] in ("resident", "overlap", "sequential")
    assert memory["peak_anon_mib"] < memory["peak_mib"] <= 400
    assert memory["peak_mib"] <= memory["budget_mib"] - memory["margin_mib"]


def test_the_report_has_exactly_the_documented_fields(box: Box) -> None:
    report = box.ask("What time is it?", "--no-speech")
    assert list(report) == [
        "query_id", "transcript", "intent", "reply", "outcome", "error", "audio", "timings_ms", "stages", "memory",
    ]  # fmt: skip
    assert list(report["timings_ms"]) == [
        "asr", "intent", "llm_first_token", "llm", "tts_first_audio", "speech_end_to_first_audio", "total",
    ]  # fmt: skip
    assert list(report["stages"][0]) == ["name", "engine", "model", "load_ms", "run_ms", "anon_mib", "file_mib"]
    assert list(report["memory"]) == ["budget_mib", "margin_mib", "peak_mib", "peak_anon_mib", "mode"]


def test_the_time_needs_no_llm(box: Box) -> None:
    report = box.ask("what time is it", "--no-speech")
    assert (report["outcome"], report["intent"]["name"]) == ("handled", "HassGetCurrentTime")
    assert report["intent"]["source"] == "template"
    assert [stage["name"] for stage in report["stages"]] == ["intent"]
    assert report["audio"] is None


def test_people_see_the_reply_on_stdout_and_the_rest_on_stderr(box: Box) -> None:
    process = box.start("what time is it", "--out", "answer.wav")
    out, err = process.communicate()
    assert process.returncode == 0
    assert out.startswith("It is ")
    assert len(out.splitlines()) == 1
    for word in ("intent", "tts", "anon MiB", "first audio", "budget"):
        assert word in err


def test_stdin_may_be_the_recording(box: Box) -> None:
    with QUESTION.open("rb") as file:
        process = box.start("--wav", "-", "--no-speech", "--json", stdin=file)
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert "France" in json.loads(out)["transcript"]


# --- any recording --------------------------------------------------------------------------------------------------
def variant(folder: Path, name: str) -> Path:
    """The question as another kind of file."""
    sound, rate = soundfile.read(QUESTION)
    path = folder / name.replace(" ", "-")
    match name:
        case "8k-mulaw.wav":
            soundfile.write(path, soxr.resample(sound, rate, 8000), 8000, subtype="ULAW")
        case "44k-stereo-24.wav":
            wide = soxr.resample(sound, rate, 44100)
            soundfile.write(path, np.stack([wide, wide * 0.5], axis=1), 44100, subtype="PCM_24")
        case "48k.mp3":
            soundfile.write(path, soxr.resample(sound, rate, 48000), 48000, format="MP3")
        case "16k.flac":
            soundfile.write(path, sound, rate, format="FLAC")
        case "name with spaces é.wav":
            path = folder / name
            soundfile.write(path, sound, rate)
    return path


@pytest.mark.parametrize("name", ["8k-mulaw.wav", "44k-stereo-24.wav", "48k.mp3", "16k.flac", "name with spaces é.wav"])
def test_whatever_libsndfile_reads_is_understood(box: Box, name: str) -> None:
    report = box.ask("--wav", str(variant(box.folder, name)), "--no-speech")
    assert "capital of france" in report["transcript"].lower()


def test_a_minute_of_sound_is_heard_to_its_end(box: Box) -> None:
    sound, rate = soundfile.read(QUESTION)
    long = np.concatenate([sound, np.zeros(56 * rate - 2 * len(sound)), sound, np.zeros(4 * rate)])
    soundfile.write(box.folder / "long.wav", long, rate)
    report = box.ask("--wav", "long.wav", "--no-speech")
    assert report["transcript"].lower().count("capital of france") == 2


# --- bad recordings -------------------------------------------------------------------------------------------------
def bad_recording(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.wav"
    good = QUESTION.read_bytes()
    match kind:
        case "directory":
            path.mkdir()
        case "empty":
            path.write_bytes(b"")
        case "header-only":
            path.write_bytes(good[:44])
        case "half-a-header":
            path.write_bytes(good[:30])
        case "no-samples":
            soundfile.write(path, np.zeros(0), 16000)
        case "not-audio":
            path.write_text("This is a text that somebody took for a sound.\n" * 100)
        case "random":
            path.write_bytes(np.random.default_rng(0).bytes(50_000))
        case "rate-1-mhz":
            header = bytearray(good)
            header[24:28] = (1_000_000).to_bytes(4, "little")
            path.write_bytes(header)
    return path


@pytest.mark.parametrize(
    "kind",
    [
        "missing",
        "directory",
        "empty",
        "header-only",
        "half-a-header",
        "no-samples",
        "not-audio",
        "random",
        "rate-1-mhz",
    ],
)
def test_a_recording_that_is_none_is_a_usage_error(box: Box, kind: str) -> None:
    report = box.ask("--wav", str(bad_recording(box.folder, kind)), "--out", "answer.wav", code=2)
    assert report["outcome"] == "failed"
    assert report["error"]["code"].startswith("audio-")
    assert kind in report["error"]["message"]
    assert not (box.folder / "answer.wav").exists()


def test_a_truncated_recording_is_heard_as_far_as_it_goes(box: Box) -> None:
    good = QUESTION.read_bytes()
    (box.folder / "cut.wav").write_bytes(good[: int(len(good) * 0.97)])
    report = box.ask("--wav", "cut.wav", "--no-speech")
    assert "capital" in report["transcript"].lower()


def non_speech(kind: str) -> Any:
    random, time_s = np.random.default_rng(1), np.arange(16000 * 4) / 16000
    match kind:
        case "silence":
            return np.zeros(16000 * 4)
        case "noise":
            return random.normal(0, 0.1, 16000 * 4)
        case "hum":
            return 0.2 * np.sin(2 * np.pi * 100 * time_s)
        case _:
            chord = sum(np.sin(2 * np.pi * note * time_s) for note in (261.6, 329.6, 392.0, 523.3))
            return 0.1 * chord * (1 + np.sin(2 * np.pi * 2 * time_s)) / 2


@pytest.mark.parametrize("kind", ["silence", "noise", "hum", "music"])
def test_what_holds_no_speech_is_never_a_sentence(box: Box, kind: str) -> None:
    soundfile.write(box.folder / "none.wav", non_speech(kind), 16000)
    report = box.ask("--wav", "none.wav", "--out", "answer.wav", code=1)
    assert report["error"]["code"] == "stt-no-text-recognized"
    assert (report["transcript"], report["reply"]) == ("", "")


# --- bad text -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "code"),
    [("", "text-empty"), (" \t\n", "text-empty"), ("x" * 100_000, "text-too-long"), ("a \udc80 b", "text-not-unicode")],
)
def test_a_text_that_is_none_is_a_usage_error(box: Box, text: str, code: str) -> None:
    assert box.ask(text, "--no-speech", code=2)["error"]["code"] == code


def test_emoji_are_text(box: Box) -> None:
    report = box.ask("Is 🍕 or 👩‍👩‍👧 a food?", "--out", "answer.wav", "--set", "stages.llm.max_new_tokens=8")
    assert report["outcome"] == "answered"


def test_a_text_of_many_tokens_is_refused_by_its_tokens(box: Box) -> None:
    report = box.ask("🍕" * 3000, "--no-speech", code=2)
    assert report["error"]["code"] == "prompt-too-long"


# --- bad settings and models ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("args", "code"),
    [
        ([], 2),
        (["a", "--wav", "b.wav"], 2),
        (["a", "--set", "stages.llm.thread=3"], 2),
        (["a", "--out", "no/such/folder/answer.wav"], 2),
        (["a", "--out", "."], 2),
        (["a", "--out", "answer.mp3"], 2),
        (["a", "--bogus"], 2),
        (["a", "--no-speech", "--set", "stages.asr.engine=kaldi"], 2),
        (["a", "--set", "audio.output=no such speaker"], 7),
        (["a", "--no-speech", "--out", "a.wav"], 2),
        (["a", "--no-speech", "--set", "stages.llm.model=no-such-model"], 6),
        (["a", "--no-speech", "--set", "stages.llm.model=vosk-model-small-en-us-0.15"], 6),
        (["a", "--no-speech", "--set", "stages.llm.model=whisper-tiny.en"], 2),
        (["a", "--no-speech", "--set", "stages.llm.engine=gguf"], 2),
        (["a", "--no-speech", "--set", "stages.llm.model=../../etc"], 2),
        (["a", "--no-speech", "--set", "memory.budget_mib=100"], 5),
        (["a", "--no-speech", "--set", "memory.budget_mib=420"], 5),
    ],
)
def test_what_cannot_be_done_is_said_with_the_right_exit_code(box: Box, args: list[str], code: int) -> None:
    process = box.start(*args)
    out, err = process.communicate()
    assert process.returncode == code, err
    assert out == ""
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1


def test_a_refusal_shows_its_arithmetic(box: Box) -> None:
    report = box.ask("a", "--no-speech", "--set", "memory.budget_mib=320", code=5)
    assert report["error"]["code"] == "memory-never-fits"
    for part in ("320", "300", "memory.budget_mib"):
        assert part in report["error"]["message"]


def test_a_small_budget_that_suffices_is_kept(box: Box) -> None:
    box.ask("--wav", str(QUESTION), "--out", "answer.wav")  # what was measured replaces the careful first estimate
    report = box.ask("--wav", str(QUESTION), "--out", "answer.wav", "--set", "memory.budget_mib=700")
    memory = report["memory"]
    assert memory["peak_mib"] <= memory["budget_mib"] - memory["margin_mib"] == 400


# --- interruptions --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
@pytest.mark.parametrize(
    "after_s",
    [
        *(pytest.param(early, marks=pytest.mark.alone("Python itself has started by then")) for early in (0.06, 0.15)),
        *(0.3, 0.5, 0.8, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.5),
    ],
)
def test_an_interruption_at_any_moment_leaves_nothing(box: Box, after_s: float, number: signal.Signals) -> None:
    process = box.start("--wav", str(QUESTION), "--out", "answer.wav", "--json")
    time.sleep(after_s)
    process.send_signal(number)
    out, err = process.communicate(timeout=10)
    assert process.returncode in (0, 130, 128 + number, -number), err
    assert "Traceback" not in err
    if process.returncode == 130 and out:
        assert json.loads(out)["error"]["code"] == "cancelled"


@pytest.mark.parametrize("after_s", [0.3, 0.7, 1.1])
def test_an_impatient_user_leaves_nothing_either(box: Box, after_s: float) -> None:
    process = box.start("--wav", str(QUESTION), "--out", "answer.wav")
    time.sleep(after_s)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    _, err = process.communicate(timeout=10)
    assert process.returncode in (0, 130, -2), err
    assert "Traceback" not in err


def test_a_terminals_ctrl_c_reaches_all_processes_and_leaves_nothing(box: Box) -> None:
    process = box.start("--wav", str(QUESTION), "--out", "answer.wav")
    time.sleep(0.7)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode in (0, 130)
    assert "Traceback" not in err


def test_a_kill_leaves_no_process_and_the_next_query_sweeps_its_ledger(box: Box) -> None:
    process = box.start("--wav", str(QUESTION), "--no-speech")
    time.sleep(0.7)
    process.kill()
    process.communicate()
    assert box.ask("what time is it", "--no-speech")["outcome"] == "handled"


def test_ctrl_c_ends_a_query_that_waits_for_its_recording(box: Box) -> None:
    read, write = os.pipe()
    process = box.start("--wav", "-", "--no-speech", stdin=read)
    os.close(read)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=5)
    os.close(write)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(
    ("redirection", "code"), [("<&-", 2), (">/dev/full", 1), (">&-", 0), ("2>&-", 2), ("2>/dev/full", 2)]
)
def test_closed_and_full_streams_are_no_tracebacks(box: Box, redirection: str, code: int) -> None:
    args = "--wav -" if redirection == "<&-" else "'what time is it'" if ">" in redirection[:1] else "a --bogus"
    command = f"exec {sys.executable} -m assistant ask {args} --no-speech {redirection}"
    done = subprocess.run(["sh", "-c", command], env=box.environ, cwd=box.folder, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "error" not in done.stdout


def test_a_file_name_that_is_not_unicode_is_told_in_valid_json(box: Box) -> None:
    name = os.fsdecode(b"caf\xe9.wav")
    report = box.ask("--wav", name, "--no-speech", code=2)
    assert report["error"]["code"] == "audio-missing"


def test_a_reply_that_was_cut_says_so(box: Box) -> None:
    report = box.ask("Tell me a long story.", "--no-speech", "--set", "stages.llm.max_new_tokens=5")
    assert report["reply"].endswith("…")


def test_several_words_are_one_question(box: Box) -> None:
    assert box.ask("what", "time", "is", "it", "--no-speech")["transcript"] == "what time is it"


def test_a_reply_that_cannot_be_said_is_told(box: Box) -> None:
    process = box.start("x", "--out", "answer.wav", "--set", "stages.llm.system_prompt=Answer only with: 🎉")
    _, err = process.communicate()
    assert process.returncode == 0
    assert ("not spoken" in err) != (box.folder / "answer.wav").exists()


def test_a_closed_stdout_is_no_traceback(box: Box) -> None:
    read, write = os.pipe()
    os.close(read)
    process = box.start("what time is it", "--no-speech", stdout=write)
    os.close(write)
    _, err = process.communicate()
    assert process.returncode == 1
    assert "Traceback" not in err
    assert "Exception ignored" not in err
