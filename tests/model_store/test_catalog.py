"""The catalog is complete, and a broken one is refused with words."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant import config, paths
from assistant.errors import ConfigError, ModelUnknown, UsageError
from assistant.model_store.catalog import ArchiveSource, Catalog, FilesSource, check_name, relative_path, url_is_allowed

SHA = "a" * 64
HEAD = """
[[model]]
name = "{name}"
stage = "asr"
kind = "vosk"
engine = "vosk"
language = "en"
licence = "MIT"
description = "x"
"""
GOOD = (
    HEAD.format(name="one")
    + f"""
source = {{ type = "package-index", package = "p", version = "1", download_bytes = 5 }}
files = [{{ path = "a/b.bin", member = "p/b.bin", bytes = 5, sha256 = "{SHA}" }}]
"""
)


def test_the_shipped_catalog_holds_what_the_default_settings_need() -> None:
    catalog = Catalog.load(paths.catalog_file())
    stages = config.Config().stages
    wanted = {stages.llm.model, stages.asr.model, stages.tts.model}
    assert {entry.name for entry in catalog.defaults()} == wanted
    for stage in (stages.llm, stages.asr, stages.tts):
        assert catalog.get(stage.model).engine == stage.engine
    shape = catalog.get(stages.llm.model).shape
    assert shape is not None
    assert {"layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "max_position", "tied"} == set(shape)


def test_every_shipped_address_is_https_and_the_publishers() -> None:
    entries = Catalog.load(paths.catalog_file()).entries()
    archives = [entry.source.url for entry in entries if isinstance(entry.source, ArchiveSource)]
    files = [file.url for entry in entries if isinstance(entry.source, FilesSource) for file in entry.files]
    assert archives
    assert files
    urls = archives + files
    assert all(url.startswith("https://") for url in urls)


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    with pytest.raises(ModelUnknown, match=r"Did you mean smollm2-135m-instruct") as caught:
        Catalog.load(paths.catalog_file()).get("smolm2-135m-instruct")
    assert caught.value.exit_code == 6


def test_a_good_entry_is_read() -> None:
    entry = Catalog.parse(GOOD).get("one")
    assert entry.files[0].name == "b.bin"
    assert entry.download_bytes == 5


def test_the_stop_word_is_pinned_to_what_its_publisher_had_at_one_commit() -> None:
    entry = Catalog.load(paths.catalog_file()).get("wake-stop")
    assert (entry.kind, entry.stage, entry.engine, entry.default) == ("wake", None, "micro", False)
    assert [file.path for file in entry.files] == ["stop.json", "stop.tflite"]
    assert all("/OHF-Voice/linux-voice-assistant/1543c5df58" in file.url for file in entry.files)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('kind = "vosk"', 'kind = "wake"', "kind wake has no stage"),
        ('stage = "asr"\n', "", "every other kind has one"),
        ('name = "one"', 'name = "../one"', "no name for a model"),
        ('path = "a/b.bin"', 'path = "../b.bin"', "must be relative"),
        ('path = "a/b.bin"', 'path = "manifest.json"', "one of our own names"),
        ('member = "p/b.bin"', 'url = "https://models.example/b"', "needs a member"),
        (SHA, SHA[1:], "64 lower-case hex digits"),
        ("bytes = 5,", "bytes = -5,", "must be a size"),
        ('kind = "vosk"', 'kind = "other"', "Invalid enum value"),
        ('licence = "MIT"', 'license = "MIT"', "licence|license"),
        ('type = "package-index"', 'type = "ftp"', "Invalid value"),
        ("files = [", "convert = 'gguf'\nfiles = [", "conversion needs"),
        ('licence = "MIT"', 'licence = "MIT"\nvariant_of = "two"', "variant_of is for models that are converted"),
        ("[[model]]", "other = 1\n[[model]]", "unknown key"),
        ("[[model]]", "[[model]", "Expected|Illegal"),
    ],
)
def test_a_broken_entry_is_refused_with_words(old: str, new: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError, match=says):
        Catalog.parse(GOOD.replace(old, new))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            '{ type = "https" }\nfiles = [{ path = "a", url = "http://models.example/a", bytes = 1, sha256 = "%s" }]',
            "https",
        ),
        ('{ type = "https" }\nfiles = []', "no files"),
        (
            '{ type = "https" }\nfiles = [{ path = "a", member = "p/a", bytes = 1, sha256 = "%s" }]',
            "needs a url",
        ),
        (
            '{ type = "https-archive", url = "https://m.ex/a.zip", bytes = 1, sha256 = "%s", max_unpacked_bytes = 1 }'
            '\nfiles = [{ path = "a", url = "https://m.example/a", bytes = 1, sha256 = "%s" }]',
            "not listed one by one",
        ),
        (
            '{ type = "https-archive", url = "https://m.example/", bytes = 1, sha256 = "%s", max_unpacked_bytes = 1 }',
            "file",
        ),
        ('{ type = "https-archive", url = "https://m.example/a.zip", bytes = 1, max_unpacked_bytes = 1 }', "sha256"),
    ],
)
def test_a_source_without_a_pin_or_without_https_is_refused(source: str, says: str) -> None:
    text = HEAD.format(name="two") + "source = " + source.replace("%s", SHA)
    with pytest.raises(ConfigError, match=says):
        Catalog.parse(text)


def test_two_entries_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two entries"):
        Catalog.parse(GOOD + GOOD)


@pytest.mark.parametrize("data", [None, b"\xff", b"[[model"])
def test_a_catalog_that_cannot_be_read_is_named(data: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "catalog.toml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigError, match=re.escape(f"model catalog {path}: ")):
        Catalog.load(path)


@given(st.text(max_size=300))
def test_any_text_is_a_catalog_or_a_config_error(text: str) -> None:
    try:
        catalog = Catalog.parse(text)
    except ConfigError:
        return
    assert catalog.entries() == ()


@given(st.text(max_size=40) | st.text("./\\a:\0", max_size=12))
def test_a_relative_path_never_leaves_its_folder(text: str) -> None:
    path = relative_path(text)
    if path is not None:
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert (PurePosixPath("/top") / path).is_relative_to("/top")
        assert str(path) == text


@given(st.text(max_size=70))
def test_a_model_name_is_one_plain_folder_name(text: str) -> None:
    try:
        name = check_name(text)
    except UsageError:
        return
    assert relative_path(name) == PurePosixPath(name)
    assert len(PurePosixPath(name).parts) == 1
    assert not name.startswith(".")


@pytest.mark.parametrize("name", ["", ".", "..", ".x", "a/b", "/a", "a\0", "a b", "x.gguf", "x" * 65, "-x", "a\n"])
def test_bad_names(name: str) -> None:
    with pytest.raises(UsageError, match="no name for a model"):
        check_name(name)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://models.example/a", True),
        ("http://127.0.0.1:80/a", True),
        ("http://127.0.0.1.example/a", False),
        ("http://models.example/a", False),
        ("https:///a", False),
        ("http://[::1/a", False),
    ],
)
def test_plain_http_is_for_this_machine_alone(url: str, allowed: bool) -> None:
    assert url_is_allowed(url) is allowed
