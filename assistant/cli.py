"""The command line `assistant`: one typer app, one sub-app per area. Imports no engine library and no daemon."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from assistant import (
    cli_ask,
    cli_bench,
    cli_config,
    cli_devices,
    cli_doctor,
    cli_events,
    cli_memory,
    cli_models,
    cli_output,
    cli_run,
    cli_service,
    cli_status,
    cli_timers,
    cli_top,
    cli_voice,
    cli_wake,
)
from assistant.errors import UsageError

# typer's own name for what its parser raises is private; this is the public way to it
_ParserError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(help="A fully local voice assistant.", no_args_is_help=True, pretty_exceptions_enable=False)
for _verb in (
    cli_ask.ask,
    cli_run.run,
    cli_status.status,
    cli_memory.ps,
    cli_top.top,
    cli_memory.load,
    cli_memory.unload,
    cli_status.cancel,
    cli_events.events,
    cli_voice.say,
    cli_voice.listen,
    cli_voice.mute,
    cli_voice.volume,
    cli_timers.timers,
    cli_doctor.doctor,
    cli_service.install_service,
    cli_service.uninstall_service,
):
    app.command()(_verb)
app.add_typer(cli_models.app, name="models")
app.add_typer(cli_devices.app, name="devices")
app.add_typer(cli_config.app, name="config")
app.add_typer(cli_bench.app, name="bench")
app.add_typer(cli_wake.app, name="wake")


def _version(context: typer.Context, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    from assistant import versions

    as_json = bool(context.params.get("as_json"))
    with cli_output.reported(as_json):
        found = versions.installed()
        if as_json:
            cli_output.emit(found)
        else:
            cli_output.show("\n".join(versions.lines(found)))
    raise typer.Exit


@app.callback()
def root(
    as_json: Annotated[bool, typer.Option("--json", is_eager=True, help="With --version: as a JSON object.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, help="Print our version and the engines', and leave.")
    ] = False,
) -> None:
    """Everything runs on this machine; nothing but 'models fetch' uses a network."""
    if as_json:
        cli_output.fail(UsageError("write --json after the verb"), True)


def run() -> int:
    """Parses the command line and runs its verb; returns the exit code. A wrong command line is one line, too."""
    try:
        return int(app(standalone_mode=False, prog_name="assistant") or 0)
    except _ParserError as error:
        from assistant import cli_wrong

        told = cli_wrong.told(error, sys.argv[1:], typer.main.get_command(app))
        if not told:  # nothing was asked for, and what there is was shown
            return int(UsageError.exit_code)
        cli_output.fail(UsageError(told), "--json" in sys.argv)
