"""The main function of a worker process: the same for every stage. Imports an engine, loads it, serves requests.

One thread. Between two results of a request it looks for a cancel; while an engine computes it cannot, which is why
engines yield often. A request whose sound is still coming hears it between the results, too. Whatever an engine raises
goes back as a typed failure; nothing is retried here.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from assistant.errors import AssistantError, EngineFailed, ModelDamaged
from assistant.stages.base import Engine, EngineConfig
from assistant.stages.channel import (
    Cancel,
    Done,
    Failure,
    Load,
    More,
    Output,
    Prepare,
    Prepared,
    Ready,
    Run,
    Stop,
    Waiting,
    WorkerEnd,
)
from assistant.stages.placement import SESSION_NICE, Placement

log = logging.getLogger(__name__)

OOM_SCORE_ADJ = 500
"""When the kernel must kill, it shall take a worker (which can be started again) and not the daemon."""

_PR_SET_NAME = 15
_SESSION = "/proc/self/autogroup"


class _Gone(BaseException):
    """The daemon closed the socket or asked for the end. Like `_Cancelled` no `Exception`: both may pass through an
    engine that waits for sound, and must not be taken there for a fault."""


class _Cancelled(BaseException):
    """The request is not wanted any more."""


def main(sock: socket.socket) -> int:
    """Serves until told to stop or until the daemon has gone; returns the exit status."""
    logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(OOM_SCORE_ADJ))
    except OSError as error:
        log.debug("oom_score_adj not set: %s", error)
    try:
        _Worker(WorkerEnd(sock)).serve()
    except (_Gone, BrokenPipeError, ConnectionResetError):
        return 0
    return 0


def take_place(placement: Placement) -> None:
    """Niceness and CPUs of the calling thread and of all that it will start. What the kernel refuses stays as it is."""
    try:
        if placement.nice:
            os.nice(placement.nice)
        if placement.nice > 0:
            _yield_as_a_session()
    except OSError as error:
        log.debug("niceness %d not set: %s", placement.nice, error)
    try:
        if placement.cpus:
            os.sched_setaffinity(0, placement.cpus)
    except (OSError, ValueError, OverflowError) as error:  # not there, offline, another cpuset; no CPU number at all
        log.debug("CPUs %s not set: %s", placement.cpus, error)


def _yield_as_a_session() -> None:
    """Makes our session yield to the daemon's as we do; nothing where sessions do not count."""
    if os.getsid(0) != os.getppid() or not os.path.exists(_SESSION):  # the fork server's, never the user's
        return
    with open(_SESSION, "r+", encoding="ascii") as file:
        # "/autogroup-12 nice 0"; the kernel takes new values from a user no faster than ten a second
        if file.read().rpartition(" ")[2].strip() == "0":
            file.write(str(SESSION_NICE))


class _Worker:
    def __init__(self, end: WorkerEnd) -> None:
        self._end = end
        self._class: Any = None
        self._engine: Engine[Any, Any] | None = None

    def serve(self) -> None:
        try:
            while True:
                match self._end.receive():
                    case Prepare() as wanted:
                        self._guarded(0, lambda p=wanted: self._prepare(p))
                    case Load(config=config):
                        self._guarded(0, lambda c=config: self._load(c))
                    case Run() as run:
                        self._guarded(run.id, lambda r=run: self._run(r))
                    case Cancel() | More():
                        continue  # for a request that ended before it arrived
                    case Stop() | None:
                        return
        finally:
            if self._engine is not None:
                self._engine.close()

    def _guarded(self, request_id: int, step: Any) -> None:
        try:
            step()
        except _Gone:
            raise
        except AssistantError as error:
            self._end.send(Failure.of(request_id, error))
        except MemoryError:
            self._end.send(Failure.of(request_id, EngineFailed("the engine ran out of memory")))
        except Exception as error:  # the border: engines raise anything, the daemon gets one type
            log.debug("engine failed", exc_info=True)
            self._end.send(Failure.of(request_id, EngineFailed(f"{type(error).__name__}: {error}"[:500])))

    def _prepare(self, wanted: Prepare) -> None:
        started = time.monotonic()
        ctypes.CDLL(None).prctl(_PR_SET_NAME, f"assistant-{wanted.stage}".encode()[:15], 0, 0, 0)
        take_place(wanted.placement)
        engine = wanted.engine
        module, _, name = engine.partition(":")
        try:
            self._class = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            what = "engine" if error.name == module else f"library {error.name!r} of the engine"
            raise EngineFailed(f"the {what} {engine} is not installed; run scripts/setup") from None
        except (ImportError, OSError) as error:
            raise EngineFailed(f"a library of {engine} cannot be loaded: {error}") from None
        self._end.send(Prepared(import_ms=_since(started)))

    def _load(self, config: EngineConfig) -> None:
        started = time.monotonic()
        if config.model_dir.parts and not config.model_dir.is_dir():
            raise ModelDamaged(f"{config.model_dir} is not a folder")
        with contextlib.suppress(OSError):  # the engine says what it cannot do without it
            config.cache_dir.mkdir(parents=True, exist_ok=True)
        engine = self._class(config)
        engine.load()
        self._engine = engine
        self._end.send(Ready(info=engine.info, load_ms=_since(started)))

    def _run(self, run: Run) -> None:
        if self._engine is None:
            raise EngineFailed("the engine is not loaded")
        sound = _Sound(self._end, run.id)
        results = self._streamed(self._engine, run, sound) if run.live else self._engine.run(run.request)
        cancelled = False
        try:
            for body in results:
                self._end.send(Output(id=run.id, body=body))
                sound.take_what_came()
        except _Cancelled:
            cancelled = True
        finally:
            close = getattr(results, "close", None)
            if close is not None:
                close()
        self._end.send(Done(id=run.id, cancelled=cancelled))

    def _streamed(self, engine: Any, run: Run, sound: Iterator[bytes]) -> Iterator[Any]:
        if not engine.info.streaming:
            raise EngineFailed(f"the engine {engine.info.name} takes whole recordings only")
        results: Iterator[Any] = engine.stream(run.request, sound)
        return results


class _Sound:
    """What the daemon sends while a request runs: sound, in order, and the end of it. Waits where there is none."""

    def __init__(self, end: WorkerEnd, request_id: int) -> None:
        self._end, self._id = end, request_id
        self._kept: deque[bytes] = deque()
        self._taken = 0
        self._whole = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Raises `_Cancelled` and `_Gone` while it waits."""
        self.take_what_came()
        while not self._kept:
            if self._whole:
                raise StopIteration
            self._end.send(Waiting(id=self._id, taken=self._taken))
            self._take()
        return self._kept.popleft()

    def take_what_came(self) -> None:
        """Without waiting. Raises `_Cancelled` and `_Gone`."""
        while self._end.pending():
            self._take()

    def _take(self) -> None:
        match self._end.receive():
            case More(id=self._id, pcm=pcm, last=last):
                self._taken += 1
                self._whole = last
                if pcm:
                    self._kept.append(pcm)
            case Cancel(id=self._id):
                raise _Cancelled
            case More() | Cancel():
                pass
            case Stop() | None:
                raise _Gone
            case other:
                log.debug("pid %d: %s while busy is not in the protocol", os.getpid(), type(other).__name__)


def _since(started: float) -> float:
    return (time.monotonic() - started) * 1000
