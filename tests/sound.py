"""A sound system that nobody hears: real PulseAudio servers with a virtual microphone and a virtual speaker.

Microphone and speaker are null sinks of two servers, so that each can vanish alone: a single PulseAudio would move the
streams of the one to the other. `SoundSystem` starts both, plays into the microphone, records what the speaker plays,
unplugs and plugs each, and says in `environ` what makes a process use them through PortAudio. Works as root, touches no
sound system of the machine. Where the programs are not installed, `tests.lacking` decides.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tests.lacking import lacks

RATE = 16_000
"""Hz of everything that is played and recorded here; s16le mono."""
PROGRAMS = ("pulseaudio", "pactl", "pacat", "parec")
PATIENCE_S = 8.0
SPOKEN = "--latency-msec=100"
"""With 20 ms, a busy machine hears words with holes in them."""

ALSA_CONFIG = """
pcm.ear {{ type pulse server "{mic}" device "mic.monitor" }}
pcm.mouth {{ type pulse server "{speaker}" device "speaker" }}
pcm.microphone {{ type asym capture.pcm "ear" }}
pcm.loudspeaker {{ type asym playback.pcm "mouth" }}
pcm.!default {{ type asym capture.pcm "ear" playback.pcm "mouth" }}
{more}
"""

Name = Literal["mic", "speaker"]


@dataclass(frozen=True)
class Sink:
    rate: int = 48_000
    channels: int = 2


def needed() -> None:
    """Ends the test where the programs of a sound system are missing."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        packages = "pulseaudio pulseaudio-utils libasound2-plugins"
        lacks("sound", f"not installed: {', '.join(missing)} (Debian: {packages})")


