"""Engines that do what real ones do on a bad day; chosen by `options["how"]`. Real child processes run them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assistant.errors import ModelDamaged
from assistant.messages import AsrRequest, LlmDelta, Progress, Transcript
from assistant.stages.base import EngineConfig, EngineInfo

_kept: list[Any] = []


class Misbehaving:
    def __init__(self, config: EngineConfig) -> None:
        self._how = str(config.options.get("how", ""))
        self._model = config.model
        self._distrusts = config.distrust_cache

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(name="misbehaving", model=self._model, exceptional=self._how == "make-derived")

    def load(self) -> None:
        match self._how:
            case "damaged":
                raise ModelDamaged("one byte is missing")
            case "raise-on-load":
                raise RuntimeError("no")
            case "hang-on-load":
                time.sleep(60)
            case "crash-until-distrusted" if not self._distrusts:
                os.kill(os.getpid(), signal.SIGSEGV)
            case "crash-on-load":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "eat-memory":
                _kept.append(bytearray(os.urandom(1)) * (64 << 20))
            case "ignore-sigterm":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def run(self, request: Any) -> Iterator[Any]:
        match self._how:
            case "hang-on-run" | "ignore-sigterm":
                time.sleep(60)
            case "exit-mid-stream":
                yield LlmDelta(text="half", tokens=1)
                os._exit(3)
            case "leak":
                _kept.append(os.urandom(1) * (50 << 20))
            case "eat-forever":
                while True:
                    _kept.append(os.urandom(1) * (4 << 20))
                    yield Progress(done=len(_kept), total=1000)
                    time.sleep(0.002)
            case "flood-stdout":
                for _ in range(2000):
                    sys.stdout.write("x" * 1000 + "\n")
                sys.stderr.write("y" * 100_000 + "\n")
            case "say-nothing":
                yield Progress(done=1, total=1)
                return
            case "raise-on-run":
                raise ValueError("bad day")
        for step in range(1000 if self._how == "slow" else 3):
            if self._how == "slow":
                time.sleep(0.01)
            yield Progress(done=step, total=3)
        yield LlmDelta(text=str(getattr(request, "turns", "")), tokens=1)

    def close(self) -> None:
        pass


class Parrot:
    """A recogniser that always hears the same, and writes down how much it was given."""

    def __init__(self, config: EngineConfig) -> None:
        self._heard = Path(str(config.options["heard"]))

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(name="parrot", model="m")

    def load(self) -> None:
        pass

    def run(self, request: AsrRequest) -> Iterator[Transcript]:
        with self._heard.open("a") as file:
            file.write(f"{len(request.pcm)}\n")
        yield Transcript(text="what time is it", final=True)

    def close(self) -> None:
        pass
