"""A disk that fails is no damaged model. What reads of /proc/self/mem give stands in for it: EIO."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from assistant.errors import ModelDamaged, ModelMissing, ModelUnreachable
from assistant.messages import Stage
from assistant.model_store import manifest as manifests
from assistant.model_store import reach
from assistant.model_store.listing import rows
from assistant.model_store.store import ModelStore

BROKEN = Path("/proc/self/mem")


def store_of(tmp_path: Path, *broken: str) -> ModelStore:
    """With a model "mine" of one file; `broken` cannot be read."""
    folder = tmp_path / "models/mine"
    folder.mkdir(parents=True)
    catalog = tmp_path / "models/catalog.toml"
    catalog.write_text("")
    (folder / "weights").write_bytes(b"")
    manifest = manifests.Manifest(
        name="mine", kind="piper", stage=Stage.TTS, engine="piper", files=manifests.records_of(folder)
    )
    manifests.write(folder, manifest)
    for one in broken:
        (tmp_path / "models" / one).unlink()
        (tmp_path / "models" / one).symlink_to(BROKEN)
    return ModelStore(tmp_path / "models", catalog)


@pytest.mark.parametrize("broken", ["mine/weights", f"mine/{manifests.FILE_NAME}"])
def test_a_disk_that_fails_is_named_and_nothing_is_to_be_fetched(tmp_path: Path, broken: str) -> None:
    store = store_of(tmp_path, broken)
    for look in (store.open, store.status, store.verify):
        with pytest.raises(ModelUnreachable, match=f"{tmp_path}/models/{broken}.*Input/output error") as caught:
            look("mine")
        assert "fetch" not in caught.value.message


def test_so_is_that_of_the_catalog(tmp_path: Path) -> None:
    with pytest.raises(ModelUnreachable, match="catalog"):
        rows(store_of(tmp_path, "catalog.toml"))


def test_what_a_disk_answers_is_not_its_fault(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    (tmp_path / "models/mine/weights").unlink()
    with pytest.raises(ModelDamaged, match="weights cannot be read"):
        store.open("mine")
    for number in (errno.ENOENT, errno.EACCES, errno.ELOOP):
        reach.check(OSError(number, ""), tmp_path)
    with pytest.raises(ModelMissing):
        _ = ModelStore(tmp_path, tmp_path / "none/catalog.toml").catalog


@pytest.mark.parametrize("number", [errno.ENOTCONN, errno.ESTALE, errno.ENODEV, errno.ETIMEDOUT])
def test_faults_of_disks(number: int, tmp_path: Path) -> None:
    with pytest.raises(ModelUnreachable, match=str(tmp_path)):
        reach.check(OSError(number, ""), tmp_path)
