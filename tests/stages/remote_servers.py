"""Servers on loopback for the tests of remote engines: conforming ones, and ones that play a script of bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.server import AsyncEventHandler, AsyncTcpServer
from wyoming.tts import Synthesize

RATE = 22_050


# --- the wyoming package's own server -------------------------------------------------------------------------------
@dataclass
class Heard:
    """What a server was asked."""

    transcribe: list[Transcribe] = field(default_factory=list)
    audio: bytes = b""
    synthesize: list[Synthesize] = field(default_factory=list)
    bad_word: str = "fail"


class Handler(AsyncEventHandler):
    """Says how many bytes it heard; speaks 0.1 s for each word, in pieces; the bad word is an error."""

    def __init__(self, heard: Heard, *args: Any) -> None:
        super().__init__(*args)
        self._heard = heard

    async def handle_event(self, event: Event) -> bool:
        if Transcribe.is_type(event.type):
            self._heard.transcribe.append(Transcribe.from_event(event))
        elif AudioChunk.is_type(event.type):
            chunk = AudioChunk.from_event(event)
            assert (chunk.rate, chunk.width, chunk.channels) == (16_000, 2, 1)
            self._heard.audio += chunk.audio
        elif AudioStop.is_type(event.type):
            await self.write_event(Transcript(text=f" {len(self._heard.audio)} bytes, é. ").event())
        elif Synthesize.is_type(event.type):
            await self._speak(Synthesize.from_event(event))
        return True

    async def _speak(self, wanted: Synthesize) -> None:
        self._heard.synthesize.append(wanted)
        if self._heard.bad_word in wanted.text:
            return await self.write_event(Error(text="no such voice").event())
        await self.write_event(AudioStart(rate=RATE, width=2, channels=1).event())
        for _ in wanted.text.split():
            for _ in range(5):
                await self.write_event(AudioChunk(rate=RATE, width=2, channels=1, audio=b"\1\0" * (RATE // 50)).event())
        await self.write_event(AudioStop().event())


@contextmanager
def wyoming_server() -> Iterator[tuple[str, Heard]]:
    """Its URI, and what it hears."""
    heard, port, loop = Heard(), free_port(), asyncio.new_event_loop()
    server = AsyncTcpServer("127.0.0.1", port)
    started = threading.Event()

    async def serve() -> None:
        await server.start(lambda reader, writer: Handler(heard, reader, writer))
        started.set()
        await over.wait()
        await server.stop()
        for _ in range(100):
            if len(asyncio.all_tasks()) == 1:
                break
            await asyncio.sleep(0.01)

    over = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(5)
    try:
        yield f"tcp://127.0.0.1:{port}", heard
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(5)
        loop.close()


# --- a server that streams as OpenAI's API does ---------------------------------------------------------------------
@dataclass
class Asked:
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


@contextmanager
def openai_server(
    answer: str = "Paris is a city.", *, status: int = 200, key: str = "", streams: bool = True, tls: Any = None
) -> Iterator[tuple[str, Asked]]:
    """Its URL, and what it is asked. `key`: that it demands; `tls`: an `SSLContext`."""
    asked = Asked()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.bodies.append(json.loads(body))
            asked.keys.append(self.headers.get("Authorization", ""))
            asked.paths.append(self.path)
            code = 401 if key and self.headers.get("Authorization") != f"Bearer {key}" else status
            if code != 200 or not streams:
                return self._whole(code)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._event({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
            for word in answer.split(" "):
                self._event({"choices": [{"delta": {"content": word + " "}, "finish_reason": None}]})
            last = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 21}}
            self._event(last)
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")

        def _whole(self, code: int) -> None:
            text = {"choices": [{"message": {"content": answer}, "finish_reason": "stop"}]}
            body = json.dumps(text if code == 200 else {"error": {"message": f"wrong key {key}"}}).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _event(self, data: dict[str, Any]) -> None:
            self._chunk(b": a comment\ndata: " + json.dumps(data).encode() + b"\n\n")

        def _chunk(self, data: bytes) -> None:
            with contextlib.suppress(OSError):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=lambda: server.serve_forever(0.02))
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


# --- servers that do as they are told -------------------------------------------------------------------------------
@contextmanager
def scripted(play: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port; `play` has the connection of each client, which is closed afterwards."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(sock,), daemon=True).start()

    def one(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            play(sock)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        over.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def sends(data: bytes, until: bytes = b"") -> Callable[[socket.socket], None]:
    """Reads what comes, up to `until` where it is given; sends `data`; takes what else comes before it closes, so
    that the other side sees an ordinary end."""

    def play(sock: socket.socket) -> None:
        sock.settimeout(5)
        read = b""
        while until and until not in read:
            read += sock.recv(1 << 16)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass

    return play


def drips(data: bytes, every_s: float) -> Callable[[socket.socket], None]:
    """`data` again and again, a byte at a time."""

    def play(sock: socket.socket) -> None:
        while True:
            for number in range(len(data)):
                sock.sendall(data[number : number + 1])
                time.sleep(every_s)

    return play


def repeats(data: bytes) -> Callable[[socket.socket], None]:
    """`data` again and again, as fast as it is taken."""

    def play(sock: socket.socket) -> None:
        while True:
            sock.sendall(data)

    return play


def silent(sock: socket.socket) -> None:
    """Takes everything, says nothing."""
    while sock.recv(1 << 16):
        pass


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])
