"""Models that nobody of the project has fetched: it is said, and another file than the catalog's is no dead end."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from assistant import paths
from assistant.errors import FetchFailed
from assistant.model_store.catalog import Catalog
from assistant.model_store.downloads import Downloads
from assistant.model_store.fetch import Fetcher
from assistant.model_store.https import Https
from assistant.model_store.listing import rows
from assistant.model_store.progress import Lines
from assistant.model_store.sources import UNSEEN, Sources
from assistant.model_store.store import State
from tests.model_store.publishers import sha256
from tests.model_store.shop import World, world


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        catalog = tmp_path / "catalog.toml"
        before, name, after = catalog.read_text().partition('name = "vosk-en"\n')
        catalog.write_text(f"{before}{name}unseen = true\n{after}")
        yield found


def told_by(here: World) -> tuple[Fetcher, StringIO]:
    said = StringIO()
    sources = Sources(Downloads(here.cache), Lines(said), https=Https(timeout_s=5, tries=1))
    return Fetcher(here.store(), sources), said


def test_it_is_said_before_it_is_fetched_and_in_the_list(here: World) -> None:
    fetcher, said = told_by(here)
    assert fetcher.fetch("vosk-en").action == "fetched"
    assert said.getvalue().startswith(f"vosk-en: {UNSEEN}\n")
    assert fetcher.fetch("tokens").action == "fetched"
    assert said.getvalue().count(UNSEEN) == 1
    assert [row["name"] for row in rows(here.store()) if row["unseen"]] == ["vosk-en"]


@pytest.mark.parametrize("resumed", [b"", b"another"])
@pytest.mark.parametrize("more", [b"", b"longer"])
def test_another_file_is_told_with_what_to_do_and_nothing_is_kept(here: World, more: bytes, resumed: bytes) -> None:
    path = "/vosk-en.zip"
    wanted, other = here.site.files[path], here.site.files[path][::-1] + more
    here.site.files[path] = other
    part = here.cache / f"downloads/{sha256(wanted)}/vosk-en.zip.part"
    if resumed:
        part.parent.mkdir(parents=True)
        part.write_bytes(resumed)
    with pytest.raises(FetchFailed) as caught:
        told_by(here)[0].fetch("vosk-en")
    facts = (f"{len(other):,} bytes", f"{len(wanted):,}") if more else (sha256(other), sha256(wanted))
    for words in (*facts, "/vosk-en.zip", "Nothing of it was kept", UNSEEN, "report", "assistant models add FOLDER"):
        assert words in caught.value.message
    assert [found for found in here.cache.rglob("*") if found.is_file() and found.suffix in (".zip", ".part")] == []
    assert here.store().status("vosk-en").state is State.MISSING


def test_a_file_that_we_know_is_not_called_doubtful(here: World) -> None:
    here.site.files["/tokens.txt"] = b"c b a"
    with pytest.raises(FetchFailed, match="Please report both") as caught:
        told_by(here)[0].fetch("tokens")
    assert UNSEEN not in caught.value.message


def test_the_shipped_catalog_says_which() -> None:
    entries = Catalog.load(paths.catalog_file()).entries()
    unseen = {entry.name: entry for entry in entries if entry.unseen}
    assert set(unseen) == {"vosk-model-small-cn-0.22", "qwen2.5-0.5b-instruct", "qwen2.5-1.5b-instruct"}
    assert not any(entry.default for entry in unseen.values())
