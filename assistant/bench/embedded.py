"""The source file of the embedded LLM, for benchmarks and tests. Imports `paths` and `model_store`; fetches nothing."""

from __future__ import annotations

from pathlib import Path

from assistant import paths
from assistant.errors import ModelMissing
from assistant.model_store.catalog import Catalog
from assistant.model_store.downloads import Downloads

EMBEDDED_LLM = "smollm2-135m-instruct"


def embedded_gguf(given: Path | None = None) -> Path:
    """The GGUF file given, or the embedded model's verified download. Raises `ModelMissing`."""
    if given is not None:
        return given
    file = Catalog.load(paths.catalog_file()).get(EMBEDDED_LLM).files[0]
    path = Downloads(paths.cache_dir()).path(file.sha256, file.name)
    if not path.is_file():
        raise ModelMissing(f"{path.name} is not among the downloads; run 'assistant models fetch {EMBEDDED_LLM}'")
    return path
