"""What holds for every kind of block: sharding divides work, shapes are rows, modules can be recomputed."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel import block as blocks
from meshwright.costmodel.kernel import KernelConstants, backward_time_s, forward_time_s
from meshwright.costmodel.operator import Shapes
from meshwright.errors import InputError
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import RECOMPUTE_MODULES, Layout, LayoutBatch
from meshwright.specs.model import BlockSpec, ModelSpec

MODELS = ("gpt2-xl", "llama-3-8b", "bloom-7b1")


def _shapes(model: ModelSpec, attention: str, tp: float, sp: float, micro_batch: float = 2.0) -> Shapes:
    one = np.ones(1)
    return Shapes(
        micro_batch=one * micro_batch,
        tp=one * tp,
        sp_degree=one * sp,
        cp=one,
        ep=one,
        etp=one,
        seq_len=1024,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        element_bytes=2,
        attention=attention,  # type: ignore[arg-type]
        document_len=1024.0,
    )


def _members(model: ModelSpec) -> list[BlockSpec]:
    return [*model.prologue, *model.layers[0].blocks, *model.epilogue]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("attention", ["flash", "unfused"])
def test_sharding_divides_flops_and_activations(name: str, attention: str) -> None:
    model = catalog.model(name)
    for member in _members(model):
        kind = blocks.kind(member)
        whole, eighth = (_shapes(model, attention, tp, tp) for tp in (1.0, 4.0))
        for one, part in zip(kind.operators(model, member, whole), kind.operators(model, member, eighth), strict=True):
            assert one.name == part.name
            assert one.module in (*RECOMPUTE_MODULES, "embedding", "head")
            # A vocabulary that TP does not divide is padded: a little more than a fourth.
            np.testing.assert_allclose(part.forward_flops, np.asarray(one.forward_flops) / 4, rtol=1e-3)
        kept = [sum(float(s.size_bytes[0]) for s in kind.saved(model, member, shapes)) for shapes in (whole, eighth)]
        assert kept[1] == pytest.approx(kept[0] / 4, rel=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_times_are_positive_rows_and_grow_with_the_micro_batch(name: str) -> None:
    model = catalog.model(name)
    job = TrainingJob(model=model, seq_len=1024, global_batch=8)
    kernel = KernelConstants.of(catalog.gpu("H100"), job, catalog.constants())
    for member in _members(model):
        kind = blocks.kind(member)
        small, large = (kind.operators(model, member, _shapes(model, "flash", 2.0, 1.0, b)) for b in (1.0, 4.0))
        for one, more in zip(small, large, strict=True):
            for time in (forward_time_s, backward_time_s):
                assert 0 <= float(np.max(time(one, job, kernel))) <= float(np.max(time(more, job, kernel)))


def test_an_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        blocks.kind(BlockSpec(kind="atention"))
    assert "attention" in (caught.value.nearest or "")


def test_key_value_heads_are_replicated_beyond_their_number() -> None:
    model = catalog.model("llama-3-8b")
    attention = next(b for b in model.layers[0].blocks if b.kind == "attention")
    refused = blocks.violations(model, attention, LayoutBatch.of(Layout(tp=tp) for tp in (1, 2, 8, 16, 3)))
    assert refused["tp_divides_heads"].tolist() == [False, False, False, False, True]
    assert refused["tp_divides_kv_heads"].tolist() == [False, False, False, False, True]
