"""Hugging Face ``config.json`` of GPT-2, OPT, BLOOM, Llama, Mistral and Qwen2 models as a ModelSpec.

What a key means and what stands in where it is absent follow the configuration classes of the ``transformers``
library (https://github.com/huggingface/transformers, ``models/<family>/configuration_<family>.py``). Sizes that the
parameter count hangs on must be in the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshwright.catalog.description import dense_transformer
from meshwright.catalog.loader import unreadable
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.fact import Fact
from meshwright.specs.model import ModelSpec

#: A config.json is a few kilobytes; what is far larger is something else (weights), not to be read whole.
LARGEST_BYTES = 1 << 24

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """How one family writes its config. ``keys``: our field -> the spellings in its files, the usual one first.

    ``absent``: sizes that the family's class fills in where the file does not have the key at all (a ``null`` means
    "as many as heads"). ``flags``: the fields that are no sizes. ``refused``: a condition that this reader cannot
    express, with why.
    """

    title: str
    keys: Mapping[str, tuple[str, ...]]
    flags: Callable[[Config], dict[str, Any]]
    absent: Mapping[str, int] = field(default_factory=dict)
    refused: Callable[[Config], str | None] = lambda config: None


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


def _biased(config: Config, *, bias: bool = True) -> dict[str, Any]:
    """What the LayerNorm families share: biased linear layers, tied head unless the file says otherwise."""
    return {
        "norm": "layernorm",
        "qkv_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": bias,
        "tie_word_embeddings": config.get("tie_word_embeddings", True),
    }


def _gpt2(config: Config) -> dict[str, Any]:
    dropout = max(_rate(config, key, 0.1) for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop")) > 0
    activation = config.get("activation_function", "gelu_new")
    return {**_biased(config), "position": "learned", "activation": activation, "dropout": dropout}


def _gpt2_refused(config: Config) -> str | None:
    return "add_cross_attention" if config.get("add_cross_attention") else None


def _opt(config: Config) -> dict[str, Any]:
    return {
        **_biased(config, bias=config.get("enable_bias", True)),
        "position": "learned",
        # The embedding table keeps two rows before position zero.
        "position_offset": 2,
        "activation": config.get("activation_function", "relu"),
        "dropout": max(_rate(config, "dropout", 0.1), _rate(config, "attention_dropout", 0.0)) > 0,
    }


def _opt_refused(config: Config) -> str | None:
    """OPT-350M: norms after the sublayers and an embedding narrower than the model, with two projections."""
    if config.get("do_layer_norm_before", True) is False:
        return "do_layer_norm_before = false"
    width = config.get("word_embed_proj_dim")
    if width is not None and width != config.get("hidden_size"):
        return f"word_embed_proj_dim = {width}"
    if config.get("layer_norm_elementwise_affine", True) is False:
        return "layer_norm_elementwise_affine = false"
    return "_remove_final_layer_norm = true" if config.get("_remove_final_layer_norm") else None


def _bloom(config: Config) -> dict[str, Any]:
    dropout = max(_rate(config, key, 0.0) for key in ("hidden_dropout", "attention_dropout")) > 0
    return {**_biased(config), "position": "alibi", "activation": "gelu", "embedding_norm": True, "dropout": dropout}


def _llama_like(config: Config, *, qkv_bias: bool, output_bias: bool, mlp_bias: bool) -> dict[str, Any]:
    return {
        "norm": "rmsnorm",
        "position": "rotary",
        "gated_mlp": True,
        "activation": config.get("hidden_act", "silu"),
        "qkv_bias": qkv_bias,
        "attention_output_bias": output_bias,
        "mlp_bias": mlp_bias,
        "tie_word_embeddings": config.get("tie_word_embeddings", False),
        "dropout": _rate(config, "attention_dropout", 0.0) > 0,
    }


def _llama(config: Config) -> dict[str, Any]:
    bias = config.get("attention_bias", False)
    return _llama_like(config, qkv_bias=bias, output_bias=bias, mlp_bias=config.get("mlp_bias", False))


def _mistral(config: Config) -> dict[str, Any]:
    return _llama_like(config, qkv_bias=False, output_bias=False, mlp_bias=False)


def _qwen2(config: Config) -> dict[str, Any]:
    return _llama_like(config, qkv_bias=True, output_bias=False, mlp_bias=False)


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
        refused=_gpt2_refused,
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
    "llama": Family(
        "Llama",
        {**_GATED, "max_position_embeddings": ("max_position_embeddings", "max_sequence_length")},
        _llama,
        absent={"max_position_embeddings": 2048},
    ),
    "mistral": Family(
        "Mistral", _GATED, _mistral, absent={"max_position_embeddings": 131072, "num_key_value_heads": 8}
    ),
    "qwen2": Family("Qwen2", _GATED, _qwen2, absent={"max_position_embeddings": 32768, "num_key_value_heads": 32}),
}
#: What ``architectures`` says -> ``model_type``, for files without the latter.
_ARCHITECTURES = {
    "GPT2LMHeadModel": "gpt2",
    "OPTForCausalLM": "opt",
    "BloomForCausalLM": "bloom",
    "LlamaForCausalLM": "llama",
    "LLaMAForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
}
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def sniff(path: Path) -> bool:
    """Whether ``path`` is a config.json of a model (or a directory with one). Raises only where it may not be read."""
    try:
        config = _load(_file(path))
    except InputError:
        return False
    return "model_type" in config or "architectures" in config


def read(path: Path) -> ModelSpec:
    """The model of a ``config.json``, or of a directory that holds one.

    Raises InputError, each naming file and field: MW-E220 (no such file), MW-E221 (a directory without config.json),
    MW-E222 (empty), MW-E223 (not JSON, with line and column), MW-E224 (no object), MW-E225 (an architecture that is
    not known), MW-E226 (a variant that cannot be expressed), MW-E227 (not text), MW-E205..209 (missing, wrong or
    indivisible fields).
    """
    path = _file(path)
    config = _load(path)
    family, model_type = _family(config, path.name)
    if reason := _unreadable(config, family):
        raise InputError(
            "MW-E226",
            _("{family} with {reason} cannot be described here.").format(family=family.title, reason=reason),
            where=path.name,
            nearest=_("Supported: dense pre-norm decoders with one width."),
        )
    values, spelled = _sizes(config, family)
    try:
        flags = family.flags(config)
    except _WrongRateError as error:
        raise InputError("MW-E208", str(error), where=f"{path.name}: {error.key}") from None
    full = {key: value for key, value in {**values, **flags}.items() if value is not None}
    transformer = dense_transformer(full, path.name, spelled=spelled)
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return transformer.spec(
        name or family.title, model_type, facts=_facts(config, transformer.model_dump(), spelled, path)
    )


class _WrongRateError(ValueError):
    """A dropout rate that is no number of at least zero."""

    def __init__(self, key: str, value: Any) -> None:
        super().__init__(_("{value} is not a rate between 0 and 1.").format(value=repr(value)))
        self.key = key


def _rate(config: Config, key: str, absent: float) -> float:
    value = config.get(key, absent)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _WrongRateError(key, value)
    return float(value)


def _file(path: Path) -> Path:
    if path.is_dir():
        inside = path / "config.json"
        if not inside.is_file():
            raise InputError(
                "MW-E221",
                _("the directory holds no config.json."),
                where=str(path),
                nearest=_("Give the config.json of a model, or a directory that holds one."),
            )
        return inside
    if not path.exists():
        near = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(
            "MW-E220",
            _("there is no such file."),
            where=str(path),
            nearest=did_you_mean(path.name, near) if near else None,
        )
    return path


def _load(path: Path) -> dict[str, Any]:
    text = _text(path)
    if not text.strip():
        raise InputError("MW-E222", _("the file is empty."), where=path.name)
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            "MW-E223",
            _("not JSON: {reason}, line {line}, column {column}.").format(
                reason=error.msg, line=error.lineno, column=error.colno
            ),
            where=path.name,
            nearest=_("The file ends too early; fetch it again.") if error.pos >= len(text.rstrip()) else None,
        ) from None
    except RecursionError:
        raise InputError("MW-E223", _("nested too deeply to be a configuration."), where=path.name) from None
    except ValueError as error:
        raise InputError("MW-E223", _("not JSON: {reason}.").format(reason=error), where=path.name) from None
    if not isinstance(config, dict):
        found = {"list": _("a list"), "str": _("a text")}.get(type(config).__name__, _("a single value"))
        raise InputError(
            "MW-E224",
            _("{found} instead of an object with fields.").format(found=found),
            where=path.name,
            nearest=_("A config.json starts with a brace."),
        )
    return config


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
    except PermissionError as error:
        raise unreadable("MW-E220", path, error) from None
    except OSError as error:
        raise InputError(
            "MW-E220", _("cannot be read: {reason}.").format(reason=error.strerror or error), where=str(path)
        ) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or len(raw) > LARGEST_BYTES:
        raise InputError(
            "MW-E227",
            _("not a text file."),
            where=path.name,
            nearest=_("Give the config.json that lies beside the weights."),
        )
    return text


def _family(config: Config, place: str) -> tuple[Family, str]:
    stated = config.get("model_type")
    architectures = config.get("architectures") or []
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    model_type = stated if isinstance(stated, str) else _ARCHITECTURES.get(str(first), str(first or ""))
    if model_type in FAMILIES:
        return FAMILIES[model_type], model_type
    known = ", ".join(FAMILIES)
    text = (
        _("the architecture '{name}' is not known.").format(name=model_type)
        if model_type
        else _("neither model_type nor architectures is said.")
    )
    raise InputError(
        "MW-E225",
        text,
        where=place,
        nearest=_("Known: {names}. Describe another dense decoder in a TOML file: [transformer] with {fields}.").format(
            names=known,
            fields="hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, "
            "intermediate_size, gated_mlp, vocab_size, max_position_embeddings, norm, position, tie_word_embeddings",
        ),
    )


def _unreadable(config: Config, family: Family) -> str | None:
    for key in _EXPERTS:
        value = config.get(key)
        if isinstance(value, int) and value > 1:
            return f"{key} = {value}"
    return family.refused(config)


def _sizes(config: Config, family: Family) -> tuple[dict[str, Any], dict[str, str]]:
    """Sizes as written under our names (absent ones left out) and how this file spells each."""
    values: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for ours, theirs in family.keys.items():
        spelled[ours] = next((key for key in theirs if config.get(key) is not None), theirs[0])
        value = config.get(spelled[ours])
        if value is None and ours in family.absent and not any(key in config for key in theirs):
            value = family.absent[ours]
        if value is not None:
            values[ours] = value
    return values, spelled


def _facts(config: Config, fields: Mapping[str, Any], spelled: Mapping[str, str], path: Path) -> dict[str, Fact]:
    """Each field with the file as its source, or the family's default where the file does not have it."""
    default = _("default of the transformers library for this family")
    facts = {}
    for name, value in fields.items():
        key = spelled.get(name, name)
        stated = config.get(key) is not None
        facts[name] = Fact(
            text=str(value),
            source=f"{path.name}: {key}" if stated else default,
            label="published" if stated else "inferred",
        )
    window = config.get("sliding_window")
    if isinstance(window, int) and config.get("use_sliding_window", True):
        text = _("{window} (not modelled: attention is counted over the whole sequence)").format(window=window)
        facts["sliding_window"] = Fact(text=text, source=f"{path.name}: sliding_window", label="published")
    return facts
