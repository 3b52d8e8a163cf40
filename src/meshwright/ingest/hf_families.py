"""What the keys of each ``model_type`` mean: the fields of ``specs.model.Transformer`` from a Hugging Face config.

What stands in where a key is absent follows the configuration classes of the ``transformers`` library
(https://github.com/huggingface/transformers, ``models/<family>/configuration_<family>.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshwright.i18n import _
from meshwright.specs.limits import LAYERS

Config = Mapping[str, Any]
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """How one family writes its config. ``keys``: our field (dotted in a sub-table) -> its spellings, usual one first.

    ``absent``: sizes that the family's class fills in where the file does not have the key at all (``null`` is left to
    us). ``fields``: what is no size, or follows from several keys. ``refused``: a condition that cannot be described,
    with why. ``language``: key of the language model's own config and its type, for models that see (``fields`` then
    gives the vision encoder); what that config may leave out is in ``absent``.
    """

    title: str
    keys: Mapping[str, tuple[str, ...]]
    fields: Callable[[Config], Fields]
    absent: Mapping[str, int] = field(default_factory=dict)
    refused: Callable[[Config], str | None] = lambda config: None
    language: tuple[str, str] | None = None


class WrongValueError(ValueError):
    """A value that cannot be what its key says; ``code`` is that of the InputError to raise."""

    def __init__(self, key: str, text: str, code: str = "MW-E208") -> None:
        super().__init__(text)
        self.key, self.code = key, code


def rate(config: Config, key: str, absent: float) -> float:
    """A dropout rate. Raises WrongValueError for what is not between 0 and 1."""
    value = config.get(key, absent)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise WrongValueError(key, _("{value} is not a rate between 0 and 1.").format(value=repr(value)))
    return float(value)


def count(config: Config, key: str, absent: int) -> int:
    """A whole number from nought to the most layers, for what is computed here. Raises WrongValueError."""
    value = config.get(key, absent)
    value = absent if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1 << 20:
        raise WrongValueError(key, _("{value} is not a whole number above zero.").format(value=repr(value)))
    return value


def names(config: Config, key: str) -> list[str] | None:
    """A list of names, None where absent. Raises WrongValueError."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise WrongValueError(key, _("must be a list of names."), "MW-E205")
    return value


def pattern(layers: Sequence[str]) -> tuple[str, ...]:
    """``layer_types`` for these layers: the shortest period that makes them all, what repeats inside it counted."""
    every = (p for p in range(1, len(layers)) if all(a == b for a, b in zip(layers, layers[p:], strict=False)))
    period = layers[: next(every, len(layers))]
    entries: list[str] = []
    start = 0
    while start < len(period):
        times, size = max((_times(period, start, size), size) for size in (1, 2) if start + size <= len(period))
        run = period[start : start + size] if times > 1 else period[start : start + 1]
        text = f"({', '.join(run)})" if len(run) > 1 else run[0]
        entries.append(f"{times}*{text}" if times > 1 else text)
        start += len(run) * times
    return tuple(entries)


def _times(layers: Sequence[str], start: int, size: int) -> int:
    """How often the ``size`` layers at ``start`` stand there in a row."""
    times = 1
    while layers[start + times * size : start + (times + 1) * size] == layers[start : start + size]:
        times += 1
    return times


#: The names that configs give mixers -> ours.
_MIXERS = {
    "full_attention": "attention",
    "attention": "attention",
    "sliding_attention": "sliding_attention",
    "chunked_attention": "chunked_attention",
    "linear_attention": "gated_delta",
}


def layers(config: Config, mixer: Callable[[int], str], *, sparse: Callable[[int], bool] | None = None) -> Fields:
    """``layer_types`` from the mixer of each layer (unless the file lists them) and whether its MLP is of experts."""
    n = count(config, "num_hidden_layers", 0)
    if not 1 <= n <= LAYERS:
        return {}
    listed = names(config, "layer_types")
    if listed is not None and len(listed) != n:
        raise WrongValueError(
            "layer_types", _("has {count} entries for {layers} layers.").format(count=len(listed), layers=n), "MW-E205"
        )
    if odd := [name for name in listed or () if name not in _MIXERS]:
        raise WrongValueError("layer_types", _("'{text}' is no kind of layer.").format(text=odd[0]), "MW-E205")
    mixers = [_MIXERS[name] for name in listed] if listed else [mixer(layer) for layer in range(n)]
    feeds = ["moe" if sparse is not None and sparse(layer) else "mlp" for layer in range(n)]
    return {"layer_types": pattern([f"{mix}+{feed}" for mix, feed in zip(mixers, feeds, strict=True)])}


def window(config: Config, absent: int | None) -> Any:
    """The sliding window as written; None where it is not shorter than the longest sequence."""
    value, longest = config.get("sliding_window", absent), config.get("max_position_embeddings")
    known = isinstance(value, int) and isinstance(longest, int)
    return None if known and value >= longest else value


_SIZES = {
    "hidden_size": ("hidden_size",),
    "num_hidden_layers": ("num_hidden_layers",),
    "num_attention_heads": ("num_attention_heads",),
    "vocab_size": ("vocab_size",),
    "max_position_embeddings": ("max_position_embeddings",),
}
_GATED = {
    **_SIZES,
    "intermediate_size": ("intermediate_size",),
    "num_key_value_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
}


