"""The kernel's figures: real processes, and cgroup trees as files."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assistant.memory_orchestrator.budget import decide
from assistant.memory_orchestrator.estimate import cache_of, estimate, kv_bytes, slot_tokens, without_kv
from assistant.memory_orchestrator.probe import MIB, Machine, Probe, Sample, Usage


def test_memory_of_a_real_process_is_seen_by_kind(tmp_path: Path) -> None:
    probe = Probe()
    before = probe.usage(os.getpid())
    block = mmap.mmap(-1, 40 * MIB)
    block.write(b"x" * (40 * MIB))
    grown = probe.usage(os.getpid())
    assert 38 * MIB < grown.anon - before.anon < 60 * MIB
    (tmp_path / "weights").write_bytes(b"w" * (20 * MIB))
    with (tmp_path / "weights").open("rb") as file:
        weights = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert weights[:: mmap.PAGESIZE]
    mapped = probe.usage(os.getpid())
    assert 18 * MIB < mapped.file - grown.file < 24 * MIB
    weights.close()
    block.close()


def test_a_spike_between_two_readings_is_not_missed() -> None:
    probe = Probe()
    before = probe.sample(os.getpid())
    block = mmap.mmap(-1, 64 * MIB)
    block.write(b"x" * (64 * MIB))
    block.close()
    after = probe.sample(os.getpid())
    assert after.now.anon < before.now.anon + 40 * MIB
    high = before.rss_peak - before.rss  # an earlier test may have been higher still
    assert after.peak_since(before).anon > before.now.anon + 50 * MIB or high > 64 * MIB


def test_memory_that_grows_between_two_files_of_the_kernel_is_no_spike(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"w" * (128 * MIB))
    code = """
import mmap, sys
blocks = []
with open(sys.argv[1], 'rb') as file:
    for _ in range(40):  # nothing is ever given back
        blocks.append(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ))
print('done', flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code, str(tmp_path / "weights")]
    spikes: list[int] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        while not spikes or Probe().sample(child.pid).rss < 40 * 128 * MIB:
            seen = Probe().sample(child.pid)
            spikes.append(seen.peak_since(Sample()).anon - seen.now.anon)
        child.stdin.close()
    assert max(spikes) < 8 * MIB, f"{len(spikes)} readings, worst {max(spikes) / MIB:.1f} MiB"


def test_what_a_process_has_started_counts_as_its_own() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    inner = f"block = b'x' * {40 * MIB}; print('on', flush=True); import time; time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code, inner], stdout=subprocess.PIPE, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        alone, family = Probe().sample(parent.pid), Probe().family_sample(parent.pid)
        os.killpg(parent.pid, 9)
    assert alone.now.anon < 20 * MIB
    assert family.now.anon > 40 * MIB


def test_a_process_that_has_gone_holds_nothing() -> None:
    assert Probe().usage(2**22 + 1) == Usage()


