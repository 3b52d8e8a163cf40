"""Fit: whether a job fits a cluster, and the largest of everything that does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from meshwright.specs.estimate import Estimate
from meshwright.specs.fact import Noun
from meshwright.specs.layout import Layout
from meshwright.specs.plan import Assumed


class MicroBatch(Noun):
    """The largest micro-batches of one layout, in sequences; None where not even one sequence fits.

    ``largest_micro_batch`` keeps the number of micro-batches and lets the global batch grow with it;
    ``dividing_micro_batch`` is the largest that divides the given global batch, ``estimate`` the step with it.
    """

    layout: Layout
    largest_micro_batch: int | None
    dividing_micro_batch: int | None
    estimate: Estimate | None
    command: str | None


class Limit(Noun):
    """The most (or the fewest) of something that fits, and the command that shows it. ``value`` None: nothing does.

    ``name`` is ``longest_sequence`` (tokens), ``largest_model`` (parameters, ``text`` its name) or ``fewest_gpus``.
    ``layout`` is one that fits there. ``at_end``: the range that was tried ends there, not what fits.
    """

    name: Literal["longest_sequence", "largest_model", "fewest_gpus"]
    value: int | None
    text: str
    layout: Layout | None
    command: str | None
    at_end: bool = False


class FitReport(Noun):
    """What ``mw fit`` found. ``fits`` speaks of the cluster; the limits are those of layouts with room to spare.

    ``fastest`` is the fastest layout that fits, ``least_memory`` the legal one with the lowest peak, ``misses_bytes``
    what that one lacks a GPU where nothing fits.
    """

    verdict: str
    model: Mapping[str, Any]
    cluster: Mapping[str, Any]
    job: Mapping[str, Any]
    fits: Literal["yes", "tight", "no"]
    fastest: Estimate | None
    least_memory: Estimate | None
    misses_bytes: float | None
    why_none: str | None
    micro_batches: tuple[MicroBatch, ...]
    limits: tuple[Limit, ...]
    assumed: Mapping[str, Assumed]
    searched: int
    elapsed_s: float
    interrupted: bool
    next_command: str
