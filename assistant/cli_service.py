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

System = Annotated[bool, typer.Option("--system", help="For the whole machine; the default for root.")]
User = Annotated[bool, typer.Option("--user", help="For you; the default for all others.")]
Root = Annotated[
    str, typer.Option("--root", metavar="FOLDER", help="Below this folder, as when an image is made.")
]  # fmt: skip
_HERE = Path("/")
_ACCOUNT = "assistant"


def install_service(
    system: System = False,
    user: User = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the unit, write nothing.")] = False,
    account: Annotated[
        str | None,
        typer.Option(
            "--account", metavar="NAME", help=f"The user whom the system's service runs as; default: {_ACCOUNT}."
        ),
    ] = None,
    root: Root = "/",
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Setting of the service; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a systemd unit that keeps the assistant running, locked in as far as it can work; starts nothing."""
    with reported(as_json):
        from assistant import service_facts
        from assistant.service_unit import unit

        whole, below = _scope(system, user, root)
        account = _checked_account(account, whole)
        facts = service_facts.gather(whole, sets or (), account)
        text, path = unit(facts), service_facts.unit_path(whole, below)
        if not dry_run:
            check_target(path, whole, below, os.geteuid())
            if not whole:
                _make_state(facts.homes["XDG_STATE_HOME"] / "assistant")
            _write(path, text)
        commands = _next(facts, below)
        if as_json:
            return emit({"path": str(path), "unit": text, "written": not dry_run, "commands": commands})
        if dry_run:
            return show(text.rstrip("\n"))
        show(f"written: {path}")
        say("now run:")
        for command in commands:
            show(f"  {command}")


def uninstall_service(system: System = False, user: User = False, root: Root = "/", as_json: AsJson = False) -> None:
    """Remove the unit that install-service has written. Settings, models and timers stay."""
    with reported(as_json):
        from assistant import service_facts

        whole, below = _scope(system, user, root)
        path = service_facts.unit_path(whole, below)
        if not os.path.lexists(path):
            other = f"; try {'--user' if whole else '--system'}" if below == _HERE else ""
            raise UsageError(f"there is no {path}{other}")
        check_target(path, whole, below, os.geteuid())
        try:
            # what `systemctl enable` made: without its unit nothing but a complaint at the next start
            for link in path.parent.glob(f"*.wants/{path.name}"):
                if link.is_symlink():
                    link.unlink()
            path.unlink()
        except OSError as error:
            raise UsageError(f"{path} cannot be removed: {error.strerror}") from None
        control = "sudo systemctl" if whole else "systemctl --user"
        commands = [f"{control} stop {path.stem}", f"{control} daemon-reload"] if below == _HERE else []
        if as_json:
            return emit({"path": str(path), "removed": True, "commands": commands})
        show(f"removed: {path}")
        if commands:
            say("if it still runs, stop it:")
        for command in commands:
            show(f"  {command}")


def _scope(system: bool, user: bool, root: str) -> tuple[bool, Path]:
    """Whether it is the system's service, and below which folder, with its whole path: what is printed is run
    elsewhere. Raises `UsageError`; nothing that was mistyped becomes a system's root."""
    if system and user:
        raise UsageError("--system and --user exclude each other")
    whole = system or (not user and os.geteuid() == 0)
    below = Path(root).resolve()
    if not root or not below.is_dir():
        raise UsageError(f"--root {root!r}: there is no such folder; name the one where the image is mounted")
    if not whole and below != _HERE:
        raise UsageError("an image has no user's session: --root goes with --system")
    return whole, below


def _checked_account(account: str | None, whole: bool) -> str:
    if account is None:
        return _ACCOUNT
    if not account or account.startswith("-") or not all(char.isalnum() or char in "_-." for char in account):
        raise UsageError(f"{account!r} is no name of a user")
    if not whole:
        raise UsageError("--account is for the system's service (--system); a user's runs as that user")
    return account


def check_target(path: Path, system: bool, root: Path, user: int) -> None:
    """Nothing that somebody else has written is touched, and nothing tried that must fail. Raises `UsageError`."""
    from assistant.service_unit import is_ours

    if system and root == _HERE and user != 0:
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
    if root != _HERE:
        return [
            *_account_in_image(facts.account, root),
            f"sudo systemctl --root={shlex.quote(str(root))} enable assistant",
        ]
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
