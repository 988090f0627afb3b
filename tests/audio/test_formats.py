"""Reading whatever libsndfile reads, refusing the rest in words, and writing whole files or none."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import wave
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from assistant.audio.formats import AudioClip, read_audio
from assistant.audio.wav_writer import WavWriter
from assistant.errors import BadAudio, ExitCode, UsageError
from tests.speech_corpus import RATE, to_pcm, tone

SINE = tone(440, 1.0)


def samples(clip: AudioClip) -> NDArray[np.float64]:
    return np.frombuffer(clip.pcm, "<i2") / 32768


def pitch(clip: AudioClip) -> float:
    """The strongest frequency in Hz."""
    spectrum = np.abs(np.fft.rfft(samples(clip) * np.hanning(len(clip.pcm) // 2)))
    return float(np.argmax(spectrum)) * RATE / (len(clip.pcm) // 2)


def written(path: Path, data: NDArray[Any], rate: int, **options: str) -> Path:
    soundfile.write(path, data, rate, **options)
    return path


def sine_at(rate: int, channels: int = 1) -> NDArray[np.float64]:
    mono = 0.3 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)
    return np.repeat(mono[:, None], channels, axis=1)


FORMATS = [
    ("mu-law.wav", 8000, 1, {"subtype": "ULAW"}),
    ("a-law.wav", 8000, 1, {"subtype": "ALAW"}),
    ("u8.wav", 11025, 1, {"subtype": "PCM_U8"}),
    ("24bit.wav", 44100, 2, {"subtype": "PCM_24"}),
    ("32bit.wav", 44100, 2, {"subtype": "PCM_32"}),
    ("float.wav", 48000, 1, {"subtype": "FLOAT"}),
    ("double.wav", 22050, 1, {"subtype": "DOUBLE"}),
    ("six.wav", 48000, 6, {}),
    ("studio.wav", 192000, 2, {"subtype": "PCM_24"}),
    ("song.mp3", 44100, 2, {"format": "MP3"}),
    ("song.flac", 48000, 2, {}),
    ("song.ogg", 44100, 1, {}),
    ("phone.opus", 48000, 1, {"format": "OGG", "subtype": "OPUS"}),
    ("old.aiff", 32000, 1, {}),
    ("sun.au", 16000, 2, {}),
]


@pytest.mark.parametrize(("name", "rate", "channels", "options"), FORMATS, ids=[row[0] for row in FORMATS])
def test_any_format_rate_and_channel_count_becomes_16k_mono(
    tmp_path: Path, name: str, rate: int, channels: int, options: dict[str, str]
) -> None:
    clip = read_audio(written(tmp_path / name, sine_at(rate, channels), rate, **options))
    assert clip.seconds == pytest.approx(1.0, abs=0.08)  # MP3 and Opus add their own padding
    assert (clip.source_rate, clip.source_channels) == (rate, channels)
    assert pitch(clip) == pytest.approx(440, abs=3)
    assert np.sqrt(np.mean(samples(clip)[4000:12000] ** 2)) == pytest.approx(0.3 / np.sqrt(2), rel=0.05)


def test_16_bit_samples_come_back_bit_by_bit(tmp_path: Path) -> None:
    pcm = np.random.default_rng(0).integers(-32768, 32767, 70_000, endpoint=True).astype("<i2")
    assert read_audio(written(tmp_path / "a.wav", pcm, RATE)).pcm == pcm.tobytes()


def test_mp3_is_decoded_without_seams(tmp_path: Path) -> None:
    """Seeking to where one is makes an MP3 decoder start anew: a click at each block."""
    path = written(tmp_path / "a.mp3", np.tile(SINE, 5), RATE, format="MP3")
    whole, _ = soundfile.read(path, dtype="float32")
    assert np.abs(samples(read_audio(path)) - whole).max() < 1e-4


def test_channels_are_averaged_and_a_silent_one_only_halves(tmp_path: Path) -> None:
    stereo = np.stack([SINE, np.zeros_like(SINE)], axis=1)
    clip = read_audio(written(tmp_path / "half.wav", stereo, RATE, subtype="FLOAT"))
    assert np.abs(samples(clip) - SINE / 2).max() < 1e-4


def test_nan_infinity_and_over_range_are_tamed(tmp_path: Path) -> None:
    wild = np.array([np.nan, np.inf, -np.inf, 7.0, -7.0, 0.5], np.float32)
    clip = read_audio(written(tmp_path / "wild.wav", wild, RATE, subtype="FLOAT"))
    assert np.frombuffer(clip.pcm, "<i2").tolist() == [0, 32767, -32768, 32767, -32768, 16384]


def test_long_recordings_stream_and_longer_ones_name_the_limit(tmp_path: Path) -> None:
    minute = written(tmp_path / "minute.wav", np.zeros(60 * 8000, np.int16), 8000)
    assert read_audio(minute).seconds == pytest.approx(60, abs=0.01)
    with pytest.raises(BadAudio, match=r"minute\.wav.*limit is 0\.5 minutes") as caught:
        read_audio(minute, max_seconds=30)
    assert caught.value.code == "audio-too-long"


def test_the_real_limit_is_ten_minutes(tmp_path: Path) -> None:
    path = written(tmp_path / "lecture.flac", np.zeros(11 * 60 * 8000, np.int16), 8000)
    with pytest.raises(BadAudio, match="limit is 10 minutes"):
        read_audio(path)


# --- refusals -------------------------------------------------------------------------------------------------------
def refused(source: Path | BinaryIO) -> BadAudio:
    with pytest.raises(BadAudio) as caught:
        read_audio(source)
    error = caught.value
    assert error.exit_code is ExitCode.USAGE
    assert error.message.endswith(".")
    assert (str(source) if isinstance(source, Path) else "standard input") in error.message
    return error


def test_what_is_not_there_or_not_readable(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.wav").code == "audio-missing"
    assert "directory" in refused(tmp_path).message
    assert refused(Path("nul\0.wav")).code == "audio-unreadable"
    assert refused(tmp_path / ("x" * 300)).code == "audio-unreadable"
    loop = tmp_path / "loop.wav"
    loop.symlink_to(loop)
    assert refused(loop).code == "audio-unreadable"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = written(tmp_path / "secret.wav", SINE, RATE)
    path.chmod(0)
    assert "ermission" in refused(path).message


def test_files_without_sound(tmp_path: Path) -> None:
    empty = tmp_path / "empty.wav"
    empty.write_bytes(b"")
    assert refused(empty).code == "audio-empty"
    assert refused(written(tmp_path / "zero.wav", np.zeros(0), RATE)).code == "audio-empty"
    text = tmp_path / "letter.wav"
    text.write_text("Dear Sir or Madam, " * 100)
    assert refused(text).code == "audio-not-recognised"
    header = tmp_path / "header.wav"
    header.write_bytes(written(tmp_path / "full.wav", SINE, RATE).read_bytes()[:20])
    assert refused(header).code == "audio-not-recognised"


def test_recordings_that_are_broken_on_purpose(speech: Path) -> None:
    codes = {path.name: refused(path).code for path in speech.glob("bad_*")}
    assert codes == {
        "bad_empty_44b.wav": "audio-not-recognised",
        "bad_no_header.wav": "audio-not-recognised",
        "bad_rate_1mhz.wav": "audio-bad-rate",
    }


@pytest.mark.parametrize("name", ["cut.wav", "cut.flac", "cut.ogg", "cut.mp3"])
def test_a_recording_that_breaks_off_gives_what_is_there(tmp_path: Path, name: str) -> None:
    whole = written(tmp_path / f"whole-{name}", np.tile(SINE, 20), RATE).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    clip = read_audio(tmp_path / name)
    assert 5 < clip.seconds < 15
    assert pitch(clip) == pytest.approx(440, abs=3)


@pytest.mark.parametrize("claimed", [0xFFFFFFFF, 0x7FFFFFFF, 2**31])
def test_the_length_in_a_header_is_not_believed(tmp_path: Path, claimed: int) -> None:
    """Recorders that write to a pipe do not know the length and claim the largest."""
    data = bytearray(written(tmp_path / "a.wav", SINE, RATE).read_bytes())
    data[40:44] = claimed.to_bytes(4, "little")
    assert read_audio(io.BytesIO(bytes(data))).seconds == pytest.approx(1.0)


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, 60), value=st.integers(0, 255), cut=st.integers(0, 2000))
def test_a_damaged_header_is_read_or_refused_but_never_crashes(at: int, value: int, cut: int) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, SINE[:4000], RATE, format="WAV")
    data = bytearray(buffer.getvalue())
    data[at] = value
    try:
        clip = read_audio(io.BytesIO(bytes(data[: len(data) - cut])))
    except BadAudio:
        return
    assert 0 < clip.seconds < 10


# --- standard input -------------------------------------------------------------------------------------------------
def test_a_pipe_is_spooled(tmp_path: Path) -> None:
    data = written(tmp_path / "a.flac", SINE, RATE).read_bytes()
    reader, writer = os.pipe()

    def feed() -> None:
        with os.fdopen(writer, "wb") as sink:
            sink.write(data)

    feeder = threading.Thread(target=feed)
    feeder.start()
    with os.fdopen(reader, "rb") as source:
        clip = read_audio(source)
    feeder.join()
    assert clip.pcm == read_audio(tmp_path / "a.flac").pcm


def test_an_empty_pipe_is_refused() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with os.fdopen(reader, "rb") as source:
        assert refused(source).code == "audio-empty"


# --- writing --------------------------------------------------------------------------------------------------------
def test_the_file_appears_whole_and_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "answer.wav"
    with WavWriter(target) as writer:
        writer.write(to_pcm(SINE), 22050)
        writer.write(to_pcm(SINE), 22050)
        assert not target.exists()
    with wave.open(str(target)) as wav:
        assert (wav.getframerate(), wav.getnchannels(), wav.getsampwidth()) == (22050, 1, 2)
        assert wav.readframes(99_999) == to_pcm(SINE) * 2
    assert writer.sample_rate == 22050
    assert writer.seconds == pytest.approx(2 * RATE / 22050)
    assert os.listdir(tmp_path) == ["answer.wav"]


def test_an_error_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "answer.wav"
    target.write_bytes(b"older")
    with pytest.raises(KeyError), WavWriter(target) as writer:
        writer.write(to_pcm(SINE), RATE)
        raise KeyError
    assert target.read_bytes() == b"older"
    assert os.listdir(tmp_path) == ["answer.wav"]


def test_no_sound_no_file(tmp_path: Path) -> None:
    with WavWriter(tmp_path / "answer.wav") as writer:
        assert writer.seconds == 0
    assert os.listdir(tmp_path) == []


def test_the_rate_must_not_change(tmp_path: Path) -> None:
    with WavWriter(tmp_path / "a.wav") as writer:
        writer.write(b"\0\0", RATE)
        with pytest.raises(ValueError, match="16000 Hz, this block 8000 Hz"):
            writer.write(b"\0\0", 8000)


def test_targets_that_cannot_be_written_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for target in (tmp_path, tmp_path / "none/answer.wav", tmp_path / "file/answer.wav", Path("nul\0")):
        with pytest.raises(UsageError, match="Cannot write") as caught:
            WavWriter(target)
        assert caught.value.code == "bad-output"


def test_a_full_disk_is_reported() -> None:
    with pytest.raises(UsageError, match="No space left"), WavWriter(Path("/dev/full")) as writer:
        writer.write(bytes(100_000), RATE)
    assert Path("/dev/full").is_char_device()


def test_a_device_is_written_straight_and_a_link_is_followed(tmp_path: Path) -> None:
    with WavWriter(Path("/dev/null")) as writer:
        writer.write(to_pcm(SINE), RATE)
    assert Path("/dev/null").is_char_device()
    (tmp_path / "link.wav").symlink_to(tmp_path / "real.wav")
    with WavWriter(tmp_path / "link.wav") as writer:
        writer.write(to_pcm(SINE), RATE)
    assert (tmp_path / "link.wav").is_symlink()
    assert read_audio(tmp_path / "real.wav").pcm == to_pcm(SINE)


@pytest.mark.parametrize(("form", "at"), [("AIFF", 38), ("W64", 101), ("RF64", 33)])
def test_a_header_that_points_nowhere_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], form: str, at: int
) -> None:
    path = tmp_path / "odd.bin"
    soundfile.write(path, np.zeros(1600), 16_000, format=form)
    content = bytearray(path.read_bytes())
    content[at] = 255
    path.write_bytes(content)
    with contextlib.suppress(BadAudio):
        read_audio(path)
    assert "Traceback" not in capfd.readouterr().err


def test_a_pipe_that_nobody_reads_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="Cannot write"):
        WavWriter(tmp_path / "pipe")


def test_an_anonymous_pipe_can_be_written() -> None:
    read, write = os.pipe()
    with WavWriter(Path(f"/dev/fd/{write}")) as writer:
        writer.write(b"\1\0" * 100, 16_000)
    os.close(write)
    with open(read, "rb") as file:
        assert file.read().startswith(b"RIFF")
