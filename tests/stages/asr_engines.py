"""The two ASR engines as tests need them: with their models, and in processes of their own when a crash is possible."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from assistant.model_store.store import ModelInfo
from assistant.stages.asr_vosk import VoskAsr
from assistant.stages.asr_whisper import WhisperAsr
from assistant.stages.base import EngineConfig


class AsrCase(msgspec.Struct, frozen=True):
    """One engine, one model, one recording that it understands."""

    engine: str
    model: str
    clip: str
    text: str
    """In the recogniser's answer to `clip`, lower case."""
    weights: str
    """The file that damage is done to."""

    def build(self, model_dir: Path, cache_dir: Path) -> WhisperAsr | VoskAsr:
        kind = WhisperAsr if self.engine == "whisper" else VoskAsr
        return kind(EngineConfig(model=self.model, model_dir=model_dir, cache_dir=cache_dir, threads=2))


CASES = [
    AsrCase("whisper", "whisper-tiny.en", "cmd_r3_what_time_is_it.wav", "what time is it", "model.bin"),
    AsrCase("vosk", "vosk-ko", "lang_ko_multi_keywords.wav", "컴퓨터 빅스비", "am/final.mdl"),
]


@contextmanager
def whisper(model: Callable[[str], ModelInfo], cache_dir: Path) -> Iterator[WhisperAsr]:
    """Loaded; closed behind it. `model`: the fixture of that name."""
    case = next(case for case in CASES if case.engine == "whisper")
    engine = case.build(model(case.model).path, cache_dir)
    assert isinstance(engine, WhisperAsr)
    engine.load()
    yield engine
    engine.close()


_CHILD = """
import sys
from pathlib import Path
from assistant.errors import AssistantError
from tests.stages.asr_engines import CASES
case = next(case for case in CASES if case.engine == sys.argv[1])
try:
    case.build(Path(sys.argv[2]), Path(sys.argv[3])).load()
except AssistantError as error:
    print(type(error).__name__, error.message, sep="|")
else:
    print("loaded|")
"""


def loaded_in_child(case: AsrCase, model_dir: Path, cache_dir: Path) -> tuple[int, str, str]:
    """(exit status, name of the typed error or "loaded", its message): damaged weights may end a C++ library."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, case.engine, str(model_dir), str(cache_dir)],
        capture_output=True,
        text=True,
        errors="replace",  # Kaldi quotes the damage
        timeout=60,
    )
    name, _, message = done.stdout.strip().rpartition("\n")[2].partition("|")
    return done.returncode, name, message
