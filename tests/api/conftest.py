"""A folder whose path is short enough for sockets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own: a socket's path has to be short."""
    with tempfile.TemporaryDirectory(prefix="va-") as made:
        yield Path(made) / "assistant"
