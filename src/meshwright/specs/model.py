"""ModelSpec: a model as blocks of named kinds; what a kind costs lives in ``costmodel/block/<kind>.py``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby
from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from meshwright.i18n import _
from meshwright.specs.fact import CatalogEntry, Noun

Option = int | float | str | bool


class BlockSpec(Noun):
    """One block: its kind (a file of ``costmodel/block/``) and that kind's options."""

    kind: str
    options: Mapping[str, Option] = Field(default_factory=dict)


class LayerGroup(Noun):
    """``repeat`` equal layers in a row, each made of ``blocks`` in order."""

    repeat: PositiveInt
    blocks: tuple[BlockSpec, ...]


class ModelSpec(CatalogEntry):
    """A model: prologue (embedding), run-length list of layers, epilogue (final norm and head)."""

    family: str
    hidden_size: PositiveInt
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt
    prologue: tuple[BlockSpec, ...]
    layers: tuple[LayerGroup, ...]
    epilogue: tuple[BlockSpec, ...]
    tie_word_embeddings: bool
    dropout: bool = False

    @property
    def n_layers(self) -> int:
        """Layers in all."""
        return sum(group.repeat for group in self.layers)

    @cached_property
    def layer_kinds(self) -> tuple[tuple[BlockSpec, ...], ...]:
        """The distinct layers, each as its blocks, in order of first appearance."""
        kinds: list[tuple[BlockSpec, ...]] = []
        for group in self.layers:
            if group.blocks not in kinds:
                kinds.append(group.blocks)
        return tuple(kinds)

    @cached_property
    def layer_sequence(self) -> tuple[int, ...]:
        """The index into ``layer_kinds`` of each layer, in order."""
        return tuple(self.layer_kinds.index(group.blocks) for group in self.layers for _each in range(group.repeat))


class MoE(Noun):
    """A mixture of experts in the place of the MLP; ``gated``, ``activation`` are the transformer's.

    ``shared_intermediate_size``: width of all shared experts together. ``shared_gate``: a gate scales their output.
    ``correction_bias``: a bias of the router's choice that balances the load (a buffer, no parameter).
    """

    num_experts: PositiveInt
    experts_per_token: PositiveInt
    expert_intermediate_size: PositiveInt
    shared_intermediate_size: NonNegativeInt = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    correction_bias: bool = False

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                _("experts_per_token {chosen} is more than num_experts {there}").format(
                    chosen=self.experts_per_token, there=self.num_experts
                )
            )
        return self


class MLA(Noun):
    """Multi-head latent attention (arXiv 2405.04434); without ``q_lora_rank`` queries are projected in one step."""

    q_lora_rank: PositiveInt | None = None
    kv_lora_rank: PositiveInt
    qk_nope_head_dim: PositiveInt
    qk_rope_head_dim: PositiveInt
    v_head_dim: PositiveInt


class Mamba2(Noun):
    """A Mamba-2 mixer (arXiv 2405.21060)."""

    num_heads: PositiveInt
    head_dim: PositiveInt
    state_size: PositiveInt
    n_groups: PositiveInt = 1
    conv_kernel: PositiveInt = 4
    chunk_size: PositiveInt = 256
    bias: bool = False
    conv_bias: bool = True


class GatedDelta(Noun):
    """A gated delta-rule mixer (arXiv 2412.06464)."""

    num_key_heads: PositiveInt
    num_value_heads: PositiveInt
    key_head_dim: PositiveInt
    value_head_dim: PositiveInt
    conv_kernel: PositiveInt = 4
    chunk_size: PositiveInt = 64


class PatchEmbedding(Noun):
    """Patches of an image as the only input: the embedding of a vision transformer."""

    patch_size: PositiveInt
    channels: PositiveInt = 3
    image_tokens: PositiveInt
    positions: NonNegativeInt = 0
    class_token: bool = False
    bias: bool = True


class VisionEncoder(Noun):
    """An image encoder and its projector before a language model; sizes are those of the encoder.

    ``image_tokens`` patches of each of ``images_per_sequence`` images become ``out_tokens`` tokens, ``merge`` patches
    at a time; ``channels`` counts frames too (Qwen2-VL: 3 x 2). ``patch_bias``, ``projector_bias``: as ``biases`` if
    absent.
    """

    num_hidden_layers: PositiveInt
    hidden_size: PositiveInt
    num_attention_heads: PositiveInt
    intermediate_size: PositiveInt
    gated: bool = False
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    activation: str = "gelu"
    biases: bool = True
    patch_size: PositiveInt
    channels: PositiveInt = 3
    patch_bias: bool | None = None
    class_token: bool = False
    positions: NonNegativeInt = 0
    pre_norm: bool = False
    final_norm: bool = True
    image_tokens: PositiveInt
    images_per_sequence: PositiveInt = 1
    out_tokens: PositiveInt
    merge: PositiveInt = 1
    projector_layers: NonNegativeInt = 2
    projector_hidden: PositiveInt | None = None
    projector_norm: Literal["", "layernorm", "rmsnorm"] = ""
    projector_bias: bool | None = None


