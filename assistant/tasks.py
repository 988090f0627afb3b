"""Work that a cancel must not cut in two, and work that a cancel must not wait for. Imports nothing of ours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(work: Awaitable[T]) -> T:
    """Finishes `work` whatever happens to the caller meanwhile; a cancel that came is raised afterwards.

    Only for work with deadlines of its own: the caller cannot be cancelled out of it.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:  # noqa: BLE001 - raised below, by the task's own result
            break
    if cancelled and not task.cancelled():
        task.exception()  # looked at, so that asyncio does not complain of it
        raise asyncio.CancelledError
    return task.result()


async def both(first: Coroutine[Any, Any, None], second: Coroutine[Any, Any, None]) -> None:
    """Runs both at the same time. What one of them raises ends the other, and is raised once that has ended."""
    tasks = [asyncio.create_task(first), asyncio.create_task(second)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def in_own_thread(work: Callable[[], T]) -> T:
    """Runs `work`, which may block for ever (a pipe that nobody writes to), in a thread that no exit waits for.

    A cancelled caller leaves at once; the thread ends with its work or with the process.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(act: Callable[[], None]) -> None:
        if not done.done():
            act()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
            told = error
            tell = lambda: done.set_exception(told)  # noqa: E731
        else:
            tell = lambda: done.set_result(result)  # noqa: E731
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, tell)

    threading.Thread(target=run, daemon=True).start()
    return await done
