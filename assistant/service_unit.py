"""The text of the systemd unit, from facts: pure. Imports `config` and the arithmetic of the memory budget alone.

What the sandbox leaves out was tried, not guessed: a daemon that answers with every stage uses no call outside of
@system-service, and none of @privileged; of @resources it needs niceness and CPUs of its workers. Memory that is
written and then executed cannot be forbidden: soundfile and sounddevice make their callbacks there (cffi).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from assistant.config import Config
from assistant.config_checks import tcp_address
from assistant.memory_orchestrator.budget import FULL_MARGIN_FROM, decide
from assistant.memory_orchestrator.probe import MIB, Machine

MARKER = "# Written by 'assistant install-service', which may overwrite it; changes: systemctl [--user] edit assistant"
_MARKERS = (
    MARKER,
    "# Written by 'assistant install-service', which may overwrite it; put changes into 'systemctl edit assistant'.",
)
"""With that of earlier versions: their units are ours, too."""

ANYWHERE = "any"
_HIDDEN_BY_HOME = ("/home", "/root", "/run/user")
_HIDDEN_BY_TMP = ("/tmp", "/var/tmp")  # noqa: S108 - nothing is made there: what lies there is shown to the service
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=,@[]%")
_CONTROL_SLACK = 64 * MIB
"""What the kernel charges to us beside what the ledger counts: page tables, sockets, pipes."""
_OTHERS = 96 * MIB
"""That other programs hold on the emptiest system; the kernel holds more before it tells MemTotal."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Of the machine, the installation and the settings."""

    system: bool
    """For the whole machine, or for one user's session."""
    python: Path
    """The interpreter, of the virtual environment if it is one."""
    code: Path | None = None
    """Where the package is found, if the interpreter does not know by itself."""
    sets: tuple[str, ...] = ()
    account: str = "assistant"
    """Of the system's service."""
    total: int = 2048 * MIB
    """Bytes of memory of the machine."""
    budget_mib: float = 0
    margin_mib: float = 300
    sound: bool = True
    reach: tuple[str, ...] = ()
    """Addresses that it speaks with over IP; `ANYWHERE` among them = every one."""
    reads: tuple[Path, ...] = ()
    """Files and folders that it must see, wherever they lie."""
    writes: tuple[Path, ...] = ()
    """Folders where it makes files, beside its own."""
    homes: dict[str, Path] = field(default_factory=dict)
    """Of a user: XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_STATE_HOME, as the command line sees them."""
    environment: tuple[str, ...] = ()
    """Variables that the manager shall hand on, by name."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Bytes."""

    high: int
    most: int


def memory_limits(total: int, budget_mib: float, margin_mib: float) -> MemoryLimits:
    """MemoryHigh and MemoryMax: nets below the ledger, which must never be the ones that decide.

    The daemon reads MemoryMax as the limit of its cgroup: its budget is at most that, and where it is less than
    `FULL_MARGIN_FROM`, the margin shrinks with it. So MemoryMax is never less than the machine or that figure,
    whichever is smaller (the margin stays what it is without a unit), nor than the configured budget and what the
    kernel charges beside it (the budget goes on deciding). By default it is the machine less what other programs hold
    at the very least: what the machine has left stays the smaller figure.

    MemoryHigh makes the kernel take back page cache, and slows down who allocates. Half of the margin above what the
    ledger may hand out, it meets none but a leak, before anything is killed; with a configured budget it is that.
    """
    budget = int(min(budget_mib * MIB, total))
    wanted = budget + _CONTROL_SLACK if budget else total - min(_OTHERS, total // 16)
    most = min(total, max(wanted, min(total, FULL_MARGIN_FROM)))
    alone = Machine(total=total, available=total, cgroup_limit=most, cgroup_left=most)
    high = most - decide(alone, 0, configured_mib=0, margin_mib=margin_mib).margin // 2
    return MemoryLimits(high=min(high, budget + _CONTROL_SLACK) if budget else high, most=most)


def reach_of(config: Config) -> tuple[str, ...]:
    """With whom the settings make the daemon speak over IP: addresses, "localhost", or `ANYWHERE`."""
    found = [_host(stage.uri) for stage in (config.stages.asr, config.stages.tts) if stage.engine == "wyoming"]
    if config.stages.llm.engine == "openai":
        found.append(_host(config.stages.llm.url))
    if config.wyoming.enabled:
        found.append(_host(config.wyoming.uri))
    if config.metrics.enabled:
        found.append(_allowed(config.metrics.address))
    if (where := tcp_address(config.api.tcp)) is not None:
        # its clients come from wherever they are; who is let in, their keys decide
        found.append("localhost" if _allowed(where[0].strip("[]")) == "localhost" else ANYWHERE)
    return tuple(dict.fromkeys(filter(None, found)))


def _host(uri: str) -> str:
    kind, _, rest = uri.partition("://")
    if kind == "unix":
        return ""
    place = rest.partition("/")[0].rpartition("@")[2]
    return _allowed(place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0])