def _biased(config: Config, *, bias: bool = True, tied: bool = True) -> Fields:
    """What the LayerNorm families share: biased linear layers, tied head unless the file says otherwise."""
    return {
        "norm": "layernorm",
        "qkv_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": bias,
        "tie_word_embeddings": config.get("tie_word_embeddings", tied),
    }


def _gpt2(config: Config) -> Fields:
    dropout = max(rate(config, key, 0.1) for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop")) > 0
    activation = config.get("activation_function", "gelu_new")
    return {**_biased(config), "position": "learned", "activation": activation, "dropout": dropout}


def _opt(config: Config) -> Fields:
    """OPT-350M alone has norms after the sublayers and an embedding narrower than the model, with two projections."""
    before = config.get("do_layer_norm_before", True)
    width = config.get("word_embed_proj_dim")
    return {
        **_biased(config, bias=config.get("enable_bias", True)),
        "position": "learned",
        # The embedding table keeps two rows before position zero.
        "position_offset": 2,
        "activation": config.get("activation_function", "relu"),
        "dropout": max(rate(config, "dropout", 0.1), rate(config, "attention_dropout", 0.0)) > 0,
        "norm_placement": "pre" if before else "post",
        "final_norm": bool(before) and not config.get("_remove_final_layer_norm"),
        "embedding_size": width if width != config.get("hidden_size") else None,
    }


def _opt_refused(config: Config) -> str | None:
    plain = config.get("layer_norm_elementwise_affine", True)
    return None if plain else "layer_norm_elementwise_affine = false"


def _bloom(config: Config) -> Fields:
    dropout = max(rate(config, key, 0.0) for key in ("hidden_dropout", "attention_dropout")) > 0
    return {**_biased(config), "position": "alibi", "activation": "gelu", "embedding_norm": True, "dropout": dropout}


def _gpt_neox(config: Config) -> Fields:
    """Attention and MLP run in parallel, each with a norm of its own: the blocks of a layer in sequence."""
    attention = config.get("attention_bias", True)
    dropout = max(rate(config, key, 0.0) for key in ("hidden_dropout", "attention_dropout")) > 0
    biased = {"qkv_bias": attention, "attention_output_bias": attention}
    return {
        **_biased(config, tied=False),
        **biased,
        "position": "rotary",
        "activation": config.get("hidden_act", "gelu"),
        "dropout": dropout,
    }


def _falcon(config: Config) -> Fields:
    new = bool(config.get("new_decoder_architecture", False))
    one_norm = config.get("num_ln_in_parallel_attn") == 1 if new else config.get("parallel_attn", True)
    kv_heads = "num_kv_heads" if new else "num_attention_heads"
    one_head = not new and config.get("multi_query", True)
    return {
        **_biased(config, bias=config.get("bias", False)),
        "position": "alibi" if config.get("alibi", False) else "rotary",
        "activation": config.get("activation", "gelu"),
        "num_key_value_heads": 1 if one_head else config.get(kv_heads),
        "norm_placement": "shared" if one_norm else "pre",
        "dropout": max(rate(config, key, 0.0) for key in ("hidden_dropout", "attention_dropout")) > 0,
    }


def _phi(config: Config) -> Fields:
    return {
        **_biased(config, tied=False),
        "position": "rotary",
        "activation": config.get("hidden_act", "gelu_new"),
        "norm_placement": "shared",
        "head_bias": True,
        "dropout": max(rate(config, key, 0.0) for key in ("resid_pdrop", "embd_pdrop", "attention_dropout")) > 0,
    }


def _phi_refused(config: Config) -> str | None:
    return "qk_layernorm = true" if config.get("qk_layernorm") else None


def _nemotron(config: Config) -> Fields:
    attention, mlp = config.get("attention_bias", False), config.get("mlp_bias", False)
    return {
        **_biased(config, tied=False),
        "qkv_bias": attention,
        "attention_output_bias": attention,
        "mlp_bias": mlp,
        "position": "rotary",
        "activation": config.get("hidden_act", "relu2"),
        "dropout": rate(config, "attention_dropout", 0.0) > 0,
    }


def _gated(
    config: Config,
    *,
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    activation: str = "silu",
    tied: bool = False,
) -> Fields:
    """What the families after LLaMA share: RMSNorm, rotary positions, three matrices in the MLP."""
    return {
        "norm": "rmsnorm",
        "position": "rotary",
        "gated_mlp": True,
        "activation": config.get("hidden_act", activation),
        "qkv_bias": qkv_bias,
        "attention_output_bias": output_bias,
        "mlp_bias": mlp_bias,
        "tie_word_embeddings": config.get("tie_word_embeddings", tied),
        "dropout": rate(config, "attention_dropout", 0.0) > 0,
    }


def _llama(config: Config) -> Fields:
    bias = config.get("attention_bias", False)
    return _gated(config, qkv_bias=bias, output_bias=bias, mlp_bias=config.get("mlp_bias", False))


def _mistral(config: Config) -> Fields:
    return {**_gated(config), "sliding_window": window(config, 4096)}


def _qwen_window(config: Config) -> Fields:
    """Qwen's sliding window is off unless switched on, and then starts above ``max_window_layers``."""
    if not config.get("use_sliding_window", False):
        return {}
    first = count(config, "max_window_layers", 28)
    return {
        "sliding_window": config.get("sliding_window"),
        **layers(config, lambda layer: "sliding_attention" if layer >= first else "attention"),
    }


def _qwen2(config: Config) -> Fields:
    return {**_gated(config, qkv_bias=True), **_qwen_window(config)}


def _qwen3(config: Config) -> Fields:
    return {**_llama(config), "mlp_bias": False, "qk_norm": "head", **_qwen_window(config)}


def _olmo2(config: Config) -> Fields:
    return {**_llama(config), "mlp_bias": False, "qk_norm": "full", "norm_placement": "post"}


def _phi3(config: Config) -> Fields:
    dropout = max(rate(config, key, 0.0) for key in ("resid_pdrop", "embd_pdrop", "attention_dropout")) > 0
    return {**_gated(config), "dropout": dropout, "sliding_window": window(config, None)}


def _gemma(config: Config) -> Fields:
    bias = config.get("attention_bias", False)
    return _gated(config, qkv_bias=bias, output_bias=bias, activation="gelu_pytorch_tanh", tied=True)


def _gemma2(config: Config) -> Fields:
    return {
        **_gemma(config),
        "norm_placement": "sandwich",
        "sliding_window": config.get("sliding_window", 4096),
        "logit_softcap": config.get("final_logit_softcapping", 30.0),
        **layers(config, lambda layer: "attention" if layer % 2 else "sliding_attention"),
    }


def _gemma3(config: Config) -> Fields:
    period = max(1, count(config, "sliding_window_pattern", 6))
    return {
        **_gemma(config),
        "qk_norm": "head",
        "norm_placement": "sandwich",
        "sliding_window": config.get("sliding_window", 4096),
        "logit_softcap": config.get("final_logit_softcapping"),
        **layers(config, lambda layer: "sliding_attention" if (layer + 1) % period else "attention"),
    }


def _glm(config: Config) -> Fields:
    return _gated(config, qkv_bias=config.get("attention_bias", True))


def _glm4(config: Config) -> Fields:
    return {**_glm(config), "norm_placement": "sandwich"}


def _chatglm(config: Config) -> Fields:
    """The GLM-4 of before ``transformers`` had it; its own code lies beside the weights."""
    bias = bool(config.get("add_bias_linear", False))
    fields = _gated(config, qkv_bias=config.get("add_qkv_bias", False) or bias, output_bias=bias, mlp_bias=bias)
    return {**fields, "norm": "rmsnorm" if config.get("rmsnorm", True) else "layernorm"}


_EXPERTS = {
    "moe.num_experts": ("num_experts", "num_local_experts"),
    "moe.experts_per_token": ("num_experts_per_tok",),
    "moe.expert_intermediate_size": ("moe_intermediate_size",),
}
_WIDE_EXPERTS = {
    **{key: theirs for key, theirs in _GATED.items() if key != "intermediate_size"},
    "moe.num_experts": ("num_local_experts",),
    "moe.experts_per_token": ("num_experts_per_tok",),
    "moe.expert_intermediate_size": ("intermediate_size",),
}


def _mixtral(config: Config) -> Fields:
    return {**_gated(config), "sliding_window": window(config, None)}


def _phimoe(config: Config) -> Fields:
    bias = config.get("attention_bias", False)
    return {
        **_gated(config, qkv_bias=bias, output_bias=bias),
        "norm": "layernorm",
        "head_bias": config.get("lm_head_bias", False),
        "sliding_window": window(config, None),
    }


def _sparse(config: Config) -> Callable[[int], bool]:
    """Qwen's placement of the experts: each ``decoder_sparse_step``-th layer but those of ``mlp_only_layers``."""
    step = max(1, count(config, "decoder_sparse_step", 1))
    dense = config.get("mlp_only_layers") or ()
    if not isinstance(dense, list | tuple):
        raise WrongValueError("mlp_only_layers", _("must be a list of layer numbers."), "MW-E205")
    return lambda layer: layer not in dense and (layer + 1) % step == 0


def _qwen2_moe(config: Config) -> Fields:
    return {
        **_gated(config, qkv_bias=config.get("qkv_bias", True)),
        "moe.shared_gate": True,
        **layers(config, lambda layer: "attention", sparse=_sparse(config)),
    }


def _qwen3_moe(config: Config) -> Fields:
    return {
        **_llama(config),
        "mlp_bias": False,
        "qk_norm": "head",
        **layers(config, lambda layer: "attention", sparse=_sparse(config)),
    }


def _qwen3_next(config: Config) -> Fields:
    interval = max(1, count(config, "full_attention_interval", 4))
    return {
        **_llama(config),
        "mlp_bias": False,
        "qk_norm": "head",
        "attention_output_gate": True,
        "moe.shared_gate": True,
        **layers(
            config,
            lambda layer: "gated_delta" if (layer + 1) % interval else "attention",
            sparse=_sparse(config),
        ),
    }


def _shared_width(config: Config, absent: int) -> int:
    return count(config, "n_shared_experts", absent) * count(config, "moe_intermediate_size", 0)


def _deepseek(config: Config, *, first_dense: int, shared: int, balanced: bool) -> Fields:
    bias = config.get("attention_bias", False)
    first = count(config, "first_k_dense_replace", first_dense)
    return {
        **_gated(config, qkv_bias=bias, output_bias=bias),
        "moe.shared_intermediate_size": _shared_width(config, shared),
        "moe.correction_bias": balanced,
        **layers(config, lambda layer: "mla", sparse=lambda layer: layer >= first),
    }


def _deepseek_v2(config: Config) -> Fields:
    return _deepseek(config, first_dense=0, shared=2, balanced=False)


def _deepseek_v3(config: Config) -> Fields:
    return _deepseek(config, first_dense=3, shared=1, balanced=True)


def _glm4_moe(config: Config) -> Fields:
    first = count(config, "first_k_dense_replace", 1)
    return {
        **_gated(config, qkv_bias=config.get("attention_bias", False)),
        "qk_norm": "head" if config.get("use_qk_norm", False) else None,
        "moe.shared_intermediate_size": _shared_width(config, 1),
        "moe.correction_bias": True,
        **layers(config, lambda layer: "attention", sparse=lambda layer: layer >= first),
    }


def _gpt_oss(config: Config) -> Fields:
    bias = config.get("attention_bias", True)
    return {
        **_gated(config, qkv_bias=bias, output_bias=bias),
        "attention_sinks": True,
        "sliding_window": config.get("sliding_window", 128),
        "moe.router_bias": True,
        "moe.expert_bias": True,
        **layers(config, lambda layer: "attention" if layer % 2 else "sliding_attention", sparse=lambda layer: True),
    }


def _llama4(config: Config) -> Fields:
    """Every fourth layer attends to everything, the others within chunks; the query-key norm has no parameters."""
    bias = config.get("attention_bias", False)
    step = max(1, count(config, "interleave_moe_layer_step", 1))
    full = max(1, count(config, "no_rope_layer_interval", 4))
    chunk = config.get("attention_chunk_size", 8192)
    listed = config.get("moe_layers")
    if listed is not None and not isinstance(listed, list):
        raise WrongValueError("moe_layers", _("must be a list of layer numbers."), "MW-E205")
    return {
        **_gated(config, qkv_bias=bias, output_bias=bias),
        "attention_chunk_size": chunk,
        "moe.shared_intermediate_size": config.get("intermediate_size"),
        **layers(
            config,
            lambda layer: "chunked_attention" if chunk and (layer + 1) % full else "attention",
            sparse=lambda layer: (layer + 1) % step == 0 if listed is None else layer in listed,
        ),
    }


_NEMOTRON_LETTERS = {"M": "mamba2", "*": "attention", "-": "mlp", "E": "moe"}
_NEMOTRON_NAMES = {
    "linear_attention": "mamba2",
    "mamba": "mamba2",
    "full_attention": "attention",
    "attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}


def _nemotron_h(config: Config) -> Fields:
    """Each layer is one part; attention has no positions and no biases."""
    key = next((key for key in ("layers_block_type", "layer_types") if config.get(key) is not None), None)
    if key:
        kinds = [_NEMOTRON_NAMES.get(name, name) for name in names(config, key) or ()]
    else:
        key = "hybrid_override_pattern"
        kinds = [_NEMOTRON_LETTERS.get(letter, letter) for letter in str(config.get(key) or "")]
    if not 1 <= len(kinds) <= LAYERS:
        raise WrongValueError(key, _("names no layers."), "MW-E205")
    if odd := [kind for kind in kinds if kind not in _NEMOTRON_LETTERS.values()]:
        raise WrongValueError(key, _("'{text}' is no kind of layer.").format(text=odd[0]), "MW-E205")
    fields: Fields = {
        "norm": "rmsnorm",
        "position": "none",
        "activation": config.get("mlp_hidden_act", "relu2"),
        "mlp_bias": config.get("mlp_bias", False),
        "tie_word_embeddings": config.get("tie_word_embeddings", False),
        "num_hidden_layers": len(kinds),
        "layer_types": pattern(kinds),
        "mamba2.bias": config.get("use_bias", False),
        "mamba2.conv_bias": config.get("use_conv_bias", True),
    }
    return {**fields, "moe.correction_bias": True} if "moe" in kinds else {**fields, "moe": None}


def _nemotron_h_refused(config: Config) -> str | None:
    latent = config.get("moe_latent_size")
    return f"moe_latent_size = {latent}" if latent else None


def _bamba(config: Config) -> Fields:
    attention = config.get("attn_layer_indices") or ()
    if not isinstance(attention, list | tuple):
        raise WrongValueError("attn_layer_indices", _("must be a list of layer numbers."), "MW-E205")
    return {
        **_llama(config),
        "mamba2.bias": config.get("mamba_proj_bias", False),
        "mamba2.conv_bias": config.get("mamba_conv_bias", True),
        **layers(config, lambda layer: "attention" if layer in attention else "mamba2"),
    }


def _mamba2(config: Config) -> Fields:
    return {
        "norm": "rmsnorm",
        "position": "none",
        "tie_word_embeddings": config.get("tie_word_embeddings", False),
        "layer_types": ("mamba2",),
        "mamba2.bias": config.get("use_bias", False),
        "mamba2.conv_bias": config.get("use_conv_bias", True),
    }


def _bert(config: Config) -> Fields:
    dropout = max(rate(config, key, 0.1) for key in ("hidden_dropout_prob", "attention_probs_dropout_prob")) > 0
    return {
        **_biased(config),
        "position": "learned",
        "activation": config.get("hidden_act", "gelu"),
        "causal": False,
        "norm_placement": "post",
        "embedding_norm": True,
        "final_norm": False,
        "head_transform": True,
        "head_bias": True,
        "dropout": dropout,
    }


def _bert_refused(config: Config) -> str | None:
    return next((key for key in ("is_decoder", "add_cross_attention") if config.get(key)), None)


def _patches(config: Config, image: int, patch: int) -> int:
    """Patches of a square image."""
    side = count(config, "image_size", image) // max(1, count(config, "patch_size", patch))
    return max(1, side * side)


def _vit(config: Config) -> Fields:
    patches = _patches(config, 224, 16)
    labels = config.get("id2label")
    n_labels = len(labels) if isinstance(labels, Mapping) and labels else count(config, "num_labels", 2)
    dropout = max(rate(config, key, 0.0) for key in ("hidden_dropout_prob", "attention_probs_dropout_prob")) > 0
    return {
        **_biased(config, tied=False),
        "qkv_bias": config.get("qkv_bias", True),
        "position": "none",
        "activation": config.get("hidden_act", "gelu"),
        "causal": False,
        "vocab_size": n_labels,
        "num_labels": n_labels,
        "head_bias": True,
        "max_position_embeddings": patches + 1,
        "patch_embedding.image_tokens": patches,
        "patch_embedding.positions": patches + 1,
        "patch_embedding.class_token": True,
        "dropout": dropout,
    }


_ENCODER = {
    "vision_encoder.num_hidden_layers": ("num_hidden_layers",),
    "vision_encoder.hidden_size": ("hidden_size",),
    "vision_encoder.num_attention_heads": ("num_attention_heads",),
    "vision_encoder.intermediate_size": ("intermediate_size",),
    "vision_encoder.patch_size": ("patch_size",),
}


def _llava(config: Config) -> Fields:
    """CLIP with norms around its layers; all patches pass a projector of two layers."""
    patches = _patches(config["vision_config"], 224, 32)
    return {
        "tie_word_embeddings": config.get("tie_word_embeddings", False),
        "vision_encoder.patch_bias": False,
        "vision_encoder.class_token": True,
        "vision_encoder.positions": patches + 1,
        "vision_encoder.pre_norm": True,
        "vision_encoder.image_tokens": patches,
        "vision_encoder.out_tokens": patches,
        "vision_encoder.projector_hidden": config.get("text_config", {}).get("hidden_size", 4096),
        "vision_encoder.projector_bias": config.get("multimodal_projector_bias", True),
    }


def _llava_refused(config: Config) -> str | None:
    vision = config["vision_config"].get("model_type", "clip_vision_model")
    return None if vision == "clip_vision_model" else f"vision_config.model_type = {vision}"


def _gemma3_vision(config: Config) -> Fields:
    """SigLIP; its patches are averaged down to the tokens of an image, normed and projected once."""
    patches = _patches(config["vision_config"], 224, 16)
    return {
        "tie_word_embeddings": config.get("tie_word_embeddings", True),
        "vision_encoder.positions": patches,
        "vision_encoder.image_tokens": patches,
        "vision_encoder.out_tokens": count(config, "mm_tokens_per_image", 256),
        "vision_encoder.projector_layers": 1,
        "vision_encoder.projector_norm": "rmsnorm",
        "vision_encoder.projector_bias": False,
    }


def _gemma3_refused(config: Config) -> str | None:
    return "vision_config.vision_use_head = true" if config["vision_config"].get("vision_use_head", True) else None


#: Patches of the image that is assumed where a model takes any size: 448 x 448 in patches of 14.
_ASSUMED_PATCHES = 1024


def _qwen2_5_vl(config: Config) -> Fields:
    """Two frames a patch; its norm after the last layer is the projector's."""
    vision = config["vision_config"]
    merge = max(1, count(vision, "spatial_merge_size", 2)) ** 2
    return {
        "tie_word_embeddings": config.get("tie_word_embeddings", False),
        "vision_encoder.gated": True,
        "vision_encoder.norm": "rmsnorm",
        "vision_encoder.activation": vision.get("hidden_act", "silu"),
        "vision_encoder.patch_bias": False,
        "vision_encoder.channels": count(vision, "in_channels", 3) * count(vision, "temporal_patch_size", 2),
        "vision_encoder.image_tokens": _ASSUMED_PATCHES,
        "vision_encoder.out_tokens": max(1, _ASSUMED_PATCHES // merge),
        "vision_encoder.merge": merge,
        "vision_encoder.projector_hidden": min(merge * count(vision, "hidden_size", 3584), 1 << 20),
    }


def _llama4_vision(config: Config) -> Fields:
    """Patches are shuffled four into one and pass an adapter of two layers and a projection."""
    vision = config["vision_config"]
    patches = _patches(vision, 448, 14)
    ratio = vision.get("pixel_shuffle_ratio", 0.5)
    merge = round(1 / ratio**2) if isinstance(ratio, int | float) and 0.1 <= ratio <= 1 else 4
    return {
        "tie_word_embeddings": config.get("tie_word_embeddings", False),
        "vision_encoder.patch_bias": False,
        "vision_encoder.class_token": True,
        "vision_encoder.positions": patches + 1,
        "vision_encoder.pre_norm": True,
        "vision_encoder.image_tokens": patches,
        "vision_encoder.out_tokens": max(1, patches // merge),
        "vision_encoder.merge": merge,
        "vision_encoder.projector_layers": 3,
        "vision_encoder.projector_hidden": count(vision, "projector_output_dim", 4096),
        "vision_encoder.projector_bias": False,
    }


def _qwen2_5_vl_refused(config: Config) -> str | None:
    width = config["vision_config"].get("out_hidden_size", 3584)
    return None if width == config.get("text_config", config).get("hidden_size") else f"out_hidden_size = {width}"


def _llama4_refused(config: Config) -> str | None:
    """Encoders whose shuffled patches or adapter do not have the width of what follows."""
    vision = config["vision_config"]
    width, adapter = vision.get("vision_output_dim", 7680), vision.get("projector_output_dim", 4096)
    if width != adapter or adapter != vision.get("projector_input_dim", 4096):
        return f"vision_output_dim = {width}"
    shuffled = _llama4_vision(config)["vision_encoder.merge"] * count(vision, "hidden_size", 768)
    return None if shuffled == vision.get("intermediate_size", 5632) else f"pixel_shuffle_ratio to {shuffled}"


_MLA = {
    **_SIZES,
    "intermediate_size": ("intermediate_size",),
    "mla.q_lora_rank": ("q_lora_rank",),
    "mla.kv_lora_rank": ("kv_lora_rank",),
    "mla.qk_nope_head_dim": ("qk_nope_head_dim",),
    "mla.qk_rope_head_dim": ("qk_rope_head_dim",),
    "mla.v_head_dim": ("v_head_dim",),
    **_EXPERTS,
    "moe.num_experts": ("n_routed_experts",),
}
_MLA_ABSENT = {
    "max_position_embeddings": 4096,
    "mla.q_lora_rank": 1536,
    "mla.kv_lora_rank": 512,
    "mla.qk_nope_head_dim": 128,
    "mla.qk_rope_head_dim": 64,
    "mla.v_head_dim": 128,
}
#: Longest sequence of models without positions: as far as the published ones were trained or tested.
_NO_LIMIT = 262_144
_DEEPSEEK_V3 = Family(
    "DeepSeek-V3", _MLA, _deepseek_v3, absent={**_MLA_ABSENT, "moe.num_experts": 256, "moe.experts_per_token": 8}
)
#: ``model_type`` -> family
FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        "GPT-2",
        {
            "hidden_size": ("n_embd", "hidden_size"),
            "num_hidden_layers": ("n_layer", "num_hidden_layers"),
            "num_attention_heads": ("n_head", "num_attention_heads"),
            "vocab_size": ("vocab_size",),
            "max_position_embeddings": ("n_positions", "n_ctx", "max_position_embeddings"),
            "intermediate_size": ("n_inner",),
        },
        _gpt2,
        refused=lambda config: "add_cross_attention" if config.get("add_cross_attention") else None,
    ),
    "opt": Family("OPT", {**_SIZES, "intermediate_size": ("ffn_dim",)}, _opt, refused=_opt_refused),
    "bloom": Family(
        "BLOOM",
        {
            "hidden_size": ("hidden_size", "n_embed"),
            "num_hidden_layers": ("n_layer", "num_hidden_layers"),
            "num_attention_heads": ("n_head", "num_attention_heads"),
            "vocab_size": ("vocab_size",),
            "max_position_embeddings": ("seq_length",),
            "intermediate_size": ("n_inner",),
        },
        _bloom,
        # ALiBi has no limit; the published models were all trained at this length.
        absent={"max_position_embeddings": 2048},
    ),
    "gpt_neox": Family(
        "GPT-NeoX",
        {**_SIZES, "intermediate_size": ("intermediate_size",)},
        _gpt_neox,
        absent={"max_position_embeddings": 2048, "intermediate_size": 24576},
    ),
    "falcon": Family(
        "Falcon",
        {
            **_SIZES,
            "hidden_size": ("hidden_size", "n_embed"),
            "num_hidden_layers": ("num_hidden_layers", "n_layer"),
            "num_attention_heads": ("num_attention_heads", "n_head"),
            "intermediate_size": ("ffn_hidden_size",),
        },
        _falcon,
        absent={"max_position_embeddings": 2048},
    ),
    "llama": Family(
        "Llama",
        {**_GATED, "max_position_embeddings": ("max_position_embeddings", "max_sequence_length")},
        _llama,
        absent={"max_position_embeddings": 2048},
    ),
    "llama4_text": Family(
        "Llama 4",
        {**_WIDE_EXPERTS, "intermediate_size": ("intermediate_size_mlp",)},
        _llama4,
        absent={
            "max_position_embeddings": 131072,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 16384,
            "moe.num_experts": 16,
            "moe.experts_per_token": 1,
        },
    ),
    "mistral": Family(
        "Mistral", _GATED, _mistral, absent={"max_position_embeddings": 131072, "num_key_value_heads": 8}
    ),
    "mixtral": Family(
        "Mixtral",
        _WIDE_EXPERTS,
        _mixtral,
        absent={
            "max_position_embeddings": 131072,
            "num_key_value_heads": 8,
            "moe.num_experts": 8,
            "moe.experts_per_token": 2,
        },
    ),
    "qwen2": Family("Qwen2", _GATED, _qwen2, absent={"max_position_embeddings": 32768, "num_key_value_heads": 32}),
    "qwen2_moe": Family(
        "Qwen2-MoE",
        {**_GATED, **_EXPERTS, "moe.shared_intermediate_size": ("shared_expert_intermediate_size",)},
        _qwen2_moe,
        absent={"max_position_embeddings": 32768, "moe.shared_intermediate_size": 5632},
    ),
    "qwen3": Family(
        "Qwen3",
        _GATED,
        _qwen3,
        absent={"max_position_embeddings": 32768, "num_key_value_heads": 32, "head_dim": 128},
    ),
    "qwen3_moe": Family(
        "Qwen3-MoE",
        {**_GATED, **_EXPERTS},
        _qwen3_moe,
        absent={"max_position_embeddings": 32768, "num_key_value_heads": 4},
    ),
    "qwen3_next": Family(
        "Qwen3-Next",
        {
            **_GATED,
            **_EXPERTS,
            "moe.shared_intermediate_size": ("shared_expert_intermediate_size",),
            "gated_delta.num_key_heads": ("linear_num_key_heads",),
            "gated_delta.num_value_heads": ("linear_num_value_heads",),
            "gated_delta.key_head_dim": ("linear_key_head_dim",),
            "gated_delta.value_head_dim": ("linear_value_head_dim",),
            "gated_delta.conv_kernel": ("linear_conv_kernel_dim",),
        },
        _qwen3_next,
        absent={
            "max_position_embeddings": 32768,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "intermediate_size": 5632,
            "moe.shared_intermediate_size": 512,
            "gated_delta.num_key_heads": 16,
            "gated_delta.num_value_heads": 32,
            "gated_delta.key_head_dim": 128,
            "gated_delta.value_head_dim": 128,
        },
    ),
    "olmo2": Family("OLMo 2", _GATED, _olmo2, absent={"max_position_embeddings": 2048}),
    "deepseek_v2": Family(
        "DeepSeek-V2",
        _MLA,
        _deepseek_v2,
        absent={**_MLA_ABSENT, "max_position_embeddings": 2048, "moe.num_experts": 64},
    ),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "gpt_oss": Family(
        "gpt-oss",
        _WIDE_EXPERTS,
        _gpt_oss,
        absent={
            "max_position_embeddings": 131072,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "moe.num_experts": 128,
            "moe.experts_per_token": 4,
        },
    ),
    "gemma": Family("Gemma", _GATED, _gemma, absent={"max_position_embeddings": 8192, "head_dim": 256}),
    "gemma2": Family(
        "Gemma 2",
        _GATED,
        _gemma2,
        absent={"max_position_embeddings": 8192, "num_key_value_heads": 4, "head_dim": 256},
    ),
    "gemma3_text": Family(
        "Gemma 3",
        _GATED,
        _gemma3,
        absent={
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
        },
    ),
    "phi": Family("Phi", {**_GATED}, _phi, absent={"max_position_embeddings": 2048}, refused=_phi_refused),
    "phi3": Family("Phi-3", _GATED, _phi3, absent={"max_position_embeddings": 4096}),
    "phimoe": Family(
        "Phi-MoE",
        _WIDE_EXPERTS,
        _phimoe,
        absent={
            "max_position_embeddings": 131072,
            "num_key_value_heads": 8,
            "moe.num_experts": 16,
            "moe.experts_per_token": 2,
        },
    ),
    "glm": Family(
        "GLM", _GATED, _glm, absent={"max_position_embeddings": 131072, "num_key_value_heads": 2, "head_dim": 128}
    ),
    "glm4": Family(
        "GLM-4", _GATED, _glm4, absent={"max_position_embeddings": 131072, "num_key_value_heads": 2, "head_dim": 128}
    ),
    "chatglm": Family(
        "ChatGLM",
        {
            **_SIZES,
            "num_hidden_layers": ("num_layers",),
            "vocab_size": ("padded_vocab_size", "vocab_size"),
            "max_position_embeddings": ("seq_length",),
            "intermediate_size": ("ffn_hidden_size",),
            "num_key_value_heads": ("multi_query_group_num",),
            "head_dim": ("kv_channels",),
        },
        _chatglm,
    ),
    "glm4_moe": Family(
        "GLM-4.5",
        {**_GATED, **_EXPERTS, "moe.num_experts": ("n_routed_experts",)},
        _glm4_moe,
        absent={
            "max_position_embeddings": 131072,
            "num_key_value_heads": 8,
            "moe.num_experts": 128,
            "moe.experts_per_token": 8,
        },
    ),
    "nemotron": Family(
        "Nemotron",
        {**_GATED, "head_dim": ("head_dim", "kv_channels")},
        _nemotron,
        absent={"max_position_embeddings": 4096},
    ),
    "nemotron_h": Family(
        "Nemotron-H",
        {
            **{key: theirs for key, theirs in _GATED.items() if key != "num_hidden_layers"},
            "head_dim": ("head_dim", "attention_head_dim"),
            **_EXPERTS,
            "moe.num_experts": ("n_routed_experts",),
            "moe.shared_intermediate_size": ("moe_shared_expert_intermediate_size",),
            "mamba2.num_heads": ("mamba_num_heads",),
            "mamba2.head_dim": ("mamba_head_dim",),
            "mamba2.state_size": ("ssm_state_size",),
            "mamba2.n_groups": ("n_groups", "mamba_n_groups"),
            "mamba2.conv_kernel": ("conv_kernel", "mamba_d_conv"),
            "mamba2.chunk_size": ("chunk_size", "mamba_chunk_size"),
        },
        _nemotron_h,
        absent={
            "max_position_embeddings": 4096,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "mamba2.num_heads": 128,
            "mamba2.head_dim": 64,
            "mamba2.state_size": 128,
            "mamba2.n_groups": 8,
            "mamba2.chunk_size": 128,
        },
        refused=_nemotron_h_refused,
    ),
    "bamba": Family(
        "Bamba",
        {
            **_GATED,
            "mamba2.num_heads": ("mamba_n_heads",),
            "mamba2.head_dim": ("mamba_d_head",),
            "mamba2.state_size": ("mamba_d_state",),
            "mamba2.n_groups": ("mamba_n_groups",),
            "mamba2.conv_kernel": ("mamba_d_conv",),
            "mamba2.chunk_size": ("mamba_chunk_size",),
        },
        _bamba,
        absent={
            "max_position_embeddings": _NO_LIMIT,
            "num_key_value_heads": 8,
            "mamba2.num_heads": 128,
            "mamba2.head_dim": 64,
            "mamba2.state_size": 256,
        },
    ),
    "mamba2": Family(
        "Mamba-2",
        {
            "hidden_size": ("hidden_size",),
            "num_hidden_layers": ("num_hidden_layers",),
            "vocab_size": ("vocab_size",),
            "max_position_embeddings": ("max_position_embeddings",),
            "mamba2.num_heads": ("num_heads",),
            "mamba2.head_dim": ("head_dim",),
            "mamba2.state_size": ("state_size",),
            "mamba2.n_groups": ("n_groups",),
            "mamba2.conv_kernel": ("conv_kernel",),
            "mamba2.chunk_size": ("chunk_size",),
        },
        _mamba2,
        absent={
            "max_position_embeddings": _NO_LIMIT,
            "mamba2.num_heads": 128,
            "mamba2.head_dim": 64,
            "mamba2.state_size": 128,
            "mamba2.n_groups": 8,
        },
    ),
    "bert": Family(
        "BERT",
        {**_SIZES, "intermediate_size": ("intermediate_size",), "token_types": ("type_vocab_size",)},
        _bert,
        absent={"max_position_embeddings": 512, "token_types": 2},
        refused=_bert_refused,
    ),
    "vit": Family(
        "ViT",
        {
            "hidden_size": ("hidden_size",),
            "num_hidden_layers": ("num_hidden_layers",),
            "num_attention_heads": ("num_attention_heads",),
            "intermediate_size": ("intermediate_size",),
            "patch_embedding.patch_size": ("patch_size",),
            "patch_embedding.channels": ("num_channels",),
        },
        _vit,
        absent={"patch_embedding.patch_size": 16, "patch_embedding.channels": 3},
    ),
    "llava": Family(
        "LLaVA",
        {**_ENCODER, "vision_encoder.channels": ("num_channels",)},
        _llava,
        # The published files leave the sizes of a 7B Llama to the class.
        absent={
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "intermediate_size": 11008,
            "vocab_size": 32000,
        },
        refused=_llava_refused,
        language=("text_config", "llama"),
    ),
    "gemma3": Family(
        "Gemma 3",
        {**_ENCODER, "vision_encoder.channels": ("num_channels",)},
        _gemma3_vision,
        absent={"vision_encoder.patch_size": 16},
        refused=_gemma3_refused,
        language=("text_config", "gemma3_text"),
    ),
    "qwen2_5_vl": Family(
        "Qwen2.5-VL",
        {
            **_ENCODER,
            "vision_encoder.num_hidden_layers": ("depth",),
            "vision_encoder.num_attention_heads": ("num_heads",),
        },
        _qwen2_5_vl,
        absent={
            "vision_encoder.num_hidden_layers": 32,
            "vision_encoder.num_attention_heads": 16,
            "vision_encoder.hidden_size": 3584,
            "vision_encoder.intermediate_size": 3420,
            "vision_encoder.patch_size": 14,
        },
        refused=_qwen2_5_vl_refused,
        language=("text_config", "qwen2"),
    ),
    "llama4": Family(
        "Llama 4",
        {**_ENCODER, "vision_encoder.channels": ("num_channels",)},
        _llama4_vision,
        absent={"vision_encoder.patch_size": 14},
        refused=_llama4_refused,
        language=("text_config", "llama4_text"),
    ),
}
#: ``model_type`` of a language model inside another's config -> its family.
INNER_TYPES = {"qwen2_5_vl_text": "qwen2"}
#: What ``architectures`` says -> ``model_type``, for files without the latter.
ARCHITECTURES = {
    "GPT2LMHeadModel": "gpt2",
    "OPTForCausalLM": "opt",
    "BloomForCausalLM": "bloom",
    "GPTNeoXForCausalLM": "gpt_neox",
    "FalconForCausalLM": "falcon",
    "LlamaForCausalLM": "llama",
    "LLaMAForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "BertForMaskedLM": "bert",
    "ViTForImageClassification": "vit",
}
