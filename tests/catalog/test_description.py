"""Models described as fields or as blocks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog.description import model_values, transformer
from meshwright.catalog.provenance import Provenance
from meshwright.costmodel.parameters import parameter_count
from meshwright.errors import InputError
from meshwright.specs.model import ModelSpec

FIELDS: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 32,
    "norm": "rmsnorm",
    "position": "rotary",
    "tie_word_embeddings": False,
}


def test_absent_fields_take_the_usual_values() -> None:
    model = transformer(FIELDS, "x")
    assert (model.num_key_value_heads, model.head_dim, model.intermediate_size) == (4, 16, 256)
    flags = (model.gated_mlp, model.qkv_bias, model.mlp_bias, model.attention_output_bias, model.dropout)
    assert flags == (False,) * 5
    wide = transformer({**FIELDS, "head_dim": 24, "num_attention_heads": 5}, "x")
    assert wide.head_dim * wide.num_attention_heads == 120


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"hidden_size": None, "norm": None}, "MW-E206", "missing: hidden_size, norm"),
        ({"gated_mlp": True}, "MW-E206", "intermediate_size"),
        ({"num_attention_heads": 5}, "MW-E209", "num_attention_heads 5 does not divide hidden_size 64"),
        ({"num_key_value_heads": 3}, "MW-E209", "num_key_value_heads 3 does not divide num_attention_heads 4"),
        ({"num_key_value_heads": 8}, "MW-E209", "Nearest"),
        ({"vocab_size": 0}, "MW-E208", "x: vocab_size"),
        ({"vocab_size": -5}, "MW-E208", "-5"),
        ({"hidden_size": "64"}, "MW-E208", "'64'"),
        ({"hidden_size": 64.0}, "MW-E208", "64.0"),
        ({"num_hidden_layers": True}, "MW-E208", "x: num_hidden_layers"),
        ({"norm": "batchnorm"}, "MW-E205", "x: norm"),
        ({"tie_word_embeddings": "no"}, "MW-E205", "x: tie_word_embeddings"),
        ({"hiden_size": 64}, "MW-E205", "hidden_size?"),
    ],
)
def test_wrong_fields(change: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        transformer({**FIELDS, **change}, "x")
    assert caught.value.code == code
    assert said in str(caught.value)


@given(hidden=st.integers(1, 4096), heads=st.integers(1, 300), kv_heads=st.integers(1, 300))
def test_divisibility_is_accepted_or_refused_never_rounded(hidden: int, heads: int, kv_heads: int) -> None:
    values = {**FIELDS, "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    legal = hidden % heads == 0 and heads % kv_heads == 0
    if not legal:
        with pytest.raises(InputError) as caught:
            transformer(values, "x")
        assert caught.value.code == "MW-E209"
        return
    model = transformer(values, "x")
    assert model.head_dim * model.num_attention_heads == hidden


MOE = {"num_experts": 8, "experts_per_token": 2, "expert_intermediate_size": 96}
MAMBA2 = {"num_heads": 8, "head_dim": 16, "state_size": 32}
HYBRID: dict[str, Any] = {**FIELDS, "num_hidden_layers": 7, "layer_types": ("2*(mamba2, mlp)", "attention+moe")}


def _kinds(values: dict[str, Any]) -> list[str]:
    model = transformer(values, "x").spec("m", "mine")
    return ["+".join(block.kind for block in model.layer_kinds[kind]) for kind in model.layer_sequence]


def test_tables_and_layer_types_make_the_layers() -> None:
    assert _kinds({**FIELDS, "moe": MOE}) == ["norm+attention+norm+moe"] * 2
    found = _kinds({**HYBRID, "moe": MOE, "mamba2": MAMBA2})
    # Five named layers, begun again for the sixth and seventh.
    assert found == [*["norm+mamba2", "norm+mlp"] * 2, "norm+attention+norm+moe", "norm+mamba2", "norm+mlp"]
    layers = {"layer_types": ("attention+mlp",)}
    assert _kinds({**FIELDS, **layers, "norm_placement": "sandwich"})[0] == "norm+attention+norm+norm+mlp+norm"
    assert _kinds({**FIELDS, **layers, "norm_placement": "shared"})[0] == "norm+attention+mlp"
    assert _kinds({**FIELDS, **layers, "norm_placement": "post"})[0] == "attention+norm+mlp+norm"


def test_runs_of_equal_layers_are_one_group() -> None:
    values = {**FIELDS, "num_hidden_layers": 61, "moe": MOE, "layer_types": ("3*attention+mlp", "58*attention+moe")}
    model = transformer(values, "x").spec("m", "mine")
    assert [group.repeat for group in model.layers] == [3, 58]
    assert model.layer_sequence == (0,) * 3 + (1,) * 58
    assert [group.blocks for group in model.layers] == list(model.layer_kinds)


def test_options_that_are_off_are_not_said_of_dense_models() -> None:
    """A block's options decide whether two layers are one kind; a plain model keeps the few that it had."""
    attention = transformer(FIELDS, "x").spec("m", "mine").layers[0].blocks[1]
    assert set(attention.options) == {
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "qkv_bias",
        "output_bias",
        "rotary",
        "alibi",
        "dropout",
    }


