"""The stage contract: all that a new engine must satisfy. Imports `messages` alone.

An engine lives in a worker process of its own (`worker`), so it may block, hold the GIL and leak; its exit gives
everything back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

Req = TypeVar("Req", contravariant=True)
Out = TypeVar("Out", covariant=True)


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine says of itself once it is loaded."""

    name: str
    model: str
    sample_rate: int | None = None
    """Hz of the audio that it takes (ASR) or gives (TTS)."""
    streaming: bool = False
    """Whether `run` gives partial results before the last one. A recogniser that says so is a `StreamingEngine`."""
    derived: str = ""
    """The folder of files made from the model for this machine that the load used; empty = none."""
    exceptional: bool = False
    """Whether this load made them, or compared them whole (which maps them once more): it took more memory than the
    next one will."""
    notes: tuple[str, ...] = ()
    """What the owner should know of this load, such as a file of his own that was left out."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker hands to the engine's constructor."""

    model: str
    model_dir: Path
    """A verified model directory; the engine only reads it."""
    digest: str = ""
    """Stable digest of the model's files: what a cache of derived data must be keyed with."""
    cache_dir: Path
    """The engine may write here; the caller guarantees that it exists."""
    threads: int
    """At least 1."""
    options: Mapping[str, Any] = {}
    """Validated by the engine's own `Options`."""
    distrust_cache: bool = False
    """The last start crashed or hung: whatever `cache_dir` holds for this model must be made anew."""


class Engine(Protocol[Req, Out]):
    """Constructed with one `EngineConfig`; used by one thread; each method is called in this order."""

    @property
    def info(self) -> EngineInfo: ...

    def load(self) -> None:
        """May be slow. Raises `ModelError`; any other exception becomes `EngineFailed`."""

    def run(self, request: Req) -> Iterator[Out]:
        """Yields often: each yield is progress for the watchdog and a point where a cancel takes effect.

        The worker closes the generator on cancel, so clean up in `finally`. Raises `AssistantError`.
        """

    def close(self) -> None:
        """Releases what an exit would not (files, locks). Never raises."""


class StreamingEngine(Engine[Req, Out], Protocol[Req, Out]):
    """A recogniser that hears a sentence while it is still being spoken."""

    def stream(self, request: Req, chunks: Iterator[bytes]) -> Iterator[Out]:
        """Like `run`, on the request's sound and on what `chunks` gives after it: s16le mono at 16 kHz, pieces of any
        length. Its end is the end of the recording. Asking it for more waits until there is more; a cancel leaves
        through it, as an exception that is none of the engine's business.
        """
