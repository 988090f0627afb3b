"""Fixtures that several test folders share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from assistant import paths
from assistant.errors import ModelError
from assistant.model_store.store import ModelInfo, ModelStore
from tests.lacking import lacks

# tests share the cores with other workers and with what they start: how long an example takes says nothing
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")


def opener(store: ModelStore, environ: Mapping[str, str] = os.environ) -> Callable[[str], ModelInfo]:
    """Opens models of `store` by name; what is not there, `lacks` decides."""

    def opened(name: str) -> ModelInfo:
        try:
            return store.open(name)
        except ModelError as error:
            lacks("models", error.message, environ)

    return opened


@pytest.fixture(scope="session")
def model() -> Callable[[str], ModelInfo]:
    """A real model by name; scripts/test fetches all that the tests open."""
    return opener(ModelStore.default())


@pytest.fixture(scope="session")
def corpora() -> Path:
    """What people wrote to assistants; kept beside the checkout, not in it."""
    folder = (paths.checkout() or Path()).parent / "shared/nlu"
    if not folder.is_dir():
        lacks("recordings", "the corpora (../shared/nlu) are not on this machine")
    return folder


@pytest.fixture(scope="session")
def speech() -> Path:
    """Human recordings; they are kept beside the checkout, not in it."""
    folder = (paths.checkout() or Path()).parent / "shared/speech"
    if not (folder / "manifest.json").is_file():
        lacks("recordings", "the human recordings (../shared/speech) are not on this machine")
    return folder


def pytest_configure() -> None:
    # a shell that starts the suite in the background has it ignore Ctrl-C, and what the tests start would inherit that
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several workers: each begins with files that take long, so that none is left with such a one at the end, and a
    test has more time, since others use the cores meanwhile."""
    if not hasattr(config, "workerinput"):
        return
    long = [{item.path for item in items if item.get_closest_marker(name)} for name in ("slow", "engine")]
    items.sort(key=lambda item: [item.path not in files for files in long])
    for item in items:
        limit = item.get_closest_marker("timeout")
        seconds = float(limit.args[0] if limit else config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(3 * seconds), append=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fault-times", type=int, default=1, help="how often each fault of tests/faults is made to happen"
    )
    parser.addoption(
        "--hostile", action="store_true", help="tests/hostile in its long form (marker hostile, and more rounds)"
    )
    parser.addoption(
        "--hostile-percent", type=int, default=5, help="of 100,000 hostile frames and 1,000 clients that vanish"
    )


@pytest.fixture
def hostile_percent(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--hostile-percent"))


@pytest.fixture
def fault_times(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--fault-times"))
