"""The text of the systemd unit: what it says for which facts, what systemd thinks of it, and the ledger below it."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from assistant import config
from assistant.memory_orchestrator.budget import decide
from assistant.memory_orchestrator.probe import MIB, Machine
from assistant.service_unit import ANYWHERE, MARKER, Facts, is_ours, memory_limits, quoted, reach_of, unit
from tests.lacking import lacks

PYTHON = Path("/usr/bin/python3")
ANALYZE = shutil.which("systemd-analyze")
HOMES = {"XDG_STATE_HOME": Path("/home/a/.local/state"), "XDG_DATA_HOME": Path("/home/a/my data/50%")}


class Unit(configparser.RawConfigParser):
    """As systemd reads it, except that of a key that comes twice the lines are joined."""

    def __init__(self, text: str) -> None:
        super().__init__(delimiters=("=",), comment_prefixes=("#",), strict=False)
        self.optionxform = str  # type: ignore[assignment,method-assign]
        self.text = text
        self.read_string(text)

    def all(self, key: str) -> list[str]:
        return re.findall(rf"^{key}=(.*)$", self.text, re.MULTILINE)


def made(system: bool = True, **facts: object) -> Unit:
    return Unit(unit(Facts(system=system, python=PYTHON, **facts)))  # type: ignore[arg-type]


@pytest.mark.parametrize("system", [True, False])
def test_the_service_is_watched_and_locked_in(system: bool) -> None:
    one = made(system, homes={} if system else HOMES)
    service = one["Service"]
    wanted = {
        "Type": "notify", "NotifyAccess": "main", "OOMPolicy": "continue", "KillMode": "mixed", "Delegate": "no",
        "Restart": "on-failure", "RuntimeDirectory": "assistant", "RuntimeDirectoryMode": "0700",
        "CacheDirectoryMode": "0700", "UMask": "0077", "NoNewPrivileges": "yes", "ProtectSystem": "strict",
        "PrivateTmp": "yes", "RestrictAddressFamilies": "AF_UNIX", "WatchdogSec": "30",
    }  # fmt: skip
    assert {key: service[key] for key in wanted} == wanted
    assert service["ExecStart"] == "/usr/bin/python3 -P -m assistant.service"
    assert service["ProtectHome"] == ("yes" if system else "read-only")
    assert one["Install"]["WantedBy"] == ("multi-user.target" if system else "default.target")
    assert ("StateDirectory" in service, "User" in service, "DeviceAllow" in service) == (system,) * 3
    assert "MemoryDenyWriteExecute" not in service
    assert is_ours(one.text.splitlines())
    assert not is_ours([f"{MARKER} not", "x"])
    earlier = "which may overwrite it; put changes into 'systemctl edit assistant'."
    assert is_ours([f"# Written by 'assistant install-service', {earlier}\n", "x\n"])


def test_the_system_finds_its_folders_where_systemd_makes_them() -> None:
    variables = made().all("Environment")
    assert "XDG_RUNTIME_DIR=%t" in variables
    assert "XDG_CACHE_HOME=%C" in variables
    assert {f"XDG_{one}_HOME=%S" for one in ("STATE", "DATA", "CONFIG")} <= set(variables)


def test_a_user_keeps_the_folders_of_the_command_line() -> None:
    one = made(False, homes=HOMES, code=Path("/home/a/code"))
    assert "XDG_DATA_HOME=/home/a/my data/50%%" in [text.strip('"') for text in one.all("Environment")]
    assert "PYTHONPATH=/home/a/code" in one.all("Environment")
    assert one.all("ReadWritePaths") == ["-/home/a/.local/state/assistant"]
    assert one.all("BindReadOnlyPaths") == []


def test_what_lies_in_a_home_is_shown_to_the_system_and_nothing_else() -> None:
    reads = (Path("/home/pi/venv"), Path("/usr"), Path("/home/pi/venv/lib"), Path("/root/a b"), Path("/srv/x"))
    one = made(reads=reads)
    assert one["Service"]["ProtectHome"] == "tmpfs"
    assert one.all("BindReadOnlyPaths") == ["-/home/pi/venv", '"-/root/a b"']
    assert made(False, reads=(*reads, Path("/tmp/x"))).all("BindReadOnlyPaths") == ["-/tmp/x"]


@pytest.mark.parametrize(
    ("sets", "reach"),
    [
        ([], ()),
        (["wyoming.uri=tcp://127.0.0.1:1", "metrics.port=99"], ()),  # both are off
        (["wyoming.enabled=true"], ("localhost",)),
        (["wyoming.enabled=true", "wyoming.uri=unix:///run/x/w"], ()),
        (["metrics.enabled=true", "wyoming.enabled=true"], ("localhost",)),
        (["api.tcp=tcp://0.0.0.0:5123"], (ANYWHERE,)),
        (["api.tcp=tcp://127.0.0.1:5123"], ("localhost",)),
        (["api.tcp=tcp://[::1]:5123"], ("localhost",)),
        (["stages.asr.engine=wyoming", "stages.asr.uri=tcp://192.0.2.7:10300"], ("192.0.2.7",)),
        (["stages.tts.engine=wyoming", "stages.tts.uri=tcp://speaker.lan:1"], (ANYWHERE,)),
        (["stages.llm.engine=openai"], ("localhost",)),
        (["stages.llm.engine=openai", "stages.llm.url=https://[2001:db8::1]:8/v1"], ("2001:db8::1",)),
    ],
)  # fmt: skip
def test_only_whom_the_settings_name_is_spoken_with(sets: list[str], reach: tuple[str, ...]) -> None:
    found = reach_of(config.load(sets, files=(), environ={}))
    assert found == reach
    service = made(reach=found)["Service"]
    assert service.get("IPAddressDeny") == (None if ANYWHERE in reach else "any")
    assert service.get("PrivateNetwork") == (None if reach else "yes")
    assert service.get("IPAddressAllow") == (" ".join(reach) if reach and ANYWHERE not in reach else None)


@pytest.mark.parametrize("total_mib", [460, 920, 1850, 3800, 7900, 32000])
@pytest.mark.parametrize("budget_mib", [0, 400, 700, 1500, 3000])
@pytest.mark.parametrize("others_mib", [150, 300])
def test_the_ledger_decides_as_it_would_without_a_unit(total_mib: int, budget_mib: int, others_mib: int) -> None:
    """What others hold is outside of our cgroup, in which the kernel itself takes a little."""
    total, kernel = total_mib * MIB, 30 * MIB
    limits = memory_limits(total, budget_mib, 300)
    alone = Machine(total=total, available=total - others_mib * MIB)
    inside = Machine(total, alone.available, cgroup_limit=limits.most, cgroup_left=limits.most - kernel)
    free, bound = (decide(one, 0, configured_mib=budget_mib, margin_mib=300) for one in (alone, inside))
    assert bound.margin == free.margin
    assert bound.usable == free.usable
    # nothing that the ledger hands out is slowed down, and a leak is before it is killed
    assert bound.usable < limits.high < limits.most <= total
    if budget_mib:
        assert limits.high <= (budget_mib + 64) * MIB


@pytest.mark.parametrize(
    ("text", "word"),
    [("/a/b", "/a/b"), ("a b", '"a b"'), ("", '""'), ('a"\\', '"a\\"\\\\"'), ("5%", "5%%"), ("a\nb", '"a\\x0ab"'),
     ("ä", '"ä"'), ("a:b", '"a:b"'), ("#;", '"#;"')],
)  # fmt: skip
def test_words_are_quoted_where_they_must_be(text: str, word: str) -> None:
    assert quoted(text) == word


def test_a_setting_keeps_its_dollars() -> None:
    one = made(sets=("stages.llm.system_prompt=Say $HOME and ${X}, 5% of it.",))
    assert one["Service"]["ExecStart"].endswith('--set "stages.llm.system_prompt=Say $$HOME and $${X}, 5%% of it."')


@pytest.mark.parametrize(("system", "most"), [(True, 15), (False, 60)])
def test_systemd_takes_it_and_finds_it_tight(tmp_path: Path, system: bool, most: int) -> None:
    """`most`: exposure times ten, from 0 (safe) to 100. What devices and addresses a user's manager cannot deny, it
    counts as exposed."""
    if ANALYZE is None:
        lacks("systemd", "systemd-analyze is not installed")
    path = tmp_path / "voice-test.service"
    reads = (tmp_path / "a b",)
    path.write_text(made(system, homes=HOMES, reads=reads, sets=("house.names=a b, c",)).text)
    scope = [] if system else ["--user"]
    environ = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    for command in (["verify", *scope], ["security", *scope, "--offline=true", f"--threshold={most}", "--no-pager"]):
        done = subprocess.run(
            [ANALYZE, *command, str(path)], capture_output=True, text=True, env=environ, timeout=15, check=False
        )
        if "Operation not permitted" in done.stderr or "Failed to initialize manager" in done.stderr:
            pytest.skip("systemd-analyze cannot work here: " + done.stderr.strip().splitlines()[-1])
        assert done.returncode == 0, done.stdout[-500:] + done.stderr
        assert command[0] == "security" or done.stderr == ""