#: Sub-table of a description -> its noun; each is the block kind of that name.
TABLES: Mapping[str, type[Noun]] = {
    "moe": MoE,
    "mla": MLA,
    "mamba2": Mamba2,
    "gated_delta": GatedDelta,
    "patch_embedding": PatchEmbedding,
    "vision_encoder": VisionEncoder,
}
#: What a layer may be made of.
LAYER_PARTS = ("attention", "sliding_attention", "chunked_attention", "mla", "mamba2", "gated_delta", "mlp", "moe")
_REPEATED = re.compile(r"(?:([1-9]\d{0,5})\*)?(?:\(([^*()]+)\)|([^*(),]+))")


def layer_sequence(layer_types: Sequence[str], num_hidden_layers: int) -> list[tuple[str, ...]]:
    """The parts of each layer: ``["3*gated_delta+moe", "attention+moe"]`` begun again until all layers are named.

    ``2*(mamba2, mlp)`` repeats several layers. Raises ValueError with the first entry that is not written like that.
    """
    cycle: list[tuple[str, ...]] = []
    for entry in layer_types:
        found = _REPEATED.fullmatch(entry)
        if not found:
            raise ValueError(entry)
        run = [tuple(part.strip() for part in layer.split("+")) for layer in (found[2] or found[3]).split(",")]
        cycle += run * min(int(found[1] or 1), num_hidden_layers)
    if not cycle:
        raise ValueError("")
    return [cycle[layer % len(cycle)] for layer in range(num_hidden_layers)]


