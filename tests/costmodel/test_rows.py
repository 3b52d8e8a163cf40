"""Distinct rows."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.costmodel.rows import dense_codes, distinct


@pytest.mark.parametrize("top", [2, 3, 1000, 1 << 24])
def test_distinct_gathers_back_and_stands_for_the_first(top: int) -> None:
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, top, 5000), rng.integers(0, 5, 5000), np.full(5000, 7)]
    first, inverse = distinct(columns)
    for column in columns:
        np.testing.assert_array_equal(column[first][inverse], column)
    keys = {(int(a), int(b)) for a, b, _same in zip(*columns, strict=True)}
    assert len(first) == len(keys)
    assert (first[inverse] <= np.arange(5000)).all()
    coded = [dense_codes(columns[0]), columns[1]]
    assert len(distinct(coded)[0]) == len(keys)


def test_codes_are_dense_and_ordered() -> None:
    codes, n_values = dense_codes(np.array([30, 4, 4, 1000]))
    assert codes.tolist() == [1, 0, 0, 2]
    assert n_values == 3
