"""Memory, limits, swap, huge pages: on trees of real files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from assistant.doctor.memory import look_at_huge_pages, look_at_memory, look_at_swap
from assistant.messages import Stage
from assistant.model_store import manifest as manifests
from tests.doctor.machines import MIB, Machine, look

V2 = {"proc/self/cgroup": "0::/box\n", "sys/fs/cgroup/box/memory.current": "0", "sys/fs/cgroup/box/memory.stat": ""}
V1 = {"proc/self/cgroup": "4:memory:/box\n", "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "0"}
LLM = "stages.llm.model=one"


def test_a_machine_with_room_tells_its_figures(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.model("one", Stage.LLM, "mnn", size=100 * MIB)
    found = look(look_at_memory, machine.scene(LLM))["memory"].found
    assert "1,900 MiB of memory" in found
    assert "usable 1,200 MiB after a margin of 300 MiB" in found
    assert "no cgroup limit" in found


@pytest.mark.parametrize(
    "limited",
    [
        {**V2, "sys/fs/cgroup/box/memory.max": str(700 * MIB)},
        {**V1, "sys/fs/cgroup/memory/box/memory.limit_in_bytes": str(700 * MIB)},
    ],
    ids=["v2", "v1"],
)
def test_a_limit_that_no_stage_fits_into_names_the_limit(tmp_path: Path, limited: dict[str, str]) -> None:
    machine = Machine(tmp_path).write(limited)
    assert "cgroup limit 700 MiB" in look(look_at_memory, machine.scene())["memory"].found
    machine.model("one", Stage.TTS, "piper", size=300 * MIB)
    finding = look(look_at_memory, machine.scene("stages.tts.model=one"))["memory-too-small"]
    assert "stage tts needs about 868 MiB" in finding.found
    assert "MemoryMax" in finding.fix


def test_mapped_weights_are_squeezed_unless_a_budget_was_set(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.model("one", Stage.LLM, "mnn", size=1500 * MIB)
    assert "memory" in look(look_at_memory, machine.scene(LLM))
    finding = look(look_at_memory, machine.scene(LLM, "memory.budget_mib=1500"))["memory-too-small"]
    assert "memory.budget_mib" in finding.fix


def test_keys_and_values_count_where_the_daemon_would_put_them(tmp_path: Path) -> None:
    """What lies on a disk can be squeezed: 4160 tokens of 384 KiB."""
    machine = Machine(tmp_path)
    folder = machine.model("one", Stage.LLM, "mnn")
    shape = {"layers": 24, "kv_heads": 16, "head_dim": 128, "max_position": 4096}
    manifest = manifests.read(folder)
    assert manifest is not None
    manifests.write(folder, msgspec.structs.replace(manifest, shape=shape))
    large = (LLM, "stages.llm.context_tokens=8192", "stages.llm.slots=1")
    assert "memory" in look(look_at_memory, machine.scene(*large))
    in_memory = look(look_at_memory, machine.scene(*large, "stages.llm.kv_cache=memory"))["memory-too-small"]
    assert "stage llm needs about 1,7" in in_memory.found


def test_a_machine_that_is_too_small_is_told_to_take_a_smaller_model(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 400, 300)
    machine.model("one", Stage.TTS, "piper", size=200 * MIB)
    finding = look(look_at_memory, machine.scene("stages.tts.model=one"))["memory-too-small"]
    assert "stages.tts.model" in finding.fix


def test_memory_that_others_hold_is_advice(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1900, 600)
    machine.model("one", Stage.TTS, "piper", size=200 * MIB)
    assert "memory-taken" in look(look_at_memory, machine.scene("stages.tts.model=one"))


def test_a_memory_controller_that_is_off_is_switched_on_where_this_board_does_that(tmp_path: Path) -> None:
    machine = Machine(tmp_path).write({"proc/cgroups": "#subsys_name hierarchy num_cgroups enabled\nmemory 0 30 0\n"})
    assert "boot loader" in look(look_at_memory, machine.scene())["memory-group-off"].fix
    machine.write({"etc/default/grub": ""})
    assert "update-grub" in look(look_at_memory, machine.scene())["memory-group-off"].fix
    machine.write({"boot/firmware/cmdline.txt": "console=tty1"})
    fix = look(look_at_memory, machine.scene())["memory-group-off"].fix
    assert "cgroup_enable=memory" in fix
    assert "/boot/firmware/cmdline.txt" in fix
    machine.write({"proc/cgroups": "#subsys_name hierarchy num_cgroups enabled\nmemory 0 30 1\n"})
    assert "memory-group-off" not in look(look_at_memory, machine.scene())


# --- swap -----------------------------------------------------------------------------------------------------------
def zram(algorithms: str, mib: int) -> dict[str, str]:
    return {"sys/block/zram0/comp_algorithm": algorithms, "sys/block/zram0/disksize": str(mib * MIB)}


def test_a_board_without_swap_is_advised_to_half_its_memory_of_zram(tmp_path: Path) -> None:
    finding = look(look_at_swap, Machine(tmp_path).scene())["swap-missing"]
    assert "950 MiB of zram" in finding.found
    assert "ALGO=lz4" in finding.fix


def test_a_large_machine_needs_none(tmp_path: Path) -> None:
    assert [*look(look_at_swap, Machine(tmp_path, 16_000, 9_000).scene())] == ["swap"]


def test_swap_on_a_card_alone_is_slow(tmp_path: Path) -> None:
    machine = Machine(tmp_path).swap("/var/swap", 200)
    assert "/var/swap" in look(look_at_swap, machine.scene())["swap-on-disk"].found
    machine.swap("/dev/zram0", 900).write(zram("lzo [lz4] zstd", 900))
    assert "/dev/zram0 900 MiB" in look(look_at_swap, machine.scene())["swap"].found


@pytest.mark.parametrize(
    ("algorithms", "mib", "ids"),
    [
        ("[lzo-rle] lz4 zstd", 900, ["zram-algorithm"]),
        ("lzo [lz4]", 200, ["zram-size"]),
        ("lzo [lz4]", 3000, ["zram-size"]),
        ("lz4 [zstd]", 100, ["zram-algorithm", "zram-size"]),
    ],
)
def test_zram_that_is_set_up_badly(tmp_path: Path, algorithms: str, mib: int, ids: list[str]) -> None:
    machine = Machine(tmp_path).swap("/dev/zram0", mib).write(zram(algorithms, mib))
    assert [*look(look_at_swap, machine.scene())] == ids


def test_swap_that_is_full_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path).swap("/dev/zram0", 900, 850).write(zram("[lz4]", 900))
    assert "850 MiB of 900 MiB" in look(look_at_swap, machine.scene())["swap-full"].found


@pytest.mark.parametrize("text", ["", "nonsense", "a b\nc\n/dev/x partition many few -1\n"])
def test_what_cannot_be_read_is_no_swap(tmp_path: Path, text: str) -> None:
    assert "swap-missing" in look(look_at_swap, Machine(tmp_path).write({"proc/swaps": text}).scene())


# --- huge pages -----------------------------------------------------------------------------------------------------
HUGE = "sys/kernel/mm/transparent_hugepage/enabled"


def test_huge_pages_everywhere_are_advised_against_on_a_small_machine(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert "none" in look(look_at_huge_pages, machine.scene())["huge-pages"].found
    machine.write({HUGE: "always [madvise] never"})
    assert "madvise" in look(look_at_huge_pages, machine.scene())["huge-pages"].found
    machine.write({HUGE: "[always] madvise never"})
    assert f"/{HUGE}" in look(look_at_huge_pages, machine.scene())["huge-pages-always"].fix
