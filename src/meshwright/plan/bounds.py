"""The edge of a yes or no: the greatest number that still holds, the first count that begins to.

Both double until the answer turns and then halve the gap, so they need some 2 log2(n) questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: Counts in a row without an answer that are taken for the end of answers.
PATIENCE = 128


def greatest(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """The greatest n of ``low``..``high`` for which ``holds``, which turns false once and stays so.

    None where it does not hold for ``low``.
    """
    if low > high or not holds(low):
        return None
    good, bad, step = low, high + 1, 1
    while good + step < bad:
        if holds(good + step):
            good, step = good + step, 2 * step
        else:
            bad = good + step
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def first(counts: Sequence[int], holds: Callable[[int], bool | None]) -> int | None:
    """The first of the ascending ``counts`` for which ``holds``, which turns true once and stays so.

    A count may have no answer (None: nothing divides there); the next of up to PATIENCE that has stands in for it.
    None where none of them holds.
    """

    def ask(index: int, end: int) -> tuple[int, bool] | None:
        """The first count of ``index``..``end - 1`` that has an answer, and the answer."""
        for place in range(index, min(end, index + PATIENCE)):
            answer = holds(counts[place])
            if answer is not None:
                return place, answer
        return None

    low, edge, place = -1, len(counts), 0
    known: int | None = None
    while place < len(counts):
        told = ask(place, len(counts))
        if told is None or told[1]:
            edge, known = (place, None) if told is None else (told[0], told[0])
            break
        low = told[0]
        place = len(counts) if low == len(counts) - 1 else min(2 * low + 1, len(counts) - 1)
    # ``known`` holds; from ``edge`` up to it nothing has an answer.
    while edge - low > 1:
        middle = (low + edge) // 2
        told = ask(middle, edge)
        if told is None:
            edge = middle
        elif told[1]:
            known = edge = told[0]
        else:
            low = told[0]
    return None if known is None else counts[known]
