"""How well sentences are understood, and how fast. Imports the engine of the intent stage.

The labelled sentences are those of a checkout's tests; `--file` measures others. A sentence counts as understood when
the first request that is found in it has the intent of its label.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from assistant import config as settings
from assistant import paths
from assistant.bench import intents_speech
from assistant.bench.intents_speech import OUT_OF_DOMAIN, share
from assistant.bench.output import say, say_aside, say_error
from assistant.bench.wer import SPEECH_HELP
from assistant.config import Config
from assistant.config_sections import House, Intent
from assistant.daemon_specs import stage_spec
from assistant.errors import AssistantError, UsageError
from assistant.memory_orchestrator.probe import MIB, Probe
from assistant.messages import IntentMatch, IntentRequest, Stage
from assistant.model_store.store import ModelStore
from assistant.nlu.same import same_slots
from assistant.stages.fork_client import ForkServer
from assistant.stages.process import Worker
from assistant.stages.registry import engine_path
from assistant.stages.spec import StageSpec

SET = "tests/intents"
"""Of a checkout: templates.tsv, paraphrases.tsv, out_of_domain.tsv, and what stands in the house of their sentences."""
FREE = ("paraphrases.tsv", "out_of_domain.tsv")


class Latency(msgspec.Struct, frozen=True):
    exact_p50: float
    classifier_p50: float


class StageFigures(msgspec.Struct, frozen=True):
    """Of the stage's worker."""

    ready_ms: float
    """From the order to load until it takes sentences; its libraries are there already."""
    anon_mib: float
    file_mib: float


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    templates: dict[str, float]
    paraphrases: dict[str, float]
    ood: dict[str, float]
    latency_ms: Latency
    stage: StageFigures
    engine: str
    speech: dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    intent: str
    slots: dict[str, Any] | None = None
    """None: not labelled."""


@dataclass(frozen=True, slots=True)
class Seen:
    line: Line
    match: IntentMatch
    ms: float

    @property
    def intent(self) -> bool:
        return (self.match.name or OUT_OF_DOMAIN) == self.line.intent

    @property
    def slots(self) -> bool:
        return self.intent and (self.line.slots is None or same_slots(self.line.slots, self.match.slots))


