"""What holds for every kind of block: sharding divides work, shapes are rows, modules can be recomputed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel import block as blocks
from meshwright.costmodel.kernel import KernelConstants, backward_time_s, forward_time_s
from meshwright.errors import InputError
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import RECOMPUTE_MODULES, Layout, LayoutBatch
from meshwright.specs.model import BlockSpec, ModelSpec

from .cases import ALL, SEQ_LEN, flops, model, operators, saved, shapes, size

MODELS = ("gpt2-xl", "llama-3-8b", "bloom-7b1")
#: Blocks that TP or CP leave whole: a token a sequence, or a part that runs beside the decoder.
WHOLE = ("vision_encoder", "patch_embedding", "dense-first", "head-labels")


def _members(name: str) -> list[tuple[ModelSpec, BlockSpec]]:
    if name in ALL:
        width, member = ALL[name]
        return [(model(width), member)]
    found = catalog.model(name)
    return [(found, member) for member in (*found.prologue, *found.layers[0].blocks, *found.epilogue)]


def _both(name: str, member: BlockSpec, spec: ModelSpec, attention: str, **degrees: float) -> list[tuple[float, float]]:
    """FLOPs and saved bytes of a whole block and of its share, each operator and activation by itself."""
    kind = blocks.kind(member)
    whole, share = (shapes(spec, attention=attention, micro_batch=2.0, **d) for d in ({}, degrees))
    pairs = list(zip(kind.operators(spec, member, whole), kind.operators(spec, member, share), strict=True))
    for one, part in pairs:
        assert one.name == part.name
        assert one.module in (*RECOMPUTE_MODULES, "embedding", "head")
    kept = list(zip(kind.saved(spec, member, whole), kind.saved(spec, member, share), strict=True))
    return [(float(np.sum(a.forward_flops)), float(np.sum(b.forward_flops))) for a, b in pairs] + [
        (float(a.size_bytes[0]), float(b.size_bytes[0])) for a, b in kept
    ]


@pytest.mark.parametrize("name", [*MODELS, *(name for name in ALL if name not in WHOLE)])
@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize("degrees", [{"tp": 2.0, "sp": 2.0}, {"cp": 2.0}, {"cp": 2.0, "tp": 2.0, "sp": 2.0}])
def test_sharding_divides_flops_and_activations(name: str, attention: str, degrees: dict[str, float]) -> None:
    """By tp with sequence parallelism, by cp and by both: each operator and each activation by exactly that."""
    cut = degrees.get("tp", 1.0) * degrees.get("cp", 1.0)
    for spec, member in _members(name):
        for whole, share in _both(name, member, spec, attention, **degrees):
            # A vocabulary that TP does not divide is padded: a little more than its share.
            assert share == pytest.approx(whole / cut, rel=1e-3)


@pytest.mark.parametrize("name", ["moe-deepseek", "moe-mixtral", "moe-gpt-oss"])
@pytest.mark.parametrize(("ep", "etp"), [(8.0, 1.0), (1.0, 2.0), (4.0, 4.0)])
def test_expert_parallelism_moves_work_and_keeps_its_amount(name: str, ep: float, etp: float) -> None:
    """ep spreads experts whose tokens it fetches; etp cuts widths and fetches etp times the tokens."""
    width, member = ALL[name]
    whole, share = operators(width, member), operators(width, member, ep=ep, etp=etp)
    assert flops(share) == pytest.approx(flops(whole), rel=1e-12)
    assert share["expert_up"].batch == pytest.approx(float(member.options["num_experts"]) / ep)
    inputs = [saved(width, member, **d)["expert_input"].size_bytes[0] for d in ({}, {"ep": ep, "etp": etp})]
    assert inputs[1] == pytest.approx(etp * inputs[0])


@pytest.mark.parametrize("name", [*MODELS, *ALL])
def test_times_are_positive_rows_and_grow_with_the_micro_batch(name: str) -> None:
    job = TrainingJob(model=catalog.model("gpt2"), seq_len=SEQ_LEN, global_batch=8)
    kernel = KernelConstants.of(catalog.gpu("H100"), job, catalog.constants())
    for spec, member in _members(name):
        kind = blocks.kind(member)
        some: dict[str, Any] = {"tp": 2.0, "sp": 2.0, "ep": 2.0, "cp": 2.0}
        small, large = (kind.operators(spec, member, shapes(spec, micro_batch=b, **some)) for b in (1.0, 4.0))
        for one, more in zip(small, large, strict=True):
            for time in (forward_time_s, backward_time_s):
                assert 0 <= float(np.max(time(one, job, kernel))) <= float(np.max(time(more, job, kernel)))


@pytest.mark.parametrize("name", ALL)
def test_rows_are_priced_like_rows_alone(name: str) -> None:
    """Two rows in one call give what each gives by itself."""
    width, member = ALL[name]
    spec, kind = model(width), blocks.kind(member)
    alone = [shapes(spec, micro_batch=m, tp=tp, sp=tp, ep=ep) for m, tp, ep in ((1.0, 1.0, 1.0), (4.0, 2.0, 2.0))]
    columns = ("micro_batch", "tp", "sp_degree", "cp", "ep", "etp")
    together = {name: np.concatenate([getattr(s, name) for s in alone]) for name in columns}
    rows = type(alone[0])(**{f: getattr(alone[0], f) for f in alone[0].__slots__} | together)
    for index, single in enumerate(alone):
        for one, both in zip(kind.operators(spec, member, single), kind.operators(spec, member, rows), strict=True):
            for column in ("forward_flops", "forward_bytes", "backward_bytes", "m", "n", "k", "batch"):
                all_rows = np.broadcast_to(np.asarray(getattr(both, column)), (2,))
                assert all_rows[index] == pytest.approx(float(np.max(getattr(one, column))), rel=1e-12)
        for one_saved, both_saved in zip(kind.saved(spec, member, single), kind.saved(spec, member, rows), strict=True):
            assert both_saved.size_bytes.shape == (2,)
            assert both_saved.size_bytes[index] == pytest.approx(one_saved.size_bytes[0], rel=1e-12)


@pytest.mark.parametrize("name", [*MODELS, *ALL])
def test_only_weights_are_quantised_and_parameters_match_the_gemms(name: str) -> None:
    """Every matrix that is multiplied is among the parameters: their elements are no fewer than the GEMMs' k n."""
    for spec, member in _members(name):
        kind = blocks.kind(member)
        found = kind.operators(spec, member, shapes(spec))
        weights = [o for o in found if o.kind == "gemm" and o.trainable_weight]
        assert not any(o.low_precision for o in found if o.kind == "gemm" and not o.trainable_weight)
        elements = sum(o.count * float(np.max(np.asarray(o.batch) * o.n * o.k)) for o in weights)
        if not (member.kind == "head" and member.options.get("tied")):
            assert elements <= kind.parameters(spec, member).total
            # What no GEMM holds: norms, biases, convolutions, token tables.
            if weights:
                assert elements >= 0.97 * kind.parameters(spec, member).total - 200 * spec.hidden_size


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("vision_encoder", "embedding")])
def test_a_reduction_belongs_to_the_module_of_the_blocks_last_operator(name: str) -> None:
    """Recomputing a block repeats the reduction of its output with the operators before it."""
    width, member = ALL[name]
    kind = blocks.kind(member)
    if "forward" in kind.TP_REDUCE:
        assert list(operators(width, member).values())[-1].module == getattr(kind, "MODULE", kind.KIND)


