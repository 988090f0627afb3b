"""Runs the checks beside each other, each by itself: one that fails or hangs is a finding, and spoils nothing else.

Imports `findings` and `scene`. A check is called in a thread of its own, which nobody waits for longer than the check's
limit; a thread that hangs in the kernel ends with the process.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from assistant.doctor.findings import Finding
from assistant.doctor.scene import Scene, reinstall
from assistant.errors import AssistantError

LIMIT_S = 8.0


class Check(NamedTuple):
    name: str
    look: Callable[[Scene], Iterable[Finding]]
    limit_s: float = LIMIT_S


class Done(NamedTuple):
    """Of something that was mended, or could not be."""

    id: str
    text: str
    good: bool


def examine(checks: Sequence[Check], scene: Scene) -> list[Finding]:
    """All findings, in the order of the checks. Never raises, and takes little longer than the longest limit."""
    begun = time.monotonic()
    running = [(check, _start(check, scene)) for check in checks]
    found: list[Finding] = []
    for check, result in running:
        try:
            found += result.get(timeout=max(0.01, begun + check.limit_s - time.monotonic()))
        except queue.Empty:
            text = f"{check.name}: no answer within {check.limit_s:g} s"
            found.append(Finding("looked-too-long", "problem", text, "try again; if it stays so, reboot"))
    return found


def _start(check: Check, scene: Scene) -> queue.SimpleQueue[list[Finding]]:
    result: queue.SimpleQueue[list[Finding]] = queue.SimpleQueue()

    def look() -> None:
        found: list[Finding] = []
        try:
            found.extend(check.look(scene))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the other checks go on, and it is told
            found.append(_unseen(check, error))
        result.put(found)

    threading.Thread(target=look, name=f"doctor-{check.name}", daemon=True).start()
    return result


def _unseen(check: Check, error: BaseException) -> Finding:
    if isinstance(error, ImportError):
        text = f"{check.name} could not be looked at: {error}"
        return Finding("package-missing", "problem", text, reinstall())
    told = error.message if isinstance(error, AssistantError) else f"{type(error).__name__}: {error}"
    return Finding("not-looked-at", "problem", f"{check.name} could not be looked at: {told}", "see docs/doctor.md")


def mend(findings: Iterable[Finding]) -> list[Done]:
    """Mends what can be mended without root, one after the other. Never raises."""
    done = []
    for finding in findings:
        if finding.mend is None:
            continue
        try:
            done.append(Done(finding.id, finding.mend(), True))
        except AssistantError as error:
            done.append(Done(finding.id, f"not mended: {error.message}", False))
        except Exception as error:  # noqa: BLE001 - the others are mended all the same
            done.append(Done(finding.id, f"not mended ({finding.found}): {error}", False))
    return done
