"""Every error that a user, a client or another room may see. Imports nothing of ours.

    AssistantError            code, message, stage, retryable, retry_after_ms; knows its exit code
    * UsageError              what was asked makes no sense; the request must change
      x ConfigError           names the key and where it came from
      x BadAudio              no such file, not audio, damaged, empty
      x BadText               empty, too long, not text
    * ModelError              a model cannot be used
      x ModelUnknown          not in the catalog
      x ModelMissing          in the catalog, not on this disk
      x ModelDamaged          size or sha256 is not what the catalog or the manifest says
      x ModelUnreachable      its disk does not answer (retryable)
      x ModelUnsupported      an architecture, tensor type or file that no engine or converter takes
    * FetchFailed             a download did not arrive whole
    * MemoryRefused           the ledger said no
      x NeverFits             larger than the whole budget
      x BusyNow               would fit if others were idle (retryable)
    * StageError              a worker process failed
      x StageStartTimeout     did not become ready in time (retryable)
      x StageDied             its process ended (retryable)
      x StageHung             made no progress in time (retryable)
      x EngineFailed          the engine raised
      x RemoteFailed          a server that does a stage's work cannot be reached, refuses, or is too late (retryable)
    * HandlerFailed           another program that carries out an intent gave no answer, or an error
    * NoSpeech                nothing was said, or nothing was understood
    * DeviceError             microphone or speaker
    * NotRunning              no daemon answers
    * Cancelled               the user or a client stopped it

Foreign errors are mapped once, at the border where they appear. `code` is stable and kebab-case; `message` says what
happened and what to do.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar


class ExitCode(IntEnum):
    """Exit codes of the command line; fixed."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_RUNNING = 3
    BUSY = 4
    MEMORY = 5
    MODEL = 6
    AUDIO_DEVICE = 7
    CANCELLED = 130  # 128 + SIGINT, as shells expect of an interrupted command


class AssistantError(Exception):
    """Base of all; never raised itself."""

    default_code: ClassVar[str] = "failed"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, code: str | None = None, stage: str | None = None, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.stage = stage
        self.retry_after_ms = retry_after_ms

    def to_dict(self) -> dict[str, Any]:
        """The public form: `{code, message, stage, retryable, retry_after_ms}`, plus `status` 429 for busy."""
        out: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "stage": self.stage,
            "retryable": self.retryable,
            "retry_after_ms": self.retry_after_ms,
        }
        if isinstance(self, BusyNow):
            out["status"] = 429
        return out


class UsageError(AssistantError):
    default_code = "bad-arguments"
    exit_code = ExitCode.USAGE


class ConfigError(UsageError):
    default_code = "bad-config"


class BadAudio(UsageError):
    default_code = "bad-audio"


class BadText(UsageError):
    default_code = "bad-text"


class ModelError(AssistantError):
    default_code = "model-error"
    exit_code = ExitCode.MODEL


class ModelUnknown(ModelError):
    default_code = "model-unknown"


class ModelMissing(ModelError):
    default_code = "model-missing"


class ModelDamaged(ModelError):
    default_code = "model-damaged"


class ModelUnreachable(ModelError):
    default_code = "model-unreachable"
    retryable = True


class ModelUnsupported(ModelError):
    default_code = "model-unsupported"


class FetchFailed(AssistantError):
    default_code = "fetch-failed"
    retryable = True


class MemoryRefused(AssistantError):
    default_code = "memory-refused"
    exit_code = ExitCode.MEMORY


class NeverFits(MemoryRefused):
    default_code = "memory-never-fits"


class BusyNow(MemoryRefused):
    default_code = "busy"
    exit_code = ExitCode.BUSY
    retryable = True


class StageError(AssistantError):
    default_code = "stage-failed"
    suspects_cache = False
    """Whether files that were made for this machine may be to blame, so that another try must not trust them."""


class StageStartTimeout(StageError):
    default_code = "stage-start-timeout"
    retryable = True


class StageDied(StageError):
    default_code = "stage-died"
    retryable = True


class StageHung(StageError):
    default_code = "stage-hung"
    retryable = True


class EngineFailed(StageError):
    default_code = "engine-failed"
    suspects_cache = True


class RemoteFailed(StageError):
    default_code = "remote-failed"
    retryable = True


class HandlerFailed(AssistantError):
    default_code = "handler-no-answer"
    retryable = True


class NoSpeech(AssistantError):
    default_code = "stt-no-text-recognized"


class DeviceError(AssistantError):
    default_code = "audio-device"
    exit_code = ExitCode.AUDIO_DEVICE


class NotRunning(AssistantError):
    default_code = "not-running"
    exit_code = ExitCode.NOT_RUNNING


class Cancelled(AssistantError):
    default_code = "cancelled"
    exit_code = ExitCode.CANCELLED


def _tree(base: type[AssistantError]) -> dict[str, type[AssistantError]]:
    found = {base.__name__: base}
    for sub in base.__subclasses__():
        found.update(_tree(sub))
    return found


def by_name(name: str) -> type[AssistantError]:
    """The class of an error that crossed a process border by name; `StageError` for a name that is not ours."""
    return _tree(AssistantError).get(name, StageError)