@pytest.mark.parametrize("name", ALL)
def test_reductions_are_one_activation_unless_the_block_says_so(name: str) -> None:
    width, member = ALL[name]
    spec = model(width)
    count, ratio = blocks.tp_reductions(spec, member, shapes(spec, micro_batch=2.0))
    expected = {
        "moe-mixtral": (0.0, 1.0),
        "moe-gpt-oss": (0.0, 1.0),
        "head-labels": (1.0, 1.0 / SEQ_LEN),
        # CLIP: 24 layers reduce twice over 577 tokens of width 1024.
        "vision_encoder": (48.0, 577 * 1024 / (SEQ_LEN * 4096)),
    }.get(name, (1.0, 1.0))
    assert (count, float(ratio[0])) == pytest.approx(expected)


def test_fewer_key_value_heads_than_ranks_gather_the_projection() -> None:
    """Megatron-LM cuts the QKV matrix evenly all the same and gathers the output: half of what a reduction moves."""
    found = catalog.model("falcon-7b")
    attention = next(b for b in found.layers[0].blocks if b.kind == "attention")
    rows = replace(shapes(found), tp=np.array([1.0, 71.0]))
    count, ratio = blocks.tp_reductions(found, attention, rows)
    # 71 query heads and one for keys and values each, of 64 elements, beside a hidden size of 4544.
    assert count == 1.0
    assert ratio.tolist() == pytest.approx([1.0, 1.0 + 0.5 * (71 + 2) * 64 / 4544])
    qkv = next(o for o in blocks.kind(attention).operators(found, attention, rows) if o.name == "qkv")
    assert np.asarray(qkv.n).tolist() == pytest.approx([73 * 64, 73 * 64 / 71])


