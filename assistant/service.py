"""The process behind `assistant run`: one assistant, its sockets, its signals. Imports no typer, no rich, no numpy.

`python -m assistant.service [--set key=value]...`. Everything heavier than the standard library is imported in `main`,
where a Ctrl-C meets no half-made module.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assistant.api.queries import QueryEvents
    from assistant.api.server import Server
    from assistant.config import Config
    from assistant.daemon import Assistant

_LEAVE_S = 1.0
"""That a running query gets to end by itself."""
_FEWEST_FILES = 256
"""Below, a few dozen clients at a time would be the end: libzmq ends the process that cannot open one file more."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(args: list[str]) -> int:
    """Runs until a signal or `shutdown`. The exit code."""
    from assistant import log_format
    from assistant.cli_output import say
    from assistant.errors import AssistantError, ConfigError
    from assistant.machine import allow_descriptors, keep_malloc_tidy, may_be_scheduled

    keep_malloc_tidy()
    files = allow_descriptors()
    try:
        if files < _FEWEST_FILES:
            raise AssistantError(
                f"only {files} files may be open at a time, and a daemon needs {_FEWEST_FILES}, better 1024: raise the"
                " limit ('ulimit -n 1024' before it starts, LimitNOFILE=1024 in a unit)",
                code="too-few-files",
            )
        if not may_be_scheduled():
            raise AssistantError(
                "a filter of system calls forbids sched_setscheduler, which libzmq needs: allow it (in a unit:"
                " SystemCallFilter=sched_setscheduler as a last line)",
                code="system-call-forbidden",
            )
        if len(args) % 2 or any(flag != "--set" for flag in args[::2]):
            raise ConfigError("usage: python -m assistant.service [--set key=value]...")
        from assistant import config as settings

        config = settings.load(args[1::2])
        log_format.set_up(config.log.level, config.log.format)
        asyncio.run(_serve(config))
    except AssistantError as error:
        say(f"error: {error.message}")
        return int(error.exit_code)
    except OSError as error:  # a disk or a limit that nobody else has a word for
        say(f"error: the daemon cannot go on: {error}")
        return 1
    return 0


async def _serve(config: Config) -> None:
    from assistant import paths
    from assistant.api import security, sockets
    from assistant.api.admission import Limits
    from assistant.api.handlers import Handlers
    from assistant.api.queries import QueryEvents
    from assistant.api.server import Server
    from assistant.cli_output import say
    from assistant.config_checks import tcp_address
    from assistant.daemon import Assistant
    from assistant.daemon_voice import endpoint_settings
    from assistant.notify import Notifier, Watchdog

    notifier = Notifier()
    stop = asyncio.Event()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    folder = sockets.prepared(paths.runtime_dir())
    events = QueryEvents()
    where = tcp_address(config.api.tcp)
    # before anything is started: without keys and clients nothing listens
    network = security.network(where, paths.keys_dir(config.api.keys_dir)) if where else None
    line = Limits(slots=config.stages.llm.slots, deadline_s=config.api.deadline_s)
    handlers = Handlers(config.stages.intent.handler_timeout_s)
    # the lock comes first: of two that start at the same moment, one touches nothing of the other
    with sockets.DaemonLock(folder):
        async with (
            Assistant(
                config, owner=paths.daemon_owner(), emit=events, voice=config.audio.enabled, handlers=handlers
            ) as assistant,
            Server(assistant, events, folder, stop.set, handlers, line, endpoint_settings(config), network) as server,
            _extras(config, assistant, server, events),
            Watchdog(notifier),
        ):
            for what in await assistant.missing():
                say(f"warning: {what}")
            say(f"ready: {folder}")
            notifier.ready("ready")
            await stop.wait()
            notifier.stopping()
            # a query that runs is cancelled; a worker that does not hear of it must not keep us for long
            asyncio.get_running_loop().call_later(_LEAVE_S, assistant.end_workers)


@asynccontextmanager
async def _extras(config: Config, assistant: Assistant, server: Server, events: QueryEvents) -> AsyncIterator[None]:
    """What is off by default, and imported only where it is on."""
    async with AsyncExitStack() as stack:
        if config.wyoming.enabled:
            from assistant.api.wyoming.bridge import Bridge

            bridge = await stack.enter_async_context(Bridge(assistant, server.queries, config.wyoming.uri))
            events.listeners.append(bridge.follow)
        if config.metrics.enabled:
            from assistant.api.prometheus import Figures
            from assistant.api.prometheus_http import MetricsServer

            figures = Figures(assistant.status, server.queries)
            events.listeners.append(figures.follow)
            await stack.enter_async_context(MetricsServer(figures.page, config.metrics.address, config.metrics.port))
        yield


if __name__ == "__main__":
    # until the loop takes them over, there is nothing to clean up
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from assistant.__main__ import open_missing_descriptors

    open_missing_descriptors()
    sys.exit(main(sys.argv[1:]))
