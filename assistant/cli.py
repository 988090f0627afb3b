"""The command line `assistant`: one typer app, one sub-app per area. Imports no engine library and no daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from assistant import __version__, cli_ask, cli_bench, cli_models

app = typer.Typer(
    help="A fully local voice assistant.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
app.command()(cli_ask.ask)
app.add_typer(cli_models.app, name="models")
app.add_typer(cli_bench.app, name="bench")


def _version(value: bool) -> None:
    if value:
        print(f"assistant {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Everything runs on this machine; nothing but 'models fetch' uses a network."""
