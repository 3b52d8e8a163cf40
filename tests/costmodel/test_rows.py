"""Distinct rows."""

from __future__ import annotations

import numpy as np

from meshwright.costmodel.rows import distinct


def test_distinct_gathers_back_and_stands_for_the_first() -> None:
    rng = np.random.default_rng(1)
    for top in (3, 1000, 1 << 24):
        columns = [rng.integers(0, top, 5000), rng.integers(0, 5, 5000)]
        first, inverse = distinct(columns)
        for column in columns:
            np.testing.assert_array_equal(column[first][inverse], column)
        keys = {(int(a), int(b)) for a, b in zip(*columns, strict=True)}
        assert len(first) == len(keys)
        assert (first[inverse] <= np.arange(5000)).all()
