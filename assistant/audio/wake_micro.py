"""The wake engine `micro`: microWakeWord's streaming networks. Imports pymicro-wakeword, `errors` and `wake`.

The package's own loop makes an array for every 10 ms and reads a probability through several more. Here its library
and its feature frontend are driven directly, with bytes: less than two thirds of the time, and the same scores.

Nothing of a file reaches the library before `wake_files` has looked at it, and a model that did not come with the
package is tried in a child process first: the library could end the process that gives it a bad one. Never opens a
device; never decides whether a score counts.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pymicro_wakeword
from pymicro_features import MicroFrontend  # type: ignore[import-untyped]
from pymicro_wakeword.wakeword import TfLiteWakeWord

from assistant.audio.wake import Frame
from assistant.audio.wake_files import WakeModel, described, read_model, unsupported
from assistant.errors import EngineFailed, ModelDamaged, ModelError

FRAME_BYTES = 320
"""10 ms, the step of the features."""
FEATURES = 40
"""Values of one frame: logarithmic energies in mel bands, 0 to about 26."""
TRIAL_S = 5
"""Deadline of the trial in a child process; it takes milliseconds."""

_PACKAGE = Path(pymicro_wakeword.__file__).parent
_tried: set[tuple[Path, int, int]] = set()
"""Models that did no harm in a child process; of the whole process, so that it does not fork while sound is playing."""
_INT8, _UINT8 = 9, 3
"""Of the library's `TfLiteType`."""


class MicroWake:
    """The models in these folders, the first one that has a word, and those of the package behind them."""

    def __init__(self, models_dirs: Iterable[Path] = ()) -> None:
        """Raises `EngineFailed` where the package brings no library for this machine."""
        self._described = described((*models_dirs, _PACKAGE / "models"))
        self.names = tuple(self._described)
        self._lib = _library()

    def phrase(self, word: str) -> str:
        """Raises `ModelError`."""
        return read_model(self._described[word]).phrase

    def features(self) -> MicroFeatures:
        return MicroFeatures()

    def open(self, word: str, threshold: float | None = None) -> MicroDetector:
        """Raises `ModelDamaged` or `ModelUnsupported` that name the file."""
        description = self._described[word]
        model = read_model(description)
        stat = model.path.stat()
        content = (model.path, stat.st_mtime_ns, stat.st_size)
        if description.parent != _PACKAGE / "models" and content not in _tried:
            try_apart(self._lib, model)
            _tried.add(content)
        return MicroDetector(self._lib, model, model.cutoff if threshold is None else threshold)


class MicroFeatures:
    """The frontend that the networks were trained with."""

    def __init__(self) -> None:
        self._frontend = MicroFrontend()
        self._rest = b""
        self._samples = 0

    def feed(self, pcm: bytes) -> list[Frame]:
        sound = self._rest + pcm
        frames: list[Frame] = []
        at = 0
        while at + FRAME_BYTES <= len(sound):
            made = self._frontend.process_samples(sound[at : at + FRAME_BYTES])
            at += made.samples_read * 2
            self._samples += made.samples_read
            if made.features:
                frames.append(Frame(made.features, self._samples))
        self._rest = sound[at:]
        return frames


class MicroDetector:
    """One network; it remembers the last second or two in itself, so it must be fed without gaps."""

    def __init__(self, lib: Any, model: WakeModel, threshold: float) -> None:
        self.threshold = threshold
        self._lib = lib
        self._path = model.path
        self._recent: deque[float] = deque(maxlen=model.window)
        self._network = _Network(lib, model.path)
        self._pending = bytearray()

    def feed(self, frame: Frame) -> float | None:
        """The mean of the last scores, as the model's maker counts; None until there are so many."""
        network = self._network
        self._pending += bytes(map(network.quantised.__getitem__, frame.values))
        if len(self._pending) < network.input_bytes:
            return None
        self._recent.append(network.run(bytes(self._pending)))
        self._pending.clear()
        recent = self._recent
        return sum(recent) / len(recent) if len(recent) == recent.maxlen else None

    def reset(self) -> None:
        """The library has no way to clear what a network remembers, so it is made anew; about 1 ms."""
        self._network.close()
        self._network = _Network(self._lib, self._path)
        self._recent.clear()
        self._pending.clear()

    def close(self) -> None:
        self._network.close()


class _Quantised(dict[float, int]):
    """A feature as the byte that the network takes: round(value / scale) + zero point. Few values ever come."""

    def __init__(self, scale: float, zero_point: int, low: int) -> None:
        super().__init__()
        self._scale, self._zero_point, self._low = scale, zero_point, low

    def __missing__(self, value: float) -> int:
        whole = round(value / self._scale + self._zero_point)
        byte = min(max(whole, self._low), self._low + 255) & 255
        if len(self) < 65_536:
            self[value] = byte
        return byte


