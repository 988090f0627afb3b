"""The audio process: microphone and speaker, and what is heard and played in between. Forked like a worker.

One thread that waits for the daemon's packets and for sound; PortAudio's own threads only copy (`streams`). What the
sound means is found out in `ears`, what sounds is put together in `mixer`. It knows no query: only the number of a
session (somebody speaks) and the name of a run (we speak). Ends when the daemon has gone.
"""

from __future__ import annotations

import ctypes
import logging
import os
import queue
import select
import socket
import time
from collections import deque
from collections.abc import Iterable

import msgspec

from assistant.audio.cues import CueSounds
from assistant.audio.ears import Ears
from assistant.audio.echo import OwnVoice
from assistant.audio.front_messages import (
    MAX_PACKET,
    Attend,
    Beat,
    Begin,
    Cue,
    Device,
    Failed,
    FromFront,
    GoOn,
    Mute,
    Play,
    Played,
    PlayEnd,
    Quit,
    Ready,
    Release,
    Silence,
    ToFront,
    Volume,
    Woke,
    encode,
    to_front,
)
from assistant.audio.mixer import Mixer
from assistant.audio.notch import Notch
from assistant.audio.self_listener import SelfListener
from assistant.audio.streams import InputStream, OutputStream
from assistant.errors import AssistantError, EngineFailed

log = logging.getLogger(__name__)

BEAT_S = 2.0
PROGRESS_S = 0.1
"""Between two words of how much was heard."""
BLOCK = 1024
"""Bytes: 32 ms, the window of the voice activity detector."""
_SINK_S = 0.02
"""That a sound server takes beyond the latency that it was asked for; measured with PulseAudio."""
_MOST_UNSENT = 4 * 2**20
"""Bytes of packets that the daemon has not taken: it stands still, and will start another process of this kind."""
_MOST_NAME, _MOST_MESSAGE = 200, 2000
_PR_SET_NAME = 15


