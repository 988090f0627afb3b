"""What people are told whose command line is wrong, verb by verb, by typer's real parser."""

from __future__ import annotations

import pytest
import typer

from assistant import cli, cli_wrong

PARSER_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("volume 130", "PERCENT is 130; the most allowed is 100; see 'assistant volume --help'"),
        ("volume loud", "PERCENT must be a number, not 'loud'; see 'assistant volume --help'"),
        ("devices test --seconds 0", "--seconds is 0; the least allowed is 1; see 'assistant devices test --help'"),
        ("events --count x", "--count must be a whole number, not 'x'; see 'assistant events --help'"),
        ("events --count", "--count needs a value; see 'assistant events --help'"),
        ("load", "STAGE is missing: asr, intent, llm or tts; see 'assistant load --help'"),
        ("load llm now", "these are more arguments than it takes: now; see 'assistant load --help'"),
        ("models rm", "NAME... is missing; see 'assistant models rm --help'"),
        ("status --json=3", "--json takes no value; see 'assistant status --help'"),
        ("ask --bogus", "there is no option --bogus; see 'assistant ask --help'"),
        ("models fetc", "there is no command 'fetc'. Did you mean 'fetch'?; see 'assistant models --help'"),
        ("bogus", "there is no command 'bogus'; see 'assistant --help'"),
    ],
)
def test_the_argument_is_named_and_the_verbs_own_help(line: str, told: str) -> None:
    with pytest.raises(PARSER_ERROR) as raised:
        cli.app(args=line.split(), standalone_mode=False, prog_name="assistant")
    assert cli_wrong.told(raised.value, line.split(), typer.main.get_command(cli.app)) == told


def test_a_verb_that_lacks_its_only_argument_is_told_so() -> None:
    """Each verb that needs something, so that a new one cannot say less."""

    def verbs(command: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        below = getattr(command, "commands", None)
        if below is not None:
            return [verb for name, one in below.items() for verb in verbs(one, (*path, name))]
        return [path] if any(one.required for one in getattr(command, "params", ())) else []

    root = typer.main.get_command(cli.app)
    found = verbs(root)
    assert ("volume",) in found
    for words in found:
        with pytest.raises(PARSER_ERROR) as raised:
            cli.app(args=list(words), standalone_mode=False, prog_name="assistant")
        told = cli_wrong.told(raised.value, words, root)
        assert " is missing" in told
        assert told.endswith(f"; see 'assistant {' '.join(words)} --help'")
