"""What scripts/coverage hands down to the processes of the processes it measures."""

from __future__ import annotations

import os


def measured() -> dict[str, str]:
    """A test that gives a process an environment of its own adds this, or no line of that process is counted."""
    return {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
