"""Makes a model whole on this disk: downloads, unpacks, converts, puts it in place. Imports all of this room.

A model is built completely in a temporary folder beside its place and then renamed, under the lock of its name: a
reader sees the old model, none, or the new one, never half of it; whatever interrupts leaves nothing behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from assistant.errors import ModelError, UsageError
from assistant.messages import Stage
from assistant.model_store import archive, versions
from assistant.model_store import manifest as manifests
from assistant.model_store.catalog import ArchiveSource, Entry, check_name
from assistant.model_store.choices import OWN, Choices
from assistant.model_store.conversion import Converters
from assistant.model_store.installing import held, install
from assistant.model_store.manifest import Manifest, Origin
from assistant.model_store.progress import Progress, Silent
from assistant.model_store.sources import Sources
from assistant.model_store.store import ModelStore, State
from assistant.model_store.workspace import link_or_copy, need_space, sweep, workspace

Action = Literal["none", "fetched", "repaired", "updated", "converted"]
_VOICE_FOLDER = "mnn"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    action: Action
    path: str
    bytes: int
    requantised: tuple[str, ...] = ()
    """Tensors of a converted LLM whose weights are not exactly the source's, with the source's type."""
    notes: tuple[str, ...] = ()
    """What else the converter had to decide for a converted LLM, in sentences."""


class Fetcher:
    def __init__(
        self,
        store: ModelStore,
        sources: Sources,
        *,
        converters: Converters | None = None,
        progress: Progress | None = None,
        free: Callable[[Path], int] | None = None,
    ) -> None:
        self._store = store
        self._sources = sources
        self._converters = converters or Converters()
        self._progress = progress or Silent()
        self._free = free

    def sweep(self) -> None:
        """Removes what runs that were killed have left; the living are not touched."""
        sweep(self._store.models_dir)
        self._sources.sweep()

    def fetch(self, name: str) -> Outcome:
        """Does what is needed, which may be nothing.

        Raises `ModelUnknown`, `FetchFailed`, `ModelError`; `ModelDamaged` for a damaged model that the catalog does
        not know, since only the user has its source.
        """
        self.sweep()
        status = self._store.status(name)
        if status.state is State.READY:
            return self._outcome(name, "none")
        entry = self._store.catalog.find(name)
        if entry is None:
            self._store.open(name)
            raise ModelError(f"Model {name!r}: {status.reason}. {self._again(name)}")
        with held(self._store, name, self._progress):
            status = self._store.status(name)  # another run may have done it while we waited
            if status.state is State.READY:
                return self._outcome(name, "none")
            if status.state is not State.MISSING:
                self._progress.note(f"{name}: {status.reason}")
            had_voice = self._has_voice_conversion(name)
            self._build_and_install(entry)
            if had_voice:
                self._convert_voice(name)
        actions: dict[State, Action] = {State.DAMAGED: "repaired", State.OUTDATED: "updated"}
        return self._outcome(name, actions.get(status.state, "fetched"))

    def convert_file(self, source: Path, name: str, choices: Choices = OWN) -> Outcome:
        """A user's own GGUF becomes the model `name`, which neither the catalog nor this disk must know.

        One that is damaged, or from an older converter, is made anew.
        """
        check_name(name)
        if self._store.catalog.find(name) is not None:
            raise UsageError(f"{name!r} is a model of the catalog; choose another name with --name")
        if not source.is_file():
            wrong = "it is no regular file" if source.exists() else "there is no such file"
            raise UsageError(f"{source}: {wrong}")
        with held(self._store, name, self._progress), workspace(self._store.models_dir) as temp:
            if name in self._store.installed() and self._store.status(name).state is State.READY:
                raise UsageError(f"there is a model {name!r} already; remove it first with: assistant models rm {name}")
            origin = Origin(file=source.name, bytes=source.stat().st_size, sha256=manifests.sha256_of(source))
            manifest = self._convert_gguf(name, "mnn", source, origin, choices, temp)
            install(self._store, msgspec.structs.replace(manifest, added_from=str(source.resolve())), temp)
        return self._outcome(name, "converted")

    def convert_again(self, name: str) -> Outcome:
        """A catalog model: an LLM is converted from its download once more, a voice gets (or renews) its MNN form."""
        entry = self._store.catalog.get(name, self._store.installed())
        with held(self._store, name, self._progress):
            if entry.convert:
                self._build_and_install(entry)
            elif entry.kind == "piper":
                self._convert_voice(name)
            else:
                raise UsageError(f"there is nothing to convert in a model of kind {entry.kind}")
        return self._outcome(name, "converted")

    def _outcome(self, name: str, action: Action) -> Outcome:
        info = self._store.open(name)
        requantised, notes = ((), ()) if action == "none" else _written_down(info.path)
        return Outcome(
            name=name, action=action, path=str(info.path), bytes=info.bytes, requantised=requantised, notes=notes
        )

    def _again(self, name: str) -> str:
        return f"Make it again with: {self._store.fix(name, manifests.read(self._store.path(name)))}"

    def _build_and_install(self, entry: Entry) -> None:
        with workspace(self._store.models_dir) as temp:
            install(self._store, self._build(entry, temp), temp)

    def _build(self, entry: Entry, temp: Path) -> Manifest:
        if isinstance(entry.source, ArchiveSource):
            return self._unpack(entry, entry.source, temp)
        files = self._sources.files(entry, self._store.path(entry.name))
        if entry.convert:
            file = entry.files[0]
            origin = Origin(file=file.name, bytes=file.bytes, sha256=file.sha256)
            if entry.convert == "voice":
                return self._voice_model(entry, [files[one.path] for one in entry.files], origin, temp)
            return self._convert_gguf(entry.name, entry.engine, files[file.path], origin, entry.choices, temp)
        need_space(self._store.models_dir, self._copied(files), entry.name, self._free)
        for path, source in files.items():
            link_or_copy(source, temp / "model" / path)
        return _manifest(entry, temp / "model")

    def _copied(self, files: dict[str, Path]) -> int:
        """Bytes that linking cannot save because the cache lies on another file system."""
        here = self._store.models_dir.stat().st_dev
        return sum(stat.st_size for stat in (file.stat() for file in files.values()) if stat.st_dev != here)

    def _unpack(self, entry: Entry, source: ArchiveSource, temp: Path) -> Manifest:
        packed = self._sources.archive(entry)
        need_space(self._store.models_dir, 2 * source.bytes, f"unpacking {entry.name}", self._free)
        archive.extract_all(packed, temp / "model", root=source.root, max_bytes=source.max_unpacked_bytes)
        return msgspec.structs.replace(_manifest(entry, temp / "model"), archive_sha256=source.sha256)

    def _convert_gguf(
        self, name: str, engine: str, source: Path, origin: Origin, choices: Choices, temp: Path
    ) -> Manifest:
        # The converter itself looks for what it needs exactly; 8 bits take twice the room of a source of 4.
        wanted = origin.bytes * 5 // 2 if choices.bits == 8 else origin.bytes * 3 // 2
        need_space(self._store.models_dir, wanted, f"converting {origin.file}", self._free)
        out = temp / "model"
        with self._progress.task(f"converting {origin.file}", origin.bytes) as update:
            shape = self._converters.gguf(source, out, temp / "converter.log", update, choices)
        return Manifest(
            name=name,
            kind="mnn-llm",
            stage=Stage.LLM,
            engine=engine,
            files=manifests.records_of(out),
            shape=shape,
            choices=choices,
            converted_from=origin,
            converter_version=versions.GGUF_CONVERTER,
            mnn_version=versions.mnn_version(),
        )

    def _voice_model(self, entry: Entry, sources: list[Path], origin: Origin, temp: Path) -> Manifest:
        """A model that is a voice's MNN form alone."""
        need_space(self._store.models_dir, origin.bytes * 3 // 2, f"converting {origin.file}", self._free)
        onnx, config = sources
        with self._progress.task(f"converting {origin.file}", 0) as update:
            self._converters.voice(onnx, config, temp / "model", temp / "converter.log", update)
        return _of_a_voice(_manifest(entry, temp / "model"), origin)

    def _has_voice_conversion(self, name: str) -> bool:
        return (self._store.path(name) / _VOICE_FOLDER).is_dir()

    def _convert_voice(self, name: str) -> None:
        info = self._store.open(name)
        old = manifests.read(info.path)
        assert old is not None
        kept = {path: record for path, record in old.files.items() if not path.startswith(_VOICE_FOLDER + "/")}
        onnx = next(path for path in kept if path.endswith(".onnx"))
        with workspace(self._store.models_dir) as temp:
            out = temp / "model" / _VOICE_FOLDER
            out.parent.mkdir()
            with self._progress.task(f"converting {onnx}", 0) as update:
                self._converters.voice(
                    info.path / onnx, info.path / f"{onnx}.json", out, temp / "converter.log", update
                )
            for path in kept:
                link_or_copy(info.path / path, temp / "model" / path)
            record = kept[onnx]
            new = msgspec.structs.replace(old, files=manifests.records_of(temp / "model"))
            new = _of_a_voice(new, Origin(file=onnx, bytes=record.bytes, sha256=record.sha256))
            install(self._store, new, temp)


def _manifest(entry: Entry, folder: Path) -> Manifest:
    return Manifest(
        name=entry.name,
        kind=entry.kind,
        stage=entry.stage,
        engine=entry.engine,
        files=manifests.records_of(folder),
        shape=entry.shape,
    )


def _of_a_voice(manifest: Manifest, origin: Origin) -> Manifest:
    """The same, and which voice it was made from by what."""
    return msgspec.structs.replace(
        manifest,
        converted_from=origin,
        converter_version=versions.VOICE_CONVERTER,
        mnn_version=versions.mnn_version(),
    )


def _written_down(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the converter noted: requantised tensors, and sentences. Nothing for a model that was not converted."""
    try:
        facts = json.loads((folder / "llm_config.json").read_bytes())["assistant"]
        return tuple(facts["requantised"]), tuple(facts.get("notes", ()))
    except (OSError, ValueError, KeyError, TypeError):
        return (), ()
