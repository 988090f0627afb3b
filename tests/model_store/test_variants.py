"""Variants of a model: one download, several conversions; and a conversion that was chosen otherwise is made again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant import paths
from assistant.bench.embedded import embedded_gguf
from assistant.errors import ConfigError, ModelDamaged, ModelError
from assistant.model_store import manifest as manifests
from assistant.model_store import versions
from assistant.model_store.catalog import Catalog
from assistant.model_store.choices import Choices
from assistant.model_store.downloads import Downloads
from assistant.model_store.fetch import Fetcher
from assistant.model_store.listing import rows
from assistant.model_store.progress import Silent
from assistant.model_store.sources import Sources
from assistant.model_store.store import ModelStore, State
from tests.model_store.shop import World, world

_RECORDS = "record.txt"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    """With a converter that writes down its arguments, and a variant of the catalog's LLM."""
    with world(tmp_path) as found:
        script = found.top / "converter.py"
        record = f"open({str(found.top / _RECORDS)!r}, 'a').write(' '.join(sys.argv[2:-2]) + '\\n')\n"
        script.write_text(script.read_text().replace("data = source", record + "data = source", 1))
        catalog = found.top / "catalog.toml"
        text = catalog.read_text()
        begin = text.index('\n[[model]]\nname = "llm"')
        entry = text[begin : text.index("[[model]]", begin + 12)]
        variant = entry.replace('name = "llm"', 'name = "llm-w4"\nvariant_of = "llm"\nbits = 4\nemergency_skip = []', 1)
        catalog.write_text(text + variant)
        yield found


def asked(here: World) -> list[str]:
    """The arguments of each conversion."""
    return (here.top / _RECORDS).read_text().splitlines()


def test_a_variant_needs_no_second_download(here: World) -> None:
    here.fetcher().fetch("llm")
    here.empty_shelf()
    assert here.fetcher().fetch("llm-w4").action == "fetched"
    assert asked(here) == ["", "--bits=4 --emergency-skip="]
    manifest = manifests.read(here.models / "llm-w4")
    assert manifest is not None
    assert manifest.choices == Choices(4, ())
    assert here.fetcher().fetch("llm-w4").action == "none"


def test_another_choice_in_the_catalog_means_another_conversion(here: World) -> None:
    here.fetcher().fetch("llm-w4")
    catalog = here.top / "catalog.toml"
    catalog.write_text(catalog.read_text().replace("bits = 4", "bits = 8"))
    status = here.store().status("llm-w4")
    assert (status.state, status.reason) == (State.OUTDATED, "the catalog now wants another conversion of it")
    assert here.fetcher().fetch("llm-w4").action == "updated"
    assert asked(here)[-1] == "--bits=8 --emergency-skip="


def test_a_users_own_model_is_repaired_with_the_bits_that_it_had(here: World) -> None:
    (here.top / "mine.gguf").write_bytes(b"GGUF mine")
    here.fetcher().convert_file(here.top / "mine.gguf", "mine", Choices(8))
    assert asked(here) == ["--bits=8"]
    (here.models / "mine/llm.mnn").unlink()
    with pytest.raises(ModelDamaged, match=r"convert /.*/mine\.gguf --name mine --bits 8"):
        here.store().open("mine")


def test_blocks_of_ones_own_are_kept_and_told(here: World) -> None:
    (here.top / "mine.gguf").write_bytes(b"GGUF mine")
    here.fetcher().convert_file(here.top / "mine.gguf", "mine", Choices(4, None, 64))
    assert asked(here) == ["--bits=4 --block=64"]
    (here.models / "mine/llm.mnn").unlink()
    with pytest.raises(ModelDamaged, match=r"convert /.*/mine\.gguf --name mine --bits 4 --block 64"):
        here.store().open("mine")


def test_other_blocks_in_the_catalog_mean_another_conversion(here: World) -> None:
    here.fetcher().fetch("llm-w4")
    catalog = here.top / "catalog.toml"
    catalog.write_text(catalog.read_text().replace("bits = 4", "bits = 4\nblock = 128"))
    assert here.store().status("llm-w4").state is State.OUTDATED
    assert here.fetcher().fetch("llm-w4").action == "updated"
    assert asked(here)[-1] == "--bits=4 --block=128 --emergency-skip="
    assert here.fetcher().fetch("llm-w4").action == "none"


def test_a_manifest_from_before_variants_is_one_of_the_sources_own_bits(here: World) -> None:
    here.fetcher().fetch("llm")
    file = here.models / "llm" / manifests.FILE_NAME
    text = file.read_text()
    begin = text.index(' "choices"')
    file.write_text(text[:begin] + text[text.index(' "converted_from"') :])
    assert here.store().status("llm").state is State.READY


def test_a_model_of_random_weights_is_listed_as_what_it_is(here: World) -> None:
    (here.top / "mine.gguf").write_bytes(b"GGUF mine")
    here.fetcher().convert_file(here.top / "mine.gguf", "mine")
    shutil.copytree(here.models / "mine", here.models / "synth-x")
    old = manifests.read(here.models / "mine")
    assert old is not None
    renamed = manifests.Manifest(
        name="synth-x", kind=old.kind, stage=old.stage, engine=old.engine, files=old.files, shape=old.shape,
        synthetic="x", converter_version="gguf-0",
    )  # fmt: skip
    manifests.write(here.models / "synth-x", renamed)
    found = {row["name"]: row for row in rows(here.store())}
    assert found["synth-x"]["description"] == "random weights in the shape of x"
    assert found["mine"]["description"] == "made from mine.gguf"
    with pytest.raises(ModelError, match="assistant models synth --shape x --name synth-x"):
        here.fetcher().fetch("synth-x")


