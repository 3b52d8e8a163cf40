"""Models and passes that preference training and RL add."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel.post_training import (
    extra_model_copies,
    forward_only_passes,
    rollout_ratio,
    rollout_time_s,
    trained_passes,
)
from meshwright.specs.job import TrainingJob


def job(**fields: object) -> TrainingJob:
    return TrainingJob.model_validate({"model": catalog.model("gpt2"), "seq_len": 512, "global_batch": 64, **fields})


@pytest.mark.parametrize(
    ("kind", "copies", "forwards", "trained"),
    [
        ("pretrain", [], 0, 1),
        ("sft", [], 0, 1),
        ("dpo", ["reference"], 1, 1),
        ("grpo", ["reference"], 2, 1),
        # Four models: policy, reference, reward, critic (arXiv 2203.02155).
        ("ppo", ["reference", "critic", "reward"], 4, 2),
    ],
)
def test_models_beside_the_policy(kind: str, copies: list[str], forwards: int, trained: int) -> None:
    asked = job(kind=kind)
    assert [copy.name for copy in extra_model_copies(asked)] == copies
    assert [copy.name for copy in extra_model_copies(asked) if copy.trainable] == ["critic"] * (kind == "ppo")
    assert all(copy.weights_bytes_per_parameter == 2 for copy in extra_model_copies(asked))
    assert forward_only_passes(asked) == forwards
    assert trained_passes(asked) == trained


def test_stored_log_probabilities_need_no_reference() -> None:
    asked = job(kind="dpo", reference_forward=False)
    assert extra_model_copies(asked) == []
    assert forward_only_passes(asked) == 0


def test_with_adapters_the_base_is_its_own_reference() -> None:
    asked = job(kind="dpo", lora_rank=8)
    assert extra_model_copies(asked) == []
    assert forward_only_passes(asked) == 1


def test_rollouts_take_their_share_of_the_iteration() -> None:
    training = np.array([1.0, 2.0])
    rollout = rollout_time_s(training, 0.8)
    assert rollout / (rollout + training) == pytest.approx(0.8)
    assert rollout_ratio(job(kind="grpo")) == 0.8
    assert rollout_ratio(job(kind="dpo")) == 0.0
    assert (rollout_time_s(training, rollout_ratio(job())) == 0).all()
