"""The one door to MNN in this room: its converter, and its chat templates. Kept quiet. Imports `errors`.

The converter is the extension module `_tools`, called directly. Never `MNN.tools`: its modules install a telemetry
package through pip when they are imported. `_tools` writes to C's stdout, and always says that it has succeeded.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from assistant.errors import ModelError


@contextmanager
def silent_stdout() -> Iterator[None]:
    """File descriptor 1 leads nowhere inside; for the whole process, so not for use among threads that print."""
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        saved = os.dup(1) if nowhere != 1 else -1  # 1 itself when the process was started without a stdout
        os.dup2(nowhere, 1)
        try:
            yield
        finally:
            libc.fflush(None)  # what C has buffered must not appear later
            if saved >= 0:
                os.dup2(saved, 1)
                os.close(saved)
    finally:
        os.close(nowhere)


def json_to_mnn(graph: Path, out: Path) -> None:
    """Translates a graph in JSON to MNN's binary form. Raises `ModelError` when nothing was written."""
    _convert("JSON", graph, out)


def onnx_to_mnn(graph: Path, out: Path, bits: int, block: int) -> None:
    """With weights of `bits` bits in blocks of `block`. Raises `ModelError` when nothing was written."""
    weights = ["--weightQuantBits", str(bits), "--weightQuantBlock", str(block)]
    _convert("ONNX", graph, out, *weights, "--bizCode", "intents")


def _convert(kind: str, graph: Path, out: Path, *more: str) -> None:
    out.unlink(missing_ok=True)
    with silent_stdout():
        import _tools

        _tools.mnnconvert(["mnnconvert", "-f", kind, "--modelFile", str(graph), "--MNNModel", str(out), *more])
    if not out.is_file() or out.stat().st_size == 0:
        raise ModelError(f"MNN wrote no graph to {out}; is the installed MNN the pinned version?")


def rendered(config: Path, conversations: Sequence[Sequence[tuple[str, str]]]) -> list[str]:
    """(role, content) turns as the chat template of the directory of `config` writes them, ready for an answer.

    Needs the tokenizer alone: MNN reads it first, and keeps it when it then refuses the graph. Not for a process that
    has more to do: MNN may crash on what a template says.
    """
    import MNN.llm

    llm = MNN.llm.create(str(config))
    llm._c_obj.load()
    turns = [[{"role": role, "content": content} for role, content in talk] for talk in conversations]
    return [str(llm.apply_chat_template(talk)) for talk in turns]
