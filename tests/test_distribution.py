"""The wheel and the sdist: built without a network, whole, and at work in an environment far from the checkout."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from assistant import __version__, config
from assistant.model_store.store import ModelInfo
from tests.lacking import lacks

pytestmark = pytest.mark.timeout(90)  # reads and writes 16 MB a few times; 7 s on a quiet machine

ROOT = Path(__file__).parents[1]
NAME = f"local_voice_assistant-{__version__}"
OFFLINE = ["unshare", "--net"] if os.geteuid() == 0 and shutil.which("unshare") else []


class Place(NamedTuple):
    """Where the wheel was installed, and an empty home."""

    python: Path
    home: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        # no PYTHONPATH, no XDG_*: nothing leads to the checkout
        environ = {"PATH": os.defpath, "HOME": str(self.home), "LANG": "C.UTF-8"}
        done = subprocess.run(
            [*OFFLINE, str(self.python.parent / command[0]), *command[1:]],
            cwd=self.home, env=environ, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    def told(self, *args: str) -> Any:
        return json.loads(self.run("assistant", *args, "--json").stdout)


def build(folder: Path, source: Path, *targets: str) -> None:
    if importlib.util.find_spec("hatchling") is None:
        lacks("packages", "hatchling (extra: dev) is not installed")
    command = [*OFFLINE, sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run([*command, *targets], cwd=source, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def place(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("some where")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    found = Place(folder / "venv/bin/python", folder / "home")
    found.home.mkdir()
    install = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", str(built / f"{NAME}-py3-none-any.whl")]
    pip = [*OFFLINE, sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(found.python)]
    subprocess.run([*pip, *install], check=True, capture_output=True)
    # only now, so that pip does not see what is installed there
    libraries = next((folder / "venv/lib").glob("python*/site-packages"))
    (libraries / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return found


def ours() -> set[str]:
    """Every file of the package."""
    found = {str(path.relative_to(ROOT)) for path in (ROOT / "assistant").rglob("*") if path.is_file()}
    return {name for name in found if "__pycache__" not in name}


def test_the_wheel_holds_every_file_of_the_package_and_the_catalog(built: Path) -> None:
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
        assert wheel.read("assistant/data/catalog.toml") == (ROOT / "models/catalog.toml").read_bytes()
    assert ours() | {"assistant/data/catalog.toml"} == {name for name in names if name.startswith("assistant/")}
    assert {name.partition("/")[0] for name in names} == {"assistant", f"{NAME}.dist-info"}


def test_the_sdist_holds_all_that_it_takes_to_build_and_test_and_no_weights(built: Path, tmp_path: Path) -> None:
    with tarfile.open(built / f"{NAME}.tar.gz") as sdist:
        names = {one.name.removeprefix(f"{NAME}/") for one in sdist.getmembers()}
        sdist.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
        sdist.extractall(tmp_path)
    assert ours() <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "scripts/test", "tests/conftest.py", "docs/memory.md"} <= names
    assert {name for name in names if name.startswith("models/")} == {"models/README.md", "models/catalog.toml"}
    build(tmp_path, tmp_path / NAME, "-t", "wheel")
    again, first = (zipfile.ZipFile(folder / f"{NAME}-py3-none-any.whl") for folder in (tmp_path, built))
    with again, first:
        assert sorted(again.namelist()) == sorted(first.namelist())


def test_it_knows_itself_and_its_models_far_from_the_checkout(place: Place) -> None:
    assert place.run("assistant", "--version").stdout.splitlines()[0] == f"assistant {__version__}"
    with (ROOT / "models/catalog.toml").open("rb") as file:
        catalog = tomllib.load(file)
    listed = {row["name"]: row["state"] for row in place.told("models", "list")["models"]}
    assert set(listed) == {entry["name"] for entry in catalog["model"]}
    assert not {"installed", "ready"} & set(listed.values())
    assert place.told("config")["stages"]["llm"]["engine"] == "mnn"
    code = "from assistant import paths; print(paths.checkout(), paths.models_dir(), paths.__file__, sep='|')"
    checkout, models, where = place.run("python", "-P", "-c", code).stdout.strip().split("|")
    assert (checkout, models) == ("None", str(place.home / ".local/share/assistant/models"))
    assert Path(where).is_relative_to(place.python.parents[1])


@pytest.mark.engine
def test_models_come_from_the_users_data_and_understanding_from_the_wheel(
    place: Place, model: Callable[[str], ModelInfo]
) -> None:
    llm = model(config.Config().stages.llm.model)  # asked for at once, though nothing here needs to load it
    models = place.home / ".local/share/assistant/models"
    models.mkdir(parents=True)
    (models / llm.name).symlink_to(llm.path)
    answer = place.told("ask", "--standalone", "--no-speech", "have you got the time for me by any chance")
    assert (answer["outcome"], answer["intent"]["name"]) == ("handled", "HassGetCurrentTime")
    assert answer["intent"]["source"] == "classifier"
