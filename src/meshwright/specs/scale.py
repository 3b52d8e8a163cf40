"""Points: a job on one size of a cluster with its best layout; and the curve that ``mw scale`` makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.specs.estimate import Estimate
from meshwright.specs.fact import Noun
from meshwright.specs.plan import Assumed


class Point(Noun):
    """The fastest layout of a job on one cluster; ``estimate`` None where nothing fits, ``why_none`` says why.

    ``misses_bytes`` is what the smallest legal layout lacks a GPU. What belongs to a whole training is None without
    ``tokens``: ``time_to_train_s`` and its interval without failures, ``time_to_train_with_failures_s`` with them
    (p50, p90), of whose p50 ``median_interval_s`` is the interval, and ``gpu_hours``, ``cost_usd`` and ``energy_j``
    what it takes. ``cost_usd`` and ``price`` are None where no price is known; ``cost_range_usd`` spans all prices of
    that tier that the catalog knows for the GPU.
    """

    cluster: str
    n_gpus: int
    n_nodes: int
    gpus_per_node: int
    global_batch: int
    estimate: Estimate | None
    misses_bytes: float | None = None
    why_none: str | None = None
    tokens_per_s: float | None = None
    efficiency_ratio: float | None = None
    time_to_train_s: float | None = None
    time_to_train_interval_s: tuple[float, float] | None = None
    time_to_train_with_failures_s: Mapping[str, float] | None = None
    median_interval_s: tuple[float, float] | None = None
    gpu_hours: float | None = None
    cost_usd: float | None = None
    cost_range_usd: tuple[float, float] | None = None
    energy_j: float | None = None
    price: Mapping[str, Any] | None = None


class ScaleReport(Noun):
    """What ``mw scale`` found: one point a GPU count, ascending.

    ``efficiency_ratio`` of a point is its tokens/s/GPU over that of the smallest count that fits. ``knee_n_gpus`` is
    the largest count up to which it stays at ``least_efficiency_ratio`` or above; ``no_faster_n_gpus`` the first
    count that yields no more tokens/s than the one before it (None: each does).
    """

    verdict: str
    model: Mapping[str, Any]
    job: Mapping[str, Any]
    weak: bool
    points: tuple[Point, ...]
    least_efficiency_ratio: float
    knee_n_gpus: int | None
    no_faster_n_gpus: int | None
    assumed: Mapping[str, Assumed]
    searched: int
    elapsed_s: float
    interrupted: bool
    next_command: str
