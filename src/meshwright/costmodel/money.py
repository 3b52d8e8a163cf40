"""Money: what the GPUs of a training cost at a price by the hour."""

from __future__ import annotations

from meshwright.formula import formula


@formula("GPU-hours x price of one", "USD")
def cost_usd(n_gpus: int, time_s: float, usd_per_gpu_hour: float) -> float:
    """What ``n_gpus`` cost for ``time_s``; they are paid for while they restart, too."""
    return n_gpus * time_s / 3600.0 * usd_per_gpu_hour
