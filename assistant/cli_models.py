"""`assistant models list|fetch|verify|convert|add|synth|rm`. Imports `cli_output`; everything heavier inside the verbs.

A verb parses, calls the model store and prints; it decides nothing about models.
"""

from __future__ import annotations

import functools
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from assistant.cli_output import emit, fail, reported, say
from assistant.errors import AssistantError, ExitCode, ModelMissing, ModelUnreachable, UsageError
from assistant.model_store.progress import size_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from assistant.disk import Alive
    from assistant.model_store.fetch import Fetcher, Outcome
    from assistant.model_store.store import ModelStore

T = TypeVar("T")

app = typer.Typer(help="Models on this machine: list, fetch, verify, convert, remove.", no_args_is_help=True)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON alone on stdout.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Names from 'assistant models list'.")]


_SHAPES = "qwen1.5-1.8b, qwen2.5-0.5b, llama-3.2-1b or smollm2-135m"
"""Written down here: to ask for them would import numpy for every verb."""


@app.command("list")
def list_models(json_mode: JsonFlag = False) -> None:
    """Every model of the catalog, and your own, with its state on this disk."""
    with reported(json_mode):
        from assistant.model_store.listing import rows

        store = _store()
        found = _answered(store, lambda alive: rows(store, alive))
        if json_mode:
            emit({"models": found})
        else:
            _print_table(found)


@app.command()
def fetch(
    names: Names = None,
    default: Annotated[bool, typer.Option("--default", help="The models that the default settings need.")] = False,
    quiet: QuietFlag = False,
    json_mode: JsonFlag = False,
) -> None:
    """Download, verify and convert what is missing or damaged."""
    with reported(json_mode):
        fetcher, store = _fetcher(quiet or json_mode)
        wanted = list(dict.fromkeys([*(names or []), *(e.name for e in store.catalog.defaults() if default)]))
        if not wanted:
            raise UsageError("name at least one model, or say --default; 'assistant models list' shows them all")
        done: list[dict[str, Any]] = []
        first: AssistantError | None = None
        for name in wanted:
            try:
                outcome = fetcher.fetch(name)
            except AssistantError as error:  # the others may still be had
                first = first or error
                done.append({"name": name, "action": "failed", "error": error.to_dict()})
                if not json_mode and error is not first:
                    say(f"error: {error.message}")
                continue
            done.append(_as_dict(outcome))
            # who named a model wants to hear of it; scripts/setup wants silence when nothing was to do
            if not (quiet or json_mode) and (outcome.action != "none" or name in (names or [])):
                say(_sentence(outcome))
        if first is not None:
            fail(first, json_mode, {"models": done})
        if json_mode:
            emit({"models": done})


@app.command()
def verify(names: Names = None, json_mode: JsonFlag = False) -> None:
    """Read every byte of models and compare; exit code 6 when something is damaged or missing.

    Without names: all that are on this disk, and those that the default settings need.
    """
    with reported(json_mode):
        store = _store()
        results = []
        missing: ModelMissing | None = None
        for name in names or _answered(store, lambda alive: store.expected()):
            try:
                problems = _answered(store, functools.partial(store.verify, name))
            except ModelMissing as error:  # the others are still to be read
                results.append({"name": name, "ok": False, "problems": [{"file": "", "message": error.message}]})
                if missing is not None and not json_mode:
                    say(f"error: {missing.message}")
                missing = error
                continue
            results.append(
                {
                    "name": name,
                    "ok": not problems,
                    "problems": [{"file": p.file, "message": p.message} for p in problems],
                }
            )
            if not json_mode:
                print(f"{name}: {'; '.join(p.message for p in problems) or 'whole'}")
                if problems:
                    say(f"Repair it with: {store.repair(name)}")
        if missing is not None:
            fail(missing, json_mode, {"models": results})
        if json_mode:
            emit({"models": results})
        if not all(result["ok"] for result in results):
            raise typer.Exit(int(ExitCode.MODEL))


@app.command()
def convert(
    source: Annotated[str, typer.Argument(metavar="FILE.gguf|NAME", help="Your own GGUF, or a model of the catalog.")],
    name: Annotated[str, typer.Option("--name", help="What the model made of FILE.gguf shall be called.")] = "",
    bits: Annotated[int | None, typer.Option("--bits", help="Every matrix of FILE.gguf in 4 or 8 bits.")] = None,
    block: Annotated[int | None, typer.Option("--block", help="4 bits in blocks of 32, 64 or 128 weights.")] = None,
    quiet: QuietFlag = False,
    json_mode: JsonFlag = False,
) -> None:
    """Make an MNN model of a GGUF file, or the MNN form of a fetched Piper voice."""
    with reported(json_mode):
        fetcher, store = _fetcher(quiet or json_mode)
        from assistant.model_store.choices import checked

        if source.endswith(".gguf") or "/" in source or (Path(source).exists() and not store.knows(source)):
            if not name:
                raise UsageError("say what the model shall be called: --name NAME")
            outcome = fetcher.convert_file(Path(source), name, checked(bits, block))
        elif name or bits or block:
            raise UsageError("--name, --bits and --block are for a GGUF file; a model of the catalog keeps what it has")
        else:
            outcome = fetcher.convert_again(source)
        if json_mode:
            emit(_as_dict(outcome))
        elif not quiet:
            say(_sentence(outcome))