def read_lines(path: Path) -> list[Line]:
    """`sentence<TAB>intent[<TAB>slots as JSON]`. Raises `UsageError` with file and line."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    found = []
    for number, row in enumerate(text.splitlines(), 1):
        if not row.strip() or row.startswith("#"):
            continue
        sentence, *label = row.split("\t")
        if not 1 <= len(label) <= 2 or not label[0].strip():
            raise UsageError(f"{path}, line {number}: it is no `sentence<TAB>intent`; `-` stands for none")
        slots = None
        if len(label) == 2:
            try:
                slots = json.loads(label[1])
            except ValueError:
                slots = 0
            if not isinstance(slots, dict):
                raise UsageError(f"{path}, line {number}: the slots are no JSON object")
        found.append(Line(sentence, label[0].strip(), slots))
    if not found:
        raise UsageError(f"{path} has no sentences")
    return found


def measured(lines: Iterable[Line], engine: Any) -> list[Seen]:
    """By an engine of the intent stage that is loaded."""
    found = []
    for line in lines:
        started = time.perf_counter()
        first = next(iter(engine.run(IntentRequest(text=line.text))))
        found.append(Seen(line, first, (time.perf_counter() - started) * 1000))
    return found


def intent_figures(seen: Sequence[Seen]) -> dict[str, float]:
    """With `slot_acc`, the share of all lines in which intent and every slot are right, where lines have slots."""
    found: dict[str, float] = {"n": len(seen), "intent_acc": share(one.intent for one in seen)}
    if seen and all(one.line.slots is not None for one in seen):
        found["slot_acc"] = share(one.slots for one in seen)
    return found


async def _stage(spec: StageSpec, runs: int = 5) -> StageFigures:
    server = ForkServer()
    server.start()
    ready, usage = [], None
    try:
        for _ in range(runs):
            worker = Worker(Stage.INTENT, server)
            try:
                await worker.prepare(engine_path(spec.stage, spec.engine), spec.start_timeout_s)
                started = time.perf_counter()
                await worker.load(spec.engine_config(spec.threads), spec.start_timeout_s)
                ready.append((time.perf_counter() - started) * 1000)
                for text in ("what time is it", "could you make it a bit brighter in here"):
                    async for _ in worker.run(IntentRequest(text=text), spec.step_timeout_s):
                        pass
                usage = Probe().usage(worker.pid)
            finally:
                await worker.stop()
    finally:
        await server.close()
    assert usage is not None
    return StageFigures(round(statistics.median(ready), 1), round(usage.anon / MIB, 1), round(usage.file / MIB, 1))


def loaded(spec: StageSpec) -> Any:
    """Its engine in this process."""
    module, _, name = engine_path(spec.stage, spec.engine).partition(":")
    engine = getattr(importlib.import_module(module), name)(spec.engine_config(spec.threads))
    engine.load()
    return engine


def _p50(seen: Sequence[Seen], source: str) -> float:
    times = [one.ms for one in seen if one.match.source == source]
    return round(statistics.median(times), 2) if times else 0.0


def spec_of(config: Config, house: House, engine: str = "") -> StageSpec:
    """Of the English intent stage."""
    intent = msgspec.structs.replace(config.stages.intent, engine=engine or Intent().engine, language="en")
    stages = msgspec.structs.replace(config.stages, intent=intent)
    return stage_spec(Stage.INTENT, msgspec.structs.replace(config, house=house, stages=stages), ModelStore.default())


def house_of(folder: Path, *more: str) -> House:
    """Of the labelled sentences; `more`: files beside its own that add to it."""
    house = msgspec.toml.decode((folder / "house.toml").read_bytes(), type=House)
    for name in more:
        added = msgspec.toml.decode((folder / name).read_bytes(), type=House)
        house = msgspec.structs.replace(house, names=(*house.names, *added.names), areas=(*house.areas, *added.areas))
    return house


def by_ear(recordings: Path, engine: str | None = None) -> list[intents_speech.Spoken]:
    """The recordings of `speech.tsv` that are in the folder. Raises `UsageError`, `ConfigError`, `ModelError`."""
    folder, config = (paths.checkout() or Path()) / SET, settings.load()
    meant = [intents_speech.Meant(one.text, one.intent, one.slots or {}) for one in read_lines(folder / "speech.tsv")]
    asr = loaded(stage_spec(Stage.ASR, config, ModelStore.default()))
    try:
        return intents_speech.spoken(
            recordings, meant, asr, loaded(spec_of(config, house_of(folder, "speech.toml"), engine or ""))
        )
    finally:
        asr.close()


def run(file: Path | None, engine: str | None) -> tuple[Report, list[Seen]]:
    """Raises `UsageError`, `ConfigError`, `ModelError`."""
    checkout = paths.checkout()
    folder = checkout / SET if checkout is not None else None
    ours = folder is not None and folder.is_dir()
    if file is None and not ours:
        raise UsageError(f"the labelled sentences are part of a checkout ({SET}); name a file of yours with --file")
    config = settings.load()
    spec = spec_of(config, house_of(folder) if folder is not None and ours else config.house, engine or "")
    one = loaded(spec)
    exact = measured(read_lines(folder / "templates.tsv"), one) if folder is not None and ours else []
    names = [file] if file is not None else [Path(folder or "", name) for name in FREE]
    free = measured([line for name in names for line in read_lines(name)], one)
    commands = [seen for seen in free if seen.line.intent != OUT_OF_DOMAIN]
    others = [seen for seen in free if seen.line.intent == OUT_OF_DOMAIN]
    report = Report(
        templates=intent_figures(exact),
        paraphrases=intent_figures(commands),
        ood={"n": len(others), "false_accept": share(not seen.intent for seen in others)},
        latency_ms=Latency(_p50(exact, "template"), _p50(free, "classifier")),
        stage=asyncio.run(_stage(spec)),
        engine=spec.engine,
    )
    return report, [*exact, *free]


def table(found: Report) -> str:
    exact, free, others = found.templates, found.paraphrases, found.ood
    slots = f", every slot right {free['slot_acc']:.1%}" if "slot_acc" in free else ""
    return (
        f"engine {found.engine}\n"
        f"sentences of the templates  {exact['n']:5.0f}  intent {exact['intent_acc']:.1%}"
        f", every slot right {exact.get('slot_acc', 0):.1%}\n"
        f"in people's own words       {free['n']:5.0f}  intent {free['intent_acc']:.1%}{slots}\n"
        f"no commands                 {others['n']:5.0f}  taken for one {others['false_accept']:.1%}\n"
        f"a sentence: exact {found.latency_ms.exact_p50:.1f} ms, by the classifier"
        f" {found.latency_ms.classifier_p50:.1f} ms (medians)\n"
        f"the stage: ready in {found.stage.ready_ms:.0f} ms, {found.stage.anon_mib:.1f} MiB anonymous,"
        f" {found.stage.file_mib:.1f} MiB of files"
        + (
            f"\nrecordings                  {heard['n']:5.0f}  acted upon as meant {heard['acted']:.1%}"
            f"; of the {heard['commands']:.0f} commands {heard['commands_acted']:.1%}"
            if (heard := found.speech)
            else ""
        )
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="assistant bench intents", description=__doc__)
    parser.add_argument("--file", type=Path, metavar="F.tsv", help="lines of sentence<TAB>intent; - for no command")
    parser.add_argument("--engine", choices=("classifier", "templates"), help="instead of the configured one")
    parser.add_argument("--speech", type=Path, nargs="?", metavar="FOLDER", help=f"also recordings: {SPEECH_HELP}",
                        const=(paths.checkout() or Path()).parent / "shared/speech")  # fmt: skip
    parser.add_argument("--errors", action="store_true", help="print every line that was not understood")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    given = parser.parse_args(argv)
    try:
        spoken = by_ear(given.speech, given.engine) if given.speech is not None else []
        report, seen = run(given.file, given.engine)
    except AssistantError as error:
        return say_error(error, as_json=given.json)
    if spoken:
        report = msgspec.structs.replace(report, speech=intents_speech.figures(spoken))
    if given.errors:
        for recording in spoken:
            if not recording.acted:
                say_aside(f"{recording.meant.file}: {recording.text!r}, meant was {recording.meant.intent}")
        for one in seen:
            if not one.slots:
                say_aside(_mistake(one))
    say(report, table(report), as_json=given.json)
    return 0


def _mistake(seen: Seen) -> str:
    wanted = json.dumps(seen.line.slots, ensure_ascii=False) if seen.line.slots else ""
    got, match = json.dumps(seen.match.slots, ensure_ascii=False), seen.match
    return f"{seen.line.text}\t{seen.line.intent} {wanted}\t{match.name} {got} {match.score:.2f} {match.source}"
