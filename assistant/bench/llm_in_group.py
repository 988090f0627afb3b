"""One prompt to a worker of the LLM stage, all of it inside a memory cgroup: asker, fork server, worker.

    python -m assistant.bench.llm_in_group SPEC.json OUT.json

Started by a shell that has moved itself into the cgroup, so that no page is charged elsewhere. Imports `llm_runs`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from assistant.bench.daemons import ENTER
from assistant.bench.llm_runs import Answered, asking, once, text_of
from assistant.errors import AssistantError
from assistant.machine import lines_of
from assistant.stages.fork_client import ForkServer
from assistant.stages.spec import StageSpec

_TIMEOUT_S = 900


class Order(msgspec.Struct, frozen=True, kw_only=True):
    spec: StageSpec
    characters: int
    """Of the prompt."""
    new_tokens: int
    patience_s: float


class InGroup(msgspec.Struct, frozen=True, kw_only=True):
    answered: Answered | None = None
    faults_per_token: float = 0
    """Major page faults: pages that had to come from the disk."""
    read_mib_per_token: float = 0
    error: str = ""
    """Code of it; empty when it was answered."""
    message: str = ""


def ask(order: Order, procs: Path) -> InGroup:
    """In the cgroup of `procs`. Whatever ends the child is an outcome."""
    with tempfile.TemporaryDirectory(prefix="assistant-group-") as temp:
        given, out = Path(temp, "order.json"), Path(temp, "out.json")
        given.write_bytes(msgspec.json.encode(order, enc_hook=str))
        inside = [sys.executable, "-m", "assistant.bench.llm_in_group", str(given), str(out)]
        command = ["sh", "-c", ENTER, str(procs), *inside]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return InGroup(error="timeout", message=f"no answer within {_TIMEOUT_S} s")
        if out.is_file():
            return msgspec.json.decode(out.read_bytes(), type=InGroup)
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return InGroup(error="ended", message=f"ended with code {done.returncode} {' '.join(said)}".strip())


# --- inside -----------------------------------------------------------------------------------------------------------
def _disk(pid: int) -> tuple[int, int]:
    """Major faults of a process so far, and bytes that it had read from a disk."""
    fields = "".join(lines_of(Path(f"/proc/{pid}/stat"))).rpartition(")")[2].split()
    told = dict(line.split(": ") for line in lines_of(Path(f"/proc/{pid}/io")) if ": " in line)
    return int(fields[9]) if len(fields) > 9 else 0, int(told.get("read_bytes", 0))


async def _asked(order: Order) -> InGroup:
    seen, numbers = list[tuple[int, int]](), list[int]()

    def look(pid: int, number: int) -> None:
        numbers.append(number)
        seen.append(_disk(pid))

    server = ForkServer()
    server.start()
    try:
        answered = await once(
            order.spec,
            server,
            asking(text_of(order.characters), order.new_tokens),
            token=look,
            patience_s=order.patience_s,
        )
    except AssistantError as error:
        return InGroup(error=error.code, message=error.message)
    finally:
        await server.close()
    steps = max(1, numbers[-1] - numbers[0])
    return InGroup(
        answered=answered,
        faults_per_token=round((seen[-1][0] - seen[0][0]) / steps, 1),
        read_mib_per_token=round((seen[-1][1] - seen[0][1]) / steps / (1 << 20), 1),
    )


def _child(given: str, out: str) -> int:
    def path(kind: Any, value: Any) -> Any:
        return Path(value) if kind is Path else value

    order = msgspec.json.decode(Path(given).read_bytes(), type=Order, dec_hook=path)
    Path(out).write_bytes(msgspec.json.encode(asyncio.run(_asked(order))))
    return 0


if __name__ == "__main__":
    sys.exit(_child(*sys.argv[1:]))