class _Network:
    """A model in the library; every call's result is looked at, since the library goes on with NULL."""

    def __init__(self, lib: Any, path: Path) -> None:
        self._lib = lib
        self._name = path.name
        self._interpreter = None
        self._model = lib.TfLiteModelCreateFromFile(os.fsencode(path))
        try:
            if not self._model:
                raise ModelDamaged(f"{path} is no TensorFlow Lite model, or damaged. Get it again.")
            self._interpreter = lib.TfLiteInterpreterCreate(self._model, None)
            if not self._interpreter or lib.TfLiteInterpreterAllocateTensors(self._interpreter):
                raise unsupported(path, "the library cannot run it")
            self._look(path)
        except BaseException:
            self.close()
            raise

    def _look(self, path: Path) -> None:
        """Finds its ends. Raises `ModelUnsupported` for one that takes or gives something else."""
        lib = self._lib
        try:
            self._input = lib.TfLiteInterpreterGetInputTensor(self._interpreter, 0)
            self._output = lib.TfLiteInterpreterGetOutputTensor(self._interpreter, 0)
        except RuntimeError as error:  # what the package makes of NULL
            raise unsupported(path, str(error)) from None
        self.input_bytes = int(lib.TfLiteTensorByteSize(self._input))
        kinds = lib.TfLiteTensorType(self._input), lib.TfLiteTensorType(self._output)
        if not set(kinds) <= {_INT8, _UINT8} or lib.TfLiteTensorByteSize(self._output) != 1:
            raise unsupported(path, "it must take and give bytes, and give one score")
        if self.input_bytes not in range(FEATURES, FEATURES * 100 + 1, FEATURES):
            raise unsupported(path, f"it takes {self.input_bytes} bytes instead of {FEATURES} for each 10 ms")
        taken, given = lib.TfLiteTensorQuantizationParams(self._input), lib.TfLiteTensorQuantizationParams(self._output)
        if not (0 < taken.scale < 1e6 and 0 < given.scale < 1e6):
            raise unsupported(path, "its numbers have no scale")
        self.quantised = _Quantised(taken.scale, taken.zero_point, -128 if kinds[0] == _INT8 else 0)
        self._result = (ctypes.c_int8 if kinds[1] == _INT8 else ctypes.c_uint8)()
        self._result_at = ctypes.addressof(self._result)
        self._scale, self._zero_point = float(given.scale), int(given.zero_point)

    def run(self, frames: bytes) -> float:
        """Score in 0..1. Raises `EngineFailed`."""
        lib = self._lib
        failed = (
            lib.TfLiteTensorCopyFromBuffer(self._input, frames, len(frames))
            or lib.TfLiteInterpreterInvoke(self._interpreter)
            or lib.TfLiteTensorCopyToBuffer(self._output, self._result_at, 1)
        )
        if failed:
            raise EngineFailed(f"the wake word model {self._name} failed with status {failed}; get it again")
        return (self._result.value - self._zero_point) * self._scale

    def close(self) -> None:
        if self._interpreter:
            self._lib.TfLiteInterpreterDelete(self._interpreter)
            self._interpreter = None
        if self._model:
            self._lib.TfLiteModelDelete(self._model)
            self._model = None


def _library() -> Any:
    found = sorted((_PACKAGE / "lib").glob("*tensorflowlite_c.*"))
    try:
        return TfLiteWakeWord(found[0]).lib
    except (IndexError, OSError) as error:
        raise EngineFailed(f"pymicro-wakeword has no library for this machine: {error}; run scripts/setup") from None


def try_apart(lib: Any, model: WakeModel) -> None:
    """Loads and runs it in a child process. Raises `ModelDamaged` when the child died of it."""
    pid = os.fork()
    if not pid:
        result = 2
        try:
            result = _trial(lib, model)
        finally:
            os._exit(result)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        raise ModelDamaged(f"{model.path} is a model that ends the process which runs it; it is not used.")
    # with another status the child found what `MicroDetector` is about to find, and to say, here


def _trial(lib: Any, model: WakeModel) -> int:
    """In the child; the exit status."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(TRIAL_S)
    try:
        detector = MicroDetector(lib, model, 0.5)
        frames = [[float(at % 27)] * FEATURES for at in range(300)]
        for number, values in enumerate(frames):
            detector.feed(Frame(values, number))
    except (ModelError, EngineFailed):
        return 1
    return 0
