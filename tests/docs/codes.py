"""Every code that an error of ours can have, found in the sources: classes, `code=` of calls, assignments to `code`."""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path

import assistant

PACKAGE = Path(assistant.__file__).parent
NOT_OURS = {"bench", "training"}
"""Rooms that no user meets."""


@functools.cache
def codes() -> dict[str, set[str]]:
    """Each code, and the modules that raise it."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] in NOT_OURS:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        for value in _values(tree):
            for code in _texts(value, tree):
                found.setdefault(code, set()).add(".".join(parts))
    return found


def _values(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(keywords=keywords):
                yield from (one.value for one in keywords if one.arg == "code")
            case ast.Assign(targets=[ast.Name(id="code" | "default_code")], value=value):
                yield value
            case ast.AnnAssign(target=ast.Name(id="code" | "default_code"), value=ast.expr() as value):
                yield value
            case _:
                pass


def _texts(value: ast.expr, tree: ast.Module) -> Iterator[str]:
    """The texts that an expression may be; none for one that only passes a code on."""
    match value:
        case ast.Constant(value=str() as text) if text:
            yield text
        case ast.IfExp(body=body, orelse=other):
            yield from _texts(body, tree)
            yield from _texts(other, tree)
        case ast.Name(id=name):
            yield from _constant(name, tree)
        case _:
            return


def _constant(name: str, tree: ast.Module) -> Iterator[str]:
    """A constant of this module, or of the one that it is imported from."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=ast.Constant(value=str() as text)) if found == name:
                yield text
            case ast.Assign(targets=[ast.Tuple(elts=many)], value=ast.Tuple(elts=values)):
                for one, value in zip(many, values, strict=True):
                    if isinstance(one, ast.Name) and one.id == name and isinstance(value, ast.Constant):
                        yield str(value.value)
            case ast.ImportFrom(module=str() as module, names=names) if module.startswith("assistant"):
                if any(one.name == name for one in names) and name.isupper():
                    yield str(getattr(importlib.import_module(module), name))
            case _:
                pass
