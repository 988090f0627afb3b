"""Fetching makes a model whole from any state, does nothing when it is, and never leaves half of anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from assistant.errors import FetchFailed, ModelError, ModelUnknown, ModelUnsupported, UsageError
from assistant.model_store import manifest as manifests
from assistant.model_store.remove import remove
from assistant.model_store.store import State
from tests.model_store.publishers import sha256
from tests.model_store.shop import GGUF, VOICE, VOSK, World, world


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        yield found
        assert [path for path in found.leftovers() if path.suffix != ".part"] == []


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize("name", ["voice", "llm", "vosk-en", "tokens", "wake-halt"])
def test_every_kind_of_source_becomes_a_model_that_opens(here: World, name: str) -> None:
    assert here.fetcher().fetch(name).action == "fetched"
    assert here.store().open(name).bytes == sum(map(len, files(here.models / name).values()))
    assert here.store().verify(name) == []
    before = here.site.asked.copy()
    here.empty_shelf()
    assert here.fetcher().fetch(name).action == "none"
    assert here.site.asked == before


def test_an_archive_is_unpacked_without_its_top_folder(here: World) -> None:
    here.fetcher().fetch("vosk-en")
    assert files(here.models / "vosk-en") == VOSK


def test_a_gguf_stays_in_the_cache_and_the_model_is_what_was_converted(here: World) -> None:
    here.fetcher().fetch("llm")
    assert sorted(files(here.models / "llm")) == ["llm.mnn", "llm.mnn.weight"]
    info = here.store().open("llm")
    assert info.shape == {"layers": 2, "hidden": 64, "tied": True}
    assert (here.cache / "downloads" / sha256(GGUF) / "m.gguf").read_bytes() == GGUF
    shutil.rmtree(here.cache)
    here.empty_shelf()
    assert here.fetcher().fetch("llm").action == "none"


def test_another_checkout_needs_no_network(here: World) -> None:
    here.fetcher().fetch("voice")
    here.empty_shelf()
    assert here.fetcher("models-2").fetch("voice").action == "fetched"
    assert (here.models / "voice/v.onnx").samefile(here.top / "models-2/voice/v.onnx")
    assert here.store("models-2").open("voice").digest == here.store().open("voice").digest


@pytest.mark.parametrize("name", ["voice", "llm", "vosk-en"])
def test_a_model_cut_by_one_byte_is_repaired(here: World, name: str) -> None:
    here.fetcher().fetch(name)
    largest = max((here.models / name).rglob("*"), key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size - 1)
    assert here.store().status(name).state is State.DAMAGED
    assert here.fetcher().fetch(name).action == "repaired"
    assert here.store().verify(name) == []


def test_damage_that_reached_the_cache_through_a_link_is_not_believed(here: World) -> None:
    here.fetcher().fetch("voice")
    os.truncate(here.models / "voice/v.onnx", 10)
    assert (here.cache / "downloads" / sha256(VOICE) / "v.onnx").stat().st_size == 10
    here.fetcher().fetch("voice")
    assert (here.models / "voice/v.onnx").read_bytes() == VOICE


def test_whole_files_of_a_damaged_model_serve_when_cache_and_network_are_gone(here: World) -> None:
    here.fetcher().fetch("voice")
    shutil.rmtree(here.cache)
    here.empty_shelf()
    (here.models / "voice/manifest.json").write_bytes(b"{")
    assert here.fetcher().fetch("voice").action == "repaired"
    assert here.store().open("voice").bytes == len(files(here.models / "voice")["v.onnx"]) + 33


def test_an_old_converter_or_mnn_means_a_new_conversion(here: World) -> None:
    here.fetcher().fetch("llm")
    for change in ({"converter_version": "gguf-0"}, {"mnn_version": "0.0.1"}):
        old = manifests.read(here.models / "llm")
        assert old is not None
        manifests.write(here.models / "llm", msgspec.structs.replace(old, **change))
        assert here.store().status("llm").state is State.OUTDATED
        assert here.fetcher().fetch("llm").action == "updated"
        assert here.store().status("llm").state is State.READY


def test_a_catalog_with_new_content_means_a_new_model(here: World) -> None:
    here.fetcher().fetch("tokens")
    here.site.files["/tokens.txt"] = b"x y z"
    text = (here.top / "catalog.toml").read_text().replace(sha256(b"a b c"), sha256(b"x y z"))
    (here.top / "catalog.toml").write_text(text)
    assert here.fetcher().fetch("tokens").action == "updated"
    assert files(here.models / "tokens") == {"deep/tokens.txt": b"x y z"}


def test_a_voice_gets_its_mnn_form_and_keeps_it_through_a_repair(here: World) -> None:
    here.fetcher().fetch("voice")
    plain = here.store().open("voice").digest
    assert here.fetcher().convert_again("voice").action == "converted"
    converted = here.store().open("voice")
    assert converted.digest != plain
    assert (converted.path / "mnn/llm.mnn").read_bytes() == VOICE[:100]
    os.truncate(converted.path / "mnn/llm.mnn", 1)
    assert here.fetcher().fetch("voice").action == "repaired"
    assert here.store().open("voice").digest == converted.digest


def test_a_users_own_gguf(here: World) -> None:
    (here.top / "mine.gguf").write_bytes(b"GGUF mine")
    assert here.fetcher().convert_file(here.top / "mine.gguf", "mine").action == "converted"
    assert here.store().open("mine").kind == "mnn-llm"
    assert here.fetcher().fetch("mine").action == "none"
    (here.models / "mine/llm.mnn").write_bytes(b"")
    with pytest.raises(ModelError, match=r"assistant models convert /.*/mine\.gguf --name mine"):
        here.fetcher().fetch("mine")


def test_what_cannot_be_converted_changes_nothing(here: World) -> None:
    (here.top / "mine.gguf").write_bytes(b"GGUF mine")
    here.fetcher().convert_file(here.top / "mine.gguf", "mine")
    old = manifests.read(here.models / "mine")
    assert old is not None
    manifests.write(here.models / "mine", msgspec.structs.replace(old, converter_version="gguf-0"))
    before = here.store().open("mine")
    (here.top / "mine.gguf").write_bytes(b"GGUF odd")
    with pytest.raises(ModelUnsupported, match="architecture odd is not known"):
        here.fetcher().convert_file(here.top / "mine.gguf", "mine")
    (here.top / "mine.gguf").write_bytes(b"GGUF crash")
    with pytest.raises(ModelError, match=r"ended early.*out of luck"):
        here.fetcher().convert_file(here.top / "mine.gguf", "mine")
    assert here.store().open("mine") == before


def test_a_model_of_ones_own_is_not_overwritten_but_made_anew_when_damaged(here: World) -> None:
    (here.top / "mine.gguf").write_bytes(b"GGUF mine")
    here.fetcher().convert_file(here.top / "mine.gguf", "mine")
    before = here.store().open("mine")
    with pytest.raises(UsageError, match="remove it first with: assistant models rm mine"):
        here.fetcher().convert_file(here.top / "mine.gguf", "mine")
    assert here.store().open("mine") == before
    (here.models / "mine/llm.mnn").write_bytes(b"")
    assert here.fetcher().convert_file(here.top / "mine.gguf", "mine").action == "converted"
    assert here.store().open("mine").digest == before.digest


def test_convert_refuses_what_makes_no_sense(here: World) -> None:
    (here.top / "mine.gguf").write_bytes(b"GGUF mine")
    with pytest.raises(UsageError, match="a model of the catalog"):
        here.fetcher().convert_file(here.top / "mine.gguf", "llm")
    with pytest.raises(UsageError, match="no such file"):
        here.fetcher().convert_file(here.top / "none.gguf", "mine")
    os.mkfifo(here.top / "pipe.gguf")
    for odd in (here.top, here.top / "pipe.gguf"):
        with pytest.raises(UsageError, match="no regular file"):
            here.fetcher().convert_file(odd, "mine")
    with pytest.raises(UsageError, match="no name for a model"):
        here.fetcher().convert_file(here.top / "mine.gguf", "../mine")
    here.fetcher().fetch("vosk-en")
    with pytest.raises(UsageError, match="nothing to convert"):
        here.fetcher().convert_again("vosk-en")


def test_without_room_nothing_is_begun(here: World) -> None:
    with pytest.raises(FetchFailed, match="are free"):
        here.fetcher(free=lambda folder: 1000).fetch("vosk-en")
    assert here.site.asked == []


def test_a_package_that_cannot_be_had(here: World) -> None:
    here.empty_shelf()
    with pytest.raises(FetchFailed, match=r"tiny-voice 1\.0\.0"):
        here.fetcher().fetch("voice")
    with pytest.raises(ModelUnknown, match="Did you mean voice"):
        here.fetcher().fetch("voise")
    assert here.store().status("voice").state is State.MISSING


def test_a_package_with_other_content_is_refused(here: World) -> None:
    text = (here.top / "catalog.toml").read_text().replace(sha256(VOICE), "0" * 64)
    (here.top / "catalog.toml").write_text(text)
    with pytest.raises(FetchFailed, match="not the file that the catalog knows"):
        here.fetcher().fetch("voice")
    assert here.store().status("voice").state is State.MISSING


def test_two_runs_at_once_fetch_it_once(here: World) -> None:
    done: list[str] = []
    threads = [Thread(target=lambda: done.append(here.fetcher().fetch("vosk-en").action)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    assert sorted(done) == ["fetched", "none", "none", "none"]
    assert len(here.site.asked) == 1
    assert here.store().verify("vosk-en") == []


_INTERRUPTED = """
import sys
from pathlib import Path
from tests.model_store.shop import World
from tests.model_store.publishers import Publisher
from assistant.cli_output import reported
with reported():
    top = Path(sys.argv[1])
    World(top, Publisher()).fetcher().convert_file(top / "mine.gguf", "mine")