def main(sock: socket.socket) -> int:
    """Serves until the daemon says so or has gone; returns the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    # a session of its own: the workers' session yields to everybody, and sound must not
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"assistant-audio", 0, 0, 0)
    try:
        begin = to_front(sock.recv(MAX_PACKET))
        if not isinstance(begin, Begin):
            return 2
        with sock:
            return _serve(sock, begin)
    except (BrokenPipeError, ConnectionResetError, msgspec.DecodeError):
        return 0


def _serve(sock: socket.socket, begin: Begin) -> int:
    try:
        front = Front(sock, begin)
    except AssistantError as error:
        sock.send(encode(Failed(error=type(error).__name__, code=error.code, message=error.message)))
        return 1
    except (ImportError, OSError) as error:
        told = EngineFailed(f"a library for sound cannot be loaded: {error}; run scripts/setup")
        sock.send(encode(Failed(error=type(told).__name__, code=told.code, message=told.message)))
        return 1
    try:
        front.serve()
    finally:
        front.close()
    return 0


class Front:
    def __init__(self, sock: socket.socket, begin: Begin) -> None:
        """Raises `ConfigError` for settings that cannot be, `EngineFailed` for a library that is missing."""
        settings = begin.settings
        self._sock = sock
        self._unsent: deque[bytes] = deque()
        self._told: queue.SimpleQueue[Device] = queue.SimpleQueue()
        """By PortAudio's and the devices' threads."""
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._mixer = Mixer(volume_percent=settings.volume_percent)
        self._cues = CueSounds(settings.cues)
        self._own = OwnVoice(SelfListener(settings.wake, lambda: (*self._ears.words, *self._ears.stop_words)))
        self._ears = Ears(settings, explained=self._own.explains, notch=Notch(), last_session=begin.last_session)
        self._rest = b""
        self._speaker = OutputStream(settings.output, fill=self._mixer.fill, tell=self._tell)
        self._mixer.latency_s = self._speaker.latency_s + _SINK_S
        self._microphone = InputStream(settings.input, ready=self._wake, tell=self._tell)
        self._muted = settings.muted
        self._ended = False
        self._send(Ready(words=self._ears.words, stop_words=self._ears.stop_words))

    def _tell(self, packet: Device) -> None:
        """From any thread. A name may be as long as the pattern that it does not match."""
        self._told.put(
            msgspec.structs.replace(packet, name=packet.name[:_MOST_NAME], message=packet.message[:_MOST_MESSAGE])
        )
        self._wake()

    def _wake(self) -> None:
        """From any thread, and never waits."""
        os.eventfd_write(self._woken, 1)

    # --- the loop ---------------------------------------------------------------------------------------------------
    def serve(self) -> None:
        self._microphone.mute(self._muted)
        self._microphone.start()
        self._speaker.start()  # a missing one is told before somebody waits for its answer
        self._sock.setblocking(False)
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        beat_at = progress_at = 0.0
        while not self._ended:
            poll.register(self._sock, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            sounding = self._mixer.sounding
            ready = dict(poll.poll((PROGRESS_S if sounding else BEAT_S) * 1000))
            now = time.monotonic()
            if self._woken in ready:
                os.eventfd_read(self._woken)
            if ready.get(self._sock.fileno(), 0) & ~select.POLLOUT:
                self._receive()
            while not self._told.empty():
                self._send(self._told.get())
            self._listen(now)
            if now >= progress_at:
                progress_at = now + PROGRESS_S
                self._progress()
            if now >= beat_at:
                beat_at = now + BEAT_S
                self._beat()
            self._flush()

    def _receive(self) -> None:
        while not self._ended:
            try:
                packet = self._sock.recv(MAX_PACKET)
            except BlockingIOError:
                return
            if not packet:
                self._ended = True
                return
            self._obey(to_front(packet))

    def _obey(self, order: ToFront) -> None:
        match order:
            case Play(run=run, pcm=pcm, sample_rate=rate):
                self._mixer.play(run, pcm, rate)
                self._speaker.wanted()
            case PlayEnd(run=run):
                self._mixer.play_end(run)
                self._speaker.wanted()
            case Silence(run=run):
                self._mixer.silence(run)
            case Cue(name=name):
                sound = self._cues.get(name)
                if sound is not None:
                    self._ears.cue(sound.seconds)
                    self._mixer.cue(sound.pcm, sound.sample_rate)
                    self._speaker.wanted()
            case Attend():
                self._send_all(self._ears.attend(order))
            case Release(session=session):
                self._ears.release(session)
            case GoOn(session=session):
                self._ears.go_on(session)
            case Mute(on=on):
                self._muted = on
                self._microphone.mute(on)
                self._send_all(self._ears.mute(on))
            case Volume(percent=percent):
                self._mixer.volume(percent)
            case Quit():
                self._ended = True
            case Begin():
                log.debug("a second `Begin` is not in the protocol")

    # --- sound ------------------------------------------------------------------------------------------------------
    def _listen(self, now: float) -> None:
        """What has come from the microphone, in blocks."""
        for at, own in self._mixer.reference():
            self._own.played(at, own)
        self._ears.playing = self._mixer.sounding
        sound = self._rest + self._microphone.read()
        whole = len(sound) // BLOCK * BLOCK
        self._rest = sound[whole:]
        for begin in range(0, whole, BLOCK):
            behind = (len(sound) - begin) / 2 / 16_000
            for packet in self._ears.hear(sound[begin : begin + BLOCK], now - behind):
                if isinstance(packet, Woke):
                    # before the daemon hears of it: every millisecond of our voice is one too many
                    self._mixer.silence_all()
                self._send(packet)
        self._microphone.heeded = self._ears.in_session

    def _progress(self) -> None:
        for run, seconds, ended in self._mixer.progress():
            self._send(Played(run=run, seconds=seconds, ended=ended))

    def _beat(self) -> None:
        self._send(
            Beat(
                captured_s=self._microphone.captured_s,
                overflows=self._microphone.overflows,
                underruns=self._mixer.underruns,
                reopened=self._microphone.reopened + self._speaker.reopened,
            )
        )

    # --- sending ----------------------------------------------------------------------------------------------------
    def _send_all(self, packets: Iterable[FromFront]) -> None:
        for packet in packets:
            self._send(packet)

    def _send(self, packet: FromFront) -> None:
        self._unsent.append(encode(packet))

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._sock.send(self._unsent[0])
                self._unsent.popleft()
        except BlockingIOError:
            if sum(map(len, self._unsent)) > _MOST_UNSENT:
                log.debug("the daemon takes nothing any more")
                self._ended = True

    def close(self) -> None:
        self._microphone.close()
        self._speaker.close()
        self._ears.close()
        os.close(self._woken)
