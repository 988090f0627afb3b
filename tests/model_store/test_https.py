"""A download arrives whole or not at all, and goes on from where it stopped."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.errors import FetchFailed
from assistant.model_store.https import Https
from tests.model_store.publishers import Publisher, publisher, sha256

DATA = random.Random(1).randbytes(700_000)


@pytest.fixture
def shop() -> Iterator[Publisher]:
    with publisher() as found:
        found.files["/model.zip"] = DATA
        yield found


def https(tries: int = 1) -> Https:
    return Https(timeout_s=5, tries=tries, pause=lambda seconds: None)


def get(shop: Publisher, target: Path, *, tries: int = 1, size: int = len(DATA), digest: str = "") -> None:
    https(tries).download(shop.url + "/model.zip", target, size=size, sha256=digest or sha256(DATA))


def test_whole_file_arrives_and_no_part_stays(shop: Publisher, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    target = tmp_path / "deep" / "model.zip"
    https().download(
        shop.url + "/model.zip", target, size=len(DATA), sha256=sha256(DATA), update=lambda d, t: seen.append((d, t))
    )
    assert target.read_bytes() == DATA
    assert [path.name for path in target.parent.iterdir()] == ["model.zip"]
    assert seen[-1] == (len(DATA), len(DATA))


def test_broken_transfer_keeps_the_part_and_the_next_run_asks_for_the_rest(shop: Publisher, tmp_path: Path) -> None:
    shop.cut_after = [300_000]
    with pytest.raises(FetchFailed, match="300,000 of 700,000 bytes are kept"):
        get(shop, tmp_path / "model.zip")
    assert (tmp_path / "model.zip.part").stat().st_size == 300_000
    get(shop, tmp_path / "model.zip")
    assert (tmp_path / "model.zip").read_bytes() == DATA
    assert [asked for _, asked in shop.asked] == [None, "bytes=300000-"]


def test_one_run_resumes_by_itself(shop: Publisher, tmp_path: Path) -> None:
    shop.cut_after = [100_000, 100_000]
    get(shop, tmp_path / "model.zip", tries=3)
    assert (tmp_path / "model.zip").read_bytes() == DATA
    assert [asked for _, asked in shop.asked] == [None, "bytes=100000-", "bytes=200000-"]


def test_server_that_ignores_range_is_read_from_the_start(shop: Publisher, tmp_path: Path) -> None:
    shop.ignore_range = True
    (tmp_path / "model.zip.part").write_bytes(DATA[:1000])
    get(shop, tmp_path / "model.zip")
    assert (tmp_path / "model.zip").read_bytes() == DATA


def test_server_that_sends_another_range_is_not_believed(shop: Publisher, tmp_path: Path) -> None:
    shop.wrong_range = True
    (tmp_path / "model.zip.part").write_bytes(DATA[:1000])
    get(shop, tmp_path / "model.zip", tries=2)
    assert (tmp_path / "model.zip").read_bytes() == DATA
    assert [asked for _, asked in shop.asked] == ["bytes=1000-", None]


def test_part_of_another_file_is_thrown_away_and_fetched_anew(shop: Publisher, tmp_path: Path) -> None:
    (tmp_path / "model.zip.part").write_bytes(b"x" * 5000)
    get(shop, tmp_path / "model.zip")
    assert (tmp_path / "model.zip").read_bytes() == DATA


@pytest.mark.parametrize("have", [len(DATA), len(DATA) + 10])
def test_part_that_is_already_as_long_is_checked(shop: Publisher, tmp_path: Path, have: int) -> None:
    (tmp_path / "model.zip.part").write_bytes((DATA + b"0123456789")[:have])
    get(shop, tmp_path / "model.zip")
    assert (tmp_path / "model.zip").read_bytes() == DATA
    assert len(shop.asked) == (0 if have == len(DATA) else 1)


def test_wrong_digest_leaves_nothing(shop: Publisher, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match="not the file that the catalog knows"):
        get(shop, tmp_path / "model.zip", digest="0" * 64)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1])
def test_wrong_size_is_seen_before_the_body_is_read(shop: Publisher, tmp_path: Path, size: int) -> None:
    with pytest.raises(FetchFailed, match="it has 700,000 bytes"):
        get(shop, tmp_path / "model.zip", size=size)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1])
def test_wrong_size_without_content_length(shop: Publisher, tmp_path: Path, size: int) -> None:
    shop.length = 0
    with pytest.raises(FetchFailed):
        get(shop, tmp_path / "model.zip", size=size)
    assert not (tmp_path / "model.zip").exists()


def test_server_errors_are_tried_again_and_client_errors_are_not(shop: Publisher, tmp_path: Path) -> None:
    shop.statuses = [503, 500]
    get(shop, tmp_path / "model.zip", tries=3)
    assert (tmp_path / "model.zip").read_bytes() == DATA
    with pytest.raises(FetchFailed, match="404"):
        https(5).download(shop.url + "/none", tmp_path / "none", size=1, sha256="0" * 64)
    assert len(shop.asked) == 4


def test_redirect_is_followed_on_this_machine_and_refused_to_plain_http(shop: Publisher, tmp_path: Path) -> None:
    shop.redirects = {"/here": "/model.zip", "/away": "http://models.example/model.zip", "/file": "file:///etc/passwd"}
    https().download(shop.url + "/here", tmp_path / "a", size=len(DATA), sha256=sha256(DATA))
    assert (tmp_path / "a").read_bytes() == DATA
    for path in ("/away", "/file"):
        with pytest.raises(FetchFailed, match=r"redirects to .* not an https address|cannot be had: .* not allowed"):
            https().download(shop.url + path, tmp_path / "b", size=len(DATA), sha256=sha256(DATA))
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("url", ["http://models.example/x", "ftp://127.0.0.1/x", "file:///etc/passwd", "x", "https://"])
def test_only_https_is_asked(url: str, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match="not an https address"):
        https().download(url, tmp_path / "x", size=1, sha256="0" * 64)


def test_nobody_answers(tmp_path: Path) -> None:
    with publisher() as shop:
        url = shop.url
    with pytest.raises(FetchFailed, match="its server cannot be reached") as caught:
        https(2).download(url + "/model.zip", tmp_path / "model.zip", size=1, sha256="0" * 64)
    assert "run this again" in caught.value.message
    assert list(tmp_path.iterdir()) == []
