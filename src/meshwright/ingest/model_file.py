"""A model from what people have in hand: a bundled name, a ``config.json`` or its directory, a TOML description."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from meshwright.catalog import loader
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.ingest import hf_config
from meshwright.specs.model import ModelSpec

_SUFFIXES = (".json", ".toml")


def read_model(text: str, *, where: str = "MODEL") -> ModelSpec:
    """The model that ``text`` names.

    A path (with a separator, or ending in .json or .toml) that exists is read; else the catalog is asked, with Hugging
    Face names such as ``meta-llama/Llama-2-7b-hf`` among its aliases; a bare name that the catalog does not have may
    still be a directory. Raises InputError: MW-E201 (neither a known name nor a file), MW-E203..209 (a TOML or its
    fields), MW-E220..MW-E227 (``hf_config.read``), MW-E228 (a kind of file that is not read).
    """
    said = text.strip()
    path = Path(said).expanduser()
    is_path = "/" in said or "\\" in said or path.suffix.lower() in _SUFFIXES
    try:
        exists = bool(said) and path.exists()
        dangling = bool(said) and not exists and path.is_symlink()
    except PermissionError as error:
        raise loader.unreadable("MW-E220", path, error) from None
    except (OSError, ValueError):
        # A name too long for the file system, or with a NUL in it, is no path.
        exists = is_path = dangling = False
    if is_path and dangling:
        raise InputError(
            "MW-E220",
            _("cannot be read: this link leads to {target}, which does not exist.").format(target=path.readlink()),
            where=f"{where} {said}",
        )
    if is_path and exists:
        return _read(path)
    if said and (written := loader.find("model", said)) is not None:
        return cast("ModelSpec", loader.build(written))
    if exists:
        return _read(path)
    if path.suffix.lower() in _SUFFIXES or said.startswith(("/", "./", "../", "~")):
        folder = path.parent
        near = sorted(other.name for other in folder.iterdir()) if folder.is_dir() else []
        raise InputError(
            "MW-E220",
            _("there is no such file."),
            where=f"{where} {said}",
            nearest=did_you_mean(path.name, near) if near else None,
        )
    raise InputError(
        "MW-E201",
        _("'{name}' is neither a model of the catalog nor a file.").format(name=said),
        where=where,
        nearest=did_you_mean(said, loader.spellings("model")),
    )


def read_toml(path: Path) -> ModelSpec:
    """A model's TOML (``catalog.description`` says its keys); values without a source have the file as theirs."""
    data = loader.read_toml(path)
    written = loader.Written("model", path, data)
    return cast("ModelSpec", loader.build(written, assumed_source=path.name))


def _read(path: Path) -> ModelSpec:
    if path.is_dir() or path.suffix.lower() == ".json":
        return hf_config.read(path)
    if path.suffix.lower() == ".toml":
        return read_toml(path)
    if hf_config.sniff(path):
        return hf_config.read(path)
    raise InputError(
        "MW-E228",
        _("this kind of file is not read as a model."),
        where=path.name,
        nearest=_("Give a bundled name, a config.json, or a TOML description."),
    )
