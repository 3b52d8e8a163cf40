"""``config.json`` files as they are published, and as they go wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright import catalog
from meshwright.costmodel.parameters import parameter_count
from meshwright.errors import InputError
from meshwright.ingest import hf_config
from meshwright.specs.model import ModelSpec

from .upstream import BLOOM, GPT2, LLAMA_2_7B, LLAMA_3_8B, MISTRAL_7B, MODELS, OPT_125M, QWEN25_7B


def write(tmp_path: Path, config: object) -> Path:
    """A config.json in a directory called ``my-model``."""
    folder = tmp_path / "my-model"
    folder.mkdir(exist_ok=True)
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return path


@pytest.mark.parametrize(("name", "config", "count"), [(name, *rest) for name, rest in MODELS.items()])
def test_published_configs_give_the_published_counts(
    tmp_path: Path, name: str, config: dict[str, Any], count: int
) -> None:
    path = write(tmp_path, config)
    assert hf_config.sniff(path)
    model = hf_config.read(path)
    assert parameter_count(model) == count
    assert model.name == "my-model"
    # The bundled description of the same model is the same model, block for block.
    bundled = catalog.model(name)
    for field in ("hidden_size", "vocab_size", "max_position_embeddings", "tie_word_embeddings", "dropout"):
        assert getattr(model, field) == getattr(bundled, field), field
    told = [_without_activation(each) for each in (model.model_dump(), bundled.model_dump())]
    assert told[0] == told[1]


def _without_activation(model: dict[str, Any]) -> list[Any]:
    """The blocks; GPT-2 calls its activation gelu_new, which is GELU in another form."""
    parts = [*model["prologue"], *model["epilogue"], *(b for g in model["layers"] for b in g["blocks"])]
    for part in parts:
        part["options"] = {key: value for key, value in part["options"].items() if key != "activation"}
    return [*parts, [group["repeat"] for group in model["layers"]]]


def _options(config: dict[str, Any], tmp_path: Path, kind: str) -> dict[str, Any]:
    model = hf_config.read(write(tmp_path, config))
    blocks = [*model.prologue, *model.layers[0].blocks, *model.epilogue]
    return dict(next(block for block in blocks if block.kind == kind).options)


def test_absent_fields_are_those_of_the_family(tmp_path: Path) -> None:
    def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
        return {key: value for key, value in config.items() if key not in keys}

    llama = without(LLAMA_2_7B, "num_key_value_heads", "tie_word_embeddings", "hidden_act")
    assert _options(llama, tmp_path, "attention")["num_key_value_heads"] == 32
    assert _options(llama, tmp_path, "head") == {"tied": False}
    assert _options(without(MISTRAL_7B, "num_key_value_heads"), tmp_path, "attention")["num_key_value_heads"] == 8
    assert _options(MISTRAL_7B | {"num_key_value_heads": None}, tmp_path, "attention")["num_key_value_heads"] == 32
    assert _options(GPT2, tmp_path, "head") == {"tied": True}
    assert _options(GPT2 | {"n_inner": 1024}, tmp_path, "mlp")["intermediate_size"] == 1024
    assert hf_config.read(write(tmp_path, BLOOM)).max_position_embeddings == 2048
    assert hf_config.read(write(tmp_path, without(GPT2, "n_positions"))).max_position_embeddings == 1024


def test_biases_head_size_and_offsets(tmp_path: Path) -> None:
    biased = _options(LLAMA_3_8B | {"attention_bias": True, "mlp_bias": True}, tmp_path, "attention")
    assert biased["qkv_bias"] is True
    assert biased["output_bias"] is True
    assert _options(LLAMA_3_8B | {"mlp_bias": True}, tmp_path, "mlp")["bias"] is True
    assert _options(LLAMA_3_8B | {"head_dim": 64}, tmp_path, "attention")["head_dim"] == 64
    assert _options(QWEN25_7B, tmp_path, "attention")["qkv_bias"] is True
    assert _options(QWEN25_7B, tmp_path, "attention")["output_bias"] is False
    assert _options(OPT_125M, tmp_path, "embedding")["position_embeddings"] == 2050
    assert _options(OPT_125M | {"enable_bias": False}, tmp_path, "mlp")["bias"] is False
    still = GPT2 | {"resid_pdrop": 0.0, "attn_pdrop": 0, "embd_pdrop": 0.0}
    assert _options(still, tmp_path, "mlp")["dropout"] is False


def test_facts_tell_the_file_from_the_family_default(tmp_path: Path) -> None:
    facts = hf_config.read(write(tmp_path, GPT2)).facts
    assert facts["hidden_size"].source == "config.json: n_embd"
    assert (facts["hidden_size"].text, facts["hidden_size"].label) == ("768", "published")
    assert facts["tie_word_embeddings"].label == "inferred"
    assert "sliding_window" not in hf_config.read(write(tmp_path, QWEN25_7B)).facts
    assert "4096" in hf_config.read(write(tmp_path, MISTRAL_7B)).facts["sliding_window"].text


def test_architectures_alone_are_enough(tmp_path: Path) -> None:
    config = {key: value for key, value in LLAMA_2_7B.items() if key != "model_type"}
    assert parameter_count(hf_config.read(write(tmp_path, config))) == 6_738_415_616


@pytest.mark.parametrize(
    ("config", "code", "said"),
    [
        ("", "MW-E222", ["empty"]),
        ("  \n", "MW-E222", ["empty"]),
        ('{\n "model_type": "gpt2",\n "n_embd": ', "MW-E223", ["line 3", "column"]),
        ('{"model_type": "gpt2",, }', "MW-E223", ["line 1, column"]),
        ("[" * 100_000, "MW-E223", ["config.json"]),
        ("[1, 2]", "MW-E224", ["a list"]),
        ('"gpt2"', "MW-E224", ["a text"]),
        ("3", "MW-E224", ["object"]),
        ({"model_type": "mamba", "hidden_size": 4}, "MW-E225", ["mamba", "llama", "num_hidden_layers"]),
        ({"architectures": ["MambaForCausalLM"]}, "MW-E225", ["MambaForCausalLM"]),
        ({"hidden_size": 4}, "MW-E225", ["model_type"]),
        (
            {"model_type": "llama", "hidden_size": 64, "vocab_size": 10},
            "MW-E206",
            ["num_hidden_layers", "num_attention_heads", "intermediate_size"],
        ),
        ({"model_type": "gpt2", "vocab_size": 10}, "MW-E206", ["n_embd", "n_layer", "n_head", "n_positions"]),
        (GPT2 | {"n_embd": -768}, "MW-E208", ["n_embd", "-768"]),
        (GPT2 | {"n_layer": 0}, "MW-E208", ["n_layer"]),
        (GPT2 | {"vocab_size": "many"}, "MW-E208", ["vocab_size", "'many'"]),
        (GPT2 | {"vocab_size": [50257]}, "MW-E208", ["vocab_size"]),
        (GPT2 | {"n_head": 7}, "MW-E209", ["n_head 7 does not divide n_embd 768", "6, 8"]),
        (LLAMA_3_8B | {"num_key_value_heads": 7}, "MW-E209", ["num_key_value_heads 7", "num_attention_heads 32"]),
        (GPT2 | {"attn_pdrop": "0.1"}, "MW-E208", ["attn_pdrop"]),
        (LLAMA_3_8B | {"attention_bias": "no"}, "MW-E205", ["qkv_bias"]),
        (LLAMA_3_8B | {"num_local_experts": 8}, "MW-E226", ["num_local_experts = 8"]),
        (OPT_125M | {"do_layer_norm_before": False}, "MW-E226", ["do_layer_norm_before"]),
        (OPT_125M | {"word_embed_proj_dim": 512, "hidden_size": 1024}, "MW-E226", ["word_embed_proj_dim = 512"]),
        (GPT2 | {"add_cross_attention": True}, "MW-E226", ["add_cross_attention"]),
    ],
)
def test_what_goes_wrong_is_said_with_its_place(tmp_path: Path, config: object, code: str, said: list[str]) -> None:
    path = write(tmp_path, config)
    with pytest.raises(InputError) as caught:
        hf_config.read(path)
    assert caught.value.code == code
    assert caught.value.exit_code == 2
    assert "config.json" in str(caught.value)
    for words in said:
        assert words in str(caught.value)


def test_files_that_are_no_config(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        hf_config.read(tmp_path)
    assert caught.value.code == "MW-E221"
    write(tmp_path, GPT2)
    with pytest.raises(InputError) as caught:
        hf_config.read(tmp_path / "my-model" / "confg.json")
    assert caught.value.code == "MW-E220"
    assert "config.json?" in str(caught.value)
    binary = tmp_path / "model.bin"
    for content in (b"PK\x03\x04\x00\x00\x08", b"\xff\xfe\x80abc", b"{}\x00"):
        binary.write_bytes(content)
        with pytest.raises(InputError) as caught:
            hf_config.read(binary)
        assert caught.value.code == "MW-E227"
        assert not hf_config.sniff(binary)
    assert not hf_config.sniff(tmp_path / "nowhere")
    assert hf_config.sniff(tmp_path / "my-model")


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    path.write_text(json.dumps(GPT2), encoding="utf-8-sig")
    assert parameter_count(hf_config.read(path)) == 124_439_808


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 4096), st.floats(), st.text(max_size=5), st.lists(st.integers())
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(base=st.sampled_from([GPT2, OPT_125M, BLOOM, LLAMA_3_8B, MISTRAL_7B, QWEN25_7B]), data=st.data())
def test_any_value_in_any_field_is_a_model_or_an_input_error(
    tmp_path: Path, base: dict[str, Any], data: st.DataObject
) -> None:
    keys = data.draw(st.lists(st.sampled_from(sorted(base)), min_size=1, max_size=3))
    path = write(tmp_path, base | {key: data.draw(VALUES) for key in keys})
    try:
        found: ModelSpec | InputError = hf_config.read(path)
    except InputError as error:
        found = error
    assert parameter_count(found) > 0 if isinstance(found, ModelSpec) else found.code.startswith("MW-E2")
