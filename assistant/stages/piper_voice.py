"""What a Piper voice says of itself, and text as phonemes for it. Imports `errors` and `sentences`; no engine library.

Phonemes come from espeak-ng as piper-tts ships it: an extension module that is loaded by its path, because `import
piper` brings onnxruntime along, which is 20 MiB and a thread. Piper: https://github.com/OHF-Voice/piper1-gpl
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import logging
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import msgspec

from assistant.errors import EngineFailed, ModelDamaged, ModelMissing, ModelUnsupported
from assistant.sentences import SentenceSplitter

log = logging.getLogger(__name__)

MAX_CHARS = 200
"""Text per run of the encoder."""

MAX_PHONEMES = 320
"""The same, for text that is longer spoken than written ("999,999,999")."""

_BEGIN, _END, _PAD = "^", "$", "_"
_WITHOUT_DOWNLOADS = ("espeak", "text")
_OTHER_LANGUAGE = re.compile(r"\([^)]*\)")
"""espeak's marks around words of another language, as in "(fr)"."""


class _Record(msgspec.Struct, frozen=True):
    """Voices hold many more keys than these."""


class _Audio(_Record, frozen=True):
    sample_rate: Annotated[int, msgspec.Meta(ge=1)]


class _Espeak(_Record, frozen=True):
    voice: str


class _Inference(_Record, frozen=True):
    """The values without which a voice's file leaves are those of the published programs."""

    noise_scale: float = 0.667
    length_scale: float = 1.0
    noise_w: float = 0.8


class Voice(_Record, frozen=True, kw_only=True, dict=True):
    """The configuration of a voice, as its publisher wrote it."""

    audio: _Audio
    espeak: _Espeak
    num_speakers: Annotated[int, msgspec.Meta(ge=1)] = 1
    phoneme_id_map: dict[str, list[int]]
    phoneme_type: Literal["espeak", "text", "pinyin", "hebrew", "japanese", "thai"] = "espeak"
    inference: _Inference = _Inference()
    default_speaker_id: int = 0
    vowel_clusters: list[list[str]] = []

    @cached_property
    def clusters(self) -> dict[tuple[str, ...], str]:
        """Phonemes that this voice knows as one, by their parts."""
        return {tuple(parts): "".join(parts) for parts in self.vowel_clusters if len(parts) > 1}

    def ids(self, phonemes: list[str]) -> list[int]:
        """What the network is fed: a pad after each phoneme, and marks at both ends. Unknown phonemes are dropped."""
        table = self.phoneme_id_map
        pad = table.get(_PAD, [])
        found = [*table[_BEGIN], *pad]
        for phoneme in phonemes:
            if phoneme in table:
                found += [*table[phoneme], *pad]
            else:
                log.debug("the voice has no phoneme %r", phoneme)
        return [*found, *table[_END]]


def read_voice(path: Path) -> Voice:
    """Raises `ModelMissing`, `ModelDamaged`, `ModelUnsupported`."""
    if not path.is_file():
        raise ModelMissing(f"{path} is not there; a Piper voice is a network and its configuration, so fetch it again")
    try:
        # Python's parser: it takes the byte order marks and the infinities that some voices have
        voice = msgspec.convert(json.loads(path.read_bytes()), Voice, strict=False)
        if not voice.phoneme_id_map[_BEGIN] or not voice.phoneme_id_map[_END]:
            raise ValueError("no phoneme table")
    except (ValueError, KeyError, RecursionError, msgspec.ValidationError) as error:
        raise ModelDamaged(f"{path} is not the configuration of a Piper voice ({error}); fetch it again") from None
    if voice.phoneme_type not in _WITHOUT_DOWNLOADS:
        raise ModelUnsupported(f"{path} wants {voice.phoneme_type} phonemes, which need downloads at run time")
    return voice


