"""The daemon's handle of the audio process (`audio.front`): starts it, watches it, starts another one when it ends.

Imports no audio library. Whatever happens to microphone, speaker or their libraries ends that process at most: typed
commands go on, and the next process begins with the same settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from assistant.audio.front_messages import (
    MAX_PACKET,
    Begin,
    Device,
    Failed,
    FromFront,
    FrontSettings,
    Mute,
    Quit,
    Ready,
    ToFront,
    Volume,
    Woke,
    encode,
    from_front,
)
from assistant.errors import AssistantError, DeviceError, StageError, by_name
from assistant.stages.fork_client import Forked, ForkServer, LogPipe
from assistant.tasks import uninterrupted

log = logging.getLogger(__name__)

MAIN = "assistant.audio.front"
READY_S = 15.0
"""From the fork to its first word: libraries and models of wake words on a slow board."""
SILENT_S = 10.0
"""Without a beat it hangs in a device's driver, and is killed."""
_FORK_S = 10.0
_QUIT_S = 0.4
_EXIT_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0
_HEALTHY_S = 60.0
"""After which the next restart is quick again."""
_MOST_UNSENT = 16 * 2**20
"""Bytes: six minutes of speech. More than that is nobody's answer."""


def _level_of(text: str) -> int:
    """It prints nobody's words; but the libraries under it print pages when a device is missing."""
    if "Traceback" in text:
        return logging.ERROR
    level, _, rest = text.partition(" ")
    return logging.getLevelNamesMapping().get(level, logging.DEBUG) if rest.startswith("assistant.") else logging.DEBUG