@app.command()
def add(
    source: Annotated[Path, typer.Argument(metavar="FOLDER|VOICE.onnx", help="A Vosk or Whisper folder, or a voice.")],
    name: Annotated[str, typer.Option("--name", help="What it shall be called; as the folder or file otherwise.")] = "",
    quiet: QuietFlag = False,
    json_mode: JsonFlag = False,
) -> None:
    """Copy a model of your own: a Vosk or Whisper (CTranslate2) folder, or a Piper voice with its .json beside it."""
    with reported(json_mode):
        from assistant.model_store.own import add as copied

        info = copied(_store(), source, name or source.resolve().name.removesuffix(".onnx"))
        if json_mode:
            emit({"name": info.name, "stage": info.stage, "engine": info.engine, "path": str(info.path)})
        elif not quiet:
            use = f"--set stages.{info.stage}.engine={info.engine} --set stages.{info.stage}.model={info.name}"
            say(f"{info.name}: ready ({size_text(info.bytes)}); use it with: {use}")


@app.command()
def synth(
    shape: Annotated[str, typer.Option("--shape", help=f"Whose shape: {_SHAPES}.")],
    name: Annotated[str, typer.Option("--name", help="What it shall be called; synth-SHAPE otherwise.")] = "",
    block: Annotated[int, typer.Option("--block", help="Weights that share a scale: 32, 64 or 128.")] = 64,
    quiet: QuietFlag = False,
    json_mode: JsonFlag = False,
) -> None:
    """Make a model of random weights in the shape of a known one, to measure memory and speed without a download."""
    with reported(json_mode):
        from assistant.model_store.choices import checked_block
        from assistant.model_store.progress import for_stream
        from assistant.model_store.synth import BLOCK, synthesise

        store, progress = _store(), for_stream(quiet=quiet or json_mode)
        info = store.open(synthesise(store, shape, name or None, progress, block=checked_block(block) or BLOCK))
        if json_mode:
            emit({"name": info.name, "path": str(info.path), "bytes": info.bytes, "shape": info.shape})
        elif not quiet:
            say(f"{info.name}: ready ({size_text(info.bytes)}); it says nothing sensible")


@app.command()
def rm(
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    downloads: Annotated[bool, typer.Option("--downloads", help="The cached downloads of it too.")] = False,
    json_mode: JsonFlag = False,
) -> None:
    """Remove models from this disk."""
    with reported(json_mode):
        from assistant import paths
        from assistant.model_store.remove import cached_bytes, remove

        store, cache = _store(), paths.cache_dir()
        removed: list[dict[str, Any]] = []
        for name in names:
            freed = remove(store, cache, name, downloads)
            removed.append({"name": name, "bytes": freed, "cached_bytes": cached_bytes(store, cache, name)})
        if json_mode:
            emit({"removed": removed})
        else:
            for item in removed:
                say(_farewell(item["name"], item["cached_bytes"]))


def _store() -> ModelStore:
    from assistant.model_store.store import ModelStore

    return ModelStore.default()


def _answered(store: ModelStore, work: Callable[[Alive], T]) -> T:
    """Raises `ModelUnreachable` when the models' disk does not answer, and what `work` raises."""
    from assistant import disk

    try:
        return disk.answered(work)
    except TimeoutError as error:
        raise ModelUnreachable(
            f"{error} that holds the models ({store.models_dir}): look after it (the kernel's log may say more), then"
            " try again"
        ) from None


def _fetcher(quiet: bool) -> tuple[Fetcher, ModelStore]:
    from assistant import paths
    from assistant.model_store.downloads import Downloads
    from assistant.model_store.fetch import Fetcher
    from assistant.model_store.progress import for_stream
    from assistant.model_store.sources import Sources

    store, progress = _store(), for_stream(quiet=quiet)
    return Fetcher(store, Sources(Downloads(paths.cache_dir()), progress), progress=progress), store


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "action": outcome.action,
        "path": outcome.path,
        "bytes": outcome.bytes,
        "requantised": list(outcome.requantised),
        "notes": list(outcome.notes),
    }


def _sentence(outcome: Outcome) -> str:
    what = "ready" if outcome.action == "none" else f"{outcome.action}, ready"
    lines = [f"{outcome.name}: {what} ({size_text(outcome.bytes)})"]
    if count := len(outcome.requantised):
        named = ", ".join(outcome.requantised[:3]) + (", ..." if count > 3 else "")
        lines.append(f"{count} {'tensor' if count == 1 else 'tensors'} requantised: {named}")
    return "\n  ".join([*lines, *outcome.notes])


def _farewell(name: str, cached: int) -> str:
    if not cached:
        return f"{name}: removed"
    return (
        f"{name}: removed; its download stays in the cache ({size_text(cached)}) for the next fetch. "
        f"Remove that too with: assistant models rm {name} --downloads"
    )


def _print_table(found: list[dict[str, Any]]) -> None:
    """Whole cells, one line a model; only the licence, which comes last, is cut to what a terminal has room for."""
    table = [("name", "stage", "engine", "lang", "size", "state")]
    for row in found:
        mark = " *" if row["default"] else " ?" if row["unseen"] else ""
        name, size = row["name"] + mark, size_text(row["bytes"])
        table.append((name, row["stage"], row["engine"], row["language"], size, row["state"]))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    room = None
    if sys.stdout.isatty():
        room = max(10, shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths))
    for cells, licence in zip(table, ["licence", *(row["licence"] for row in found)], strict=True):
        padded = [
            cell.rjust(w) if at == 4 else cell.ljust(w) for at, (cell, w) in enumerate(zip(cells, widths, strict=True))
        ]
        last = textwrap.shorten(licence, room, placeholder="") if room else licence
        print("  ".join([*padded, last]).rstrip())
    print("* needed by the default settings")
    if any(row["unseen"] for row in found):
        print("? never fetched by this project: its digests are what others have published")
