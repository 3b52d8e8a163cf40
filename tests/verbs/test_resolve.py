"""Flags of the job become fields, what was not said is assumed, and what cannot be is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright import catalog
from meshwright.costmodel.parameters import block_parameters
from meshwright.errors import InputError
from meshwright.specs.job import TrainingJob
from meshwright.specs.request import JobRequest
from meshwright.verbs.resolve import Resolved, resolve


def resolved(**fields: Any) -> Resolved:
    return resolve(JobRequest(**{"model": "llama-2-7b", "cluster": "8xH100", **fields}))


def test_a_job_that_says_nothing_is_what_it_was() -> None:
    job = resolved().job
    defaults = TrainingJob(model=job.model, seq_len=job.seq_len, global_batch=job.global_batch)
    assert job == defaults
    assert (job.precision, job.optimizer, job.kind) == ("bf16", "adam", "pretrain")


def test_flags_become_fields() -> None:
    job = resolved(
        kind="dpo",
        precision="FP8",
        optimizer="AdamW8bit",
        master_dtype="bf16",
        lora=16,
        document_len=512,
        expert_load=1.5,
    ).job
    assert (job.kind, job.precision, job.optimizer, job.master_dtype) == ("dpo", "fp8", "adam_8bit", "bf16")
    assert (job.lora_rank, job.document_len, job.expert_load_ratio) == (16, 512, 1.5)


@pytest.mark.parametrize(
    "text",
    [
        "kind=dpo",
        "fp8_recipe=delayed",
        "fp8_param_gather=true",
        "master_dtype=none",
        "moment_dtype=bf16",
        "optimizer=adamw8bit",
        "lora_rank=8",
        "document_len=100",
        "expert_load_ratio=2",
        "rollout_ratio=0.5",
        "tp_comm_overlap=true",
    ],
)
def test_every_field_can_be_set(text: str) -> None:
    name, _equals, _value = text.partition("=")
    assert getattr(resolved(set=(f"job.{text}",)).job, name) != getattr(resolved().job, name)


def test_frozen_kinds_are_a_list() -> None:
    assert resolved(set=("job.frozen=embedding, mlp",)).job.frozen == ("embedding", "mlp")


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"precision": "fp6"}, "MW-E404", "fp16"),
        ({"precision": "nvfp4"}, "MW-E405", "fp8"),
        ({"set": ("job.precision=nvfp4",)}, "MW-E405", "fp8"),
        ({"cluster": "8xA100-80GB", "precision": "fp8"}, "MW-E405", "tf32"),
        ({"precision": "fp8", "set": ("job.fp8_recipe=mxfp8",)}, "MW-E405", "tensorwise"),
        ({"set": ("cluster.gpu=V100-32GB",)}, "MW-E405", "fp16"),
        ({"optimizer": "moun"}, "MW-E404", "muon"),
        ({"kind": "dop"}, "MW-E404", "dpo"),
        ({"kind": "dpo", "global_batch": 63}, "MW-E121", "64"),
        ({"set": ("job.frozen_dtype=nf4",)}, "MW-E122", "--lora"),
        ({"set": ("job.frozen=mpl",)}, "MW-E404", "mlp"),
        ({"lora": 0}, "MW-E403", "--lora"),
        ({"document_len": 0}, "MW-E403", "--document-len"),
        ({"expert_load": 0.9}, "MW-E403", "--expert-load"),
        ({"expert_load": float("nan")}, "MW-E403", "--expert-load"),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, Any], code: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        resolved(**fields)
    assert caught.value.code == code
    assert says in str(caught.value)


def test_assumptions_belong_to_the_jobs_that_make_them() -> None:
    ours = {"rollout_ratio", "reference_forward", "expert_load_ratio", "fp8_recipe"}
    assert not ours & resolved().assumed.keys()
    assert ours & resolved(kind="dpo").assumed.keys() == {"reference_forward"}
    assert ours & resolved(kind="grpo", precision="fp8").assumed.keys() == ours - {"expert_load_ratio"}
    said = resolved(kind="grpo", set=("job.rollout_ratio=0.5", "job.reference_forward=false"))
    assert not ours & said.assumed.keys()


@pytest.mark.parametrize(("cluster", "recipe"), [("8xH100", "tensorwise"), ("8xB200", "mxfp8")])
def test_the_usual_recipe_of_a_chip(cluster: str, recipe: str) -> None:
    found = resolved(cluster=cluster, precision="fp8")
    assert found.job.fp8_recipe == recipe == found.assumed["fp8_recipe"].value
    assert resolved(cluster=cluster, precision="fp8", set=("job.fp8_recipe=delayed",)).job.fp8_recipe == "delayed"


def test_routed_experts_are_assumed_balanced() -> None:
    models = [catalog.model(name) for name in catalog.names("model")]
    for model in models:
        layers = [members for group in model.layers for members in [group.blocks]]
        routed = any(block_parameters(model, members).expert for members in layers)
        assert ("expert_load_ratio" in resolved(model=model.name, seq_len=128).assumed) == routed
        assert "expert_load_ratio" not in resolved(model=model.name, seq_len=128, expert_load=1.5).assumed


def test_post_training_takes_small_batches_in_pairs() -> None:
    for cluster in ("1xH100", "8xH100", "3x8 H100"):
        batch = resolved(cluster=cluster, kind="dpo").job.global_batch
        assert batch % 2 == 0
        assert 128 <= batch <= 512


def test_gradients_narrow_to_the_format_of_the_activations() -> None:
    def alternative(precision: str) -> object:
        change = resolved(precision=precision).assumed["grad_dtype"].alternative
        return change and change.value

    assert [alternative(p) for p in ("bf16", "fp16", "fp8", "tf32")] == ["bf16", "fp16", "bf16", None]
