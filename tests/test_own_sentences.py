"""The user's own sentences beside a daemon that runs: read before the next command, and told of once when broken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.daemon_process import Place, until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]

CAT = "intents:\n  FeedCat:\n    data:\n      - sentences: ['{}']\n"
"""Nobody carries it out, so no language model is asked either."""


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with Place() as one:
        one.daemon()
        yield one


def understood(place: Place, text: str) -> str:
    report = place.json("ask", text, "--no-speech")
    return str(report["intent"]["name"])


def test_a_file_that_comes_is_changed_and_goes_is_noticed_and_a_broken_one_told_once(place: Place) -> None:
    file = place.folder / "config/assistant/intents/en/cat.yaml"
    assert place.json("ask", "what time is it", "--no-speech")["outcome"] == "handled"  # the stage is loaded now
    assert not file.parent.parent.exists(), "not even the folder"
    file.parent.mkdir(parents=True)
    file.write_text(CAT.format("feed the cat"))
    assert understood(place, "feed the cat") == "FeedCat"
    file.write_text(CAT.format("give the cat a bowl"))
    assert understood(place, "give the cat a bowl") == "FeedCat"

    file.write_text(CAT.format("feed the cat {portion}"))
    for _ in range(2):
        assert place.json("ask", "what time is it", "--no-speech")["outcome"] == "handled"
        place.run("unload", "intent")
    told = f"{file}, line 4: 'feed the cat {{portion}}': there is no list {{portion}}; this file is left out"
    assert until(lambda: told in place.log())
    assert place.log().count(told) == 1, "once, however often it is loaded"
    file.write_text(CAT.format("feed the cat"))
    assert understood(place, "feed the cat") == "FeedCat"
    file.write_text(CAT.format("feed the cat {portion}"))
    assert place.json("ask", "what time is it", "--no-speech")["outcome"] == "handled"
    assert until(lambda: place.log().count(told) == 2), "broken anew"
