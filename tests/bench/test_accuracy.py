"""The embedded LLM is its source, and the figures that say so are computed as they claim."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from assistant.bench import accuracy, mnn_logits
from assistant.bench.embedded import embedded_gguf
from assistant.errors import ModelDamaged, ModelMissing
from assistant.model_store.convert_gguf import ConversionReport, convert_gguf
from assistant.model_store.vocabulary import Vocabulary
from tests.lacking import lacks


def logits(*probabilities: float) -> NDArray[np.float32]:
    """A constant added to them changes no distribution."""
    return np.log(np.array([probabilities], np.float32)) + np.float32(5)


def test_divergence_is_kullback_leiblers() -> None:
    assert accuracy.divergence(logits(0.5, 0.5), logits(0.5, 0.5))[0] == pytest.approx(0, abs=1e-6)
    wanted = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert accuracy.divergence(logits(0.5, 0.5), logits(0.25, 0.75))[0] == pytest.approx(wanted, abs=1e-6)


def test_agreement_tells_prompt_and_answer_apart() -> None:
    """Two tokens of prompt and one of answer: the row after the last prompt token chooses the answer's first."""
    even, left, right = logits(0.5, 0.5), logits(0.9, 0.1), logits(0.1, 0.9)
    exact = mnn_logits.Run([1, 2], [0], np.concatenate([even, left, left]))
    other = mnn_logits.Run([1, 2], [0], np.concatenate([even, right, left]))
    found = accuracy.compare("x", [exact], [other])
    assert (found.steps, found.top1) == (2, 0.5)
    assert found.kl_prefill == pytest.approx(0, abs=1e-6)
    assert found.kl_decode == pytest.approx(0.8 * math.log(9) / 2, abs=1e-6)


@pytest.mark.parametrize(
    ("equal", "kl", "top1", "verdict"),
    [(5, 1e-3, 0.99, "reached"), (4, 1e-3, 0.99, "MISSED"), (5, 1e-2, 0.99, "MISSED"), (5, 1e-3, 0.9, "MISSED")],
)
def test_the_settings_that_users_get_are_judged_and_the_others_told(
    equal: int, kl: float, top1: float, verdict: str
) -> None:
    users = accuracy.Agreement(settings="users", kl_prefill=kl, kl_decode=kl / 2, top1=top1, steps=180)
    other = accuracy.Agreement(settings="other", kl_prefill=1, kl_decode=1, top1=0, steps=180)
    found = accuracy.Accuracy(
        greedy_equal=equal, questions=5, greedy_steps=180, max_logit_difference=1e-4, agreements=[users, other]
    )
    first, _, _, *rows, _, last = accuracy.table(found).splitlines()
    assert f"greedy tokens equal on {equal}/5 questions (180 tokens), logits within 1.0e-04" in first
    assert [row.split()[0] for row in rows] == ["users", "other"]
    assert last.endswith(f": {verdict}")


def test_a_missing_file_is_an_error_with_its_exit_status(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert accuracy.main(["--gguf", str(tmp_path / "none.gguf")]) == 6
    assert "cannot be read" in capfd.readouterr().err


def test_a_directory_that_mnn_does_not_load_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "llm_config.json").write_text("{}")
    with pytest.raises(ModelDamaged):
        mnn_logits.run(tmp_path, mnn_logits.REFERENCE, [])


@pytest.fixture(scope="module")
def source() -> Path:
    try:
        return embedded_gguf()
    except ModelMissing as error:
        lacks("models", error.message)


@pytest.fixture(scope="module")
def embedded(source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ConversionReport]:
    model = tmp_path_factory.mktemp("embedded") / "model"
    return model, convert_gguf(source, model)


@pytest.mark.engine
def test_the_embedded_model_is_carried_over_whole(embedded: tuple[Path, ConversionReport]) -> None:
    _, report = embedded
    assert report.requantised == []
    assert report.shape["max_position"] == 8192
    assert report.stop_ids == [0, 2]


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_exact_answers_are_those_of_the_source(source: Path, embedded: tuple[Path, ConversionReport]) -> None:
    """Greedy tokens of MNN with `memory: high` equal numpy's on five questions, and the capital of France is Paris."""
    model, report = embedded
    jobs = [mnn_logits.Job(prompt=accuracy.chat_prompt(q), steps=12, stop=report.stop_ids) for q in accuracy.QUESTIONS]
    runs = mnn_logits.run(model, mnn_logits.REFERENCE, jobs)
    vocabulary = Vocabulary.open(model)
    assert b"Paris" in b"".join(vocabulary.bytes_of(token) for token in runs[0].tokens)
    equal, difference = accuracy.against_numpy(source, runs)
    assert equal == len(accuracy.QUESTIONS)
    assert difference < 1e-3

    users = accuracy.SETTINGS["low, attention 8"]
    forced = [mnn_logits.Job(prompt=run.prompt, forced=run.tokens) for run in runs]
    found = accuracy.compare("users", runs, mnn_logits.run(model, users, forced))
    assert max(found.kl_prefill, found.kl_decode) <= accuracy.MAX_KL
    assert found.top1 >= 0.9  # on few steps; the benchmark's target is on more
