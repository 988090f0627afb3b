"""How long the suite is: a short form in the ordinary run, the long one with `--hostile` (`scripts/test --hostile`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from assistant.model_store.store import ModelInfo
from tests.hostile.world import NEEDED


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--hostile"):
        return
    long = [item for item in items if item.get_closest_marker("hostile") is not None]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="session", autouse=True)
def models(model: Callable[[str], ModelInfo]) -> None:
    for name in NEEDED:
        model(name)


@pytest.fixture
def long_form(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--hostile"))
