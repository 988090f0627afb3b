"""The models on this disk: which there are, whether they are whole, where they lie. Imports catalog and manifest.

`ModelStore.open` stands before every load of a model: no engine sees a file that is not what its manifest says. Never
touches the network, and imports no engine library.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from enum import StrEnum
from pathlib import Path

import msgspec

from assistant import paths
from assistant.errors import AssistantError, ModelDamaged, ModelError, ModelMissing
from assistant.messages import Stage
from assistant.model_store import manifest as manifests
from assistant.model_store import reach, versions
from assistant.model_store.catalog import ArchiveSource, Catalog, Entry, check_name, unknown_model
from assistant.model_store.manifest import Alive, Manifest, Problem

SYNTHETIC = "synth-"
"""How the names of models of random weights begin, before that of their shape."""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was whole a moment ago."""

    name: str
    stage: Stage | None
    """None for a wake word."""
    kind: str
    engine: str
    path: Path
    """Its directory; read only."""
    bytes: int
    shape: dict[str, int | bool] | None
    digest: str
    """Equal for equal content: the key of every cache that is made from the model."""


class State(StrEnum):
    READY = "ready"
    MISSING = "missing"
    DAMAGED = "damaged"
    OUTDATED = "outdated"


class Status(msgspec.Struct, frozen=True, kw_only=True):
    state: State
    reason: str = ""
    manifest: Manifest | None = None
    """None where there is none, or it cannot be read."""


