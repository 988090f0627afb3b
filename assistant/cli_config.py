"""The verb `config`: the settings that are in force, so all the keys that there are; `config keys` makes key files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from assistant import cli_output

if TYPE_CHECKING:
    from assistant.config import Config

Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; repeatable.")
]  # fmt: skip
AsJson = Annotated[bool, typer.Option("--json", help="As a JSON object.")]

app = typer.Typer(no_args_is_help=False, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def config(context: typer.Context, as_json: AsJson = False, sets: Sets = None) -> None:
    """Print every setting with the value that is in force, after files, environment and --set."""
    if context.invoked_subcommand is not None:
        return
    with cli_output.reported(as_json):
        import json

        import msgspec

        from assistant import config as settings

        config = settings.load(sets or ())
        for why in refused(config):
            cli_output.say(f"warning: 'assistant run' would refuse to start: {why}")
        tree = msgspec.to_builtins(config)
        if as_json:
            cli_output.emit(tree)
            return
        for key, value in settings.flatten(tree).items():
            cli_output.show(f"{key} = {json.dumps(value, ensure_ascii=False)}")


def refused(config: Config) -> Iterator[str]:
    """Why a daemon would not start with these settings, though each of them is one that there may be."""
    from assistant import paths
    from assistant.config_checks import tcp_address
    from assistant.errors import ConfigError

    def network() -> None:
        from assistant.api import security

        if (where := tcp_address(config.api.tcp)) is not None:
            security.network(where, paths.keys_dir(config.api.keys_dir))

    def wyoming() -> None:
        from assistant.api.wyoming.bridge import checked_uri

        if config.wyoming.enabled:
            checked_uri(config.wyoming.uri)

    def metrics() -> None:
        from assistant.api.prometheus_http import checked_address

        if config.metrics.enabled:
            checked_address(config.metrics.address)

    def api_key() -> None:
        from assistant.daemon_remote import check_api_key

        check_api_key(config)

    for check in (network, wyoming, metrics, api_key):
        try:
            check()
        except ConfigError as error:
            yield error.message


@app.command()
def keys(
    client: Annotated[
        str | None, typer.Option("--client", metavar="NAME", help="Make keys for this client, and list it.")
    ] = None,
    rights: Annotated[
        list[str] | None,
        typer.Option("--right", metavar="RIGHT", help="observe, speak, listen, admin; repeatable. Default: speak."),
    ] = None,
    public_key: Annotated[
        str | None, typer.Option("--public-key", metavar="KEY", help="The client has made its keys itself.")
    ] = None,
    as_json: AsJson = False,
    sets: Sets = None,
) -> None:
    """Make the keys with which clients from the network are let in. Nothing is overwritten."""
    with cli_output.reported(as_json):
        from assistant import config as settings
        from assistant import paths
        from assistant.api import keys as key_files
        from assistant.api.rights import Right
        from assistant.errors import UsageError

        config = settings.load(sets or ())
        folder = paths.keys_dir(config.api.keys_dir)
        if client is None and (rights or public_key):
            raise UsageError("--right and --public-key are about a client; name it with --client NAME")
        if unknown := set(rights or ()) - set(Right):
            raise UsageError(f"{min(unknown)!r} is no right; there are {', '.join(Right)}")
        made = None
        if client is not None:
            made = key_files.make_client(folder, client, map(Right, rights or ["speak"]), public_key)
        server, new = key_files.make_server(folder)
        if as_json:
            told = {"server_public_key": server.public, "server_key_file": str(folder / key_files.SERVER), "new": new}
            if made is not None:
                told |= {
                    "client": made.name,
                    "rights": list(made.rights),
                    "public_key": made.public,
                    "listed": str(made.listed),
                    "outgoing": made.outgoing and str(made.outgoing),
                }
            return cli_output.emit(told)
        cli_output.show(f"server:  {folder / key_files.SERVER}")
        cli_output.show(f"its public key, which clients need: {server.public}")
        if made is not None:
            cli_output.show(f"client:  {made.listed} ({', '.join(made.rights)}); edit or delete it at any time")
            if made.outgoing is not None:
                cli_output.show(f"to be carried to {made.name}, and deleted here: {made.outgoing}")
        if not config.api.tcp:
            cli_output.say('nobody can reach the daemon from the network until api.tcp = "tcp://ADDRESS:PORT" is set')
