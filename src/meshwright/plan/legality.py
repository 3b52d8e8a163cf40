"""Why a layout is not legal, and the nearest one that is."""

from __future__ import annotations

import itertools
import math
from typing import Any

from meshwright.costmodel import legal
from meshwright.plan.space import divisors, lawful
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import COLUMNS, Layout, LayoutBatch


def broken_rules(job: TrainingJob, cluster: Cluster, layout: Layout) -> list[str]:
    """The rules that ``layout`` breaks, in the order in which they are checked."""
    return [rule for rule, violated in legal(job, cluster, LayoutBatch.of([layout])).items() if violated[0]]


def nearest_legal(job: TrainingJob, cluster: Cluster, layout: Layout) -> Layout | None:
    """The legal layout that changes the fewest columns of ``layout`` by the least; None if nothing near is legal.

    The distance of two numbers is the logarithm of their ratio; dp follows from tp and pp.
    """
    options = [layout.model_copy(update=change) for change in _neighbours(job, cluster, layout)]
    batch = LayoutBatch.of(options)
    allowed = [option for option, fine in zip(options, lawful(job, cluster, batch)[0], strict=True) if fine]
    return min(allowed, key=lambda option: distance(layout, option), default=None)


def distance(one: Layout, other: Layout) -> tuple[float, float]:
    """How many columns differ (dp not counted: it follows; tp and pp twice), then how far the numbers are apart.

    Another tp or pp is another layout of every tensor; another chunking or micro-batch is a flag.
    """
    differ = [name for name in (*COLUMNS, "tp", "pp") if name != "dp" and getattr(one, name) != getattr(other, name)]
    numbers = ("tp", "pp", "dp", "vpp", "micro_batch")
    apart = sum(abs(math.log(getattr(one, name) / getattr(other, name))) for name in numbers)
    return len(differ), apart


def _neighbours(job: TrainingJob, cluster: Cluster, layout: Layout) -> list[dict[str, Any]]:
    """Every tp, pp and micro-batch around ``layout``, with the switches as they are and as they are always legal."""
    n_gpus = cluster.n_gpus
    found: list[dict[str, Any]] = []
    plain: dict[str, Any] = {"vpp": 1, "schedule": "1f1b", "stage_split": "even"}
    for tp, pp in itertools.product(divisors(n_gpus), divisors(n_gpus)):
        if n_gpus % (tp * layout.cp * pp):
            continue
        dp = n_gpus // (tp * layout.cp * pp)
        share = divisors(job.global_batch // dp) if job.global_batch % dp == 0 else []
        # Far micro-batches are never the nearest answer; the closest few below and above are.
        sizes = sorted(share, key=lambda size: abs(math.log(size / layout.micro_batch)))[:2]
        degrees = {"tp": tp, "pp": pp, "dp": dp, "sp": layout.sp and tp > 1}
        switches: list[dict[str, Any]] = [{}, plain]
        if layout.vpp > 1 and pp > 1 and job.model.n_layers % pp == 0:
            switches += [{"vpp": vpp} for vpp in divisors(job.model.n_layers // pp) if vpp > 1]
        found.extend(degrees | {"micro_batch": size} | switch for size in sizes for switch in switches)
    return found
