"""Vosk: streaming partial results, segments, and damage deep inside a model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assistant.messages import AsrRequest, Progress, Transcript
from assistant.model_store.store import ModelInfo
from assistant.stages.asr_vosk import PARTIAL_CONFIDENCE, TAIL_S, Heard, VoskAsr, blocks_of
from tests.speech_corpus import clip_pcm
from tests.stages.asr_engines import CASES, loaded_in_child

CASE = next(case for case in CASES if case.engine == "vosk")


def result(text: str, *confidences: float) -> str:
    words = [{"word": word, "conf": conf} for word, conf in zip(text.split(), confidences, strict=True)]
    return json.dumps({"text": text, "result": words} if words else {"text": text})


# --- adding up results, without a model -----------------------------------------------------------------------------
def test_segments_are_joined_and_their_words_averaged() -> None:
    heard = Heard()
    heard.segment(result("turn on", 1.0, 0.8))
    heard.partial(json.dumps({"partial": "the"}))
    assert heard.text == "turn on the"
    heard.segment(result("the lamp", 0.4, 0.6))
    heard.segment(result(""))
    assert heard.text == "turn on the lamp"
    assert heard.confidence == pytest.approx(0.7)


def test_a_segment_that_ends_empty_keeps_its_last_partial() -> None:
    heard = Heard()
    heard.partial(json.dumps({"partial": "stop"}))
    heard.segment(result(""))
    assert (heard.text, heard.confidence) == ("stop", PARTIAL_CONFIDENCE)


def test_nothing_heard_is_nothing() -> None:
    heard = Heard()
    heard.partial(json.dumps({"partial": ""}))
    heard.segment(result(""))
    assert (heard.text, heard.confidence) == ("", 0.0)


# --- the real thing -------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def engine(model: Callable[[str], ModelInfo], tmp_path_factory: pytest.TempPathFactory) -> Iterator[VoskAsr]:
    engine = CASE.build(model(CASE.model).path, tmp_path_factory.mktemp("cache"))
    assert isinstance(engine, VoskAsr)
    engine.load()
    yield engine
    engine.close()


@pytest.mark.engine
def test_words_stream_while_the_audio_is_heard(engine: VoskAsr, speech: Path) -> None:
    pcm = clip_pcm(speech, CASE.clip)
    outputs = list(engine.run(AsrRequest(pcm=pcm)))
    partials = [out.text for out in outputs if isinstance(out, Transcript) and not out.final]
    assert partials[:2] == ["컴퓨터", "컴퓨터 빅스비"]
    assert len(outputs) > len(pcm) / 32_000 / 0.25  # a chance to cancel at least every quarter of a second
    assert sum(isinstance(out, Progress) for out in outputs) > len(partials)


@pytest.mark.engine
def test_speech_on_both_sides_of_a_pause_is_one_text(engine: VoskAsr, speech: Path) -> None:
    """Vosk closes a segment in the pause; a final result alone would lose what came before."""
    word = clip_pcm(speech, CASE.clip)[: int(2.6 * 32_000)]  # "컴퓨터"
    *_, last = engine.run(AsrRequest(pcm=word + bytes(3 * 32_000) + word))
    assert isinstance(last, Transcript)
    assert last.text.split().count("컴퓨터") == 2


@pytest.mark.engine
def test_sound_in_small_pieces_is_heard_like_a_whole_recording(engine: VoskAsr, speech: Path) -> None:
    pcm = clip_pcm(speech, CASE.clip)
    pieces = [pcm[at : at + 3071] for at in range(0, len(pcm), 3071)]  # not even whole samples
    begun = pieces[:20]
    chunks = iter(pieces[20:])
    outputs = list(engine.stream(AsrRequest(pcm=b"".join(begun), live=True), chunks))
    texts = [out for out in outputs if isinstance(out, Transcript)]
    assert texts[0].text == "컴퓨터"
    assert texts[-1].final
    assert texts[-1].text.startswith("컴퓨터 빅스비")
    assert any(out.segment_end for out in texts)
    assert not any(out.final or not out.text for out in texts[:-1])


def test_blocks_lose_nothing_and_wait_for_nothing() -> None:
    def chunks() -> Iterator[bytes]:
        yield bytes(range(256)) * 40
        given.append("first")
        yield b"\1" * 1001
        given.append("second")

    given: list[str] = []
    blocks = blocks_of(chunks())
    assert next(blocks) == (bytes(range(256)) * 40)[:6400]
    assert given == []  # the next chunk was not asked for yet
    assert len(b"".join(blocks)) == 10_240 + 1000 - 6400 + int(TAIL_S * 32_000)


@pytest.mark.engine
def test_a_cancelled_request_leaves_no_words_behind(engine: VoskAsr, speech: Path) -> None:
    started = engine.run(AsrRequest(pcm=clip_pcm(speech, CASE.clip)))
    for out in started:
        if isinstance(out, Transcript):
            break
    *_, last = engine.run(AsrRequest(pcm=bytes(32_000)))
    assert last == Transcript(text="", final=True, confidence=0.0)


@pytest.mark.engine
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["graph/Gr.fst", "graph/HCLr.fst", "ivector/final.ie"])
def test_damage_anywhere_is_no_silent_success(model: Callable[[str], ModelInfo], tmp_path: Path, name: str) -> None:
    """Kaldi may end its process over it; the supervisor turns that into `StageDied`."""
    shutil.copytree(model(CASE.model).path, tmp_path / "model", copy_function=os.symlink)
    path = tmp_path / "model" / name
    data = path.read_bytes()[: path.stat().st_size // 2]
    path.unlink()
    path.write_bytes(data)
    status, error, _ = loaded_in_child(CASE, tmp_path / "model", tmp_path)
    assert error == "ModelDamaged" or status != 0


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("现在 几点 了", "现在几点了"),
        ("播放 周杰伦 的 hello kitty 吧", "播放周杰伦的 hello kitty 吧"),
        ("電気 を つけて", "電気をつけて"),
        ("거실 불 켜", "거실 불 켜"),
        ("turn on the light", "turn on the light"),
    ],
)
def test_words_are_spaced_as_their_language_writes_them(said: str, written: str) -> None:
    heard = Heard()
    heard.partial(json.dumps({"partial": said}))
    assert heard.text == written
    heard.segment(json.dumps({"text": said, "result": [{"conf": 1.0, "word": word} for word in said.split()]}))
    assert (heard.text, heard.confidence) == (written, 1.0)
