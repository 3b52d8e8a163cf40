"""A model as people describe it, checked: the fields of a transformer, or blocks written out.

In a model's TOML either a ``[transformer]`` table with the fields of ``specs.model.Transformer`` (``[transformer.moe]``
and the like for its sub-tables), or ``hidden_size``, ``vocab_size``, ``max_position_embeddings``,
``tie_word_embeddings`` and blocks of any kind::

    [[prologue]]
    kind = "embedding"
    [[layers]]
    repeat = 12
    blocks = [{ kind = "norm", norm = "rmsnorm" }, { kind = "my_mixer", state_size = 16 }]
    [[epilogue]]
    kind = "head"
    tied = false

What else stands in a block's table is an option of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from meshwright.catalog.provenance import Provenance
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.limits import LAYERS, MODEL_SIZES, ROWS, WIDTH, at_most
from meshwright.specs.model import LAYER_PARTS, TABLES, Transformer, layer_sequence

#: What every description must say.
REQUIRED = (
    "hidden_size",
    "num_hidden_layers",
    "vocab_size",
    "max_position_embeddings",
    "norm",
    "position",
    "tie_word_embeddings",
)
SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "sliding_window",
    "attention_chunk_size",
    "embedding_size",
    "num_labels",
)
_HEADS = ("attention", "sliding_attention", "chunked_attention")
#: What a layer's part needs said beside the table of its name.
_PART_NEEDS = {
    **dict.fromkeys(_HEADS, ("num_attention_heads",)),
    "sliding_attention": ("num_attention_heads", "sliding_window"),
    "chunked_attention": ("num_attention_heads", "attention_chunk_size"),
    "mla": ("num_attention_heads", "mla"),
    "mlp": (),
}
_FLAG_DEFAULTS = {"gated_mlp": False, "qkv_bias": False, "attention_output_bias": False, "mlp_bias": False}
_BLOCK_LISTS = ("prologue", "layers", "epilogue")


def model_values(name: str, body: Mapping[str, Any], provenance: Provenance) -> dict[str, Any]:
    """The fields of a ModelSpec (without name, aliases and facts) from a TOML file's keys.

    Facts are recorded in ``provenance`` under the written names. Raises InputError MW-E205, MW-E206, MW-E208, MW-E209.
    """
    place = provenance.place
    family = str(body.get("family", "custom"))
    table = body.get("transformer")
    if table is None:
        return _block_values(family, body, provenance)
    if not isinstance(table, Mapping):
        raise InputError("MW-E205", _("[transformer] must be a table."), where=place)
    if beside := [key for key in body if key not in ("family", "transformer")]:
        raise InputError(
            "MW-E205",
            _("'{key}' does not stand beside [transformer].").format(key=beside[0]),
            where=place,
            nearest=did_you_mean(beside[0], Transformer.model_fields),
        )
    values = {key: _read(key, written, provenance) for key, written in table.items()}
    spec = transformer(values, place).spec(name, family)
    return {key: getattr(spec, key) for key in type(spec).model_fields if key not in ("name", "aliases", "facts")}


def _read(key: str, written: Any, provenance: Provenance) -> Any:
    if key in TABLES and isinstance(written, Mapping) and "value" not in written:
        return {inner: provenance.value(f"{key}.{inner}", value, None) for inner, value in written.items()}
    value = provenance.value(key, written, None)
    if not isinstance(value, list):
        return value
    text = ", ".join(map(str, value))
    provenance.facts[key] = provenance.facts[key].model_copy(update={"text": text})
    return tuple(value)


def transformer(values: Mapping[str, Any], place: str, *, spelled: Mapping[str, str] | None = None) -> Transformer:
    """Checked fields of a transformer; absent ones take the usual value.

    Key/value heads default to the heads, the head size to their share of the hidden size, an ungated MLP to four
    times the hidden size. ``spelled`` says how the file at ``place`` spells a field, for messages. Raises InputError:
    MW-E205 (unknown field, wrong kind of value), MW-E206 (everything that is missing, at once), MW-E208 (a size that
    is not a whole number above zero), MW-E209 (heads that do not divide).
    """
    said = dict(spelled or {})
    given = {key: value for key, value in values.items() if value is not None}
    _known_fields(given, Transformer.model_fields, place)
    for key, table in TABLES.items():
        if isinstance(given.get(key), Mapping):
            _known_fields(given[key], table.model_fields, f"{place}: {key}", ".")
    if missing := [said.get(key, key) for key in _needed(given, place, said) if _absent(given, key)]:
        raise InputError("MW-E206", _("missing: {fields}.").format(fields=", ".join(missing)), where=place)
    for key, value in _sizes(given):
        _whole(value, f"{place}: {said.get(key, key)}", MODEL_SIZES.get(key, WIDTH))
    full = _completed(given, place, said)
    try:
        return Transformer.model_validate(full, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"] if isinstance(part, str))
        text = first["msg"].removeprefix("Value error, ")
        raise InputError("MW-E205", f"{text}.", where=f"{place}: {said.get(key, key)}") from None


def _known_fields(given: Mapping[str, Any], fields: Mapping[str, Any], place: str, joint: str = ": ") -> None:
    for key in given:
        if key not in fields:
            raise InputError(
                "MW-E205", _("unknown field."), where=f"{place}{joint}{key}", nearest=did_you_mean(key, fields)
            )


def _absent(given: Mapping[str, Any], key: str) -> bool:
    table, _dot, inner = key.partition(".")
    return table not in given or (bool(inner) and inner not in given[table])


def _sizes(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Every size with its name, those of the sub-tables dotted; a nought there may mean "none" and is left out."""
    found = [(key, given[key]) for key in SIZES if key in given]
    for key in TABLES:
        table = given.get(key)
        inner = table.items() if isinstance(table, Mapping) else ()
        found += [(f"{key}.{name}", size) for name, size in inner if isinstance(size, int) and size != 0]
    return [(key, size) for key, size in found if not (isinstance(size, bool) and "." in key)]


