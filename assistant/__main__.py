"""`python -m assistant` and the console script. Imports the command line only when it is called."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

_PACKAGE = "local-voice-assistant"


def _leave_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def open_missing_descriptors() -> None:
    """Where the caller closed stdin, stdout or stderr, the next file that is opened would take their number.

    Children inherit what stands in for them; Python, which found nothing there, gets its streams of them.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free, which is this one
        if getattr(sys, name) is None:
            stream = open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def main() -> None:
    open_missing_descriptors()
    # while modules are imported there is nothing to clean up, and a traceback would help nobody; a verb that has
    # something to clean up takes Ctrl-C over (cli_output.reported)
    signal.signal(signal.SIGINT, _leave_at_once)
    if sys.argv[1:2] == ["ask"] and "--help" not in sys.argv:
        from assistant import paths

        # where a daemon runs, the query goes to it and needs no fork server of its own
        if "--standalone" in sys.argv or not os.path.exists(paths.control_socket()):
            from assistant.stages import spawn

            spawn.early()
    try:
        from assistant.cli import run
    except ImportError as error:  # not even the command line's own packages are whole
        version = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"error: Python {version}: {error}; {sys.executable} -m pip install --force-reinstall {_PACKAGE}")
    sys.exit(run())


if __name__ == "__main__":
    main()
