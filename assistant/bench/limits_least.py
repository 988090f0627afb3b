"""Finds the smallest memory limit at which something works. Pure: whoever calls it does the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

STEP_MIB = 8
_LOWEST, _HIGHEST = 96, 1024


@dataclass(frozen=True, slots=True)
class Probe:
    answers: bool
    tells: str
    """In a word: "answered", or what went wrong."""


def least_limit(probe: Callable[[int, bool], Probe]) -> tuple[int, dict[str, str]]:
    """The smallest multiple of 8 MiB at which everything is answered, and what each try told.

    `probe(limit, thorough)` tries a limit, with a few queries or with all of them. By bisection with a few; then
    upwards until all are answered, since the last few MiB differ from run to run; then the limit below is tried last.
    """
    told: dict[str, str] = {}

    def works(limit: int, thorough: bool = False) -> bool:
        found = probe(limit, thorough)
        told[f"{limit}{' all' if thorough else ''}"] = found.tells
        return found.answers

    low, high = _LOWEST // STEP_MIB, _HIGHEST // STEP_MIB
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle * STEP_MIB) else (middle, high)
    limit = high * STEP_MIB
    if not works(limit, thorough=True):
        while limit < _HIGHEST and not works(limit := limit + STEP_MIB, thorough=True):
            pass
        return limit, told
    while limit > _LOWEST and works(limit - STEP_MIB) and works(limit - STEP_MIB, thorough=True):
        limit -= STEP_MIB
    return limit, told
