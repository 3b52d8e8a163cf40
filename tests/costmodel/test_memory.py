"""States against the ZeRO paper's figures."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.costmodel.memory import reserved_bytes, state_bytes
from meshwright.costmodel.optimizer import OptimizerBytes


@pytest.mark.parametrize(("shards", "per_parameter_gb"), [(1, 120.0), (64, 31.4)])
def test_states_of_the_zero_paper(shards: int, per_parameter_gb: float) -> None:
    """Rajbhandari et al., arXiv 1910.02054, figure 1: 7.5 B parameters, 64 ranks: 120 GB, and 31.4 GB with ZeRO-1."""
    psi = np.array([7.5e9])
    assert sum(
        float(b[0]) for b in state_bytes(psi, OptimizerBytes(2, 2, 12), np.array([shards]))
    ) / 1e9 == pytest.approx(per_parameter_gb, abs=0.05)


def test_megatron_states_are_eighteen_bytes_a_parameter() -> None:
    """bf16 weights with fp32 gradients: 6 + 12 / d (Megatron-core's distributed optimizer)."""
    one = np.array([1.0])
    assert sum(float(b[0]) for b in state_bytes(one, OptimizerBytes(2, 4, 12), one)) == 18
    assert sum(float(b[0]) for b in state_bytes(one, OptimizerBytes(2, 4, 12), np.array([8.0]))) == 7.5


def test_reserved_adds_slack_to_the_allocator_only() -> None:
    assert reserved_bytes(np.array([11.0]), np.array([1.0]), 0.05)[0] == pytest.approx(11.5)