class Transformer(Noun):
    """The fields by which people describe a model (names of Hugging Face's ``config.json`` where it has one).

    ``layer_types``: what the layers are made of, in order, begun again until there are ``num_hidden_layers``; an entry
    is parts (LAYER_PARTS) joined by ``+``, with ``3*`` before it for three such layers (of several in brackets:
    ``2*(mamba2, mlp)``). Absent: the attention and the feed-forward part that the other fields speak of. Sliding
    attention looks back ``sliding_window`` tokens, chunked attention to the start of its ``attention_chunk_size``
    tokens; ``mla``, ``mamba2``, ``gated_delta`` and ``moe`` take their options from the table of their name.

    ``norm_placement``: ``pre`` before each part, ``post`` after it, ``sandwich`` both, ``shared`` one for all parts of
    a layer (they run in parallel). ``gated_mlp``: SwiGLU (three matrices), not two. ``norm``: LayerNorm has a bias.
    ``*_bias``: linear layers with a bias. ``position``: learned positions are parameters, rotary and ALiBi are not.
    ``qk_norm``: queries and keys normed by head or over all heads. ``attention_sinks``: a learned logit for each head.
    ``attention_output_gate``: the query projection also makes a gate of the output (Qwen3-Next). ``head_transform``:
    dense layer and norm before the head (BERT). ``num_labels``: a classifier of the first token instead of a language
    model's head. ``num_nextn_predict_layers``: multi-token prediction modules (DeepSeek-V3, arXiv 2412.19437).
    """

    hidden_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt | None = None
    num_key_value_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    intermediate_size: PositiveInt | None = None
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt
    gated_mlp: bool
    activation: str
    norm: Literal["layernorm", "rmsnorm"]
    position: Literal["learned", "rotary", "alibi", "none"]
    qkv_bias: bool
    attention_output_bias: bool
    mlp_bias: bool
    tie_word_embeddings: bool
    layer_types: tuple[str, ...] = ()
    norm_placement: Literal["pre", "post", "sandwich", "shared"] = "pre"
    final_norm: bool = True
    causal: bool = True
    sliding_window: PositiveInt | None = None
    attention_chunk_size: PositiveInt | None = None
    qk_norm: Literal["head", "full"] | None = None
    attention_sinks: bool = False
    attention_output_gate: bool = False
    embedding_norm: bool = False
    embedding_size: PositiveInt | None = None
    token_types: NonNegativeInt = 0
    position_offset: NonNegativeInt = 0
    head_transform: bool = False
    head_bias: bool = False
    logit_softcap: NonNegativeFloat | None = None
    num_labels: PositiveInt | None = None
    num_nextn_predict_layers: NonNegativeInt = 0
    dropout: bool = False
    moe: MoE | None = None
    mla: MLA | None = None
    mamba2: Mamba2 | None = None
    gated_delta: GatedDelta | None = None
    patch_embedding: PatchEmbedding | None = None
    vision_encoder: VisionEncoder | None = None

    def layers(self) -> list[tuple[str, ...]]:
        """The parts of each layer. Raises ValueError like ``layer_sequence``."""
        mixer = "mla" if self.mla else "sliding_attention" if self.sliding_window else "attention"
        usual = f"{mixer}+{'moe' if self.moe else 'mlp'}"
        return layer_sequence(self.layer_types or (usual,), self.num_hidden_layers)

    def spec(self, name: str, family: str, **entry: object) -> ModelSpec:
        """The blocks of this model: runs of equal layers between embedding, final norm and head."""
        norm = BlockSpec(kind="norm", options={"norm": self.norm})
        final = (norm,) if self.final_norm else ()
        layers = [self._layer(parts, norm) for parts in self.layers()]
        return ModelSpec.model_validate(
            {
                "name": name,
                "family": family,
                "hidden_size": self.hidden_size,
                "vocab_size": self.vocab_size,
                "max_position_embeddings": self.max_position_embeddings,
                "prologue": (*self._embedding(), norm) if self.embedding_norm else self._embedding(),
                "layers": tuple(LayerGroup(repeat=len(list(run)), blocks=blocks) for blocks, run in groupby(layers)),
                "epilogue": (*final, *self._head(norm), *self._next_token_modules(layers[-1], norm)),
                "tie_word_embeddings": self.tie_word_embeddings,
                "dropout": self.dropout,
                **entry,
            }
        )

    def _layer(self, parts: tuple[str, ...], norm: BlockSpec) -> tuple[BlockSpec, ...]:
        blocks = [self._part(part) for part in parts]
        if self.norm_placement == "shared":
            return (norm, *blocks)
        before = (norm,) if self.norm_placement != "post" else ()
        after = (norm,) if self.norm_placement in ("post", "sandwich") else ()
        return tuple(chain.from_iterable((*before, block, *after) for block in blocks))

    def _part(self, part: str) -> BlockSpec:
        options: dict[str, Option | None]
        match part:
            case "attention" | "sliding_attention" | "chunked_attention":
                return BlockSpec(kind="attention", options=self._attention(part))
            case "mlp":
                options = {"intermediate_size": self.intermediate_size, "gated": self.gated_mlp}
                options |= {"activation": self.activation, "bias": self.mlp_bias, "dropout": self.dropout}
            case "mla":
                options = {"num_attention_heads": self.num_attention_heads, **_said(self.mla)}
                options |= {"qkv_bias": self.qkv_bias, "output_bias": self.attention_output_bias}
                options |= {"rotary": self.position == "rotary"}
            case "moe":
                options = {**_said(self.moe), "gated": self.gated_mlp, "activation": self.activation}
            case _:
                options = {**_said(getattr(self, part))}
        return BlockSpec(kind=part, options=_known(options))

    def _attention(self, part: str) -> dict[str, Option]:
        always: dict[str, Option | None] = {
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "qkv_bias": self.qkv_bias,
            "output_bias": self.attention_output_bias,
            "rotary": self.position == "rotary",
            "alibi": self.position == "alibi",
            "dropout": self.dropout,
        }
        rare = {
            "window": self.sliding_window if part == "sliding_attention" else None,
            "chunk": self.attention_chunk_size if part == "chunked_attention" else None,
            "qk_norm": self.qk_norm,
            "sinks": self.attention_sinks,
            "output_gate": self.attention_output_gate,
        }
        causal = {} if self.causal else {"causal": False}
        return {**_known(always), **_present(rare), **causal}

    def _embedding(self) -> tuple[BlockSpec, ...]:
        if self.patch_embedding:
            return (BlockSpec(kind="patch_embedding", options=_said(self.patch_embedding)),)
        learned = self.max_position_embeddings + self.position_offset if self.position == "learned" else 0
        options = {"position_embeddings": learned, "dropout": self.dropout}
        narrow = self.embedding_size
        rare = _present({"token_types": self.token_types, "width": narrow})
        found = [BlockSpec(kind="embedding", options={**options, **rare})]
        if narrow:
            found.append(_dense(narrow, self.hidden_size))
        if self.vision_encoder:
            found.append(BlockSpec(kind="vision_encoder", options=_said(self.vision_encoder)))
        return tuple(found)

    def _head(self, norm: BlockSpec) -> tuple[BlockSpec, ...]:
        rare = _present({"bias": self.head_bias, "softcap": self.logit_softcap, "labels": self.num_labels})
        head = BlockSpec(kind="head", options={"tied": self.tie_word_embeddings, **rare})
        if self.head_transform:
            return (_dense(self.hidden_size, self.hidden_size, bias=True, activation=self.activation), norm, head)
        return (_dense(self.hidden_size, self.embedding_size), head) if self.embedding_size else (head,)

    def _next_token_modules(self, layer: tuple[BlockSpec, ...], norm: BlockSpec) -> tuple[BlockSpec, ...]:
        """Each: norms of both inputs, their projection, one more layer, a norm, and the main head once more."""
        project = _dense(2 * self.hidden_size, self.hidden_size)
        head = BlockSpec(kind="head", options={"tied": True})
        return (norm, norm, project, *layer, norm, head) * self.num_nextn_predict_layers


def _dense(in_size: int, out_size: int, **more: Option) -> BlockSpec:
    return BlockSpec(kind="dense", options={"in_size": in_size, "out_size": out_size, **more})


def _known(options: Mapping[str, Option | None]) -> dict[str, Option]:
    return {key: value for key, value in options.items() if value is not None}


def _present(options: Mapping[str, Option | None]) -> dict[str, Option]:
    """Without what is absent, off or nought."""
    return {key: value for key, value in options.items() if value}


def _said(table: Noun | None) -> dict[str, Option]:
    return _known(table.model_dump()) if table else {}
