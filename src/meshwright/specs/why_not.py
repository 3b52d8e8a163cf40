"""Why not: one layout, or all that share a part, against the chosen one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from meshwright.specs.estimate import Estimate
from meshwright.specs.fact import Noun


class WhyNot(Noun):
    """Why the layouts that agree with ``asked`` lose to ``chosen``.

    ``outcome``: ``illegal`` (``rule`` and the values it speaks of), ``memory`` (``other`` is the one that comes
    nearest, ``misses_bytes`` what it lacks, ``largest_class`` what fills it), ``slower``, ``faster`` or ``chosen``
    (``other`` is the fastest that agrees). ``terms_s`` adds up to the difference of the step times, losses first.
    """

    sentence: str
    target: str
    asked: Mapping[str, Any]
    outcome: Literal["illegal", "memory", "slower", "faster", "chosen"]
    chosen: Estimate | None
    other: Estimate | None
    searched: int
    rule: str | None = None
    rule_text: str | None = None
    rule_values: Mapping[str, int] = {}
    misses_bytes: float | None = None
    largest_class: str | None = None
    remedies: tuple[Mapping[str, Any], ...] = ()
    slower_ratio: float | None = None
    terms_s: Mapping[str, float] = {}
    next_command: str
    interrupted: bool = False
