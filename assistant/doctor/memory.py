"""Memory, its limits, swap, huge pages. Reads small files of the kernel; imports `memory_orchestrator`'s arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from assistant.doctor.findings import Finding
from assistant.doctor.models import Wanted, wanted
from assistant.doctor.scene import BOARD, MIB, Scene, mib
from assistant.machine import lines_of, number_of
from assistant.memory_orchestrator import budget as budgets
from assistant.memory_orchestrator.estimate import cache_of, estimate
from assistant.memory_orchestrator.policy import FILE_SHARE
from assistant.memory_orchestrator.probe import Probe
from assistant.messages import KvHome, Stage
from assistant.model_store import manifest as manifests
from assistant.paths import UNIT
from assistant.stages.kv_files import home_of

_BASE = 60 * MIB
"""What the daemon and its fork server hold, sound included."""
_LEAST_ZRAM, _MOST_ZRAM = 0.25, 1.0
"""Of the memory."""
_SWAP_FULL = 0.8
_ZRAM = (
    "sudo apt install zram-tools && printf 'ALGO=lz4\\nPERCENT=50\\n' | sudo tee /etc/default/zramswap"
    " && sudo systemctl restart zramswap"
)


# --- the budget -----------------------------------------------------------------------------------------------------
def look_at_memory(scene: Scene) -> Iterator[Finding]:
    """The budget with what the machine has, its cgroup allows and others hold now; a daemon that runs counts there."""
    settings, machine = scene.config.memory, Probe(scene.root).machine()
    budget = budgets.decide(machine, 0, configured_mib=settings.budget_mib, margin_mib=settings.margin_mib)
    limit = "no cgroup limit" if machine.cgroup_limit is None else f"cgroup limit {mib(machine.cgroup_limit)}"
    facts = (
        f"{mib(machine.total)} of memory, {mib(machine.available)} available, {limit};"
        f" usable {mib(budget.usable)} after a margin of {mib(budget.margin)} (decided by: {budget.source})"
    )
    room = budget.usable - _BASE
    most = room + budget.taken
    costs = {one.stage: _cost(scene, one, most, squeezable=settings.budget_mib <= 0) for one in wanted(scene.config)}
    stage, cost = max(costs.items(), key=lambda pair: pair[1], default=(Stage.LLM, 0))
    if cost > most:
        yield Finding(
            "memory-too-small", "problem",
            f"stage {stage} needs about {mib(cost)}, and {mib(most)} would be usable if other programs held nothing;"
            f" {facts}",
            _larger(budget.source, stage),
        )  # fmt: skip
    elif cost > room:
        yield Finding(
            "memory-taken", "advice",
            f"stage {stage} needs about {mib(cost)}, and other programs (or a running daemon) leave {mib(room)};"
            f" {facts}",
            "ps -eo rss,pid,comm --sort=-rss | head",
        )  # fmt: skip
    else:
        yield Finding("memory", "ok", facts)
    yield from _groups(scene)


def _larger(source: str, stage: Stage) -> str:
    if source == "configured":
        return "set memory.budget_mib = 0 (find out) or to more in config.toml"
    if source == "cgroup":
        return f"systemctl set-property {UNIT} MemoryMax=1500M (or --memory 1500m of the container)"
    return f"assistant models list, and a smaller one as stages.{stage}.model in config.toml"


def _cost(scene: Scene, one: Wanted, most: int, *, squeezable: bool) -> int:
    """The stage's peak as the memory orchestrator guesses it; 0 for a model that is not here."""
    folder = scene.places.models / one.model
    manifest = manifests.read(folder)
    if manifest is None:
        return 0
    kv = 0
    home: KvHome = "memory"
    if one.stage is Stage.LLM:
        llm = scene.config.stages.llm
        cache = cache_of(manifest.shape, llm.context_tokens, llm.slots)
        disk, shared = scene.places.cache / one.engine, scene.root / "dev/shm"
        kv = cache.bytes
        home, _ = home_of(llm.kv_cache, kv, disk, shared, files=cache.files)
    need = estimate(one.stage, one.engine, manifest.bytes, kv, kv_home=home)
    if need.usage.total > most and squeezable:
        return int(need.anon + need.file * FILE_SHARE)
    return need.usage.total


