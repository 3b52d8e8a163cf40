"""Score pairs against counting them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from .block.cases import model, shapes


def _counted(length: int, window: int, *, causal: bool) -> int:
    query, key = np.meshgrid(np.arange(length), np.arange(length), indexing="ij")
    seen = np.abs(query - key) < window if window else np.ones((length, length), bool)
    return int(np.sum(seen & (key <= query) if causal else seen))


@given(
    length=st.integers(16, 128),
    documents=st.integers(1, 6),
    window=st.integers(0, 160),
    causal=st.booleans(),
)
def test_score_pairs_are_those_that_one_counts(length: int, documents: int, window: int, causal: bool) -> None:
    """Whole or windowed, causal or not, in packed documents of equal length.

    A half square is counted without its diagonal's half, so the two differ by half a pair a query at most: a query
    and itself, which the closed forms of the field leave out.
    """
    found = shapes(model(64), seq_len=length * documents, document_len=float(length)).score_pairs(
        causal=causal, window=window
    )
    counted = documents * _counted(length, window, causal=causal)
    assert abs(found - counted) <= 1.0 * length * documents


@pytest.mark.parametrize(("length", "window"), [(8192, 128), (32768, 4096), (4096, 4096)])
def test_long_windows_count_to_a_thousandth(length: int, window: int) -> None:
    """gpt-oss's and Mistral's windows: a causal query sees its window, but for the first ones."""
    found = shapes(model(64), seq_len=length).score_pairs(window=window)
    exact = sum(min(i + 1, window) for i in range(length))
    assert found == pytest.approx(exact, rel=1.0 / window)


def test_documents_longer_than_the_sequence_are_cut_by_it() -> None:
    assert shapes(model(64), seq_len=100, document_len=1000.0).score_pairs() == 5000.0
