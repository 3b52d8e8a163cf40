"""Hugging Face ``config.json`` files as a ModelSpec; what each family's keys mean stands in ``hf_families``.

Sizes that the parameter count hangs on must be in the file, unless published files leave them to the library's class.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.catalog.description import transformer
from meshwright.catalog.loader import unreadable
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.ingest.hf_families import ARCHITECTURES, FAMILIES, INNER_TYPES, Config, Family, Fields, WrongValueError
from meshwright.specs.fact import Fact
from meshwright.specs.model import ModelSpec

#: A config.json is a few kilobytes; what is far larger is something else (weights), not to be read whole.
LARGEST_BYTES = 1 << 24
#: Keys that make a mixture of experts of a family that we know only without.
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
    try:
        values, spelled = _values(config, family, path.name)
    except WrongValueError as error:
        raise InputError(error.code, str(error), where=f"{path.name}: {error.key}") from None
    described = transformer(_nested(values), path.name, spelled=spelled)
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    facts = _facts(config, described.model_dump(exclude_none=True), spelled, path)
    return described.spec(name or family.title, model_type, facts=facts)


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
    model_type = stated if isinstance(stated, str) else ARCHITECTURES.get(str(first), str(first or ""))
    if model_type in FAMILIES:
        return FAMILIES[model_type], model_type
    known = _("Known: {names}.").format(names=", ".join(FAMILIES))
    guess = did_you_mean(model_type, FAMILIES, show=len(FAMILIES))
    # An architecture that is like none in all but its name: the list is what helps.
    guess = guess if guess == known else f"{guess} {known}"
    text = (
        _("the architecture '{name}' is not known.").format(name=model_type)
        if model_type
        else _("neither model_type nor architectures is said.")
    )
    raise InputError(
        "MW-E225",
        text,
        where=place,
        nearest=_("{guess} Describe another model in a TOML file: [transformer] with {fields}.").format(
            guess=guess,
            fields="hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, "
            "intermediate_size, gated_mlp, vocab_size, max_position_embeddings, norm, position, tie_word_embeddings",
        ),
    )


def _values(config: Config, family: Family, place: str) -> tuple[Fields, dict[str, str]]:
    """Our fields (dotted in sub-tables) from one config, and how the file spells each.

    Raises WrongValueError, and InputError MW-E226 for what cannot be described.
    """
    if family.language:
        return _values_with_vision(config, family, family.language, place)
    _refuse(family, family.refused(config) or _unknown_experts(config, family), place)
    values, spelled = _sizes(config, family)
    return {**values, **family.fields(config)}, spelled


def _values_with_vision(
    config: Config, family: Family, language: tuple[str, str], place: str
) -> tuple[Fields, dict[str, str]]:
    """The language model's fields, then those of the vision encoder (if the file has one)."""
    key, usual = language
    inner = config.get(key, config)
    vision = config.get("vision_config")
    for name, table in ((key, inner), ("vision_config", {} if vision is None else vision)):
        if not isinstance(table, Mapping):
            raise InputError("MW-E205", _("must be a table."), where=f"{place}: {name}")
    stated = usual if inner is config else inner.get("model_type", usual)
    model_type = INNER_TYPES.get(stated, stated) if isinstance(stated, str) else ""
    if model_type not in FAMILIES:
        _refuse(family, f"{key}.model_type = {stated}", place)
    absent = {name: size for name, size in family.absent.items() if "." not in name}
    whole = {**{FAMILIES[model_type].keys[name][0]: size for name, size in absent.items()}, **inner}
    values, spelled = _values(whole, FAMILIES[model_type], place)
    if inner is not config:
        spelled = {name: f"{key}.{theirs}" for name, theirs in spelled.items()}
    if vision is None:
        return values, spelled
    _refuse(family, family.refused(config), place)
    seen, seen_spelled = _sizes(vision, family)
    spelled |= {name: f"vision_config.{theirs}" for name, theirs in seen_spelled.items()}
    return {**values, **seen, **family.fields(config)}, spelled


def _refuse(family: Family, reason: str | None, place: str) -> None:
    if reason:
        raise InputError(
            "MW-E226",
            _("{family} with {reason} cannot be described here.").format(family=family.title, reason=reason),
            where=place,
            nearest=_("Write its blocks out in a TOML file: [[prologue]], [[layers]], [[epilogue]]."),
        )


def _unknown_experts(config: Config, family: Family) -> str | None:
    if "moe.num_experts" in family.keys:
        return None
    many = ((key, config.get(key)) for key in _EXPERTS)
    return next((f"{key} = {value}" for key, value in many if isinstance(value, int) and value > 1), None)


def _sizes(config: Config, family: Family) -> tuple[Fields, dict[str, str]]:
    """Sizes as written under our names (absent ones left out) and how this file spells each."""
    values: Fields = {}
    spelled: dict[str, str] = {}
    for ours, theirs in family.keys.items():
        spelled[ours] = next((key for key in theirs if config.get(key) is not None), theirs[0])
        value = config.get(spelled[ours])
        if value is None and ours in family.absent and not any(key in config for key in theirs):
            value = family.absent[ours]
        if value is not None:
            values[ours] = value
    return values, spelled


def _nested(values: Fields) -> Fields:
    """Dotted names as sub-tables; what is absent left out, and a sub-table that is said to be."""
    nested: Fields = {}
    for name, value in values.items():
        table, _dot, inner = name.partition(".")
        if value is None or (inner and values.get(table, "") is None):
            continue
        if inner:
            nested.setdefault(table, {})[inner] = value
        else:
            nested[table] = value
    return nested


def _facts(config: Config, fields: Fields, spelled: Mapping[str, str], path: Path) -> dict[str, Fact]:
    """Each field with the file as its source, or the family's default where the file does not have it."""
    default = _("default of the transformers library for this family")
    flat: Fields = {}
    for name, value in fields.items():
        flat |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    facts = {}
    for name, value in flat.items():
        key = spelled.get(name, name)
        stated = _stated(config, key)
        if not stated and not value and name not in _TOLD_WHEN_OFF:
            continue
        text = ", ".join(value) if isinstance(value, tuple) else str(value)
        source = f"{path.name}: {key}" if stated else default
        facts[name] = Fact(text=text, source=source, label="published" if stated else "inferred")
    if isinstance(extra := config.get("num_nextn_predict_layers"), int) and extra > 0:
        text = _("{count} (left out, as by the transformers library)").format(count=extra)
        source = f"{path.name}: num_nextn_predict_layers"
        facts["num_nextn_predict_layers"] = Fact(text=text, source=source, label="published")
    return facts


#: Fields whose absence says something of every model; the others are told where they are on.
_TOLD_WHEN_OFF = ("gated_mlp", "qkv_bias", "attention_output_bias", "mlp_bias", "tie_word_embeddings", "dropout")


def _stated(config: Config, key: str) -> bool:
    """Whether the file says ``key``, dotted where nested."""
    found: Any = config
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found is not None
