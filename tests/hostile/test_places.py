"""Whose daemon it is, where it lies and what its language is: root and nobody, no HOME, odd paths, odd locales."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from assistant.messages import Outcome
from tests.hostile.world import LOCAL, NEEDED, QUESTION, World, checkout

pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]

ODD = "Küche 家 мой дом"
XDG = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")


@pytest.mark.root
def test_nobody_with_a_home_and_nothing_else() -> None:
    """Makes its caches anew, and needs no runtime folder."""
    with World(nobody=True) as world:
        for name in XDG:
            del world.environ[name]
        world.daemon()
        answer = json.loads(world.verb("ask", QUESTION, "--no-speech", "--json"))
        assert (answer["outcome"], "Paris" in answer["reply"]) == ("answered", True), answer
        home = world.folder / "home"
        assert {path.name for path in home.iterdir()} == {".cache", ".local"}
        assert (home / ".local/state/assistant/run").stat().st_mode & 0o777 == 0o700
        world.ends()


@pytest.mark.root
def test_nobody_without_a_home_is_told_what_to_set() -> None:
    with World(nobody=True) as world:
        for name in (*XDG, "HOME"):
            del world.environ[name]
        world.refused(2, "XDG_RUNTIME_DIR")
        # with a place for sockets it works, and says what is not kept
        world.environ["XDG_RUNTIME_DIR"] = str(world.runtime)
        world.daemon()
        told = json.loads(world.verb("ask", "set a timer for ten minutes", "--no-speech", "--json"))
        assert "will not survive a restart" in told["reply"]
        world.ends()


@pytest.mark.root
def test_nobody_with_the_environment_of_root() -> None:
    """As `su` and `sudo` can leave it."""
    with World(nobody=True) as world:
        roots = world.base / "root"
        roots.mkdir(mode=0o700)
        own = world.environ
        world.environ = {**own, "XDG_RUNTIME_DIR": str(roots)}
        assert "XDG_RUNTIME_DIR" in world.refused(2, str(roots))
        world.verb("status", code=2)
        assert world.verb("ask", LOCAL, "--no-speech").startswith("It is ")
        world.environ = {**own, "HOME": str(roots)}
        del world.environ["XDG_CONFIG_HOME"]
        world.refused(2, "XDG_CONFIG_HOME", ".config/assistant/config.toml")
        world.verb("ask", LOCAL, "--no-speech", code=2)


@pytest.mark.root
def test_root_without_home_and_runtime_folder_uses_roots_own() -> None:
    """As a unit of the system starts it. What is root's is hidden: nothing of the machine's own is touched."""
    hidden = "mkdir -p /root/.local && mount -t tmpfs tmpfs /root/.local && mount -t tmpfs tmpfs /run"
    with World(hidden) as world:
        for name in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME"):
            del world.environ[name]
        world.daemon()
        assert "ready: /run/assistant" in world.log
        world.runtime = Path("/run")
        world.works(llm=False)
        assert world.ask("set a timer for ten minutes").outcome == Outcome.HANDLED
        root = Path(f"/proc/{world.process.pid}/root")
        assert (root / "root/.local/state/assistant/timers.json").exists()
        world.ends()


def test_a_path_too_long_for_a_socket_is_told() -> None:
    with World(name="x" * 120) as world:
        world.refused(2, "XDG_RUNTIME_DIR", "107 bytes")
        world.environ["XDG_RUNTIME_DIR"] = str(world.base)
        world.daemon()
        world.runtime = world.base
        world.works(llm=False)
        world.ends()


@pytest.mark.parametrize("locale", ["zh_CN.GB18030", pytest.param("C", marks=pytest.mark.hostile)])
def test_everything_below_a_folder_with_spaces_and_letters_of_all_countries(locale: str) -> None:
    """Checkout, models, caches, state, sockets; in no locale at all, and in one that is not installed."""
    with World(name=ODD, own_cache=True) as world:
        world.root = moved(world.folder / "der Code")
        world.environ |= {"PYTHONPATH": str(world.root), "LANG": locale, "LC_ALL": locale}
        world.daemon()
        assert ODD in world.log
        world.works(llm=locale == "C")
        told = json.loads(world.verb("ask", f"{LOCAL}?", "--json", "--out", "Antwort é.wav"))
        assert (told["outcome"], told["audio"]["path"]) == ("handled", "Antwort é.wav")
        assert (world.folder / "Antwort é.wav").stat().st_size > 1000
        assert NEEDED[0] in world.verb("models", "list")
        world.ends()


def test_a_python_that_was_told_to_have_no_utf_8(long_form: bool) -> None:
    """The daemon speaks it all the same; a question whose letters were lost at the command line is told."""
    with World(name=ODD) as world:
        world.environ |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        world.daemon()
        world.works(llm=long_form)
        assert world.verb("ask", LOCAL, "--no-speech").startswith("It is ")
        told = json.loads(world.verb("ask", "Wo ist das Café?", "--no-speech", "--json", code=2))
        assert told["error"]["code"] == "text-not-unicode"
        world.ends()


def moved(folder: Path) -> Path:
    """A checkout there, with the models that are needed; linked file by file where the disk is the same."""
    here = checkout()
    parts = ["assistant", *(f"models/{name}" for name in NEEDED)]
    for part in parts:
        shutil.copytree((here / part).resolve(), folder / part, copy_function=_link, ignore=_no_caches)
    for file in ("pyproject.toml", "models/catalog.toml"):
        _link(str(here / file), str(folder / file))
    return folder


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


_no_caches = shutil.ignore_patterns("__pycache__")
