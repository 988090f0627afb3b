"""The verb `doctor`: looks at everything that the assistant needs, and says what mends what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli_config import Sets, refused
from assistant.cli_memory import JsonFlag
from assistant.cli_output import emit, reported, show

if TYPE_CHECKING:
    from assistant.doctor.visit import Report

_MARKS = {"ok": "ok", "advice": "ADVICE", "problem": "PROBLEM"}


def doctor(
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend what needs no root: folders, modes, dead sockets, stale caches.")
    ] = False,
    as_json: JsonFlag = False,
    sets: Sets = None,
) -> None:
    """Look at machine, models, sound, settings and daemon; name the command that mends each fault.

    Exit code 1 when there is a problem; advice alone is fine.
    """
    with reported(as_json):
        from assistant.doctor.visit import visit

        report = visit(sets or (), fix=fix, refused=refused)
        if as_json:
            emit(report.to_dict())
        else:
            show("\n".join(_lines(report)))
        if report.problems:
            raise typer.Exit(1)


def _lines(report: Report) -> Iterator[str]:
    for done in report.done:
        yield f"{'mended' if done.good else 'FAILED':8} {done.text}"
    counts = {"problem": 0, "advice": 0, "ok": 0}
    for one in report.findings:
        counts[one.level] += 1
        yield f"{_MARKS[one.level]:8} {one.id}: {one.found}"
        if one.level != "ok":
            yield f"{'':8} why: {one.why}"
        if one.fix:
            yield f"{'':8} fix: {one.fix}"
    # what is fine is no fault, though --fix can make it ahead of time (a folder that is not there yet)
    fixable = sum(one.mend is not None and one.level != "ok" for one in report.findings)
    summary = (
        f"{_many(counts['problem'], 'problem', 'problems')},"
        f" {_many(counts['advice'], 'piece of advice', 'pieces of advice')}, {counts['ok']} fine"
    )
    yield summary + (f"; 'assistant doctor --fix' mends {fixable}" if fixable else "")


def _many(count: int, one: str, more: str) -> str:
    return f"{count or 'no'} {one if count < 2 else more}"