def _allowed(host: str) -> str:
    """For IPAddressAllow=, which takes no names: a name may be anybody, and to ask for it is to speak with a server."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "localhost" if host == "localhost" else ANYWHERE
    if address.is_unspecified:
        return ANYWHERE
    return "localhost" if address.is_loopback else str(address)


def unit(facts: Facts) -> str:
    """The whole file."""
    parts = [MARKER, "", *_unit(facts), "", "[Service]", *_service(facts), *_memory(facts), *_folders(facts)]
    return "\n".join([*parts, *_sandbox(facts), *_network(facts), *_devices(facts), "", *_install(facts), ""])


def _unit(facts: Facts) -> Iterator[str]:
    yield "[Unit]"
    yield "Description=Local voice assistant"
    yield "After=sound.target" if facts.system else "After=pipewire-pulse.service pulseaudio.service"
    if any(one != "localhost" for one in facts.reach) and facts.system:
        yield "Wants=network-online.target"
        yield "After=network-online.target"
    yield "StartLimitIntervalSec=120"
    yield "StartLimitBurst=5"


def _service(facts: Facts) -> Iterator[str]:
    sets = [part for one in facts.sets for part in ("--set", one)]
    command = [str(facts.python), "-P", "-m", "assistant.service", *sets]
    yield "Type=notify"
    yield "NotifyAccess=main"
    # ${...} in a setting is the setting's own
    yield "ExecStart=" + " ".join(quoted(part).replace("$", "$$") for part in command)
    yield "WatchdogSec=30"
    yield "TimeoutStartSec=90"
    yield "TimeoutStopSec=15"
    yield "KillMode=mixed"
    yield "Restart=on-failure"
    yield "RestartSec=2"
    yield "# wrong settings do not become right by starting again"
    yield "RestartPreventExitStatus=2"
    yield "CPUWeight=200"
    yield "TasksMax=512"
    yield "Delegate=no"
    if facts.system:
        yield f"User={facts.account}"
        yield "SupplementaryGroups=audio"


def _memory(facts: Facts) -> Iterator[str]:
    limits = memory_limits(facts.total, facts.budget_mib, facts.margin_mib)
    yield ""
    yield "# nets below the daemon's own ledger, of the memory of this machine and memory.budget_mib: install again"
    yield "# after changing either. A worker that is killed is started again by the daemon."
    yield f"MemoryHigh={limits.high // MIB}M"
    yield f"MemoryMax={limits.most // MIB}M"
    yield "OOMPolicy=continue"
    if facts.system:
        # a user's manager may not spare anybody; workers offer themselves first in any case
        yield "OOMScoreAdjust=-500"


def _folders(facts: Facts) -> Iterator[str]:
    yield ""
    yield "RuntimeDirectory=assistant"
    yield "RuntimeDirectoryMode=0700"
    yield "CacheDirectory=assistant"
    yield "CacheDirectoryMode=0700"
    yield "UMask=0077"
    variables = {"XDG_RUNTIME_DIR": "%t", "XDG_CACHE_HOME": "%C"}
    writes = list(facts.writes)
    if facts.system:
        yield "StateDirectory=assistant"
        yield "StateDirectoryMode=0700"
        # settings are read from /etc/assistant as well; keys lie where the account may make them
        variables |= dict.fromkeys(("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), "%S")
    else:
        # not StateDirectory=: before systemd 254 that is the folder of settings, where `assistant run` keeps no timers
        variables |= {name: _literal(path) for name, path in facts.homes.items()}
        if (state := facts.homes.get("XDG_STATE_HOME")) is not None:
            writes.append(state / "assistant")
    if facts.code is not None:
        variables["PYTHONPATH"] = _literal(facts.code)
    for name, value in variables.items():
        yield f"Environment={_word(f'{name}={value}')}"
    if facts.environment:
        yield f"PassEnvironment={' '.join(facts.environment)}"
    for path in writes:
        yield f"ReadWritePaths={quoted(f'-{path}')}"


def _sandbox(facts: Facts) -> Iterator[str]:
    hidden = _HIDDEN_BY_TMP + (_HIDDEN_BY_HOME if facts.system else ())
    shown = [path for path in dict.fromkeys(facts.reads) if any(path.is_relative_to(one) for one in hidden)]
    shown = [path for path in shown if not any(path != one and path.is_relative_to(one) for one in shown)]
    at_home = any(path.is_relative_to(one) for path in shown for one in _HIDDEN_BY_HOME)
    yield ""
    yield "NoNewPrivileges=yes"
    yield "ProtectSystem=strict"
    yield f"ProtectHome={'read-only' if not facts.system else 'tmpfs' if at_home else 'yes'}"
    yield "PrivateTmp=yes"
    for path in shown:
        yield f"BindReadOnlyPaths={quoted(f'-{path}')}"
    for one in ("KernelTunables", "KernelModules", "KernelLogs", "ControlGroups", "Clock", "Hostname"):
        # a user's manager cannot take away what it does not have; some of these would only fail there
        if facts.system or one in ("KernelTunables", "ControlGroups"):
            yield f"Protect{one}=yes"
    if facts.system:
        yield "ProtectProc=invisible"
        yield "PrivateMounts=yes"
        yield "CapabilityBoundingSet="
        yield "AmbientCapabilities="
        yield "KeyringMode=private"
    yield "LockPersonality=yes"
    yield "RestrictNamespaces=yes"
    yield "RestrictRealtime=yes"
    yield "RestrictSUIDSGID=yes"
    yield "SystemCallArchitectures=native"
    yield "SystemCallFilter=@system-service"
    yield "SystemCallFilter=~@privileged"
    yield "SystemCallErrorNumber=EPERM"


def _network(facts: Facts) -> Iterator[str]:
    yield ""
    if not facts.reach:
        yield "# the settings name nothing on a network; install again after changing that"
        yield "RestrictAddressFamilies=AF_UNIX"
        if facts.system:
            yield "PrivateNetwork=yes"
            yield "IPAddressDeny=any"
        return
    # names are asked for through netlink, too
    yield "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK"
    if facts.system and ANYWHERE not in facts.reach:
        yield f"IPAddressAllow={' '.join(facts.reach)}"
        yield "IPAddressDeny=any"


def _devices(facts: Facts) -> Iterator[str]:
    if facts.system:  # a user's manager has no say in it
        yield ""
        yield "DevicePolicy=closed"
        if facts.sound:
            yield "DeviceAllow=char-alsa rw"
        else:
            yield "PrivateDevices=yes"


def _install(facts: Facts) -> Iterator[str]:
    yield "[Install]"
    yield f"WantedBy={'multi-user.target' if facts.system else 'default.target'}"


def quoted(text: str) -> str:
    """A word of a unit file: quoted where it has to be, with specifiers (%) and escapes taken as they are."""
    return _word(_literal(text))


def _literal(text: str | Path) -> str:
    return str(text).replace("%", "%%")


def _word(text: str) -> str:
    if text and set(text) <= _PLAIN:
        return text
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def is_ours(lines: Iterable[str]) -> bool:
    return next(iter(lines), "").rstrip("\n") in _MARKERS
