"""Stage splits and their compression to classes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costmodel.stages import StageKey, chunk_parts, layers_per_stage, stage_table


def test_named_splits() -> None:
    assert layers_per_stage("even", 70, 12) == (6,) * 10 + (5,) * 2
    assert layers_per_stage("ends", 70, 12) == (5, *(6,) * 10, 5)
    assert layers_per_stage("ends", 126, 16) == (7, *(8,) * 14, 7)
    # Llama-3.1-405B, arXiv 2407.21783 section 3.3.2: first and last chunk hold only the embedding and only the head.
    assert layers_per_stage("ends", 126, 16, 8) == (0, *(1,) * 126, 0)
    assert layers_per_stage("even", 61, 16, 2) is None
    assert layers_per_stage("5-6-6-5", 22, 4) == (5, 6, 6, 5)
    assert layers_per_stage("5-6-6", 22, 4) is None
    assert layers_per_stage("even", 3, 4) is None
    assert layers_per_stage("ends", 4, 1) is None


@given(st.integers(1, 200), st.integers(1, 32), st.integers(1, 4), st.sampled_from(["even", "ends"]))
def test_every_layer_is_somewhere_and_classes_add_up(n_layers: int, pp: int, vpp: int, split: str) -> None:
    stages = layers_per_stage(split, n_layers, pp, vpp)
    if stages is None:
        return
    assert sum(stages) == n_layers
    assert min(stages) >= (0 if split == "ends" else 1)
    table = stage_table([StageKey(pp, vpp, split, "1f1b" if vpp == 1 else "interleaved")], (0,) * n_layers)
    assert int(table.multiplicity.sum()) == pp
    total = (table.counts * table.multiplicity[:, None, :]).sum(axis=0)[:, 0]
    np.testing.assert_array_equal(total, [1, n_layers, 1])
    assert table.first_rank[0, 0] == 0


def test_kinds_of_layers_fall_where_they_are() -> None:
    parts = chunk_parts(StageKey(4, 1, "even", "1f1b"), (0,) * 3 + (1,) * 5)
    assert parts == [(1, 2, 0, 0), (0, 1, 1, 0), (0, 0, 2, 0), (0, 0, 2, 1)]
    # Gemma's five local layers to a global one: kinds come back, and are counted as one kind each.
    assert chunk_parts(StageKey(2, 1, "even", "1f1b"), (0, 0, 1, 0, 0, 1)) == [(1, 2, 1, 0), (0, 2, 1, 1)]
