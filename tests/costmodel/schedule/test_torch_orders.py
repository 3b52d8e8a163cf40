"""Every schedule's order is PyTorch's: as written down, and as torch.distributed.pipelining generates it here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from meshwright.costmodel.schedule import schedules, stages_of_rank
from tests.costmodel.schedule import torch_orders

GOLDEN = json.loads(Path(__file__).with_name("torch_orders.json").read_text(encoding="utf-8"))["orders"]


def ours(schedule: str, pp: int, vpp: int, m: int) -> list[str]:
    found = []
    for rank in range(pp - (schedule == "1f1b")):
        tasks = schedules()[schedule].order(rank, pp, vpp, m)
        split = {(task.micro_batch, task.chunk) for task in tasks if task.phase == "weight"}
        words, joined = "", False
        for task in tasks:
            whole = (task.micro_batch, task.chunk) not in split
            letter = {"forward": "F", "backward": "B" if whole else "I", "weight": "W"}[task.phase]
            word = f"{stages_of_rank(schedule, rank, pp, vpp)[task.chunk]}{letter}{task.micro_batch}"
            words += (" " if words else "") + "[" * task.joined + word + "]" * joined
            joined = task.joined
        found.append(words)
    return found


@pytest.mark.parametrize("case", torch_orders.CASES, ids=lambda case: torch_orders.key(*case))
def test_as_pytorch_wrote_it(case: tuple[str, int, int, int]) -> None:
    assert ours(*case) == GOLDEN[torch_orders.key(*case)]


@pytest.mark.parametrize("case", torch_orders.CASES, ids=lambda case: torch_orders.key(*case))
def test_as_this_pytorch_generates_it(case: tuple[str, int, int, int]) -> None:
    if os.environ.get("CI") != "true":
        pytest.importorskip("torch")
    assert ours(*case) == torch_orders.orders(*case)
