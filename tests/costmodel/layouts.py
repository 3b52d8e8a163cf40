"""Random legal layouts of random jobs over every axis, for the tests of the cost model."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from meshwright import catalog
from meshwright.costmodel import legal
from meshwright.costmodel.schedule import schedules
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import (
    CP_KINDS,
    DISPATCHERS,
    OFFLOADS,
    ORDERED_AXES,
    RECOMPUTE_BITS,
    RECOMPUTE_NAMES,
    LayoutBatch,
)

#: Plain and grouped attention, latent attention, windows, state spaces, experts with and without shared ones.
MODELS = (
    "gpt2-xl", "llama-2-7b", "llama-2-70b", "bloom-176b", "megatron-39.1b", "mistral-7b",
    "mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b", "gpt-oss-20b", "gemma-3-12b", "qwen3-next-80b-a3b",
    "nemotron-h-8b", "llava-1.5-7b",
)  # fmt: skip
CLUSTERS = (
    "1x8 H100",
    "4x8 A100-80GB",
    "48x8 A100-80GB, 4x100Gb OPA",
    "64x8 H100",
    "2x8 V100-32GB",
    "16 nodes of gb200-tray",
)
OPTIMIZERS = ("adam", "unfused_adam", "adam_8bit", "sgd", "adafactor", "muon")
KINDS = ("pretrain", "pretrain", "pretrain", "sft", "dpo", "grpo", "ppo")
#: Every order of the axes.
RANK_ORDERS = tuple("-".join(axes) for axes in itertools.permutations(ORDERED_AXES))


def job(rng: np.random.Generator, cluster: Cluster) -> TrainingJob:
    """A job that could run there: any model, batch, attention kernel, optimizer, and precision of the GPU."""
    precisions = [name for name in ("fp16", "bf16", "fp8") if name in cluster.gpu.peak_flops_per_s]
    overlap = bool(rng.integers(2))
    lora = int(rng.choice([0, 0, 0, 16]))
    return TrainingJob(
        model=catalog.model(str(rng.choice(MODELS))),
        kind=str(rng.choice(KINDS)),
        reference_forward=bool(rng.integers(2)),
        seq_len=int(rng.choice([512, 1024])),
        global_batch=int(rng.choice([96, 512, 1536, 2048])),
        precision=str(rng.choice(precisions)),
        fp8_recipe=str(rng.choice(["delayed", "tensorwise", "blockwise"])),
        optimizer=str(rng.choice(OPTIMIZERS)),
        attention="flash" if cluster.gpu.compute_capability >= 80 and rng.integers(2) else "unfused",
        lora_rank=lora,
        frozen_dtype="nf4" if lora and rng.integers(2) else "same",
        document_len=[None, 300.0][int(rng.integers(2))],
        expert_load_ratio=float(rng.choice([1.0, 1.3])),
        overlap_grad_reduce=overlap,
        overlap_param_gather=overlap,
        tp_comm_overlap=bool(rng.integers(2)),
        gradient_accumulation_fusion=bool(rng.integers(2)),
        straggler_ratio=float(rng.choice([0.0, 0.05])),
    )


def legal_layouts(rng: np.random.Generator, of: TrainingJob, cluster: Cluster, n: int) -> LayoutBatch:
    """Up to ``n`` random legal rows (by rejection)."""
    size = 1_000 * n
    names = tuple(schedules())
    experts = any(block.kind == "moe" for kind in of.model.layer_kinds for block in kind)
    masks = [*RECOMPUTE_NAMES.values(), *RECOMPUTE_BITS.values(), RECOMPUTE_BITS["mlp"] | RECOMPUTE_BITS["norm"]]
    tp = rng.choice([1, 2, 4, 8], size)
    cp = rng.choice([1, 1, 2, 4], size)
    pp = rng.choice([1, 2, 3, 4, 5, 6, 8, 10, 12, 16], size)
    dp = np.maximum(cluster.n_gpus // (tp * cp * pp), 1)
    zero = rng.integers(0, 4, size)
    one = np.ones(size, int)
    offload = np.where(zero >= 1, rng.choice([0, 0, *range(len(OFFLOADS))], size), 0)
    columns = {
        "dp": dp,
        "dp_replicate": np.where(zero >= 1, rng.choice([1, 1, 2, 4], size), 1),
        "tp": tp,
        # Models with experts want it beside tensor parallelism.
        "sp": np.where(experts, tp > 1, rng.integers(0, 2, size)),
        "cp": cp,
        "cp_kind": rng.integers(0, len(CP_KINDS), size),
        "pp": pp,
        "vpp": rng.choice([1, 1, 2, 3, 4], size),
        "schedule": rng.integers(0, len(names), size),
        "stage_split": rng.integers(0, 2, size),
        "ep": rng.choice([1, 2, 4, 8, 16], size) if experts else one,
        "etp": np.where(rng.integers(0, 2, size), tp, 1) if experts else one,
        "dispatcher": rng.integers(0, len(DISPATCHERS), size),
        "zero_stage": zero,
        "reshard_after_forward": rng.integers(0, 2, size),
        "micro_batch": rng.choice([1, 2, 4, 8], size),
        "recompute": rng.choice(masks, size),
        "offload_optimizer": offload,
        "offload_parameters": np.where(zero >= 3, np.minimum(offload, rng.integers(0, len(OFFLOADS), size)), 0),
        "rank_order": rng.integers(0, len(RANK_ORDERS), size),
    }
    rows: dict[str, Any] = {name: column.astype(np.int32) for name, column in columns.items()}
    batch = LayoutBatch(**rows, schedules=names, rank_orders=RANK_ORDERS)
    violated = np.zeros(size, bool)
    for broken in legal(of, cluster, batch).values():
        violated |= broken
    return batch.take(np.flatnonzero(~violated)[:n])