def _die_with_parent() -> None:
    """In a child before it becomes the program: no test that is killed leaves a sound system behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


class _Server:
    """One PulseAudio with one null sink, in a folder of its own."""

    def __init__(self, folder: Path, name: Name, sink: Sink) -> None:
        folder.mkdir(mode=0o700)
        self.address = f"unix:{folder}/native"
        self._name, self._sink = name, sink
        self._environ = {
            **{key: os.environ[key] for key in ("PATH", "LANG", "LD_LIBRARY_PATH") if key in os.environ},
            "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "PULSE_RUNTIME_PATH": str(folder),
            "PULSE_STATE_PATH": str(folder), "PULSE_SERVER": self.address,
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--high-priority=no",
             "-L", f"module-native-protocol-unix auth-anonymous=1 socket={self.address.removeprefix('unix:')}"],
            env=self._environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=_die_with_parent,
        )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while subprocess.run(["pactl", "info"], env=self._environ, capture_output=True).returncode:
            assert time.monotonic() < deadline, "PulseAudio did not start"
            time.sleep(0.03)
        self.plug()

    def plug(self) -> None:
        # without rewinds its clock ticks every 50 ms at the slowest, like a real device's, instead of every 2 s
        self._control("load-module", "module-null-sink", f"sink_name={self._name}", f"rate={self._sink.rate}",
                      f"channels={self._sink.channels}", "norewinds=1")  # fmt: skip

    def unplug(self) -> None:
        self._control("unload-module", "module-null-sink")

    def _control(self, *command: str) -> None:
        subprocess.run(["pactl", *command], env=self._environ, capture_output=True, check=True, timeout=PATIENCE_S)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            Path(self.address.removeprefix("unix:")).unlink(missing_ok=True)

    def client(
        self, program: str, *arguments: str, rate: int = RATE, stdin: int | None = None, stdout: int | None = None
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [program, f"--device={self._name}{'.monitor' if program == 'parec' else ''}", "--raw", "--format=s16le",
             f"--rate={rate}", "--channels=1", "--latency-msec=20", *arguments],
            env=self._environ, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL,
        )  # fmt: skip


class Playing:
    """Something that sounds in the microphone."""

    def __init__(self, player: subprocess.Popen[bytes], file: Path) -> None:
        self._player, self._file = player, file

    def wait(self) -> None:
        """Until all of it has sounded."""
        assert self._player.wait() == 0, "the recording could not be played"
        self._file.unlink()

    def stop(self) -> None:
        self._player.kill()
        self._player.wait()
        self._file.unlink(missing_ok=True)

    @property
    def over(self) -> bool:
        return self._player.poll() is not None


class Recording:
    """What the speaker plays, while it plays and afterwards."""

    def __init__(self, recorder: subprocess.Popen[bytes]) -> None:
        self._recorder, self._heard = recorder, bytearray()
        self._begun = float("inf")
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self._running.wait(PATIENCE_S), "the speaker cannot be recorded"

    def _read(self) -> None:
        assert self._recorder.stdout is not None
        while piece := os.read(self._recorder.stdout.fileno(), 4096):
            self._heard += piece
            # the piece that was late by the least says best when the recording began
            self._begun = min(self._begun, time.monotonic() - len(self._heard) / 2 / RATE)
            self._running.set()

    @property
    def pcm(self) -> bytes:
        """So far; s16le mono 16 kHz."""
        return bytes(self._heard)

    def index(self, moment: float) -> int:
        """The sample that sounded at this moment (`time.monotonic`), late by the 20-40 ms that recording takes."""
        return round((moment - self._begun) * RATE)

    def stop(self) -> None:
        self._recorder.terminate()
        self._recorder.wait()
        self._thread.join()
        assert self._recorder.stdout is not None
        self._recorder.stdout.close()


class SoundSystem:
    """`with SoundSystem(tmp_path) as sound:`; everything lies in `folder`, `more_alsa` is added to ALSA's settings.

    The devices are named "default" (both), "microphone" and "loudspeaker" (and "ear" and "mouth" behind them).
    """

    def __init__(self, folder: Path, *, mic: Sink = Sink(), speaker: Sink = Sink(), more_alsa: str = "") -> None:
        self._stack = contextlib.ExitStack()
        self._given, self._sinks, self._more = folder, {"mic": mic, "speaker": speaker}, more_alsa
        self.environ: dict[str, str] = {}
        """Of a process that is to use these devices: a copy of this process's with what leads there."""

    def __enter__(self) -> Self:
        needed()
        with contextlib.ExitStack() as stack:
            folder = self._given / "sound"
            if len(str(folder)) > 80:  # a socket's path has 107 bytes at most
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sound")))
            folder.mkdir(mode=0o700, exist_ok=True)
            self._folder = folder
            self._mic = _Server(folder / "mic", "mic", self._sinks["mic"])
            self._speaker = _Server(folder / "speaker", "speaker", self._sinks["speaker"])
            stack.callback(self.kill)
            self.restart()
            self.environ = self._environment(os.environ)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _environment(self, base: Mapping[str, str]) -> dict[str, str]:
        alsa, client = self._folder / "alsa.conf", self._folder / "client.conf"
        alsa.write_text(
            ALSA_CONFIG.format(mic=self._mic.address, speaker=self._speaker.address, more=self._more), "ascii"
        )
        client.write_text("autospawn = no\nenable-shm = no\n", "ascii")
        return {**base, "ALSA_CONFIG_PATH": str(alsa), "PULSE_SERVER": self._speaker.address,
                "PULSE_CLIENTCONFIG": str(client), "PULSE_COOKIE": str(self._folder / "cookie")}  # fmt: skip

    # --- the microphone ---------------------------------------------------------------------------------------------
    def play(self, sound: bytes | Path) -> None:
        """Into the microphone, in real time; returns when all of it was played. A file of any format, or PCM."""
        self.start(sound).wait()

    def start(self, sound: bytes | Path) -> Playing:
        """As `play`, but returns at once."""
        from assistant.audio.formats import read_audio

        pcm = read_audio(sound).pcm if isinstance(sound, Path) else sound
        handle, name = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(handle, "wb") as file:
            file.write(pcm)
        with open(name, "rb") as file:
            return Playing(self._mic.client("pacat", SPOKEN, stdin=file.fileno()), Path(name))

    # --- the speaker ------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def recording(self) -> Iterator[Recording]:
        """What the speaker plays from here to the end of the block, and for 150 ms more."""
        recording = Recording(self._speaker.client("parec", stdout=subprocess.PIPE))
        try:
            yield recording
            time.sleep(0.15)
        finally:
            recording.stop()

    @contextlib.contextmanager
    def loop_back(self, gain: float = 1.0) -> Iterator[None]:
        """What the speaker plays reaches the microphone, `gain` (0..1) times as loud and 50-100 ms later."""
        ear = self._speaker.client("parec", rate=48_000, stdout=subprocess.PIPE)
        assert ear.stdout is not None
        volume = round(gain ** (1 / 3) * 65_536)  # PulseAudio's volumes are cubic
        mouth = self._mic.client("pacat", f"--volume={volume}", rate=48_000, stdin=ear.stdout.fileno())
        ear.stdout.close()
        try:
            yield
        finally:
            for process in (ear, mouth):
                process.kill()
                process.wait()

    # --- trouble ----------------------------------------------------------------------------------------------------
    def unplug_mic(self) -> None:
        self._mic.unplug()

    def plug_mic(self) -> None:
        self._mic.plug()

    def unplug_speaker(self) -> None:
        self._speaker.unplug()

    def plug_speaker(self) -> None:
        self._speaker.plug()

    def kill(self) -> None:
        """Both servers, without a word to anybody."""
        self._mic.kill()
        self._speaker.kill()

    def restart(self) -> None:
        """After `kill`."""
        self._mic.start()
        self._speaker.start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Both servers take no step and answer nobody."""
        for server in (self._mic, self._speaker):
            server.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for server in (self._mic, self._speaker):
                server.signal(signal.SIGCONT)
