"""`assistant wake test DIR`: how well the wake words are recognised in recordings. Imports `cli_output`.

Everything heavier is imported inside the verb. Decides nothing: `audio.wake_trial` hears and counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.cli_config import Sets
from assistant.cli_output import emit, reported, say, show
from assistant.errors import UsageError

if TYPE_CHECKING:
    from assistant.audio.wake import WakeWords
    from assistant.audio.wake_trial import Clip, Summary

app = typer.Typer(help="Wake words: try them on recordings.", no_args_is_help=True)

_RULES = {
    "manifest": "manifest.json says which wake word is in a file",
    "names": "a file whose name holds a wake word's name has that word in it",
}


@app.callback()
def wake() -> None:
    """Keeps `test` a verb of its own: an app of one command would take its place."""


@app.command("test")
def try_recordings(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of sound files; those below it, too.")],
    words: Annotated[
        list[str] | None, typer.Option("--word", metavar="WORD", help="Instead of wake.words; repeatable.")
    ] = None,
    thresholds: Annotated[
        list[str] | None, typer.Option("--threshold", metavar="WORD=X", help="0 to below 1; repeatable.")
    ] = None,
    json_mode: Annotated[bool, typer.Option("--json", help="Print JSON alone on stdout.")] = False,
    sets: Sets = None,
) -> None:
    """Play recordings to the wake words: what is recognised, falsely recognised, and missed.

    Which word is in a file is what manifest.json says (a list of objects with `file` and `wake_word`), else its name.
    """
    with reported(json_mode):
        from assistant.audio import wake_trial

        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder; name one with sound files in it")
        files = wake_trial.sound_files(folder)
        if not files:
            kinds = ", ".join(wake_trial.SUFFIXES)
            raise UsageError(f"there are no sound files ({kinds}) in {folder}")
        manifest = wake_trial.expectations(folder)
        with _listening(sets or [], words, thresholds or []) as listener:
            clips = []
            for path in files:
                file = path.relative_to(folder).as_posix()
                expected = wake_trial.expected_in(file, manifest, listener.words)
                clips.append(wake_trial.listen_to(path, file, expected, listener))
            found = wake_trial.summary(clips, listener.words)
            rule = "names" if manifest is None else "manifest"
            if json_mode:
                emit(_as_json(clips, found, rule, listener))
            else:
                _print(clips, found, rule, listener)


def _listening(sets: list[str], words: list[str] | None, thresholds: list[str]) -> WakeWords:
    from assistant import config, paths
    from assistant.audio.wake import WakeWords, engine
    from assistant.config_checks import thresholds_of

    settings = config.load(sets).wake
    own = [settings.models_dir] if settings.models_dir else []
    source = engine(settings.engine, [*own, *sorted(paths.models_dir().glob("wake-*"))])
    wanted = words or list(settings.words)
    if not wanted:
        raise UsageError("there is no wake word to try: name one with --word")
    return WakeWords(
        source,
        wanted,
        thresholds=thresholds_of((*settings.thresholds, *thresholds)),
        refractory_s=settings.refractory_s,
    )


def _as_json(clips: list[Clip], found: Summary, rule: str, listener: WakeWords) -> dict[str, Any]:
    import msgspec

    from assistant.audio.wake_trial import false_accepts, missed

    return {
        "words": listener.thresholds,
        "rule": rule,
        "files": [
            {
                **msgspec.to_builtins(clip),
                "missed": missed(clip, listener.words),
                "false_accepts": len(false_accepts(clip)),
            }
            for clip in clips
        ],
        "summary": msgspec.to_builtins(found),
    }


def _print(clips: list[Clip], found: Summary, rule: str, listener: WakeWords) -> None:
    """One line for each detection and each miss; files in which nothing was said or heard are only counted."""
    from assistant.audio.wake_trial import false_accepts, missed

    for clip in clips:
        if clip.problem:
            say(f"{clip.file}: not heard: {clip.problem}")
        wrong = false_accepts(clip)
        for one in clip.heard:
            verdict = "false accept" if one in wrong else "found"
            show(f"{clip.file}: {verdict}: {one.word} at {one.at_s:.2f} s, score {one.score:.3f}")
        if missed(clip, listener.words):
            show(f"{clip.file}: missed: {clip.expected}")
    named = ", ".join(f"{word} ({threshold:g})" for word, threshold in listener.thresholds.items())
    show(f"{found.files} files, {found.seconds:.0f} s, for {named}; {_RULES[rule]}")
    show(f"found {found.found} of {found.positives}, missed {found.false_rejects}")
    show(f"false accepts {found.false_accepts}, {found.false_accepts_per_hour:g} an hour")
    if found.unreadable:
        show(f"could not be read: {found.unreadable}")
