"""Random legal layouts of random jobs, for the tests of the cost model."""

from __future__ import annotations

import numpy as np

from meshwright import catalog
from meshwright.costmodel import legal
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import RANK_ORDERS, RECOMPUTE_NAMES, LayoutBatch

MODELS = ("gpt2-xl", "llama-2-7b", "llama-2-70b", "bloom-176b", "megatron-39.1b", "mistral-7b")
CLUSTERS = ("1x8 H100", "4x8 A100-80GB", "48x8 A100-80GB, 4x100Gb OPA", "64x8 H100", "2x8 V100-32GB")


def job(rng: np.random.Generator, cluster: Cluster) -> TrainingJob:
    """A job that could run there: any model, batch, attention kernel and precision of the GPU."""
    bf16 = "bf16" in cluster.gpu.peak_flops_per_s
    overlap = bool(rng.integers(2))
    return TrainingJob(
        model=catalog.model(str(rng.choice(MODELS))),
        seq_len=int(rng.choice([512, 1024])),
        global_batch=int(rng.choice([96, 512, 1536, 2048])),
        precision="bf16" if bf16 and rng.integers(2) else "fp16",
        attention="flash" if cluster.gpu.compute_capability >= 80 and rng.integers(2) else "unfused",
        overlap_grad_reduce=overlap,
        overlap_param_gather=overlap,
        gradient_accumulation_fusion=bool(rng.integers(2)),
        straggler_ratio=float(rng.choice([0.0, 0.05])),
    )


def legal_layouts(rng: np.random.Generator, of: TrainingJob, cluster: Cluster, n: int) -> LayoutBatch:
    """Up to ``n`` random legal rows (by rejection)."""
    size = 400 * n
    tp = rng.choice([1, 2, 4, 8], size)
    pp = rng.choice([1, 2, 3, 4, 5, 6, 8, 10, 12, 16], size)
    vpp = rng.choice([1, 1, 2, 3, 4], size)
    batch = LayoutBatch(
        **{
            name: column.astype(np.int32)
            for name, column in {
                "dp": np.maximum(cluster.n_gpus // (tp * pp), 1),
                "tp": tp,
                "sp": rng.integers(0, 2, size),
                "pp": pp,
                "vpp": vpp,
                "schedule": (vpp > 1).astype(int),
                "stage_split": rng.integers(0, 2, size),
                "zero_stage": rng.integers(0, 2, size),
                "micro_batch": rng.choice([1, 2, 4, 8], size),
                "recompute": rng.choice(list(RECOMPUTE_NAMES.values()), size),
                "rank_order": rng.integers(0, 2, size),
            }.items()
        },
        rank_orders=RANK_ORDERS,
    )
    violated = np.zeros(size, bool)
    for rows in legal(of, cluster, batch).values():
        violated |= rows
    return batch.take(np.flatnonzero(~violated)[:n])
