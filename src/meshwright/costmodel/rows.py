"""Distinct rows: compute a table once for each combination of values, then gather it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: Above this many cells a dense table of combinations costs more than sorting.
_DENSE_LIMIT = 1 << 22


def distinct(columns: Sequence[npt.NDArray[np.integer]]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Distinct rows over small non-negative integer columns of length n.

    Returns ``first`` (d,), the index of a row that stands for each combination, and ``inverse`` (n,) into it.
    """
    key = np.zeros(len(columns[0]), np.int64)
    cells = 1
    for column in columns:
        codes, n_values = dense_codes(column)
        if n_values > 1:
            key = key * n_values + codes
            cells *= n_values
    if cells > _DENSE_LIMIT:
        _values, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        return first, inverse
    codes, n_values = dense_codes(key)
    first = np.empty(n_values, np.intp)
    # Written back to front, so that the first row of each combination stays.
    first[codes[::-1]] = np.arange(len(key) - 1, -1, -1)
    return first, codes


def dense_codes(column: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.intp], int]:
    """Codes 0..d-1 of a column's values in increasing order, and d."""
    top = int(column.max(initial=0)) + 1
    if top > _DENSE_LIMIT:
        values, inverse = np.unique(column, return_inverse=True)
        return inverse, len(values)
    present = np.zeros(top, bool)
    present[column] = True
    values = np.flatnonzero(present)
    table = np.zeros(top, np.intp)
    table[values] = np.arange(len(values))
    return table[column], len(values)