def test_an_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        blocks.kind(BlockSpec(kind="atention"))
    assert "attention" in (caught.value.nearest or "")


@pytest.mark.parametrize(
    ("name", "rule", "fine", "refused"),
    [
        ("mla", "tp_divides_heads", {"tp": 128}, {"tp": 3}),
        ("mamba2", "tp_divides_mamba_heads", {"tp": 8}, {"tp": 3}),
        ("mamba2", "tp_divides_mamba_groups", {"tp": 8}, {"tp": 16}),
        ("gated_delta", "tp_divides_delta_heads", {"tp": 16}, {"tp": 32}),
        ("vision_encoder", "tp_divides_heads", {"tp": 16}, {"tp": 32}),
        ("moe-deepseek", "ep_divides_experts", {"ep": 64, "dp": 64}, {"ep": 96, "dp": 96}),
        ("moe-deepseek", "etp_divides_expert_width", {"etp": 2}, {"etp": 3}),
        ("moe-deepseek", "moe_tp_needs_sp", {"tp": 2, "sp": True}, {"tp": 2}),
        ("moe-deepseek", "tp_divides_shared_width", {"tp": 16}, {"tp": 3}),
    ],
)
def test_what_a_block_refuses(name: str, rule: str, fine: dict[str, Any], refused: dict[str, Any]) -> None:
    width, member = ALL[name]
    found = blocks.violations(model(width), member, LayoutBatch.of([Layout(**fine), Layout(**refused)]))
    assert found[rule].tolist() == [False, True]


def test_key_value_heads_are_replicated_beyond_their_number() -> None:
    found = catalog.model("llama-3-8b")
    attention = next(b for b in found.layers[0].blocks if b.kind == "attention")
    refused = blocks.violations(found, attention, LayoutBatch.of(Layout(tp=tp) for tp in (1, 2, 8, 16, 3)))
    assert refused["tp_divides_heads"].tolist() == [False, False, False, False, True]
    assert refused["tp_divides_kv_heads"].tolist() == [False, False, False, False, True]


@pytest.mark.parametrize("name", ["mla", "attention-qwen", "moe-qwen", "gated_delta", "mamba2"])
def test_recomputing_a_block_keeps_its_input(name: str) -> None:
    """Everything that a block keeps belongs to a module that can be recomputed; its input is the norm's output."""
    width, member = ALL[name]
    kept = saved(width, member)
    inputs = [item for item in kept.values() if item.module == "norm"]
    assert [float(item.size_bytes[0]) for item in inputs] == [2.0 * SEQ_LEN * width]
    assert size(kept) > inputs[0].size_bytes[0]
    assert {item.module for item in kept.values()} <= set(RECOMPUTE_MODULES)