class ModelStore:
    """`models_dir` holds one folder per model; the catalog is read only when it is needed."""

    def __init__(self, models_dir: Path, catalog_file: Path) -> None:
        self.models_dir = models_dir
        self._catalog_file = catalog_file
        self._catalog: Catalog | None = None

    @classmethod
    def default(cls) -> ModelStore:
        return cls(paths.models_dir(), paths.catalog_file())

    @property
    def catalog(self) -> Catalog:
        """Raises `ModelMissing` where its folder has gone with its disk, `ModelUnreachable` where that fails;
        `ConfigError` when it is no catalog."""
        if self._catalog is None:  # no lock: a disk may keep whoever reads it
            self._catalog = self._read_catalog()
        return self._catalog

    def _read_catalog(self) -> Catalog:
        folder = self._catalog_file.parent
        try:
            there = bool(os.listdir(folder))
        except OSError as error:
            reach.check(error, folder)
            raise ModelMissing(f"{folder} cannot be read ({error.strerror}): look after its disk") from None
        if not there:
            raise ModelMissing(f"{folder} is empty: mount its disk, or run scripts/setup")
        return Catalog.load(self._catalog_file)

    def path(self, name: str) -> Path:
        return self.models_dir / check_name(name)

    def open(self, name: str, alive: Alive = lambda: None) -> ModelInfo:
        """The model, checked: sizes and times of all its files, and the sha256 of those with a new time.

        `alive` is called now and then while files are read.

        Raises `ModelUnknown`, `ModelMissing`, `ModelUnreachable` or `ModelDamaged`, each with what to do; `UsageError`
        for a bad name.
        """
        manifest, wrong = self._checked(name, alive)
        if manifest is None or wrong:
            fix = self.fix(name, manifest)
            raise ModelDamaged(f"Model {name!r} is damaged: {wrong}. Repair it with: {fix}")
        return ModelInfo(
            name=name,
            stage=manifest.stage,
            kind=manifest.kind,
            engine=manifest.engine,
            path=self.path(name),
            bytes=manifest.bytes,
            shape=manifest.shape,
            digest=manifest.digest,
        )

    def status(self, name: str, alive: Alive = lambda: None) -> Status:
        """What `open` would find, without what to do; and whether the catalog or a converter has moved on since.
        Raises `ModelUnreachable`."""
        try:
            manifest, wrong = self._checked(name, alive)
        except ModelMissing:
            return Status(state=State.MISSING, reason="it is not on this disk")
        if manifest is None or wrong:
            return Status(state=State.DAMAGED, reason=f"it is damaged: {wrong}", manifest=manifest)
        reason = self._outdated(self.catalog.find(name), manifest)
        return Status(state=State.OUTDATED if reason else State.READY, reason=reason, manifest=manifest)

    def installed(self) -> list[str]:
        """Names of the folders that have a manifest, whole or not. Raises `ModelUnreachable`."""
        try:
            if not self.models_dir.is_dir():
                return []
            found = [path.parent.name for path in self.models_dir.glob(f"*/{manifests.FILE_NAME}")]
        except OSError as error:
            reach.check(error, self.models_dir)
            raise
        return sorted(name for name in found if not name.startswith("."))

    def knows(self, name: str) -> bool:
        """Whether it is a model of the catalog, or one on this disk."""
        return self.catalog.find(name) is not None or name in self.installed()

    def expected(self) -> list[str]:
        """What should be whole on this disk: every model that is here, and those that the default settings need."""
        return sorted({*self.installed(), *(entry.name for entry in self.catalog.defaults())})

    def verify(self, name: str, alive: Alive = lambda: None) -> list[Problem]:
        """Reads every byte. Raises `ModelUnknown`, `ModelMissing` or `ModelUnreachable`; an unreadable manifest is a
        problem.

        What it finds wrong is damaged for `open` and `status` from then on, too, though its files' times have not
        changed: else no fetch would mend it.
        """
        folder = self.path(name)
        try:
            manifest = manifests.read(folder)
        except ModelDamaged as error:
            return [Problem(file=manifests.FILE_NAME, message=error.message)]
        if manifest is None:
            raise self.absent(name)
        found = list(manifests.problems(folder, manifest, alive))
        if found:
            with contextlib.suppress(ModelDamaged):
                current = manifests.read(folder)  # reading all took long: it may be another one
                if current is not None:
                    self._refresh(folder, manifests.distrusted(current, found))
        return found

    def repair(self, name: str) -> str:
        """The command that makes a damaged model whole, by its manifest where that can be read."""
        manifest = None
        with contextlib.suppress(ModelError):
            manifest = manifests.read(self.path(name))
        return self.fix(name, manifest)

    def fix(self, name: str, manifest: Manifest | None) -> str:
        """The same for whoever has read the manifest; None = it cannot be read."""
        try:
            known = self.catalog.find(name) is not None
        except AssistantError:
            known = True  # the catalog is broken too; its own error comes with the command
        if manifest is not None and manifest.synthetic:
            return f"assistant models synth --shape {manifest.synthetic} --name {name}{_block(manifest)}"
        if manifest is not None and manifest.added_from and not manifest.converted_from and not known:
            return f"assistant models add {shlex.quote(manifest.added_from)} --name {name}"
        if manifest is None and not known:  # which says what it was made of
            if name.startswith(SYNTHETIC):
                return f"assistant models synth --shape {name.removeprefix(SYNTHETIC)}"
            return f"assistant models rm {name}, and then add or convert again what it was made of"
        if known or manifest is None or manifest.converted_from is None:
            return f"assistant models fetch {name}"
        bits = f" --bits {manifest.choices.bits}" if manifest.choices.bits else ""
        source = shlex.quote(manifest.added_from or manifest.converted_from.file)
        return f"assistant models convert {source} --name {name}{bits}{_block(manifest)}"

    def _checked(self, name: str, alive: Alive = lambda: None) -> tuple[Manifest | None, str]:
        """The manifest, unless it cannot be read, and what is wrong with the model; "" for nothing.

        Raises what `absent` gives.
        """
        folder = self.path(name)
        try:
            manifest = manifests.read(folder)
        except ModelDamaged as error:
            return None, error.message
        if manifest is None:
            raise self.absent(name)
        try:
            problem, current = manifests.quick_check(folder, manifest, alive)
        except OSError as error:  # a disk that goes away between two looks
            reach.check(error, folder)
            return manifest, f"{folder} cannot be read: {error.strerror}"
        if problem is not None:
            return manifest, problem.message
        if current is not manifest:
            self._refresh(folder, current)
        return current, ""

    def absent(self, name: str) -> AssistantError:
        """The error for a model that is not here: known to the catalog or not."""
        if self.catalog.find(name) is None:
            if shape := name.removeprefix(SYNTHETIC) if name.startswith(SYNTHETIC) else "":
                make = f"assistant models synth --shape {shape}"
                return ModelMissing(f"Model {name!r} is not on this disk. It has random weights; make it with: {make}")
            return unknown_model(name, (*self.catalog.names, *self.installed()))
        return ModelMissing(f"Model {name!r} is not on this disk. Get it with: assistant models fetch {name}")

    def _refresh(self, folder: Path, manifest: Manifest) -> None:
        try:
            manifests.write(folder, manifest)
        except OSError:
            return  # a read-only disk: the file is read again next time, which is slower and as safe

    def _outdated(self, entry: Entry | None, manifest: Manifest) -> str:
        if manifest.converter_version:
            voice = manifest.kind in ("piper", "piper-mnn")
            wanted = versions.VOICE_CONVERTER if voice else versions.GGUF_CONVERTER
            if manifest.converter_version != wanted:
                return f"it was converted by {manifest.converter_version}; now it is {wanted}"
            if manifest.mnn_version != versions.mnn_version():
                return f"it was converted for MNN {manifest.mnn_version}; now it is {versions.mnn_version()}"
        return "" if entry is None else _drift(entry, manifest)


def _block(manifest: Manifest) -> str:
    """As an option of a command."""
    return f" --block {manifest.choices.block}" if manifest.choices.block else ""


def _drift(entry: Entry, manifest: Manifest) -> str:
    """Whether the catalog now wants other content than what was installed."""
    if isinstance(entry.source, ArchiveSource):
        same = manifest.archive_sha256 == entry.source.sha256
    elif entry.convert:
        origin = manifest.converted_from
        same = origin is not None and origin.sha256 == entry.files[0].sha256
        if same and manifest.choices != entry.choices:
            return "the catalog now wants another conversion of it"
    else:
        have = {path: record.sha256 for path, record in manifest.files.items()}
        same = all(have.get(file.path) == file.sha256 for file in entry.files)
    return "" if same else "the catalog has other files for it"
