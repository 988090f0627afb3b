"""Which supervisor a stage has now, looked up where no disk can keep the daemon: in threads, with a deadline.

Part of the composition root. What is known already is told without a disk: `status` needs no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from assistant.daemon_stages import Found, Stages
from assistant.disk import Alive, Disk
from assistant.errors import AssistantError, ModelError, ModelUnreachable, StageError
from assistant.memory_orchestrator.policy import Need
from assistant.messages import STAGE_ORDER, Stage
from assistant.stages.spec import StageSpec
from assistant.stages.supervisor import Supervisor

log = logging.getLogger(__name__)
T = TypeVar("T")

_SENTENCES_S = 0.2
"""That a command waits for the disk with the user's own sentences; after it, those that are known are understood."""


class Looks:
    """`await looks(Stage.LLM)` gives the supervisor that is the right one now."""

    def __init__(
        self,
        stages: Stages,
        disk: Disk,
        *,
        also: Callable[[StageSpec], None] = lambda spec: None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`also`: what else is to be looked at, in the same thread; may block. `changed`: is told when a stage has
        another supervisor than before, or none any more."""
        self._stages, self._disk = stages, disk
        self._also, self._changed = also, changed
        self._known: dict[Stage, Supervisor | None] = {}
        self._again: dict[Stage, asyncio.Task[None]] = {}

    async def __call__(self, stage: Stage) -> Supervisor:
        """Raises `ModelError` when the stage's model cannot be used, `ModelUnreachable` when nobody can tell."""
        understood = self._stages.understood()
        found = self._stages.at_hand(stage, understood)
        try:
            if found is None or stage is Stage.INTENT:
                found = await self._looked_up(stage, understood, found)
        except AssistantError:
            self._set(stage, None)
            raise
        supervisor = self._stages.supervisor(found)
        self._set(stage, supervisor)
        return supervisor

    async def _looked_up(self, stage: Stage, understood: Any, known: Found | None) -> Found:
        """`known`: will do where the disk does not answer soon, or fails."""
        find = functools.partial(self._find, stage, understood)
        if known is None:
            return await self.ask(stage, find)
        try:
            async with asyncio.timeout(_SENTENCES_S):
                return await self._disk.ask(stage, find)
        except OSError:  # a time-out is one
            return known

    def _find(self, stage: Stage, understood: Any, alive: Alive) -> Found:
        """In a thread."""
        found = self._stages.find(stage, understood, alive)
        self._also(found.spec)
        return found

    async def ask(self, what: str, work: Callable[[Alive], T]) -> T:
        """`what`: a stage, or what else needs models. Raises `ModelUnreachable`, also for an `OSError` of `work`, and
        what else that raises."""
        try:
            return await self._disk.ask(what, work)
        except TimeoutError as error:
            wrong = f"{error} that holds what {what} needs ({self._stages.where(what)})"
        except OSError as error:
            wrong = f"what {what} needs cannot be read: {error}"
        raise ModelUnreachable(
            f"{wrong}: look after it (the kernel's log may say more), then ask again",
            stage=what if what in STAGE_ORDER else None,
        )

    def _set(self, stage: Stage, supervisor: Supervisor | None) -> None:
        before = self._known.get(stage)
        self._known[stage] = supervisor
        if before is not supervisor:
            self._changed()

    async def instead(self, failed: Supervisor, error: StageError) -> Supervisor | None:
        """See `Stages.begin_pause`: the local stage that takes the place, if there is one."""
        if not self._stages.begin_pause(failed, error):
            return None
        try:
            other = await self(failed.spec.stage)
        except ModelError as unusable:
            log.info("%s: nothing takes the server's place: %s", failed.name, unusable.message)
            return None
        return other if self._stages.is_local(other) else None

    async def check_small(self) -> None:
        """See `Stages.check_small`."""
        with contextlib.suppress(ModelUnreachable):  # told by whoever needs it
            await self.ask(Stage.LLM, self._stages.check_small)

    async def all(self) -> list[str]:
        """Looks at all of them; gives what cannot be used of what is configured, and what to do."""
        found = await asyncio.gather(*map(self, STAGE_ORDER), return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, ModelError):
                raise one
        return [one.message for one in found if isinstance(one, ModelError)]

    # --- without a disk ---------------------------------------------------------------------------------------------
    def known(self) -> list[Supervisor]:
        """Those that can be used, as they were when somebody looked last."""
        return [known for stage in STAGE_ORDER if (known := self._known.get(stage)) is not None]

    def seen(self) -> list[Supervisor]:
        """The same for whoever may be the only one that asks: those that could not be used are looked at again
        meanwhile. Somebody may have put the model there."""
        for stage in STAGE_ORDER:
            if self._known.get(stage) is None and stage not in self._again:
                task = self._again[stage] = asyncio.create_task(self._look_again(stage))
                task.add_done_callback(functools.partial(self._looked, stage))
        return self.known()

    def _looked(self, stage: Stage, task: asyncio.Task[None]) -> None:
        del self._again[stage]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s could not be looked at", stage, exc_info=error)

    async def _look_again(self, stage: Stage) -> None:
        try:
            await self(stage)
        except AssistantError as error:
            log.debug("%s: %s", stage, error.message)

    def needs(self) -> list[Need]:
        """Of those that can be used."""
        return [supervisor.need() for supervisor in self.known()]

    async def close(self) -> None:
        for task in list(self._again.values()):
            task.cancel()
        await asyncio.gather(*self._again.values(), return_exceptions=True)
