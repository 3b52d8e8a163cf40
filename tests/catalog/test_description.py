"""Models described as fields or as blocks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog.description import model_values, transformer
from meshwright.catalog.provenance import Provenance
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
