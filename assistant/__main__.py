"""`python -m assistant` and the console script. Imports the command line only when it is called."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from assistant.cli import app

        app()
    except KeyboardInterrupt:  # between the verbs' own handling: while modules load, and on the way out
        sys.exit(130)


if __name__ == "__main__":
    main()