def with_voice_on_mnn(here: World) -> None:
    catalog = here.top / "catalog.toml"
    text = catalog.read_text()
    entry = text[text.index('\n[[model]]\nname = "voice"') : text.index('\n[[model]]\nname = "llm"')]
    changed = entry.replace('name = "voice"', 'name = "voice-mnn"\nvariant_of = "voice"\nconvert = "voice"', 1)
    changed = changed.replace('"piper"', '"piper-mnn"').replace("default = true\n", "")
    catalog.write_text(text + changed)


def test_a_voice_on_mnn_is_made_of_the_same_download(here: World) -> None:
    with_voice_on_mnn(here)
    here.fetcher().fetch("voice")
    here.empty_shelf()
    assert here.fetcher().fetch("voice-mnn").action == "fetched"
    info = here.store().open("voice-mnn")
    assert (info.kind, info.engine) == ("piper-mnn", "piper-mnn")
    assert [path.name for path in info.path.iterdir() if path.suffix == ".onnx"] == []
    assert here.fetcher().fetch("voice-mnn").action == "none"
    (info.path / "llm.mnn").write_bytes(b"x")
    assert here.fetcher().fetch("voice-mnn").action == "repaired"
    assert here.fetcher().convert_again("voice-mnn").action == "converted"


def test_a_voice_from_another_converter_is_made_again(here: World) -> None:
    with_voice_on_mnn(here)
    here.fetcher().fetch("voice-mnn")
    file = here.models / "voice-mnn" / manifests.FILE_NAME
    file.write_text(file.read_text().replace(versions.VOICE_CONVERTER, "voice-0"))
    assert here.store().status("voice-mnn").state is State.OUTDATED
    assert here.fetcher().fetch("voice-mnn").action == "updated"


@pytest.mark.parametrize(("old", "new"), [('kind = "piper-mnn"', 'kind = "piper"'), ('convert = "voice"', "")])
def test_a_conversion_and_its_kind_belong_together(here: World, old: str, new: str) -> None:
    with_voice_on_mnn(here)
    with pytest.raises(ConfigError, match="kind piper-mnn is what the conversion of a voice makes"):
        Catalog.parse((here.top / "catalog.toml").read_text().replace(old, new).replace('variant_of = "voice"\n', ""))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('variant_of = "llm"', 'variant_of = "tokens"', "has the files of tokens"),
        ('variant_of = "llm"', 'variant_of = "none"', "another model of the catalog"),
        ('variant_of = "llm"', 'variant_of = "llm-w4"', "another model of the catalog"),
        ("bits = 4", "bits = 5", "Invalid enum value 5"),
        ("bits = 4", "bits = 4\nblock = 48", "Invalid enum value 48"),
        ("bits = 4", "block = 64", "with 4 bits alone"),
        ("bits = 4", "bits = 8\nblock = 64", "with 4 bits alone"),
        ("emergency_skip = []", "emergency_skip = [0]", "cannot be left out"),
        ('name = "vosk-en"', 'name = "vosk-en"\nbits = 4', "for models that are converted from GGUF"),
    ],
)
def test_a_variant_that_cannot_be_is_refused_with_words(here: World, old: str, new: str, says: str) -> None:
    text = (here.top / "catalog.toml").read_text()
    assert old in text
    with pytest.raises(ConfigError, match=says):
        Catalog.parse(text.replace(old, new))


def test_the_shipped_variants_come_from_the_shipped_model() -> None:
    catalog = Catalog.load(paths.catalog_file())
    variants = [entry for entry in catalog.entries() if entry.variant_of]
    assert [(entry.variant_of, entry.bits, entry.default) for entry in variants] == [
        ("smollm2-135m-instruct", 4, False),
        ("smollm2-135m-instruct", 8, False),
        ("en_US-joe-medium", None, False),
    ]
    whole = catalog.get("smollm2-135m-instruct")
    assert all(
        entry.emergency_skip == whole.emergency_skip and entry.shape == whole.shape
        for entry in variants
        if entry.variant_of == whole.name
    )
    assert whole.emergency_skip
    assert len(whole.emergency_skip) == 7


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_the_variants_of_the_catalog_are_what_it_says(tmp_path: Path) -> None:
    """Made here from the download that the model itself has left; nothing is fetched."""
    name = "smollm2-135m-instruct"
    embedded_gguf()  # or there is none
    store = ModelStore(tmp_path / "models", paths.catalog_file())
    fetcher = Fetcher(store, Sources(Downloads(paths.cache_dir()), Silent()))
    here = [f"{name}-w4", name, f"{name}-w8"]
    for one in here:
        fetcher.fetch(one)
    assert all(store.status(one).state is State.READY for one in here)
    sizes = {one: store.open(one).bytes for one in here}
    assert sorted(sizes, key=sizes.__getitem__) == here
