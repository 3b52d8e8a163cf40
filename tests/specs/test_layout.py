"""Layouts from text, batches and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.specs.layout import (
    COLUMNS,
    LARGEST_DEGREE,
    RANK_ORDERS,
    RECOMPUTE_NAMES,
    Layout,
    LayoutBatch,
    parse_layout,
    recompute_mask,
    recompute_name,
)


def test_text_as_people_write_it() -> None:
    assert parse_layout("tp=4, pp=12,dp=8,mbs=2,recompute=full,zero=1,sp=yes,stage_split=5-6-6-5") == {
        "tp": 4, "pp": 12, "dp": 8, "micro_batch": 2, "recompute": "full", "zero_stage": 1, "sp": True,
        "stage_split": "5-6-6-5",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("tq=2", "MW-E130", "tp"),
        ("micro_bach=2", "MW-E130", "micro_batch"),
        ("tp", "MW-E131", "tp=4"),
        ("recompute=", "MW-E131", "recompute=full"),
        ("tp=2,tp=4", "MW-E131", "one"),
        ("tp=0", "MW-E132", "tp=1"),
        ("tp=-4", "MW-E132", "tp=1"),
        ("tp=two", "MW-E132", "tp=1"),
        ("micro_batch=2147483648", "MW-E132", str(LARGEST_DEGREE)),
        ("sp=maybe", "MW-E132", "true"),
        ("rank_order=tp-pp", "MW-E132", "tp-cp-pp-dp"),
        ("stage_split=evn", "MW-E132", "even"),
        ("zero_stage=4", "MW-E133", "0 to 3"),
        ("cp_kind=rig", "MW-E132", "ring"),
        ("offload_optimizer=disk", "MW-E132", "nvme"),
        ("dp=8,dp_shard=3", "MW-E132", "dp_replicate"),
        ("recompute=ful", "MW-E134", "full"),
        ("recompute=full+mlp", "MW-E134", "alone"),
    ],
)
def test_each_mistake_has_one_message(text: str, code: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_layout(text)
    assert caught.value.code == code
    assert (caught.value.where or "").startswith("--layout")
    assert hint in (caught.value.nearest or "")


layouts = st.builds(
    Layout,
    dp=st.integers(1, 64),
    tp=st.integers(1, 8),
    sp=st.booleans(),
    pp=st.integers(1, 16),
    vpp=st.integers(1, 4),
    schedule=st.sampled_from(["1f1b", "interleaved"]),
    stage_split=st.sampled_from(["even", "ends", "5-6-6-5"]),
    zero_stage=st.sampled_from([0, 1, 2, 3]),
    cp=st.integers(1, 8),
    ep=st.integers(1, 8),
    offload_optimizer=st.sampled_from(["none", "cpu", "nvme"]),
    micro_batch=st.integers(1, 32),
    recompute=st.sampled_from([*RECOMPUTE_NAMES, "mlp", "mlp+norm"]),
    rank_order=st.sampled_from(RANK_ORDERS),
)


def test_whichever_data_parallel_degree_is_missing_follows() -> None:
    assert parse_layout("dp_shard=8,dp_replicate=4") == {"dp": 32, "dp_replicate": 4}
    assert Layout(dp=32, dp_shard=8).dp_replicate == 4
    assert Layout(**Layout(dp=32, dp_replicate=4).model_dump()).dp_shard == 8


@given(st.lists(layouts, min_size=1, max_size=8))
def test_a_batch_gives_its_rows_back(rows: list[Layout]) -> None:
    batch = LayoutBatch.of(rows)
    assert [batch.row(i) for i in range(len(batch))] == rows
    index = np.arange(len(rows))[::-1]
    assert [batch.take(index).row(i) for i in range(len(rows))] == rows[::-1]
    assert all(getattr(batch, name).dtype == np.int32 for name in COLUMNS)


@given(layouts)
def test_text_of_a_layout_is_that_layout(layout: Layout) -> None:
    text = ",".join(f"{name}={getattr(layout, name)}" for name in COLUMNS)
    assert Layout(**parse_layout(text)) == layout


def test_masks_and_names() -> None:
    for name, mask in RECOMPUTE_NAMES.items():
        assert recompute_mask(name) == mask
        assert recompute_name(mask) == name
    assert recompute_name(recompute_mask("mlp+layer")) == "full"
