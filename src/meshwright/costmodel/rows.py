"""Distinct rows: compute a table once for each combination of values, then gather it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: Above this many cells a dense table of combinations costs more than sorting.
_DENSE_LIMIT = 1 << 22
#: Above this many cells the combinations so far are coded anew, so that tables stay in cache.
_RECODE_LIMIT = 1 << 17
#: Columns of at most this many values are always their own codes.
_FEW_VALUES = 4


#: A column of small non-negative integers, or codes 0..size-1 with their number.
Column = npt.NDArray[np.integer] | tuple[npt.NDArray[np.integer], int]


def distinct(columns: Sequence[Column]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Distinct rows over columns of length n.

    Returns ``first`` (d,), the index of a row that stands for each combination, and ``inverse`` (n,) into it.
    """
    codes, n_values = _coded(columns[0], 1)
    for column in columns[1:]:
        more, n_more = _coded(column, n_values)
        if n_more > 1:
            codes = codes * np.int64(n_more) + more
            n_values *= n_more
            if n_values > _RECODE_LIMIT:
                codes, n_values = dense_codes(codes)
    if n_values > _RECODE_LIMIT:
        codes, n_values = dense_codes(codes)
    inverse: npt.NDArray[np.intp] = np.asarray(codes, np.intp)
    first = np.full(n_values, -1, np.intp)
    # Written back to front, so that the first row of each combination stays.
    first[inverse[::-1]] = np.arange(len(inverse) - 1, -1, -1)
    present = np.flatnonzero(first >= 0)
    if len(present) == n_values:
        return first, inverse
    number = np.empty(n_values, np.intp)
    number[present] = np.arange(len(present))
    return np.asarray(first[present], np.intp), number.take(inverse)


def _coded(column: Column, n_values: int) -> tuple[npt.NDArray[np.integer], int]:
    """A column's codes and their number, to be combined with ``n_values`` others."""
    if isinstance(column, tuple):
        return column
    top = int(column.max(initial=0)) + 1
    # Values that do not all occur may be codes as long as a table of the combinations is small beside the rows.
    return (column, top) if top <= max(_FEW_VALUES, len(column) // n_values) else dense_codes(column)


def dense_codes(column: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.intp], int]:
    """Codes 0..d-1 of a column's values in increasing order, and d."""
    top = int(column.max(initial=0)) + 1
    if top > _DENSE_LIMIT:
        values, inverse = np.unique(column, return_inverse=True)
        return inverse, len(values)
    present = np.zeros(top, bool)
    # Converted once: numpy would for every use of an index that is not intp.
    codes = np.asarray(column, np.intp)
    present[codes] = True
    values = np.flatnonzero(present)
    if len(values) <= 1:
        return np.zeros(len(codes), np.intp), len(values)
    if len(values) == top:
        return codes, top
    table = np.zeros(top, np.intp)
    table[values] = np.arange(len(values))
    return table.take(codes), len(values)
