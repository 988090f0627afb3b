"""The pages of the documentation: their headings, links, and blocks of code.

How a block of commands is marked, in the line that opens it: `sh run` is run by the tests; `sh not run: REASON` is not.
A line of it that ends with `# exit: 3` must end with that exit code. `toml other` is no settings file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    + [ROOT / one / "README.md" for one in ("examples", "models", "assistant/data")]
)
_FENCE = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1 *$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+(?:\([^()]*\))?)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    marks: str
    """What stands behind the language."""
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for found in _FENCE.finditer(text):
        language, _, marks = found[2].strip().partition(" ")
        yield Block(page, text[: found.start()].count("\n") + 1, language, marks.strip(), found[3])


def all_blocks(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


def prose(page: Path) -> str:
    """Without blocks of code."""
    return _FENCE.sub("", page.read_text("utf-8"))


def spans(page: Path) -> list[str]:
    """Code inside of sentences."""
    return _SPAN.findall(prose(page))


def links(page: Path) -> list[str]:
    return _LINK.findall(_SPAN.sub("", prose(page)))


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        number, plain = 0, slug
        while slug in found:
            number += 1
            slug = f"{plain}-{number}"
        found.add(slug)
    return found


def command_lines(block: Block) -> list[str]:
    """The commands of a block, of a `console` block those behind its prompts."""
    lines = block.code.splitlines()
    if block.language == "console":
        return [line[2:] for line in lines if line.startswith("$ ")]
    return [line for line in lines if line.strip() and not line.startswith("#")]
