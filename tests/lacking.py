"""What a test does where something is missing that it needs: it is skipped on a user's machine, and fails in CI.

CI installs and fetches all that the tests need (.ci/run, scripts/setup, scripts/test). A test that is skipped there
says nothing, and nobody sees it: dozens were once. So whatever CI can have goes through `lacks`. Plain `pytest.skip`
remains for what no script can bring: another kernel, other rights, torch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, NoReturn, get_args

import pytest

Thing = Literal["compiler", "models", "packages", "recordings", "sound", "systemd"]
"""`sound`: PulseAudio's programs and PortAudio. `recordings`: what people said, spoken or written, beside the checkout.
`packages`: what pip installs."""
MAY_LACK = "TESTS_MAY_LACK"
"""An environment variable: what a CI cannot have all the same, with spaces between."""


def lacks(thing: Thing, reason: str, environ: Mapping[str, str] = os.environ) -> NoReturn:
    """Ends a test or a fixture: `thing` is missing, as `reason` says."""
    allowed = environ.get(MAY_LACK, "").split()
    if unknown := set(allowed) - set(get_args(Thing)):
        raise ValueError(f"{MAY_LACK}: not one of {', '.join(get_args(Thing))}: {', '.join(sorted(unknown))}")
    if environ.get("CI", "").lower() in ("", "0", "false") or thing in allowed:
        pytest.skip(reason)
    pytest.fail(f"{reason}. CI must have it; a CI that cannot says {MAY_LACK}={thing}", pytrace=False)
