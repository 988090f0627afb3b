"""`python -m assistant` and the console script. Imports the command line only when it is called."""

from __future__ import annotations


def main() -> None:
    from assistant.cli import app

    app()


if __name__ == "__main__":
    main()