"""


@pytest.mark.parametrize(("signal", "code"), [(2, 130), (15, 143)])
def test_an_interrupted_conversion_leaves_no_file_and_no_process(here: World, signal: int, code: int) -> None:
    (here.top / "mine.gguf").write_bytes(b"GGUF slow")
    root = Path(__file__).parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, str(here.top)], cwd=root, stderr=subprocess.PIPE, text=True
    )
    with child:
        deadline = time.monotonic() + 10
        while not list(here.models.rglob("llm.mnn")) and time.monotonic() < deadline:
            time.sleep(0.02)
        child.send_signal(signal)
        _, said = child.communicate(timeout=10)
    assert child.returncode == code
    assert "Traceback" not in said
    assert here.store().installed() == []
    assert here.leftovers() == []
    assert str(here.top / "converter.py") not in _command_lines()


def _command_lines() -> str:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().decode("utf-8", "replace"))
        except OSError:
            continue  # it ended while we looked
    return re.sub("\0", " ", "\n".join(lines))


def test_what_a_killed_run_left_goes_with_the_next_fetch(here: World) -> None:
    here.fetcher().fetch("tokens")
    for folder in (here.models / ".tmp-dead", here.cache / "downloads/.tmp-dead"):
        folder.mkdir()
        (folder / "half").write_bytes(b"x")
    here.fetcher().fetch("tokens")
    assert here.leftovers() == []


@pytest.mark.root
def test_a_disk_that_fills_up_is_an_error_and_leaves_nothing(here: World) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    for folder in (here.models, here.cache):
        folder.mkdir(exist_ok=True)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", folder], check=False).returncode:
            pytest.skip("this machine lets nobody mount a small disk")
        try:
            with pytest.raises(FetchFailed, match="is full"):
                here.fetcher(free=lambda path: 1 << 40).fetch("voice")
            assert here.store().installed() == []
            assert here.leftovers() == []
        finally:
            subprocess.run(["umount", folder], check=True)


def test_removing_frees_the_disk_and_downloads_only_when_asked(here: World) -> None:
    here.fetcher().fetch("voice")
    size = here.store().open("voice").bytes
    assert remove(here.store(), here.cache, "voice") >= size
    assert here.store().status("voice").state is State.MISSING
    assert (here.cache / "downloads" / sha256(VOICE)).is_dir()
    assert remove(here.store(), here.cache, "voice", downloads=True) >= size
    assert not (here.cache / "downloads" / sha256(VOICE)).exists()
    with pytest.raises(ModelError, match="not on this disk"):
        remove(here.store(), here.cache, "voice")
