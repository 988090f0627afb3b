"""The verbs `install-service` and `uninstall-service`: a systemd unit is written or removed; nothing is started.

Imports `cli_output`; everything else inside the verbs. What is to be run next is told, for a person to run.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli_config import AsJson
from assistant.cli_output import emit, reported, say, show
from assistant.errors import UsageError

if TYPE_CHECKING:
    from assistant.service_unit import Facts

Scope = Annotated[
    bool | None,
    typer.Option("--system/--user", help="For the whole machine, as root; or for you. Default: who you are decides.",
                 show_default=False),
]  # fmt: skip
Root = Annotated[
    Path, typer.Option("--root", metavar="FOLDER", help="Below this folder, as when an image is made.")
]  # fmt: skip


def install_service(
    system: Scope = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the unit, write nothing.")] = False,
    account: Annotated[
        str, typer.Option("--account", help="The user whom the system's service runs as.")
    ] = "assistant",
    root: Root = Path("/"),
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Setting of the service; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a systemd unit that keeps the assistant running, locked in as far as it can work; starts nothing."""
    with reported(as_json):
        from assistant import service_facts
        from assistant.service_unit import unit

        whole = os.geteuid() == 0 if system is None else system
        _checked_account(account)
        facts = service_facts.gather(whole, sets or (), account)
        text, path = unit(facts), service_facts.unit_path(whole, root)
        if not dry_run:
            check_target(path, whole, root, os.geteuid())
            if not whole:
                _make_state(facts.homes["XDG_STATE_HOME"] / "assistant")
            _write(path, text)
        commands = _next(facts, root)
        if as_json:
            return emit({"path": str(path), "unit": text, "written": not dry_run, "commands": commands})
        if dry_run:
            return show(text.rstrip("\n"))
        show(f"written: {path}")
        say("now run:")
        for command in commands:
            show(f"  {command}")


def uninstall_service(system: Scope = None, root: Root = Path("/"), as_json: AsJson = False) -> None:
    """Remove the unit that install-service has written. Settings, models and timers stay."""
    with reported(as_json):
        from assistant import service_facts

        whole = os.geteuid() == 0 if system is None else system
        path = service_facts.unit_path(whole, root)
        if not os.path.lexists(path):
            raise UsageError(f"there is no {path}; try {'--user' if whole else '--system'}")
        check_target(path, whole, root, os.geteuid())
        try:
            # what `systemctl enable` made: without its unit nothing but a complaint at the next start
            for link in path.parent.glob(f"*.wants/{path.name}"):
                if link.is_symlink():
                    link.unlink()
            path.unlink()
        except OSError as error:
            raise UsageError(f"{path} cannot be removed: {error.strerror}") from None
        control = "sudo systemctl" if whole else "systemctl --user"
        commands = [f"{control} stop {path.stem}", f"{control} daemon-reload"] if root == Path("/") else []
        if as_json:
            return emit({"path": str(path), "removed": True, "commands": commands})
        show(f"removed: {path}")
        if commands:
            say("if it still runs, stop it:")
        for command in commands:
            show(f"  {command}")


def _checked_account(account: str) -> None:
    if not account or account.startswith("-") or not all(char.isalnum() or char in "_-." for char in account):
        raise UsageError(f"{account!r} is no name of a user")


def check_target(path: Path, system: bool, root: Path, user: int) -> None:
    """Nothing that somebody else has written is touched, and nothing tried that must fail. Raises `UsageError`."""
    from assistant.service_unit import is_ours

    if not system and root != Path("/"):
        raise UsageError("an image has no user's session: --root goes with --system")
    if system and root == Path("/") and user != 0:
        raise UsageError(f"{path} belongs to root: run this with sudo, or see --dry-run, or choose --user")
    if not os.path.lexists(path):
        return
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            ours = path.is_file() and not path.is_symlink() and is_ours(file)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if not ours:
        raise UsageError(f"{path} was not written by install-service; move it away first ('--dry-run' shows ours)")


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(text.encode("utf-8", "surrogateescape"))
            part.chmod(0o644)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _make_state(folder: Path) -> None:
    """A sandbox opens only what is there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}, where timers are kept, cannot be made: {error.strerror}") from None


def _account_in_image(account: str, root: Path) -> Iterator[str]:
    """systemd-sysusers writes files and runs nothing of the image: it may be of another processor. The folders need
    no command: systemd makes them, and gives the account what lies in them, when the service starts."""
    line = f'u {account} - "Local voice assistant" /var/lib/assistant'
    users = root / "etc/passwd"
    try:
        known = any(one.startswith(f"{account}:") for one in users.read_text("utf-8", "replace").splitlines())
    except OSError:
        known = False
    if not known:
        yield f"sudo systemd-sysusers --root={shlex.quote(str(root))} --inline {shlex.quote(line)}"


def _next(facts: Facts, root: Path) -> list[str]:
    """Commands, in their order."""
    from assistant import paths, service_facts

    installed = paths.checkout() is None
    fetch = f"{shlex.quote(sys.executable)} -m assistant models fetch --default"
    if root != Path("/"):
        return [*_account_in_image(facts.account, root), f"systemctl --root={shlex.quote(str(root))} enable assistant"]
    if not facts.system:
        return [
            *([fetch] if installed else []),
            "systemctl --user daemon-reload",
            "systemctl --user enable --now assistant",
            "loginctl enable-linger  # it shall run while you are not logged in",
        ]
    account, commands = facts.account, []
    if not service_facts.account_exists(account):
        commands.append(
            "sudo useradd --system --user-group --no-create-home --home-dir /var/lib/assistant"
            f" --shell /usr/sbin/nologin {account}"
        )
    commands.append(f"sudo install -d -o {account} -g {account} -m 700 /var/lib/assistant /var/cache/assistant")
    if installed:
        commands.append(f"sudo env XDG_DATA_HOME=/var/lib XDG_CACHE_HOME=/var/cache {fetch}")
        commands.append(f"sudo chown -R {account}: /var/lib/assistant /var/cache/assistant")
    return [*commands, "sudo systemctl daemon-reload", "sudo systemctl enable --now assistant"]
