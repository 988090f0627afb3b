"""Machines as small trees of real files, models with nothing in them, and a look at them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from assistant import config, paths
from assistant.doctor.findings import Finding
from assistant.doctor.scene import Places, Scene
from assistant.messages import Stage
from assistant.model_store import manifest as manifests
from assistant.model_store.manifest import FileRecord, Manifest

MIB = 1024 * 1024
QUIET = "audio.enabled=false"
DOCS = Path(__file__).parents[2] / "docs/doctor.md"


def rows() -> dict[str, tuple[str, str, str]]:
    """Level, why and what mends it, by id: the tables of the docs."""
    found = re.findall(r"^\| `([a-z-]+)` \| ([a-z ]+) \| (.+?) \| (.+) \|$", DOCS.read_text("utf-8"), re.MULTILINE)
    return {one: (level, why, mend) for one, level, why, mend in found}


def look(check: Callable[[Scene], Iterable[Finding]], scene: Scene) -> dict[str, Finding]:
    """By id; each with a level that the docs have for it, and with a way to mend it unless all is fine."""
    found = list(check(scene))
    levels = {one: row[0] for one, row in rows().items()}
    for finding in found:
        assert finding.level in levels[finding.id].split(" or "), finding
        assert finding.level == "ok" or finding.fix, finding
    return {finding.id: finding for finding in found}


class Machine:
    """`root` has what was written to it, and nothing else."""

    def __init__(self, folder: Path, memory_mib: int = 1900, available_mib: int = 1500) -> None:
        self.root, self.home = folder / "root", folder / "home"
        self.root.mkdir()
        self.home.mkdir(mode=0o700)
        meminfo = f"MemTotal: {memory_mib * 1024} kB\nMemAvailable: {available_mib * 1024} kB\n"
        self.write({"proc/meminfo": meminfo, "proc/swaps": "Filename Type Size Used Priority\n"})
        self.environ = {"HOME": str(self.home), "PATH": "/nowhere", "XDG_RUNTIME_DIR": str(self.home / "run")}
        self.places = Places(
            runtime=self.home / "run/assistant", state=self.home / "state/assistant",
            cache=self.home / "cache/assistant", models=self.home / "models", config=self.home / "config/assistant",
            catalog=paths.catalog_file(),
        )  # fmt: skip

    def write(self, files: Mapping[str, str]) -> Machine:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + ("" if text.endswith("\n") else "\n"))
        return self

    def scene(self, *sets: str) -> Scene:
        settings = config.load((QUIET, *sets), files=(), environ={})
        return Scene(root=self.root, places=self.places, config=settings, environ=self.environ)

    def model(self, name: str, stage: Stage, engine: str, kind: str = "piper", size: int = 4) -> Path:
        """A model whose manifest is right for a file of 4 bytes, or speaks of a larger one."""
        folder = self.places.models / name
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(b"1234")
        files = manifests.records_of(folder)
        if size != 4:
            files = {"weights": FileRecord(bytes=size, sha256="0" * 64, mtime_ns=0)}
        manifests.write(folder, Manifest(name=name, kind=kind, stage=stage, engine=engine, files=files))
        return folder

    def swap(self, device: str, mib: int, used_mib: int = 0) -> Machine:
        with (self.root / "proc/swaps").open("a") as file:
            file.write(f"{device} partition {mib * 1024} {used_mib * 1024} 100\n")
        return self


@contextlib.contextmanager
def mounted(folder: Path, size: str = "1m") -> Iterator[None]:
    """A real file system of its own in this folder, or the test is skipped."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs to mount file systems")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def as_nobody(code: str, *arguments: str | Path) -> list[list[str]]:
    """Lines that `code`, run as a user without rights or environment, prints, each cut at "|"; skipped but for root."""
    if os.geteuid() != 0:
        pytest.skip("needs root to be somebody else")
    imports, _, rest = code.partition("\n\n")  # the interpreter may lie where nobody else may look
    drop = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)"
    done = subprocess.run(
        [sys.executable, "-c", f"{imports}\n{drop}\n{rest}", *arguments],
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, cwd="/", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return [line.split("|") for line in done.stdout.splitlines()]


def told(stdout: str) -> dict[str, list[dict[str, object]]]:
    """`assistant doctor --json`: findings by id."""
    found: dict[str, list[dict[str, object]]] = {}
    for finding in json.loads(stdout)["findings"]:
        found.setdefault(finding["id"], []).append(finding)
    return found
