"""What the pages say is so: links lead somewhere, code is code, and everything that they name exists."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml  # type: ignore[import-untyped]

from assistant import config, reference
from assistant.messages import Stage
from tests.docs.pages import PAGES, ROOT, Block, all_blocks, anchors, command_lines, links, prose, spans

KEYS = {key for key, *_ in reference.settings()}
VERBS: dict[str, Any] = dict(reference.verbs())
GROUPS = {" ".join(path.split()[:length]) for path in VERBS for length in range(1, len(path.split()) + 1)}
_SECTIONS = {key.partition(".")[0] for key in KEYS}


def by_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            assert link.startswith(("https://", "mailto:")), f"{link} is not safe"
            continue
        where, _, anchor = unquote(link).partition("#")
        target = (page.parent / where).resolve() if where else page
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{link} leads out of the project"
        if anchor:
            assert anchor in anchors(target), f"{link}: there is no such heading"


def test_every_page_of_the_guide_is_in_its_index() -> None:
    index = {(ROOT / "docs" / link).resolve() for link in links(ROOT / "docs/README.md")}
    missing = {page for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"} - index
    assert not missing


def test_the_front_page_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_a_semicolon_ends_no_sentence(page: Path) -> None:
    found = re.findall(r"[^\n]*[;,]\n(?:An?|The|This|It|If|When|What|Who|Each|To|With) [^\n]*", prose(page))
    assert found == []


# --- code -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("block", all_blocks("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.code, str(block), "exec", dont_inherit=True)


@pytest.mark.parametrize("block", all_blocks("json"), ids=str)
def test_json_parses(block: Block) -> None:
    assert json.loads(block.code)


@pytest.mark.parametrize("block", all_blocks("yaml"), ids=str)
def test_yaml_parses(block: Block) -> None:
    assert yaml.safe_load(block.code)


@pytest.mark.parametrize("block", all_blocks("toml"), ids=str)
def test_settings_are_taken(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(block.code, "utf-8")
    if block.marks == "other":
        assert tomllib.loads(block.code)
    else:
        assert config.load(files=[file], environ={}) != config.Config()


@pytest.mark.parametrize("profile", sorted((ROOT / "examples/profiles").glob("*.toml")), ids=lambda path: path.name)
def test_profiles_are_taken(profile: Path) -> None:
    assert config.load(files=[profile], environ={}) != config.Config()


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_are_whole_and_bring_nothing_in(picture: Path) -> None:
    root = ElementTree.fromstring(picture.read_text("utf-8"))
    assert root.tag.endswith("svg")
    assert not re.search(r"<script|href=\"http", picture.read_text("utf-8"))


def test_every_block_says_what_it_is() -> None:
    unknown = [str(block) for block in all_blocks("bash", "shell", "ini", "py", "js")]
    assert not unknown, "write sh, console, toml, python, json or yaml"


@pytest.mark.parametrize("block", all_blocks("sh", "console"), ids=str)
def test_commands_are_run_or_it_is_said_why_not(block: Block) -> None:
    assert re.fullmatch(r"run|not run: \S.+", block.marks), "mark it `run`, or `not run: REASON`"


# --- names ----------------------------------------------------------------------------------------------------------
def test_every_setting_that_is_named_exists() -> None:
    wrong = []
    for page in PAGES:
        named = {span for span in spans(page) if span.partition(".")[0] in _SECTIONS}
        named |= set(re.findall(r"--set[ =]([a-z_.]+)=", page.read_text("utf-8")))
        for name in named:
            key = name.partition("=")[0].strip()
            if not re.fullmatch(r"[a-zX]+(\.[a-zX0-9_]+)+", key) or key.endswith((".py", ".toml", ".md", ".json")):
                continue
            options = {key.replace(".X.", f".{stage}.") for stage in Stage}
            if not any(one == known or known.startswith(one + ".") for one in options for known in KEYS):
                wrong.append(f"{by_name(page)}: {key}")
    assert not wrong


def _said(page: Path) -> list[str]:
    """Everything on a page that is a call of the command line."""
    lines = [line for block in all_blocks("sh", "console") if block.page == page for line in command_lines(block)]
    found = re.findall(r"(?:^|[;&|(] *|exec |sudo |bin/)(assistant [^#&|;<>\n]*)", "\n".join(lines), re.MULTILINE)
    return [*found, *(span for span in spans(page) if span.startswith("assistant "))]


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_verb_and_option_that_is_named_exists(page: Path) -> None:
    for call in _said(page):
        try:
            words = shlex.split(call)
        except ValueError:
            words = call.split()
        if len(words) == 1 or not re.match(r"[a-z]|--", words[1]):
            continue  # "assistant VERB", or a sentence about the assistant
        for first in words[1].split("|"):
            _check_call(call, [words[0], first, *words[2:]])


def _check_call(call: str, words: list[str]) -> None:
    length = max(length for length in range(1, len(words) + 1) if " ".join(words[:length]) in GROUPS)
    verb = " ".join(words[:length])
    assert length > 1 or words[1].startswith("--"), f"{call!r}: there is no such verb"
    if verb not in VERBS and length < len(words) and "|" in words[length]:
        for one in words[length].split("|"):
            _check_call(call, [*words[:length], one, *words[length + 1 :]])
        return
    known = {"--help", "--version", "--install-completion", "--show-completion"} | (
        {name for one in reference.options_of(verb, VERBS[verb]) for name in one.names} if verb in VERBS else set()
    )
    for word in words[length:]:
        if word == "--":
            return
        option = re.match(r"\[?(--[a-z][a-z-]*)", word)
        assert option is None or option[1] in known, f"{call!r}: {verb} has no {word}"
