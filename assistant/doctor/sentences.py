"""The user's own sentences: files that the intent stage leaves out. Imports what reads them there, where there are any.

Nothing of them is matched here: sentences are read and parsed, and no encoder is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from assistant.doctor.findings import Finding, Level
from assistant.doctor.scene import Scene, edit
from assistant.errors import ConfigError


def look_at_sentences(scene: Scene) -> Iterator[Finding]:
    folders = [scene.root / "etc/assistant/intents", scene.places.config / "intents"]
    files = [path for folder in folders for path in sorted(folder.glob("*/*.yaml"))]
    if not files:  # as in most houses: half a second is saved
        yield Finding("sentences", "ok", f"none of your own in {folders[-1]}")
        return
    from assistant.stages.intent_sentences import Sentences, known_language

    try:
        sentences = Sentences(known_language(scene.config.stages.intent.language), frozenset(), {})
    except ConfigError as error:
        yield Finding(
            "settings-refused", "problem", error.message, "assistant config, and the key named in config.toml"
        )
        return
    for folder in folders:
        sentences.add_folder(folder)
    for note in sentences.notes:
        named = next((path for path in files if note.startswith(str(path))), folders[-1])
        level: Level = "problem" if note.endswith("this file is left out") else "advice"
        yield Finding("sentences-broken", level, note, edit(named))
    if not sentences.notes:
        yield Finding("sentences", "ok", ", ".join(map(str, files)))