class Phonemizer:
    """Text -> phonemes of one voice. espeak-ng is one per process, so use one of these at a time."""

    def __init__(self, voice: Voice) -> None:
        """Starts espeak-ng, which takes 3 ms. Raises `ModelUnsupported`, `EngineFailed`."""
        self._voice = voice
        self._espeak = None if voice.phoneme_type == "text" else _espeak()
        self._vowels: Any = None
        if self._espeak is not None:
            name = voice.espeak.voice
            try:
                self._espeak.set_voice(name)
                self._espeak.get_phonemes("a")
            except (RuntimeError, ValueError) as error:
                raise ModelUnsupported(f"espeak-ng has no voice {name!r}: {error}") from None
            if name == "ar":  # written without vowels; this one language pays for piper's network that restores them
                from piper.tashkeel import TashkeelDiacritizer

                self._vowels = TashkeelDiacritizer()

    def parts(self, text: str) -> Iterator[list[str]]:
        """Phonemes per run of the encoder: a sentence, or a part of a long one. None for what cannot be said."""
        splitter = SentenceSplitter(clause_first=False, max_chars=MAX_CHARS)
        for piece in [*splitter.feed(_clean(text)), *splitter.flush()]:
            if not any(map(str.isalnum, piece)):
                continue
            for sentence in self._sentences(piece):
                yield from (part for part in cut_phonemes(sentence) if any(map(str.isalnum, part)))

    def _sentences(self, text: str) -> Iterator[list[str]]:
        if self._espeak is None:
            yield list(unicodedata.normalize("NFD", text))
            return
        if self._vowels is not None:
            text = self._vowels(text)
        sentence: list[str] = []
        for phonemes, mark, ends in self._espeak.get_phonemes(text):
            # voices are trained on single code points, with accents on their own and the punctuation among them
            said = _OTHER_LANGUAGE.sub("", phonemes) + mark + (" " if mark in (",", ":", ";") else "")
            sentence += unicodedata.normalize("NFD", said)
            if ends:
                yield merged(sentence, self._voice.clusters)
                sentence = []
        if sentence:
            yield merged(sentence, self._voice.clusters)


def merged(phonemes: list[str], clusters: Mapping[tuple[str, ...], str]) -> list[str]:
    """Runs of phonemes that are one to the voice, made one; the longest first."""
    lengths = sorted({len(parts) for parts in clusters}, reverse=True)
    found, at = [], 0
    while at < len(phonemes):
        length = next((size for size in lengths if tuple(phonemes[at : at + size]) in clusters), 1)
        found.append("".join(phonemes[at : at + length]))
        at += length
    return found


def cut_phonemes(phonemes: list[str], longest: int = MAX_PHONEMES) -> Iterator[list[str]]:
    """Parts of at most `longest` phonemes, cut between words where there is a gap in the second half."""
    while len(phonemes) > longest:
        gaps = [at for at in range(longest // 2, longest) if phonemes[at] == " "]
        at = gaps[-1] if gaps else longest
        yield phonemes[:at]
        phonemes = phonemes[at:]
    yield phonemes


def _clean(text: str) -> str:
    """What C strings and piper's own markup cannot take: lone surrogates, NUL, [[raw phonemes]]."""
    return text.encode("utf-8", "ignore").decode().replace("\0", " ").replace("[[", " ").replace("]]", " ")


def _espeak() -> ModuleType:
    """piper-tts's extension module, without its package. Raises `EngineFailed`."""
    package = importlib.util.find_spec("piper")
    try:
        folder = Path(next(iter((package and package.submodule_search_locations) or [])))
        file = next(iter(sorted(folder.glob("espeakbridge*.so"))))
        loader = importlib.machinery.ExtensionFileLoader("espeakbridge", str(file))
        spec = importlib.util.spec_from_loader("espeakbridge", loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        module.initialize(str(folder / "espeak-ng-data"))
    except (StopIteration, ImportError, OSError, RuntimeError) as error:
        reason = str(error) or "piper-tts is not installed, or not the pinned version"
        raise EngineFailed(f"espeak-ng cannot be started: {reason}. Run scripts/setup again.") from None
    return module
