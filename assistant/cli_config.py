"""The verb `config`: the settings that are in force, and so all the keys that there are."""

from __future__ import annotations

from typing import Annotated

import typer

from assistant import cli_output


def config(
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON object.")] = False,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; repeatable.")
    ] = None,
) -> None:
    """Print every setting with the value that is in force, after files, environment and --set."""
    with cli_output.reported(as_json):
        import json

        import msgspec

        from assistant import config as settings

        tree = msgspec.to_builtins(settings.load(sets or ()))
        if as_json:
            cli_output.emit(tree)
            return
        for key, value in settings.flatten(tree).items():
            cli_output.show(f"{key} = {json.dumps(value, ensure_ascii=False)}")