def tree(root: Path, cgroup: str, files: dict[str, str]) -> Probe:
    for name, text in {
        "proc/self/cgroup": cgroup,
        "proc/meminfo": "MemTotal: 2048000 kB\nMemFree: 100 kB\nMemAvailable: 1024000 kB\n",
        **files,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Probe(root)


@pytest.mark.parametrize(
    ("cgroup", "files", "limit"),
    [
        ("0::/\n", {}, None),
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.max": "max\n"}, None),
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/memory.max": "500\n"}, 500),
        ("0::/a\n", {"sys/fs/cgroup/a/memory.max": "900\n", "sys/fs/cgroup/a/memory.stat": "anon 7\nfile 9\n"}, 900),
        ("4:memory:/x\n", {"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "700\n"}, 700),
        ("4:cpu,memory:/x\n", {"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("garbage\n", {}, None),
    ],
)
def test_the_tightest_cgroup_limit_on_the_way_up_counts(
    tmp_path: Path, cgroup: str, files: dict[str, str], limit: int | None
) -> None:
    machine = tree(tmp_path, cgroup, files).machine()
    assert machine.cgroup_limit == limit
    assert (machine.total, machine.available) == (2048000 * 1024, 1024000 * 1024)
    assert machine.cgroup_left == (limit or 0)


MACHINE = Machine(total=2000 * MIB, available=1500 * MIB, cgroup_limit=None)


@pytest.mark.parametrize(
    ("machine", "ours", "configured", "total", "source"),
    [
        (MACHINE, 0, 0, 1500, "machine"),
        # what we hold ourselves is not held by others
        (MACHINE, 200, 0, 1700, "machine"),
        (MACHINE, 0, 900, 900, "configured"),
        (MACHINE, 0, 5000, 1500, "machine"),
        (Machine(2000 * MIB, 1500 * MIB, 800 * MIB, 800 * MIB), 0, 900, 800, "cgroup"),
        # of 150 MiB that the cgroup is charged with, 50 are ours
        (Machine(2000 * MIB, 1500 * MIB, 800 * MIB, 650 * MIB), 50, 900, 700, "cgroup"),
    ],
)
def test_the_budget_is_the_smallest_of_three(
    machine: Machine, ours: int, configured: int, total: int, source: str
) -> None:
    budget = decide(machine, ours * MIB, configured_mib=configured, margin_mib=300)
    assert (budget.total // MIB, budget.source) == (total, source)
    assert budget.usable == budget.total - budget.margin


def test_a_margin_larger_than_the_budget_leaves_nothing_rather_than_less() -> None:
    assert decide(MACHINE, 0, configured_mib=100, margin_mib=300).usable == 0


def test_the_key_value_formula_against_known_figures() -> None:
    # Qwen1.5-1.8B, fp32, 512 tokens: 24 layers x 2 x 2048 x 4 B = 384 KiB a token
    assert kv_bytes({"layers": 24, "kv_heads": 16, "head_dim": 128}, 512, 1) == 384 * 1024 * 512
    assert kv_bytes({"layers": 30, "kv_heads": 3, "head_dim": 64}, 1024, 2) == 2 * 30 * 3 * 64 * 4 * 1024 * 2


def test_a_cache_holds_no_more_than_the_model_can_use() -> None:
    shape = {"layers": 30, "kv_heads": 3, "head_dim": 64, "max_position": 512}
    assert cache_of(shape, 2048, 2) == (512, 2 * 30 * 3 * 64 * 4, 2 * 30 * 3 * 64 * 4 * 576 * 2, 120)
    assert cache_of(None, 2048, 2) == (2048, 0, 0, 0)


def test_a_measured_peak_replaces_the_guess_and_the_cache_of_keys_and_values_is_promised_whole() -> None:
    guess = estimate("llm", "mnn", 100 * MIB)
    known = estimate("llm", "mnn", 100 * MIB, measured=Usage(anon=40 * MIB, file=140 * MIB))
    assert guess.usage.total > known.usage.total
    assert 180 * MIB <= known.usage.total <= 198 * MIB
    for home, anon, file in (("memory", 1.05, 0), ("disk", 0.05, 1), ("heap", 1.15, 0)):
        with_kv = estimate("llm", "mnn", 100 * MIB, 45 * MIB, Usage(40 * MIB, 140 * MIB), home)  # type: ignore[arg-type]
        assert with_kv.anon - known.anon == pytest.approx(anon * 45 * MIB, abs=2)
        assert with_kv.file - known.file == file * 45 * MIB
        assert with_kv.kv == 45 * MIB


def test_room_for_keys_is_made_in_steps_ahead_of_the_tokens() -> None:
    assert [slot_tokens(tokens) for tokens in (0, 1, 64, 512, 1000, 1024)] == [64, 128, 128, 576, 1088, 1088]


def test_what_is_learned_is_free_of_the_keys_and_values_of_that_day() -> None:
    token = 46080  # the embedded model's
    short, long = Usage(33 * MIB, 137 * MIB, 5 * MIB), Usage(72 * MIB, 137 * MIB, 42 * MIB)
    assert all(27 * MIB < without_kv(usage, 0).anon < 30 * MIB for usage in (short, long))
    on_heap = Usage(83 * MIB, 137 * MIB)
    assert 26 * MIB < without_kv(on_heap, 1088 * token, "heap").anon < 34 * MIB
    assert without_kv(on_heap, 10**9, "heap").anon == 0
    on_disk = Usage(30 * MIB, 179 * MIB)
    assert without_kv(on_disk, 960 * token, "disk").file == pytest.approx(137 * MIB, abs=MIB)


@pytest.mark.parametrize(
    ("machine", "configured", "margin", "note"),
    [
        (Machine(1792 * MIB, 1792 * MIB, None), 0, 300, ""),
        (Machine(4096 * MIB, 4096 * MIB, None), 500, 300, ""),  # a budget that was set does not make a machine small
        (Machine(896 * MIB, 896 * MIB, None), 0, 150, " (300 * 896/1792, as the machine has 896 MiB)"),
        (Machine(4096 * MIB, 4096 * MIB, 448 * MIB, 448 * MIB), 0, 75, " (300 * 448/1792, as the machine has 448 MiB)"),
        # what others hold does not make it smaller either
        (Machine(1792 * MIB, 500 * MIB, None), 0, 300, ""),
    ],
)
def test_the_margin_is_smaller_in_proportion_on_machines_below_two_gigabytes(
    machine: Machine, configured: int, margin: int, note: str
) -> None:
    budget = decide(machine, 0, configured_mib=configured, margin_mib=300)
    assert (budget.margin // MIB, budget.margin_note) == (margin, note)


@pytest.mark.parametrize(
    ("machine", "ours", "configured", "others"),
    [
        (MACHINE, 0, 0, 500),
        (MACHINE, 200, 0, 300),
        (MACHINE, 0, 900, 0),
        (MACHINE, 0, 1800, 300),
        (Machine(2000 * MIB, 1500 * MIB, 800 * MIB, 650 * MIB), 50, 0, 100),
    ],
)
def test_what_others_hold_of_what_could_be_ours(machine: Machine, ours: int, configured: int, others: int) -> None:
    assert decide(machine, ours * MIB, configured_mib=configured, margin_mib=300).others == others * MIB


V1, V2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("cgroup", "files", "limit", "left"),
    [
        # of version 1, what its descendants hold counts too, and page cache does not
        (
            "4:memory:/x\n",
            {
                f"{V1}/x/memory.limit_in_bytes": "700\n",
                f"{V1}/x/memory.usage_in_bytes": "500\n",
                f"{V1}/x/memory.stat": "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n",
            },
            700, 350,
        ),
        # files in memory (tmpfs) are charged and are no cache that could be dropped: they are not in the *_file lists
        (
            "0::/a\n",
            {
                f"{V2}/a/memory.max": "900\n", f"{V2}/a/memory.current": "600\n",
                f"{V2}/a/memory.stat": "anon 7\nfile 500\nshmem 400\ninactive_file 60\nactive_file 40\n",
            },
            900, 400,
        ),
        # a sibling has used up what is above us: the larger limit is the one that binds
        (
            "0::/a/b\n",
            {
                f"{V2}/a/b/memory.max": "300\n", f"{V2}/a/b/memory.current": "10\n",
                f"{V2}/a/memory.max": "400\n", f"{V2}/a/memory.current": "390\n",
            },
            300, 10,
        ),
        ("0::/a\n", {f"{V2}/a/memory.max": "100\n", f"{V2}/a/memory.current": "500\n"}, 100, 0),
    ],
)  # fmt: skip
def test_what_is_left_below_the_limit_that_leaves_the_least(
    tmp_path: Path, cgroup: str, files: dict[str, str], limit: int, left: int
) -> None:
    machine = tree(tmp_path, cgroup, files).machine()
    assert (machine.cgroup_limit, machine.cgroup_left) == (limit, left)


def test_the_budget_of_a_cgroup_is_what_is_left_and_what_we_hold() -> None:
    machine = Machine(2000 * MIB, 1500 * MIB, cgroup_limit=800 * MIB, cgroup_left=500 * MIB)
    assert decide(machine, 200 * MIB, configured_mib=0, margin_mib=0).total == 700 * MIB
    assert decide(machine, 400 * MIB, configured_mib=0, margin_mib=0).total == 800 * MIB


def test_a_margin_larger_than_the_machine_can_never_be_kept_whoever_holds_what() -> None:
    budget = decide(MACHINE, 0, configured_mib=0, margin_mib=5000)
    assert (budget.usable, budget.taken) == (0, 0)
    assert decide(MACHINE, 0, configured_mib=0, margin_mib=1800).taken == 200 * MIB
    assert decide(MACHINE, 0, configured_mib=0, margin_mib=300).taken == 500 * MIB
