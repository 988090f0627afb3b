"""Who uses the daemon of a soak: threads with clients of their own, each with dice of its own. Imports the client.

The same seed makes each of them do the same things in the same order; when, the machine decides. They stop at a gate,
so that the daemon can be read at rest.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assistant.api import wire
from assistant.api.client import Client
from assistant.api.feed import Feed
from assistant.bench import mix
from assistant.bench.soak_sockets import hearing
from assistant.errors import AssistantError
from assistant.messages import Stage

_LOOK_S = 0.02
ENDS_S = 90.0
"""Whatever was asked has its last reply by then."""
KINDS = (*mix.KINDS, *(kind for kind in mix.KINDS if "command" in kind), *["cancelled question"] * 2, "load", "say")
"""What is asked, as often as it stands here."""
TIMERS = 12
"""Kept at most."""


@dataclass(frozen=True, slots=True)
class Did:
    """One thing that was done, and how it ended."""

    kind: str
    begin: float
    """Monotonic seconds, as all moments here."""
    end: float
    code: str = ""
    """Of its error."""
    message: str = ""
    stage: str | None = None
    """That the error names."""
    query: bool = False
    parts: str = ""
    """Where the time of a query went: what its report says."""

    @property
    def ms(self) -> float:
        return (self.end - self.begin) * 1000


class Gate:
    """Who does something passes it first; closed, it lets nobody in and waits for those inside."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open, self._over, self._inside = False, False, 0

    def enter(self) -> bool:
        """Waits until it is open; False when there is nothing more to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._open or self._over)
            self._inside += not self._over
            return not self._over

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def open(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def close(self, within_s: float) -> bool:
        """Whether all have left in that time."""
        with self._changed:
            self._open = False
            return self._changed.wait_for(lambda: not self._inside, within_s)

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """For who is inside and could leave early."""
        return not self._open or self._over


class Actor(ABC, threading.Thread):
    """Does one thing after another, as long as the gate is open."""

    def __init__(self, name: str, folder: Path, gate: Gate, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.did: list[Did] = []
        self.ready = threading.Event()
        """It is connected, or has failed to."""
        self.broke: BaseException | None = None
        """A fault of the benchmark itself."""
        self._folder, self._gate = folder, gate
        self._dice = random.Random(f"{seed} {name}")

    @abstractmethod
    def act(self, client: Client) -> None: ...

    def run(self) -> None:
        try:
            with Client(self._folder) as client:
                client.ping()
                self.ready.set()
                while self._gate.enter():
                    try:
                        self.act(client)
                    finally:
                        self._gate.leave()
        except BaseException as error:  # noqa: BLE001 - raised where the threads are joined
            self.broke = error
        finally:
            self.ready.set()

    def _wait(self, seconds: float) -> None:
        """Not longer than the gate is open."""
        until = time.monotonic() + seconds
        while not self._gate.closed and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_S))

    def _tried(self, kind: str, step: Callable[[], object]) -> bool:
        """Does it, and notes how it ended; whether it went well."""
        begin, code, message = time.monotonic(), "", ""
        try:
            step()
        except AssistantError as error:
            code, message = error.code, error.message
        self.did.append(Did(kind, begin, time.monotonic(), code, message))
        return not code


class Asker(Actor):
    """Questions and commands, spoken and typed; some are cancelled in mid answer; a load or an announcement between."""

    def __init__(
        self, name: str, folder: Path, gate: Gate, seed: int, voices: mix.Voices, kinds: Sequence[str] = KINDS
    ) -> None:
        """`kinds`: of `KINDS`, as often as the others."""
        super().__init__(name, folder, gate, seed)
        self._kinds = kinds
        self._voices = voices

    def act(self, client: Client) -> None:
        dice = self._dice
        kind = dice.choice(self._kinds)
        match kind:
            case "load":
                stage = dice.choice(list(Stage))
                self._tried(kind, lambda: client.load(stage))
            case "say":
                self._tried(kind, lambda: client.say("Dinner is ready."))
            case "cancelled question":
                self._ask(client, kind, wire.Ask(text=mix.QUESTIONS[-1], speech=dice.random() < 0.5), b"")
            case _:
                self._ask(client, kind, *self._query(kind))
        self._wait(dice.random() * 0.1)

    def _query(self, kind: str) -> tuple[wire.Ask, bytes]:
        dice, question = self._dice, "question" in kind
        stream = dice.random() < 0.7
        if kind.startswith("spoken"):
            pcm = dice.choice(self._voices.questions if question else self._voices.commands)
            return wire.Ask(speech=True, stream=stream), pcm
        text = dice.choice(mix.QUESTIONS if question else mix.COMMANDS)
        conversation = f"soak-{dice.randrange(4)}" if question and dice.random() < 0.5 else None
        return wire.Ask(text=text, speech=kind.endswith("aloud"), stream=stream, conversation=conversation), b""

    def _ask(self, client: Client, kind: str, ask: wire.Ask, pcm: bytes) -> None:
        cancel_s = self._dice.random() if kind.startswith("cancelled") else 0.0
        begin, code, message, stage, parts = time.monotonic(), "", "", None, ""
        try:
            sent, query_id, started = client.ask(ask, pcm), "", 0.0
            for reply, _ in client.replies(sent, ENDS_S):
                match reply:
                    case wire.Accepted(query_id=query_id):
                        pass
                    case wire.Started():
                        started = time.monotonic()
                    case wire.Report(error=error):
                        parts = _parts(reply)
                        if error is not None:
                            code, message, stage = error.code, error.message, error.stage
                if cancel_s and started and time.monotonic() >= started + cancel_s:
                    cancel_s = 0.0
                    client.cancel(query_id)
        except AssistantError as error:
            code, message, stage = error.code, error.message, error.stage
        self.did.append(Did(kind, begin, time.monotonic(), code, message, stage, query=True, parts=parts))


def _parts(report: wire.Report) -> str:
    """Seconds: loading and running of each stage."""
    told = (f"{one.name} {one.load_ms / 1000:.1f}+{one.run_ms / 1000:.1f}" for one in report.stages)
    return f"{', '.join(told)}, {report.memory.mode}"


class TimerKeeper(Actor):
    """The only one who sets timers: whatever it was told is set has to stay until it cancels it."""

    def __init__(self, name: str, folder: Path, gate: Gate, seed: int) -> None:
        super().__init__(name, folder, gate, seed)
        self.kept: set[str] = set()
        """The ids of those that have to be there."""
        self.faults: list[str] = []
        """What was lost, or is there though nobody set it."""

    def act(self, client: Client) -> None:
        if len(self.kept) >= TIMERS or (self.kept and self._dice.random() < 0.4):
            id = self._dice.choice(sorted(self.kept))
            if self._tried("timer cancelled", lambda: client.timers("cancel", id)):
                self.kept.discard(id)
        else:
            hours = self._dice.randrange(2, 13)
            before = len(self.did)
            self._tried("timer set", lambda: self._set(client, hours))
            self._look(client, was_set=not self.did[before].code)
        self._wait(self._dice.random())

    def _set(self, client: Client, hours: int) -> None:
        sent = client.ask(wire.Ask(text=f"set a timer for {hours} hours", stream=False))
        for reply, _ in client.replies(sent, ENDS_S):
            if isinstance(reply, wire.Report) and reply.error is not None:
                raise AssistantError(reply.error.message, code=reply.error.code, stage=reply.error.stage)

    def _look(self, client: Client, *, was_set: bool) -> None:
        """One that was set although its query failed is no fault: the error came behind it."""
        there = self.compare(client)
        new = there - self.kept
        if was_set and len(new) != 1:
            self.faults.append(f"a timer was set, and {len(new)} are new")
        self.kept |= new

    def compare(self, client: Client) -> set[str]:
        """The ids that are there. Called by others only while the gate is closed."""
        there = {one.id for one in client.timers()}
        if lost := self.kept - there:
            self.faults.append(f"{len(lost)} timers were lost")
            self.kept &= there
        return there


class Watcher(Actor):
    """Looks at the status, what runs, and whether somebody is there."""

    def act(self, client: Client) -> None:
        if self._dice.random() < 0.8:
            self._tried("status", client.status)
        else:
            looks: list[Callable[[], object]] = [client.ps, client.ping, client.snapshot, client.timers]
            self._tried("look", self._dice.choice(looks))
        self._wait(0.05 + 0.2 * self._dice.random())


class Subscriber(Actor):
    """Comes, hears events for a while or never reads one, and goes."""

    def act(self, client: Client) -> None:
        dice = self._dice
        topics = dice.choice([(), ("run-",), ("memory-", "stage-"), ("reply-delta",)])
        until, reads = time.monotonic() + 0.1 + 1.5 * dice.random(), dice.random() < 0.8
        feed, begin = Feed(topics), time.monotonic()
        with hearing(self._folder, feed.topics) as socket:
            while not self._gate.closed and time.monotonic() < until:
                if not reads:
                    time.sleep(0.05)
                elif socket.poll(50):
                    feed.take(socket.recv_multipart())
        deaf = reads and not feed.pid and time.monotonic() - begin > 1
        self.did.append(Did("subscribe", begin, time.monotonic(), "no-welcome" if deaf else ""))
