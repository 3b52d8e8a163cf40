"""Post-training: the models that stand beside the one that is trained, and the passes they add to a step.

DPO: Rafailov et al., arXiv 2305.18290. PPO with four models: Ouyang et al., arXiv 2203.02155. GRPO drops critic and
reward model: Shao et al., arXiv 2402.03300. All are taken to be as large as the policy and cut like it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.operator import FloatArray
from meshwright.formula import formula
from meshwright.specs.job import TrainingJob


class ModelCopy(NamedTuple):
    """A further model of the policy's size: bytes a parameter of its weights, and whether it is trained too."""

    name: str
    weights_bytes_per_parameter: float
    trainable: bool


def extra_model_copies(job: TrainingJob) -> list[ModelCopy]:
    """Models that are held beside the policy. With LoRA the reference is the base without its adapters: no copy."""
    width = float(job.element_bytes)
    copies = []
    if job.kind in ("dpo", "grpo", "ppo") and job.reference_forward and not job.lora_rank:
        copies.append(ModelCopy("reference", width, trainable=False))
    if job.kind == "ppo":
        copies += [ModelCopy("critic", width, trainable=True), ModelCopy("reward", width, trainable=False)]
    return copies


def forward_only_passes(job: TrainingJob) -> int:
    """Forwards without a backward that every sequence of a step goes through, each as long as the policy's.

    The reference's; with RL also the policy's own, whose log-probabilities the ratio is taken to (the rollout engine's
    are not precise enough); with PPO also the reward's and the critic's.
    """
    reference = int(job.reference_forward)
    return {"dpo": reference, "grpo": reference + 1, "ppo": reference + 3}.get(job.kind, 0)


def trained_passes(job: TrainingJob) -> int:
    """Forward-and-backward passes of every sequence: the policy's, with PPO the critic's too."""
    return 2 if job.kind == "ppo" else 1


@formula("a pipeline of forwards: m micro-batches at the pace of its slowest rank, after pp - 1 chunks to fill", "s")
def forward_only_time_s(
    forward_s: FloatArray,
    n_micro_batches: FloatArray,
    pp: npt.NDArray[np.int32],
    vpp: npt.NDArray[np.int32],
    passes: int,
) -> FloatArray:
    """Time of ``passes`` forwards of every sequence through models that are not trained, (n,)."""
    return np.asarray(passes * forward_s * (n_micro_batches + (pp - 1.0) / vpp))


@formula("an iteration spends a given share generating: rollout = step x ratio / (1 - ratio)", "s")
def rollout_time_s(training_s: FloatArray, rollout_ratio: float) -> FloatArray:
    """Time of generating what ``training_s`` of an iteration then trains on, (n,)."""
    return training_s * rollout_ratio / (1.0 - rollout_ratio)


def rollout_ratio(job: TrainingJob) -> float:
    """The share of an iteration that goes into generating: none unless the job generates its own sequences."""
    return job.rollout_ratio if job.kind in ("grpo", "ppo") else 0.0