def _groups(scene: Scene) -> Iterator[Finding]:
    """Raspberry Pi OS starts with the memory controller switched off."""
    for line in lines_of(scene.root / "proc/cgroups"):
        name, *fields = line.split() or [""]
        if name == "memory" and fields[-1:] == ["0"]:
            yield Finding(
                "memory-group-off", "advice", "/proc/cgroups says that the memory controller is off",
                scene.command_line_fix("cgroup_enable=memory"),
            )  # fmt: skip


# --- swap -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Swap:
    name: str
    size: int
    """Bytes, as the next."""
    used: int

    @property
    def zram(self) -> bool:
        return self.name.startswith("/dev/zram")


def swaps(scene: Scene) -> list[Swap]:
    """/proc/swaps: a header, then path, type, KiB, KiB used, priority."""
    rows = [line.split() for line in lines_of(scene.root / "proc/swaps")[1:]]
    return [
        Swap(row[0], int(row[2]) * 1024, int(row[3]) * 1024)
        for row in rows
        if len(row) >= 4 and row[2].isdigit() and row[3].isdigit()
    ]


def look_at_swap(scene: Scene) -> Iterator[Finding]:
    found = swaps(scene)
    total = Probe(scene.root).machine().total
    troubles = [*_troubles(scene, found, total)]
    yield from troubles
    if not troubles:
        told = ", ".join(f"{one.name} {mib(one.size)} ({mib(one.used)} used)" for one in found)
        yield Finding("swap", "ok", told or f"none, which is fine with {mib(total)} of memory")


def _troubles(scene: Scene, found: list[Swap], total: int) -> Iterator[Finding]:
    size, used = sum(one.size for one in found), sum(one.used for one in found)
    if size and used > size * _SWAP_FULL:
        yield Finding("swap-full", "advice", f"{mib(used)} of {mib(size)} of swap are used", "assistant unload")
    if total > BOARD:
        return
    zram = [one for one in found if one.zram]
    if not found:
        yield Finding(
            "swap-missing",
            "advice",
            f"no swap; with {mib(total)} of memory, {mib(total // 2)} of zram are right",
            _ZRAM,
        )
    elif not zram:
        names = ", ".join(one.name for one in found)
        yield Finding("swap-on-disk", "advice", f"swap lies on {names} alone", _ZRAM)
    for one in zram:
        yield from _zram(scene, one, total)


def _zram(scene: Scene, one: Swap, total: int) -> Iterator[Finding]:
    settings = scene.root / "sys/block" / one.name.rpartition("/")[2]
    algorithms = "".join(lines_of(settings / "comp_algorithm"))
    chosen = algorithms.partition("[")[2].partition("]")[0]
    if chosen and chosen != "lz4":
        yield Finding("zram-algorithm", "advice", f"{one.name} compresses with {chosen}", _ZRAM)
    size = number_of(settings / "disksize") or one.size
    if not total * _LEAST_ZRAM <= size <= total * _MOST_ZRAM:
        yield Finding(
            "zram-size", "advice",
            f"{one.name} has {mib(size)}; with {mib(total)} of memory, {mib(total // 2)} are right", _ZRAM,
        )  # fmt: skip


# --- huge pages -----------------------------------------------------------------------------------------------------
def look_at_huge_pages(scene: Scene) -> Iterator[Finding]:
    file = "sys/kernel/mm/transparent_hugepage/enabled"
    told = "".join(lines_of(scene.root / file))
    chosen = told.partition("[")[2].partition("]")[0]
    if chosen == "always" and Probe(scene.root).machine().total <= 2 * BOARD:
        yield Finding(
            "huge-pages-always", "advice", "transparent huge pages are used for everything (always)",
            f"echo madvise | sudo tee /{file}",
        )  # fmt: skip
    else:
        yield Finding("huge-pages", "ok", f"transparent huge pages: {chosen or 'the kernel has none'}")
