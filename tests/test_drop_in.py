"""One file adds one of each: a GPU, a node, a model, a kind of block, a collective, a schedule. No list is edited."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

GPU = """
# An A100 that computes twice as fast and holds half as much.
name = "Dropped-40G"
source = "test"
label = "inferred"
vendor = "Nobody"
architecture = "ampere"
compute_capability = 80
memory_bytes = "40 GiB"
memory_bytes_per_s = "4078 GB/s"
sm_count = 108
l2_bytes = "40 MiB"
boost_clock_hz = "1410 MHz"
scale_up_bytes_per_s = "300 GB/s"
pcie_bytes_per_s = "31.5 GB/s"
tdp_w = "400 W"
year = 2026
[peak_flops_per_s]
fp32 = "39 TFLOP/s"
fp16 = "624 TFLOP/s"
bf16 = "624 TFLOP/s"
[sources]
test = "made up for a test"
"""
NODE = """
name = "Dropped-Node"
usual_for = ["Dropped-40G"]
source = "test"
label = "inferred"
gpu = "Dropped-40G"
gpus_per_node = 8
scale_up = "nvswitch"
nic = "IB-HDR"
nics_per_node = 8
host_memory_bytes = "1 TB"
cpu_vendor = "amd"
[sources]
test = "made up for a test"
"""
MODEL = """
name = "Dropped-1B"
aliases = ["dropped"]
family = "dropped"
source = "test"
label = "inferred"
hidden_size = 2048
vocab_size = 32000
max_position_embeddings = 4096
tie_word_embeddings = false
[[prologue]]
kind = "embedding"
position_embeddings = 0
[[layers]]
repeat = 16
blocks = [
    {{ kind = "norm", norm = "rmsnorm" }},
    {{ kind = "attention", num_attention_heads = 16, num_key_value_heads = 16, head_dim = 128, rotary = true }},
    {{ kind = "norm", norm = "rmsnorm" }},
    {{ kind = "{kind}", intermediate_size = 8192 }},
]
[[epilogue]]
kind = "norm"
norm = "rmsnorm"
[[epilogue]]
kind = "head"
tied = false
[sources]
test = "made up for a test"
"""
BLOCK = '''
"""Two matrices and nothing else, sharded over tensor parallelism."""

from meshwright.costmodel.operator import Parameters, Saved, gemm

KIND = "dropped_mixer"
TP_REDUCE = ("forward", "backward")


def parameters(model, block):
    return Parameters(2 * model.hidden_size * int(block.options["intermediate_size"]), 0)


def operators(model, block, shapes):
    width = int(block.options["intermediate_size"]) / shapes.tp
    return [
        gemm("mixer_in", "mlp", shapes.tokens, width, model.hidden_size),
        gemm("mixer_out", "mlp", shapes.tokens, model.hidden_size, width),
    ]


def saved(model, block, shapes):
    return [Saved("mixer_input", "mlp", shapes.element_bytes * shapes.outer_tokens * model.hidden_size)]
'''
COLLECTIVE = '''
"""Bytes arrive as soon as they are sent."""

from meshwright.costmodel.nccl import SIMPLE

NAME = "teleport"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
SPEAKS = (SIMPLE,)


def available(graph, collective):
    return True


def cost(collective, protocol, size_bytes, graph):
    return 0.001, 0.0 * graph.n_ranks + 1e6
'''
SCHEDULE = '''
"""A pipeline that never waits: every rank is busy from the first to the last micro-batch."""

import numpy as np

from meshwright.costmodel.pipeline import Task

NAME = "tireless"


def legal(pp, vpp, n_micro_batches):
    return np.asarray((np.asarray(pp) >= 1) & (np.asarray(vpp) == 1) & (np.asarray(n_micro_batches) >= 1))


def pipeline_time_s(profile):
    busy = np.where(profile.multiplicity > 0, profile.forward_s + profile.backward_s, 0.0).max(axis=1)
    return busy * profile.n_micro_batches


def in_flight(pp, vpp, n_micro_batches, rank):
    return np.minimum(np.asarray(pp, np.int64) - rank, n_micro_batches)


def order(rank, pp, vpp, n_micro_batches):
    tasks = [Task("forward", i, 0) for i in range(n_micro_batches)]
    return tasks + [Task("backward", i, 0) for i in range(n_micro_batches)]
'''
FILES = {
    "catalog/gpu/dropped.toml": GPU,
    "catalog/node/dropped.toml": NODE,
    "catalog/model/dropped.toml": MODEL.format(kind="dropped_mixer"),
    "costmodel/block/dropped_mixer.py": BLOCK,
    "costmodel/collective/teleport.py": COLLECTIVE,
    "costmodel/schedule/tireless.py": SCHEDULE,
}


def mw(*arguments: str, path: Path | None = None) -> Any:
    """The JSON document of one command in a fresh process, with ``path`` as the user's own directory."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    if path is not None:
        environment["MESHWRIGHT_PATH"] = str(path)
    done = subprocess.run(
        [sys.executable, "-m", "meshwright", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def put(folder: Path, *names: str) -> Path:
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(FILES[name], encoding="utf-8")
    return folder


def estimate(model: str, cluster: str, layout: str, path: Path | None = None) -> Any:
    return mw(
        "estimate",
        model,
        "--cluster",
        cluster,
        "--seq-len",
        "2048",
        "--global-batch",
        "64",
        "--layout",
        layout,
        path=path,
    )


@pytest.mark.slow
def test_a_gpu_and_a_node(tmp_path: Path) -> None:
    path = put(tmp_path, "catalog/gpu/dropped.toml", "catalog/node/dropped.toml")
    assert "Dropped-40G" in {row["name"] for row in mw("catalog", "gpu", path=path)["rows"]}
    assert "Dropped-40G" not in {row["name"] for row in mw("catalog", "gpu")["rows"]}
    fields = {field["field"]: field for field in mw("catalog", "gpu", "dropped-40g", path=path)["fields"]}
    assert fields["memory_bytes"]["text"] == "40 GiB"
    assert "made up for a test" in fields["memory_bytes"]["source"]
    layout = "tp=8,dp=1,pp=1,micro_batch=1,sp=true"
    ours, known = estimate("llama-7b", "8xDropped-40G", layout, path), estimate("llama-7b", "8x A100-80GB", layout)
    assert ours["breakdown_s"]["forward"] == pytest.approx(known["breakdown_s"]["forward"] / 2, rel=0.1)
    assert ours["memory"]["capacity_bytes"] < 0.6 * known["memory"]["capacity_bytes"]


def test_a_gpu_alone_is_planned_on(tmp_path: Path) -> None:
    path = put(tmp_path, "catalog/gpu/dropped.toml")
    rest = ("--global-batch", "64", "--seq-len", "2048", "--fix", "tp=8,pp=1")
    plan = mw("plan", "llama-7b", "--cluster", "2x8 Dropped-40G, 4x400Gb IB", *rest, path=path)
    assert plan["feasible"]
    assert plan["cluster"]["nics_per_node"] == 4
    assert {"scale_up", "host_memory_bytes", "cpu_vendor"} <= plan["assumed"].keys()
    assert plan["assumed"]["scale_up"]["step_time_ratio"] > 1.0


@pytest.mark.slow
def test_a_model_of_a_new_kind_of_block(tmp_path: Path) -> None:
    path = put(tmp_path, "catalog/model/dropped.toml", "costmodel/block/dropped_mixer.py")
    assert "Dropped-1B" in {row["name"] for row in mw("catalog", "model", path=path)["rows"]}
    plan = mw("plan", "dropped", "--cluster", "8x A100-80GB", "--global-batch", "64", "--seq-len", "2048", path=path)
    # Embedding and head, then per layer: two norms, four attention matrices, the mixer's two; one last norm.
    layer = 2 * 2048 + 4 * 2048**2 + 2 * 2048 * 8192
    assert plan["model"]["n_parameters"] == 2 * 32000 * 2048 + 16 * layer + 2048
    assert plan["feasible"]
    plain = tmp_path / "plain"
    FILES["catalog/model/plain.toml"] = (
        MODEL.format(kind="mlp").replace("Dropped-1B", "Plain-1B").replace('"dropped"]', "]")
    )
    put(plain, "catalog/model/plain.toml")
    layout = "tp=1,dp=8,pp=1,micro_batch=1"
    ours = estimate("dropped", "8x A100-80GB", layout, path)["breakdown_s"]["forward"]
    theirs = estimate("plain-1b", "8x A100-80GB", layout, plain)["breakdown_s"]["forward"]
    # The plain MLP has the same two matrices and its activation and residual on top.
    assert 0.8 * theirs < ours < theirs


def test_a_collective(tmp_path: Path) -> None:
    path = put(tmp_path, "costmodel/collective/teleport.py")
    layout = "tp=8,dp=2,pp=1,micro_batch=1,sp=true"
    with_it, without = (estimate("llama-7b", "2x8 A100-80GB", layout, p)["breakdown_s"] for p in (path, None))
    assert 0 < with_it["tp_comm"] < 0.6 * without["tp_comm"]
    assert with_it["forward"] == pytest.approx(without["forward"])


def test_a_schedule(tmp_path: Path) -> None:
    path = put(tmp_path, "costmodel/schedule/tireless.py")
    layout = "tp=2,dp=1,pp=4,micro_batch=4,schedule={}"
    ours = estimate("llama-7b", "8x A100-80GB", layout.format("tireless"), path)
    known = estimate("llama-7b", "8x A100-80GB", layout.format("1f1b"))
    assert known["breakdown_s"]["bubble"] > 0.1 * known["step_time_s"]
    assert ours["breakdown_s"]["bubble"] < 0.02 * ours["step_time_s"]
    plan = mw(
        "plan",
        "llama-7b",
        "--cluster",
        "8x A100-80GB",
        "--global-batch",
        "64",
        "--seq-len",
        "2048",
        "--fix",
        "schedule=tireless,pp=4",
        path=path,
    )
    assert plan["layouts"][0]["layout"]["schedule"] == "tireless"


def test_an_unknown_schedule_is_refused_with_the_known_ones() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "meshwright",
            "estimate",
            "llama-7b",
            "--cluster",
            "8xA100",
            "--layout",
            "tp=2,pp=4,schedule=tireless",
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 2
    assert "schedule" in done.stderr
    assert "Traceback" not in done.stderr
