"""Every code that the product can raise stands in docs/troubleshooting.md, with what it means and what to do."""

from __future__ import annotations

import re

from assistant import errors
from tests.docs import codes as sources
from tests.docs.pages import ROOT

_ROW = re.compile(r"^\| ((?:`[a-z0-9-]+`(?:, )?)+) \| (.*) \| (.*) \|$", re.MULTILINE)


def rows() -> dict[str, tuple[str, str]]:
    found = {}
    for cells, means, do in _ROW.findall((ROOT / "docs/troubleshooting.md").read_text("utf-8")):
        for code in re.findall(r"`([a-z0-9-]+)`", cells):
            assert code not in found, f"{code} is explained twice"
            found[code] = (means, do)
    return found


def test_every_code_is_explained() -> None:
    explained = rows()
    assert sources.codes().keys() - explained.keys() == set()
    assert all(len(means) > 5 and len(do) > 5 for means, do in explained.values())


def test_nothing_is_explained_that_cannot_happen() -> None:
    everything = "\n".join(path.read_text("utf-8") for path in sources.PACKAGE.rglob("*.py"))
    assert [code for code in rows() if f'"{code}"' not in everything] == []


def test_the_collector_finds_codes_in_every_form() -> None:
    found = sources.codes()
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.AssistantError):
            assert kind.default_code in found
    # a constant of the module; of another one; several at once; one of two
    assert {"stage-over-memory", "not-answering", "model-replaced", "cache-disk-full", "runtime-dir"} <= found.keys()
    assert all(re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", code) for code in found)
