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
from meshwright.ingest.hf_families import pattern
from meshwright.specs.model import ModelSpec, layer_sequence

from .upstream import BLOOM, GPT2, LLAMA_2_7B, LLAMA_3_8B, MISTRAL_7B, MODELS, OPT_125M, QWEN25_7B

CONFIGS = Path(__file__).parent / "configs"


def _published(name: str) -> dict[str, Any]:
    """What decides the size in a published config.json."""
    config: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return config


def _without(name: str, *keys: str) -> dict[str, Any]:
    return {key: value for key, value in _published(name).items() if key not in keys}


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
    assert hf_config.read(write(tmp_path, MISTRAL_7B)).facts["sliding_window"].text == "4096"
    assert facts["hidden_size"].label == "published"
    deepseek = hf_config.read(write(tmp_path, _published("deepseek-v3"))).facts
    assert deepseek["moe.num_experts"].source == "config.json: n_routed_experts"
    assert "left out" in deepseek["num_nextn_predict_layers"].text
    llava = hf_config.read(write(tmp_path, _published("llava-1.5-7b"))).facts
    assert llava["vocab_size"].source == "config.json: text_config.vocab_size"
    assert llava["hidden_size"].label == "inferred"
    assert llava["vision_encoder.hidden_size"].source == "config.json: vision_config.hidden_size"


def test_windows_of_attention(tmp_path: Path) -> None:
    assert _options(MISTRAL_7B, tmp_path, "attention")["window"] == 4096
    assert "window" not in _options(MISTRAL_7B | {"sliding_window": None}, tmp_path, "attention")
    # A window that no sequence exceeds is none.
    assert "window" not in _options(MISTRAL_7B | {"sliding_window": 32768}, tmp_path, "attention")
    qwen = QWEN25_7B | {"use_sliding_window": True, "max_window_layers": 20}
    model = hf_config.read(write(tmp_path, qwen))
    assert [(group.repeat, group.blocks[1].options.get("window")) for group in model.layers] == [
        (20, None),
        (8, 131072),
    ]
    gemma = hf_config.read(write(tmp_path, _published("gemma-3-1b")))
    windows = [gemma.layer_kinds[kind][1].options.get("window") for kind in gemma.layer_sequence]
    assert windows == [None if (layer + 1) % 6 == 0 else 512 for layer in range(26)]


def test_layers_of_several_kinds(tmp_path: Path) -> None:
    def kinds(name: str) -> list[str]:
        model = hf_config.read(write(tmp_path, _published(name)))
        assert len(model.layer_sequence) == model.n_layers
        return ["+".join(b.kind for b in model.layer_kinds[kind] if b.kind != "norm") for kind in model.layer_sequence]

    assert kinds("deepseek-v3") == ["mla+mlp"] * 3 + ["mla+moe"] * 58
    assert kinds("qwen3-next-80b-a3b") == (["gated_delta+moe"] * 3 + ["attention+moe"]) * 12
    assert kinds("llama-4-maverick") == ["attention+mlp", "attention+moe"] * 24
    letters = {"M": "mamba2", "*": "attention", "-": "mlp"}
    assert kinds("nemotron-h-8b") == [letters[each] for each in _published("nemotron-h-8b")["hybrid_override_pattern"]]
    qwen = _published("qwen3-30b-a3b") | {"decoder_sparse_step": 2, "mlp_only_layers": [1]}
    model = hf_config.read(write(tmp_path, qwen))
    assert [group.repeat for group in model.layers] == [3, *[1] * 45]


def test_models_that_see_read_text_or_flat_configs(tmp_path: Path) -> None:
    flat = _published("qwen2.5-vl-7b")
    text = {key: value for key, value in flat.items() if key not in ("model_type", "vision_config")}
    nested = {
        "model_type": "qwen2_5_vl",
        "text_config": {**text, "model_type": "qwen2_5_vl_text"},
        "vision_config": flat["vision_config"],
    }
    assert parameter_count(hf_config.read(write(tmp_path, nested))) == 8_292_166_656
    scout = {"model_type": "llama4", "text_config": _published("llama-4-scout")}
    alone = parameter_count(catalog.model("llama-4-scout"))
    assert parameter_count(hf_config.read(write(tmp_path, scout))) == alone


