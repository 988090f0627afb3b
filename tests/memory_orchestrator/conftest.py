"""A Hypothesis profile for long runs: `--hypothesis-profile=deep tests/memory_orchestrator/test_any_order.py`."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("deep", max_examples=5000, stateful_step_count=120, deadline=None)
