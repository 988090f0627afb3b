"""What the daemon and its audio process say to each other. Imports `messages` alone; pure.

The audio process owns microphone and speaker, hears wake and stop words and finds where an utterance begins and ends;
the daemon decides what becomes of it. One message is one packet (SOCK_SEQPACKET) of msgpack; sound goes in pieces of at
most `MAX_PCM` bytes. Sound from the microphone is s16le mono at 16 kHz.
"""

from __future__ import annotations

from typing import Literal

import msgspec

MAX_PCM = 32_000
"""Bytes of sound in one packet: a packet must fit into a socket's buffer."""
MAX_PACKET = 65_536

CueName = Literal["awake", "done", "error", "thinking", "timer"]
DeviceKind = Literal["input", "output"]
DeviceState = Literal["ok", "lost", "off"]
"""`lost`: it was there, or should be; it is looked for again and again. `off`: nobody asked for it."""
EndReason = Literal["silence", "cap", "no-speech"]


class _Packet(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class CueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Each "tone" (made by us), "off", or the path of a sound file."""

    awake: str = "tone"
    done: str = "tone"
    error: str = "tone"
    thinking: str = "tone"
    timer: str = "tone"


class WakeSettings(msgspec.Struct, frozen=True, kw_only=True):
    engine: str = "micro"
    words: tuple[str, ...] = ()
    stop_words: tuple[str, ...] = ()
    """Heard only while we speak or ring. One without a model is left out, and said so in the log."""
    thresholds: dict[str, float] = {}
    """By word; the others as their makers advise."""
    models_dirs: tuple[str, ...] = ()
    """Folders with more models (NAME.json and its .tflite file), searched before those that came with the library."""
    refractory_s: float = 2.0
    vad_gate: bool = False
    """Whether a detection counts only where voice activity is found as well."""


class EndpointSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds."""

    speech_start_s: float = 0.3
    """Speech of this length is a command that has begun. A shorter one counts, too, once it is followed by silence."""
    least_speech_s: float = 0.09
    """Less than this is a click: "pause" has 0.13 s."""
    end_silence_s: float = 0.7
    pause_s: float = 0.2
    """Silence after which recognition may begin on what was said so far."""
    no_speech_s: float = 5.0
    """Nobody says anything; 0 = wait for ever."""
    max_s: float = 15.0


class FrontSettings(msgspec.Struct, frozen=True, kw_only=True):
    input: str = ""
    """Regular expression of the microphone's name; empty = the system's default."""
    output: str = ""
    volume_percent: float = 100
    muted: bool = False
    cues: CueSettings = CueSettings()
    wake: WakeSettings = WakeSettings()
    endpoint: EndpointSettings = EndpointSettings()
    pre_roll_s: float = 1.0


# --- daemon -> audio process ----------------------------------------------------------------------------------------
class Begin(_Packet, frozen=True, kw_only=True):
    settings: FrontSettings
    last_session: int = 0
    """The highest number of a session of an earlier audio process: none is used twice."""


class Attend(_Packet, frozen=True, kw_only=True):
    """Listen now, without a wake word. `session` is a number that was not used before; odd ones are the daemon's, even
    ones the audio process's."""

    session: int
    endpoint: EndpointSettings | None = None
    """None: as configured."""
    pre_roll_s: float = 0.0


class Release(_Packet, frozen=True, kw_only=True):
    """The session is over; what it would still send is not wanted."""

    session: int


class GoOn(_Packet, frozen=True, kw_only=True):
    """What the session held was no command ("hey jarvis" and nothing more): its endpointing begins anew."""

    session: int


class Play(_Packet, frozen=True, kw_only=True):
    run: str
    """The query's id: what belongs to a run that was stopped is not played any more."""
    pcm: bytes
    """s16le mono."""
    sample_rate: int


class PlayEnd(_Packet, frozen=True, kw_only=True):
    """That was all of it."""

    run: str


class Cue(_Packet, frozen=True, kw_only=True):
    name: CueName


class Silence(_Packet, frozen=True, kw_only=True):
    """Silence at once, cues too; nothing of `run` is played from here on."""

    run: str


class Mute(_Packet, frozen=True, kw_only=True):
    """Of the microphone: nothing is heard, no session goes on."""

    on: bool


class Volume(_Packet, frozen=True, kw_only=True):
    percent: float


class Quit(_Packet, frozen=True, kw_only=True):
    pass


# --- audio process -> daemon ----------------------------------------------------------------------------------------
class Ready(_Packet, frozen=True, kw_only=True):
    """It has taken up its settings; devices are told of by `Device`, which may come earlier or later."""

    words: tuple[str, ...]
    stop_words: tuple[str, ...]
    """Those that there is a model for."""


class Failed(_Packet, frozen=True, kw_only=True):
    """Its settings are wrong, or a library is missing: it ends, and another one would, too."""

    error: str
    """The class in `errors`."""
    code: str
    message: str


class Beat(_Packet, frozen=True, kw_only=True):
    """Every two seconds: what a daemon that hears none of it takes for the sign of a process that hangs."""

    captured_s: float
    """Of sound since the start."""
    overflows: int
    """Times that sound from the microphone was lost because nobody took it in time."""
    underruns: int
    """Times that the speaker had nothing to play in the middle of a run."""
    reopened: int


class Device(_Packet, frozen=True, kw_only=True):
    kind: DeviceKind
    state: DeviceState
    name: str = ""
    sample_rate: int = 0
    """Hz at which it was opened."""
    channels: int = 0
    message: str = ""
    """Why it is lost, and what to do."""


class Woke(_Packet, frozen=True, kw_only=True):
    """A wake word: a session of this number begins by itself, with the pre-roll; what sounded was silenced already. A
    stop word: silenced, too, and there is no session (0)."""

    word: str
    phrase: str
    """How people write it: "hey jarvis"."""
    score: float
    kind: Literal["wake", "stop"]
    session: int = 0


class Sound(_Packet, frozen=True, kw_only=True):
    session: int
    pcm: bytes


class Spoke(_Packet, frozen=True, kw_only=True):
    """Where in a session the speaker is. After `end` the sound goes on until the session is released."""

    session: int
    what: Literal["speech", "pause", "resumed", "end"]
    reason: EndReason = "silence"
    """Of `end`."""
    speech_s: float = 0.0
    """Speech in the session so far."""
    silence_s: float = 0.0
    """Since the last speech: how long ago the speaker finished."""


class Played(_Packet, frozen=True, kw_only=True):
    """How much of a run has been heard; the last one says so. Comes ten times a second at most."""

    run: str
    seconds: float
    ended: bool = False
    """All of it was heard, or it was silenced."""


ToFront = Begin | Attend | Release | GoOn | Play | PlayEnd | Cue | Silence | Mute | Volume | Quit
FromFront = Ready | Failed | Beat | Device | Woke | Sound | Spoke | Played

_encoder = msgspec.msgpack.Encoder()
_to_front = msgspec.msgpack.Decoder(ToFront)
_from_front = msgspec.msgpack.Decoder(FromFront)


def encode(packet: ToFront | FromFront) -> bytes:
    return _encoder.encode(packet)


def to_front(packet: bytes) -> ToFront:
    """Raises `msgspec.DecodeError`."""
    return _to_front.decode(packet)


def from_front(packet: bytes) -> FromFront:
    """Raises `msgspec.DecodeError`."""
    return _from_front.decode(packet)