def _needed(given: Mapping[str, Any], place: str, said: Mapping[str, str]) -> list[str]:
    """The fields that must be there: always, for the layers' parts, and of the sub-tables that are."""
    parts = {part for layer in _layers(given, place, said) for part in layer}
    by_part = [name for part in LAYER_PARTS if part in parts for name in _PART_NEEDS.get(part, (part,))]
    # The MLP width only where three matrices leave no usual one.
    width = ["intermediate_size"] if "mlp" in parts and given.get("gated_mlp") else []
    inner = [
        f"{key}.{name}"
        for key, table in TABLES.items()
        if isinstance(given.get(key), Mapping)
        for name, field in table.model_fields.items()
        if field.is_required()
    ]
    return list(dict.fromkeys([*REQUIRED[:2], *by_part, *REQUIRED[2:], *width, *inner]))


def _layers(given: Mapping[str, Any], place: str, said: Mapping[str, str]) -> list[tuple[str, ...]]:
    """The parts of one period of layers. Raises InputError MW-E205 for what is no list of known parts."""
    where = f"{place}: {said.get('layer_types', 'layer_types')}"
    written = given.get("layer_types", ())
    if not isinstance(written, tuple | list) or not all(isinstance(entry, str) for entry in written):
        raise InputError("MW-E205", _("must be a list of names."), where=where)
    if not written:
        mixer = "mla" if "mla" in given else "sliding_attention" if "sliding_window" in given else "attention"
        return [(mixer, "moe" if "moe" in given else "mlp")]
    try:
        found = layer_sequence(written, LAYERS)
    except ValueError as error:
        raise InputError(
            "MW-E205",
            _("'{text}' is no kind of layer.").format(text=error),
            where=where,
            nearest=_("Write it like '{example}'.").format(example="3*sliding_attention+mlp"),
        ) from None
    if odd := [part for layer in found for part in layer if part not in LAYER_PARTS]:
        raise InputError(
            "MW-E205",
            _("'{text}' is no kind of layer.").format(text=odd[0]),
            where=where,
            nearest=did_you_mean(odd[0], LAYER_PARTS, show=len(LAYER_PARTS)),
        )
    return found


