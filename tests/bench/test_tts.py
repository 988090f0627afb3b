"""The benchmark of speech synthesis: its figures, and one real run of each engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.bench import tts
from assistant.errors import EngineFailed


def spoken(engine: str, time: float, peak: float) -> tts.Spoken:
    return tts.Spoken(
        engine=engine, speech_s=4, import_s=0.1, load_s=time, first_audio_s=time, whole_s=time, peak_mib=peak
    )


def found(time: float, peak: float, long_peak: float) -> tts.Tts:
    each = {
        (engine, text): spoken(engine, 1.0, 200)
        for engine in tts.ENGINES
        for text in (tts.SHORT, tts.SENTENCE, tts.LONG)
    }
    each["piper-mnn", tts.SENTENCE] = spoken("piper-mnn", time, peak)
    each["piper-mnn", tts.LONG] = spoken("piper-mnn", time, long_peak)
    return tts.judged(each, 1)


def test_each_target_is_told_apart() -> None:
    good = found(0.2, 150, 210)
    assert good.reached
    assert good.ratios["piper-mnn"] == {"load": 0.2, "first_audio": 0.2, "whole": 0.2, "peak": 0.75}
    slow = found(0.3, 150, 210)
    assert (slow.targets["load"], slow.targets["first_audio"], slow.reached) == (False, True, False)
    assert not found(0.2, 170, 210).targets["peak"]
    assert not found(0.2, 150, 230).targets["flat"]
    assert "load <= 0.25: MISSED" in tts.table(slow)


def test_medians_are_of_each_figure() -> None:
    middle = tts.medians([spoken("piper", 1, 30), spoken("piper", 3, 10), spoken("piper", 2, 20)])
    assert (middle.load_s, middle.peak_mib) == (2, 20)


def test_an_engine_that_does_not_speak_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="no-such-engine did not speak"):
        tts.speak("no-such-engine", "hello", str(tmp_path))


@pytest.mark.engine
@pytest.mark.parametrize("engine", tts.ENGINES)
def test_a_real_run_of_each_engine(engine: str, tmp_path: Path) -> None:
    one = tts.speak(engine, tts.SHORT, str(tmp_path))
    assert 1.5 < one.speech_s < 2.5
    assert 0 < one.first_audio_s <= one.whole_s
    assert 30 < one.peak_mib < 300