class Front:
    """`start`, any number of `send`s, `close`. `tell` is given each packet, in the loop's thread."""

    def __init__(
        self,
        server: ForkServer,
        settings: FrontSettings,
        tell: Callable[[FromFront], None],
        *,
        main: str = MAIN,
        silent_s: float = SILENT_S,
    ) -> None:
        self.settings = settings
        """With what was changed since the start: muted, volume."""
        self.restarts = 0
        self.pid = 0
        self._server, self._tell, self._main, self._silent_s = server, tell, main, silent_s
        self._sock: socket.socket | None = None
        self._unsent: deque[bytes] = deque()
        self._heard_at = 0.0
        self._keeper: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._last_session = 0

    async def start(self) -> None:
        """Returns once it has taken up its settings. Raises `ConfigError`, `EngineFailed`, `StageError`."""
        forked, log_pipe = await self._fork()
        self._keeper = asyncio.create_task(self._keep(forked, log_pipe))

    def send(self, packet: ToFront) -> None:
        """Returns at once; nothing is sent while there is no process."""
        match packet:
            case Mute(on=on):
                self.settings = msgspec.structs.replace(self.settings, muted=on)
            case Volume(percent=percent):
                self.settings = msgspec.structs.replace(self.settings, volume_percent=percent)
        if self._sock is None:
            return
        self._unsent.append(encode(packet))
        self._flush()

    def closing(self) -> None:
        """No other one is started from here on."""
        self._closing.set()

    async def close(self) -> None:
        """Ends it: asked, then killed. Never raises."""
        self.closing()
        if self._sock is not None:
            self.send(Quit())
        if self._keeper is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_QUIT_S):
                    await asyncio.shield(self._keeper)
            self._kill()
            await uninterrupted(asyncio.wait([self._keeper], timeout=_EXIT_S))
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    # --- its life ---------------------------------------------------------------------------------------------------
    async def _fork(self) -> tuple[Forked, LogPipe]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log_read, log_write = os.pipe2(os.O_CLOEXEC)
        try:
            with theirs:
                forked = await self._server.fork(theirs, log_write, _FORK_S, self._main)
        except BaseException:
            ours.close()
            os.close(log_read)
            raise
        finally:
            os.close(log_write)
        ours.setblocking(False)
        self._sock, self.pid = ours, forked.pid
        log_pipe = LogPipe(log_read, f"audio[{forked.pid}]", _level_of)
        try:
            async with asyncio.timeout(READY_S):
                self._unsent = deque([encode(Begin(settings=self.settings, last_session=self._last_session))])
                self._flush()
                await self._ready(ours)
        except BaseException as error:
            await uninterrupted(self._end(forked, log_pipe))
            if isinstance(error, TimeoutError):
                raise StageError(f"the audio process was not ready within {READY_S:g} s") from None
            raise
        self._heard_at = time.monotonic()
        return forked, log_pipe

    async def _ready(self, sock: socket.socket) -> None:
        while True:
            packet = await asyncio.get_running_loop().sock_recv(sock, MAX_PACKET)
            if not packet:
                raise StageError("the audio process ended while it started; the log at level debug has more")
            told = from_front(packet)
            if isinstance(told, Failed):
                raise by_name(told.error)(told.message, code=told.code)
            self._tell(told)
            if isinstance(told, Ready):
                return

    async def _keep(self, forked: Forked, log_pipe: LogPipe) -> None:
        """Reads until it ends or hangs, and starts the next one, for as long as the daemon lives."""
        pause_s = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            why = await self._follow(forked)
            await self._end(forked, log_pipe)
            if self._closing.is_set():
                return
            log.warning("the audio process %s; another one is started", why)
            for kind in ("input", "output"):
                self._tell(Device(kind=kind, state="lost", message=f"the audio process {why}"))
            if time.monotonic() - began > _HEALTHY_S:
                pause_s = _FIRST_PAUSE_S
            while True:
                await asyncio.sleep(pause_s)
                if self._closing.is_set():
                    return
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                try:
                    forked, log_pipe = await self._fork()
                    break
                except AssistantError as error:
                    log.warning("no audio process: %s", error.message)
            self.restarts += 1

    async def _follow(self, forked: Forked) -> str:
        """Hands on what it says. Why that came to an end."""
        loop, sock = asyncio.get_running_loop(), self._sock
        assert sock is not None
        packets: asyncio.Future[None] = loop.create_future()

        def readable() -> None:
            try:
                for _ in range(64):  # others want the loop, too
                    packet = sock.recv(MAX_PACKET)
                    if not packet:
                        raise ConnectionResetError
                    self._heard_at = time.monotonic()
                    self._hand_on(packet)
            except BlockingIOError:
                pass
            except (OSError, msgspec.DecodeError):
                loop.remove_reader(sock)
                if not packets.done():
                    packets.set_result(None)

        loop.add_reader(sock, readable)
        try:
            while True:
                left_s = self._heard_at + self._silent_s - time.monotonic()
                if left_s <= 0:
                    return f"gave no sign of life for {self._silent_s:g} s"
                ends: list[asyncio.Future[Any]] = [packets, forked.exit]
                done, _ = await asyncio.wait(ends, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    return "ended"
        finally:
            loop.remove_reader(sock)

    def _hand_on(self, packet: bytes) -> None:
        told = from_front(packet)
        if isinstance(told, Woke):
            self._last_session = max(self._last_session, told.session)
        try:
            self._tell(told)
        except Exception:  # what one packet does must not stop the next
            log.exception("a packet of the audio process was not understood")

    async def _end(self, forked: Forked, log_pipe: LogPipe) -> None:
        """Returns when it is reaped: the next one may want the same devices."""
        if not forked.exit.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(forked.pid, signal.SIGKILL)
            await asyncio.wait([forked.exit], timeout=_EXIT_S)
        log_pipe.close()
        if self._sock is not None:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_writer(self._sock)
            self._sock.close()
            self._sock = None
        self._unsent.clear()
        self.pid = 0

    def _kill(self) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    # --- sending ----------------------------------------------------------------------------------------------------
    def _flush(self) -> None:
        """As much as the socket takes; the rest when it takes more."""
        sock, loop = self._sock, asyncio.get_running_loop()
        if sock is None:
            return
        loop.remove_writer(sock)
        try:
            while self._unsent:
                sock.send(self._unsent[0])
                self._unsent.popleft()
        except BlockingIOError:
            if sum(map(len, self._unsent)) > _MOST_UNSENT:
                raise DeviceError("the speaker takes nothing any more", code="audio-device-lost") from None
            loop.add_writer(sock, self._flush)
        except OSError:
            self._unsent.clear()  # it has gone; `_keep` sees that, too
