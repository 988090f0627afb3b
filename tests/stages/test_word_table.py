"""The 4-bit word table: what is read is what was written, to half a step; and damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assistant.errors import ModelDamaged
from assistant.stages.word_table import GROUP, WordTable, quantised, write_table
from tests.stages.damage import HARMS, damaged


def _table(rows: int = 50, columns: int = 3 * GROUP) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.random.default_rng(3).normal(0, 0.1, (rows, columns)).astype(np.float32)


def test_rows_come_back_to_half_a_step(tmp_path: Path) -> None:
    table = _table()
    write_table(table, tmp_path / "w.bin")
    read = WordTable(tmp_path / "w.bin")
    _, scale, _ = quantised(table)
    ids = [7, 0, 49, 7]
    worst = np.abs(read.gather(ids) - table[ids]).reshape(4, -1, GROUP).max(2)
    assert len(read) == 50
    assert read.columns == 96
    assert (worst <= scale[ids].astype(np.float32) * 0.55 + 1e-4).all()
    assert worst.max() > 1e-3, "it is 4 bits after all"


def test_what_was_read_is_written_again_without_a_further_loss(tmp_path: Path) -> None:
    write_table(_table(), tmp_path / "w.bin")
    once = WordTable(tmp_path / "w.bin").gather(list(range(50)))
    write_table(once, tmp_path / "again.bin")
    assert np.abs(WordTable(tmp_path / "again.bin").gather(list(range(50))) - once).max() < 2e-3


def test_a_constant_row_is_kept_as_it_is(tmp_path: Path) -> None:
    write_table(np.full((2, GROUP), 0.25, np.float32), tmp_path / "w.bin")
    assert (WordTable(tmp_path / "w.bin").gather([1]) == 0.25).all()


def test_a_word_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    write_table(_table(), tmp_path / "w.bin")
    with pytest.raises(IndexError):
        WordTable(tmp_path / "w.bin").gather([50])


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "w.bin"
    write_table(_table(), path)
    with pytest.raises(ModelDamaged, match="install again"):
        WordTable(damaged(path, harm))
