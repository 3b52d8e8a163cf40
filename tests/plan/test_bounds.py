"""The edges found by doubling and halving are those that trying every number finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshwright.plan.bounds import PATIENCE, first, greatest


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 70))
def test_greatest_is_the_last_that_holds(low: int, span: int, edge: int) -> None:
    holding = [n for n in range(low, low + span + 1) if n < edge]
    assert greatest(low, low + span, lambda n: n < edge) == (holding[-1] if holding else None)


@given(st.lists(st.integers(0, 200), unique=True, max_size=50), st.sets(st.integers(0, 200)), st.integers(0, 210))
def test_first_passes_over_what_has_no_answer(counts: list[int], silent: set[int], edge: int) -> None:
    counts.sort()
    holding = [n for n in counts if n not in silent and n >= edge]
    assert first(counts, lambda n: None if n in silent else n >= edge) == (holding[0] if holding else None)


def test_silence_ends() -> None:
    asked: list[int] = []

    def silent(n: int) -> None:
        asked.append(n)

    assert first(range(1, 100_000), silent) is None
    assert len(asked) == PATIENCE


@given(st.integers(1, 1 << 20), st.integers(1, 1 << 20))
def test_few_questions_are_enough(high: int, edge: int) -> None:
    asked: list[int] = []

    def holds(n: int) -> bool:
        asked.append(n)
        return n < edge

    greatest(1, high, holds)
    assert len(asked) <= 2 * high.bit_length() + 2
    assert len(asked) == len(set(asked))