def test_chatglm_is_the_glm_of_before_the_library(tmp_path: Path) -> None:
    config = {
        "model_type": "chatglm",
        "hidden_size": 4096,
        "num_layers": 40,
        "num_attention_heads": 32,
        "multi_query_group_num": 2,
        "kv_channels": 128,
        "ffn_hidden_size": 13696,
        "padded_vocab_size": 151552,
        "seq_length": 131072,
        "add_qkv_bias": True,
    }
    assert parameter_count(hf_config.read(write(tmp_path, config))) == 9_399_951_360


def test_a_pattern_names_each_layer_again() -> None:
    assert pattern(["a", "b"] * 3) == ("a", "b")
    assert pattern(["a"] * 3 + ["b"] * 58) == ("3*a", "58*b")
    assert pattern(["a", "b", "a", "b", "c"]) == ("2*(a, b)", "c")


@given(layers=st.lists(st.sampled_from(["mamba2", "mlp", "attention+moe"]), min_size=1, max_size=40))
def test_any_layers_come_back_from_their_pattern(layers: list[str]) -> None:
    assert ["+".join(parts) for parts in layer_sequence(pattern(layers), len(layers))] == layers


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
        ({"model_type": "llamma"}, "MW-E225", ["Did you mean llama?"]),
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
        (OPT_125M | {"layer_norm_elementwise_affine": False}, "MW-E226", ["layer_norm_elementwise_affine"]),
        (GPT2 | {"add_cross_attention": True}, "MW-E226", ["add_cross_attention"]),
        (_published("phi-2") | {"qk_layernorm": True}, "MW-E226", ["qk_layernorm"]),
        (_published("nemotron-3-nano-30b-a3b") | {"moe_latent_size": 1024}, "MW-E226", ["moe_latent_size = 1024"]),
        (_published("nemotron-h-8b") | {"hybrid_override_pattern": "M-X"}, "MW-E205", ["hybrid_override_pattern", "X"]),
        (_published("nemotron-h-8b") | {"hybrid_override_pattern": ""}, "MW-E205", ["names no layers"]),
        (_published("deepseek-v3") | {"n_routed_experts": -1}, "MW-E208", ["n_routed_experts", "-1"]),
        (_published("deepseek-v3") | {"n_routed_experts": 4}, "MW-E205", ["experts_per_token 8", "num_experts 4"]),
        (_without("deepseek-v3", "moe_intermediate_size"), "MW-E206", ["missing: moe_intermediate_size"]),
        (_published("deepseek-v3") | {"n_shared_experts": "one"}, "MW-E208", ["n_shared_experts"]),
        (_published("gpt-oss-20b") | {"layer_types": ["full_attention"]}, "MW-E205", ["1 entries for 24 layers"]),
        (_published("gpt-oss-20b") | {"layer_types": ["half"] * 24}, "MW-E205", ["layer_types", "half"]),
        (_published("llava-1.5-7b") | {"text_config": 3}, "MW-E205", ["text_config"]),
        (_published("llava-1.5-7b") | {"vision_config": {"model_type": "x"}}, "MW-E226", ["vision_config.model_type"]),
        (_published("bert-base") | {"is_decoder": True}, "MW-E226", ["is_decoder"]),
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


BASES = [GPT2, OPT_125M, BLOOM, LLAMA_3_8B, MISTRAL_7B, QWEN25_7B]
BASES += [json.loads(path.read_text()) for path in sorted(CONFIGS.glob("*.json"))]
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 4096), st.floats(), st.text(max_size=5), st.lists(st.integers())
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=400)
@given(base=st.sampled_from(BASES), data=st.data())
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