def _completed(given: Mapping[str, Any], place: str, said: Mapping[str, str]) -> dict[str, Any]:
    hidden = given["hidden_size"]
    gated = bool(given.get("gated_mlp"))
    usual: dict[str, Any] = {"intermediate_size": 4 * hidden, "activation": "silu" if gated else "gelu"}
    if heads := given.get("num_attention_heads"):
        kv_heads = given.get("num_key_value_heads", heads)
        if "head_dim" not in given and "mla" not in given and hidden % heads:
            raise _division(("hidden_size", hidden), ("num_attention_heads", heads), place, said)
        if heads % kv_heads:
            raise _division(("num_attention_heads", heads), ("num_key_value_heads", kv_heads), place, said)
        # Heads times their size is a product that each of them alone does not bound.
        at_most(heads * given.get("head_dim", 1), ROWS, f"{place}: {said.get('head_dim', 'head_dim')}", "MW-E208")
        usual |= {"num_key_value_heads": heads, "head_dim": max(1, hidden // heads)}
    return {**_FLAG_DEFAULTS, **usual, **given}


def _division(
    whole_total: tuple[str, int], part_count: tuple[str, int], place: str, said: Mapping[str, str]
) -> InputError:
    (whole, total), (part, count) = whole_total, part_count
    divisors = [n for n in range(1, min(total, 65536) + 1) if total % n == 0]
    nearest = sorted(sorted(divisors, key=lambda n: abs(n - count))[:2])
    return InputError(
        "MW-E209",
        _("{part} {count} does not divide {whole} {total}.").format(
            part=said.get(part, part), count=count, whole=said.get(whole, whole), total=total
        ),
        where=place,
        nearest=_("Nearest that do: {counts}.").format(counts=", ".join(map(str, nearest))),
    )


def _whole(value: Any, where: str, largest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        shown = f"'{value}'" if isinstance(value, str) else str(value)
        raise InputError("MW-E208", _("{value} is not a whole number above zero.").format(value=shown), where=where)
    at_most(value, largest, where, "MW-E208")


def _block_values(family: str, body: Mapping[str, Any], provenance: Provenance) -> dict[str, Any]:
    values: dict[str, Any] = {"family": family}
    for key, written in body.items():
        if key == "family":
            continue
        if key not in _BLOCK_LISTS:
            values[key] = provenance.value(key, written, None)
            continue
        if not isinstance(written, list) or not all(isinstance(table, Mapping) for table in written):
            raise InputError("MW-E205", _("must be a list of tables."), where=f"{provenance.place}: {key}")
        provenance.value(key, _summary(written), None)
        values[key] = tuple(_group(table) if key == "layers" else _block(table) for table in written)
    _bounded(body, provenance.place)
    if "layers" not in values:
        raise InputError(
            "MW-E206",
            _("missing: {fields}.").format(fields="[transformer]"),
            where=provenance.place,
            nearest=_("Or write the blocks out: [[prologue]], [[layers]], [[epilogue]]."),
        )
    return values


def _bounded(table: Mapping[str, Any], place: str, above: str = "") -> None:
    """Whole numbers of written-out blocks within the limits. Raises InputError MW-E208."""
    for key, value in table.items():
        name = f"{above}{key}"
        if isinstance(value, int) and not isinstance(value, bool):
            at_most(value, LAYERS if key == "repeat" else MODEL_SIZES.get(key, ROWS), f"{place}: {name}", "MW-E208")
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Mapping):
                _bounded(inner, place, f"{name}.")


def _block(table: Any) -> Any:
    """A block's table with what is not its kind gathered into ``options``; what is no table is left to the noun."""
    if not isinstance(table, Mapping):
        return table
    options = {key: value for key, value in table.items() if key not in ("kind", "options")}
    return {**({"kind": table["kind"]} if "kind" in table else {}), "options": {**table.get("options", {}), **options}}


def _group(table: Mapping[str, Any]) -> dict[str, Any]:
    blocks = table.get("blocks")
    if isinstance(blocks, list):
        return {**table, "blocks": tuple(map(_block, blocks))}
    return dict(table)


def _summary(tables: Sequence[Mapping[str, Any]]) -> str:
    """Blocks as a fact's text: their kinds, with the repeat of a layer."""
    parts = []
    for table in tables:
        blocks = table.get("blocks", [table])
        blocks = blocks if isinstance(blocks, list) else [table]
        kinds = "+".join(str(block.get("kind", "?")) if isinstance(block, Mapping) else "?" for block in blocks)
        parts.append(f"{table['repeat']}x({kinds})" if "repeat" in table else kinds)
    return ", ".join(parts)
