"""What leaves a rank for a collective over ``n`` ranks, by the bandwidth-optimal algorithms (Thakur et al. 2005)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from meshwright.costmodel.axis import Traffic

SHARES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


def sent_bytes(traffic: Traffic, n: int) -> float:
    """Bytes that a rank sends for ``traffic`` of one row over a group of ``n``."""
    share = 1.0 if traffic.collective == "send_recv" else SHARES[traffic.collective] * (n - 1) / n
    return float(np.sum(traffic.size_bytes * traffic.count)) * share


def total_bytes(found: Iterable[Traffic], n: int, phase: str | None = None) -> float:
    """Bytes that a rank sends for all ``found`` (of a phase), every group having ``n`` ranks."""
    return sum(sent_bytes(traffic, n) for traffic in found if phase in (None, traffic.phase))
