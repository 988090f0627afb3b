"""A whole small world for the store's tests: a shelf of wheels, a publisher, a catalog, a checkout and a cache."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from assistant.model_store.conversion import Converters
from assistant.model_store.downloads import Downloads
from assistant.model_store.fetch import Fetcher
from assistant.model_store.https import Https
from assistant.model_store.package_index import PackageIndex
from assistant.model_store.progress import Silent
from assistant.model_store.sources import Sources
from assistant.model_store.store import ModelStore
from tests.model_store.publishers import Publisher, build_wheel, pip_environment, publisher, sha256

VOICE = b"voice weights " * 4000
VOICE_JSON = b'{"audio": {"sample_rate": 22050}}'
GGUF = b"GGUF" + bytes(range(256)) * 40
VOSK = {"am/final.mdl": b"acoustic" * 1000, "conf/model.conf": b"--beam=10\n", "README": b"hello\n"}

CONVERTER = '''
"""Speaks the converters' protocol: copies the source backwards, with a library's chatter in between."""
import json, os, sys, time
from pathlib import Path
source, out = Path(sys.argv[1]), Path(sys.argv[-2])
data = source.read_bytes()
print("a library says hello { not json", flush=True)
print("{this neither}", flush=True)
print(json.dumps({"done": 1, "total": 2}), flush=True)
if b"odd" in data:
    print(json.dumps({"error": {"type": "ModelUnsupported", "message": "architecture odd is not known"}}), flush=True)
    sys.exit(6)
if b"crash" in data:
    print("out of luck", file=sys.stderr)
    os.abort()
out.mkdir()
(out / "llm.mnn").write_bytes(data[:100])
if b"slow" in data:
    print(json.dumps({"done": 2, "total": 2}), flush=True)
    time.sleep(30)
(out / "llm.mnn.weight").write_bytes(data[::-1])
print(json.dumps({"report": {"shape": {"layers": 2, "hidden": 64, "tied": True}, "requantised": []}}), flush=True)
'''


@dataclass(frozen=True)
class World:
    top: Path
    site: Publisher

    @property
    def models(self) -> Path:
        return self.top / "models"

    @property
    def cache(self) -> Path:
        return self.top / "cache"

    def store(self, models: str = "models") -> ModelStore:
        return ModelStore(self.top / models, self.top / "catalog.toml")

    def fetcher(self, models: str = "models", free: Callable[[Path], int] | None = None) -> Fetcher:
        store = self.store(models)
        index = PackageIndex(environ=pip_environment(self.top / "shelf"))
        https = Https(timeout_s=5, tries=1)
        sources = Sources(Downloads(self.cache), Silent(), index=index, https=https, free=free)
        command = [sys.executable, str(self.top / "converter.py")]
        return Fetcher(store, sources, converters=Converters(gguf=command, voice=command), free=free)

    def empty_shelf(self) -> None:
        """From now on nothing can be downloaded."""
        for wheel in (self.top / "shelf").iterdir():
            wheel.unlink()
        self.site.files.clear()

    def leftovers(self) -> list[Path]:
        """Temporary files of any kind."""
        names = ("*.tmp-*", ".tmp-*", ".manifest*", "*.part")
        return [path for name in names for path in self.top.rglob(name)]


@contextmanager
def world(top: Path) -> Iterator[World]:
    with publisher() as site:
        site.files["/vosk-en.zip"] = _vosk_zip(top)
        site.files["/tokens.txt"] = b"a b c"
        site.files["/halt.json"] = b"{}"
        build_wheel(top / "shelf", "tiny-voice", "1.0.0", {"tv/v.onnx": VOICE, "tv/v.onnx.json": VOICE_JSON})
        build_wheel(top / "shelf", "tiny-llm", "0.1", {"llm/m.gguf": GGUF})
        (top / "converter.py").write_text(CONVERTER)
        (top / "catalog.toml").write_text(_catalog(site))
        yield World(top, site)


def _vosk_zip(top: Path) -> bytes:
    with zipfile.ZipFile(top / "vosk.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in VOSK.items():
            packed.writestr(f"vosk-en/{name}", data)
    data = (top / "vosk.zip").read_bytes()
    (top / "vosk.zip").unlink()
    return data


def _entry(name: str, stage: str, kind: str, engine: str, more: str) -> str:
    more += f'\nstage = "{stage}"' if stage else ""
    return f"""
[[model]]
name = "{name}"
kind = "{kind}"
engine = "{engine}"
language = "en"
licence = "MIT"
description = "made for a test"
{more}
"""


def _file(path: str, data: bytes, where: str) -> str:
    return f'\n[[model.files]]\npath = "{path}"\nbytes = {len(data)}\nsha256 = "{sha256(data)}"\n{where}\n'


def _catalog(site: Publisher) -> str:
    packed = site.files["/vosk-en.zip"]
    wheel = 'source = { type = "package-index", package = "%s", version = "%s", download_bytes = 9 }'
    voice = "default = true\n" + wheel % ("tiny-voice", "1.0.0")
    llm = 'convert = "gguf"\nshape = { layers = 2 }\n' + wheel % ("tiny-llm", "0.1")
    archive = (
        f'source = {{ type = "https-archive", url = "{site.url}/vosk-en.zip", bytes = {len(packed)}, '
        f'sha256 = "{sha256(packed)}", root = "vosk-en", max_unpacked_bytes = 100000 }}'
    )
    return (
        _entry("voice", "tts", "piper", "piper", voice)
        + _file("v.onnx", VOICE, 'member = "tv/v.onnx"')
        + _file("v.onnx.json", VOICE_JSON, 'member = "tv/v.onnx.json"')
        + _entry("llm", "llm", "mnn-llm", "mnn", llm)
        + _file("m.gguf", GGUF, 'member = "llm/m.gguf"')
        + _entry("vosk-en", "asr", "vosk", "vosk", archive)
        + _entry("tokens", "asr", "vosk", "vosk", 'source = { type = "https" }')
        + _file("deep/tokens.txt", site.files["/tokens.txt"], f'url = "{site.url}/tokens.txt"')
        + _entry("wake-halt", "", "wake", "micro", 'source = { type = "https" }')
        + _file("halt.json", site.files["/halt.json"], f'url = "{site.url}/halt.json"')
    )