def test_multi_token_prediction_adds_a_layer_and_its_projection() -> None:
    def count(modules: int) -> int:
        values = {**FIELDS, "moe": MOE, "num_nextn_predict_layers": modules}
        return parameter_count(transformer(values, "x").spec("m", "mine"))

    hidden = FIELDS["hidden_size"]
    moe = hidden * 8 + 8 * 2 * hidden * 96
    layer = 4 * hidden * hidden + moe + 2 * hidden
    assert count(1) - count(0) == layer + 2 * hidden * hidden + 3 * hidden
    assert count(2) - count(1) == count(1) - count(0)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"layer_types": ("attenton+mlp",)}, "MW-E205", ["x: layer_types", "attenton", "attention"]),
        ({"layer_types": ("0*attention+mlp",)}, "MW-E205", ["0*attention+mlp", "3*sliding_attention+mlp"]),
        ({"layer_types": ("2*(mlp",)}, "MW-E205", ["2*(mlp"]),
        ({"layer_types": ("",)}, "MW-E205", ["no kind of layer"]),
        ({"layer_types": (3,)}, "MW-E205", ["list of names"]),
        ({"layer_types": "mlp"}, "MW-E205", ["list of names"]),
        ({"layer_types": ("attention+moe",)}, "MW-E206", ["missing: moe"]),
        ({"layer_types": ("mamba2",), "mamba2": {}}, "MW-E206", ["mamba2.num_heads, mamba2.head_dim"]),
        ({"layer_types": ("sliding_attention+mlp",)}, "MW-E206", ["missing: sliding_window"]),
        ({"num_attention_heads": None, "mla": {}}, "MW-E206", ["num_attention_heads", "mla.kv_lora_rank"]),
        ({"moe": {**MOE, "num_expert": 3}}, "MW-E205", ["x: moe.num_expert", "num_experts"]),
        ({"moe": {**MOE, "num_experts": -8}}, "MW-E208", ["x: moe.num_experts", "-8"]),
        ({"moe": {**MOE, "num_experts": 1 << 40}}, "MW-E208", ["moe.num_experts"]),
        ({"moe": {**MOE, "num_experts": "8"}}, "MW-E205", ["x: moe.num_experts"]),
        ({"moe": {**MOE, "router_bias": 1.5}}, "MW-E205", ["x: moe.router_bias"]),
        ({"moe": 3}, "MW-E205", ["x: moe"]),
        ({"sliding_window": 0}, "MW-E208", ["x: sliding_window"]),
        ({"norm_placement": "both"}, "MW-E205", ["x: norm_placement"]),
    ],
)
def test_wrong_layers_and_tables(change: dict[str, Any], code: str, said: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        transformer({**FIELDS, **change}, "x")
    assert caught.value.code == code
    for words in said:
        assert words in str(caught.value)


def test_no_heads_are_asked_of_a_model_without_attention() -> None:
    fields = {key: value for key, value in FIELDS.items() if key != "num_attention_heads"}
    assert _kinds({**fields, "layer_types": ("mamba2",), "mamba2": MAMBA2}) == ["norm+mamba2"] * 2


BLOCKS: dict[str, Any] = {
    "family": "mine",
    "hidden_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 32,
    "tie_word_embeddings": False,
    "prologue": [{"kind": "embedding"}],
    "layers": [
        {"repeat": 3, "blocks": [{"kind": "norm", "norm": "rmsnorm"}, {"kind": "my_mixer", "state_size": 16}]},
        {"repeat": 1, "blocks": [{"kind": "my_mixer", "options": {"state_size": 8}}]},
    ],
    "epilogue": [{"kind": "head", "tied": False}],
}


def _spec(body: dict[str, Any]) -> ModelSpec:
    provenance = Provenance.of({}, "m.toml", assumed_source="m.toml")
    values = model_values("m", body, provenance)
    return ModelSpec.model_validate({**values, "name": "m", "facts": provenance.facts})


def test_blocks_of_a_users_own_kind() -> None:
    model = _spec(BLOCKS)
    assert model.n_layers == 4
    assert model.layers[0].blocks[1].kind == "my_mixer"
    assert model.layers[0].blocks[1].options == {"state_size": 16}
    assert model.layers[1].blocks[0].options == {"state_size": 8}
    assert model.facts["layers"].text == "3x(norm+my_mixer), 1x(my_mixer)"
    assert model.facts["hidden_size"].label == "inferred"


def test_a_model_needs_a_transformer_or_layers() -> None:
    with pytest.raises(InputError, match=r"\[transformer\]"):
        _spec({key: value for key, value in BLOCKS.items() if key != "layers"})
    with pytest.raises(InputError, match="does not stand beside"):
        _spec({**BLOCKS, "transformer": FIELDS})
    with pytest.raises(InputError, match=r"m\.toml: layers"):
        _spec({**BLOCKS, "layers": "twelve"})
    with pytest.raises(InputError, match="must be a table"):
        _spec({"transformer": 3})


def test_facts_of_tables_are_dotted_and_may_have_a_source_of_their_own() -> None:
    written = {**MOE, "num_experts": {"value": 16, "source": "m.toml", "label": "community"}}
    model = _spec({"transformer": {**FIELDS, "moe": written, "layer_types": ["attention+moe"]}})
    assert model.layers[0].blocks[3].options["num_experts"] == 16
    assert (model.facts["moe.num_experts"].text, model.facts["moe.num_experts"].label) == ("16", "community")
    assert model.facts["moe.experts_per_token"].label == "inferred"
    assert model.facts["layer_types"].text == "attention+moe"
