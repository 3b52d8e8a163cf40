"""One loader for every kind of catalog entry: find the file by name, read its values, build the noun.

An entry is one TOML file in ``catalog/<kind>/`` of the package or of a directory in ``MESHWRIGHT_PATH`` (a later
directory overrides an earlier one). Its keys:

* ``name``, ``aliases``: how people write it; case and which of ``-_ ./`` stands where do not count. ``short_names``:
  aliases that leave something open (``A100`` is 40 or 80 GB), so whoever uses one hears what was taken.
* ``source``, ``label``: defaults for every value; ``[sources]``: key -> title, date, address.
* the fields of the noun (``specs.hardware``, ``specs.model``, ``specs.price``), quantities as text with a unit, or
  ``{ value = "80 GiB", source = "key", label = "vendor" }``. Peaks are dense.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from meshwright import discovery
from meshwright.catalog.description import model_values
from meshwright.catalog.provenance import Provenance, dimension_of, is_value
from meshwright.errors import EnvironmentLackError, InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.fact import CatalogEntry
from meshwright.specs.hardware import Gpu, Nic, Node
from meshwright.specs.model import ModelSpec
from meshwright.specs.price import Price
from meshwright.specs.site import Reliability, Site

#: kind (the folder) -> the noun it holds
NOUNS: dict[str, type[CatalogEntry]] = {
    "gpu": Gpu,
    "model": ModelSpec,
    "nic": Nic,
    "node": Node,
    "price": Price,
    "reliability": Reliability,
    "site": Site,
}
#: What a folder's entries are asked for with, for messages.
_FLAGS = {
    "gpu": "--cluster",
    "model": "MODEL",
    "nic": "--cluster",
    "node": "--cluster",
    "price": "--price",
    "reliability": "NAME",
    "site": "NAME",
}
#: Keys of a file that are not fields of its noun.
_BESIDE = frozenset({"name", "aliases", "short_names", "usual_for", "source", "label", "sources"})
_IGNORED = str.maketrans("", "", "-_ ./")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[-_ ./]+(?=\d)")


@dataclass(frozen=True, slots=True)
class Written:
    """A catalog file as it is written, before its values are read."""

    kind: str
    path: Path
    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name in the file, else the file's own."""
        return str(self.data.get("name", self.path.stem))

    def names(self, key: str) -> tuple[str, ...]:
        """A list of names such as ``aliases``; empty where absent. Raises InputError MW-E205 if it is not one."""
        listed = self.data.get(key, [])
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise InputError("MW-E205", _("must be a list of names."), where=f"{self.path.name}: {key}")
        return tuple(listed)

    def answers(self, folded: str) -> bool:
        """Whether this entry goes by the folded name."""
        names = (self.path.stem, self.name, *self.names("aliases"), *self.names("short_names"))
        return folded in {fold(name) for name in names}


def fold(name: str) -> str:
    """A name without case and without the separators people vary: ``A100 80gb`` == ``a100-80GB``.

    Between digits any separator counts as the same one, so that OPT-1.3B and OPT-13B stay apart.
    """
    return _BETWEEN_DIGITS.sub("|", name.casefold()).translate(_IGNORED)


def kinds() -> list[str]:
    """The kinds of entries, sorted."""
    return sorted(NOUNS)


def names(kind: str) -> list[str]:
    """The canonical names of a kind, sorted; an entry that a later directory overrides counts once."""
    return sorted({written.name for written in written_entries(kind)}, key=str.casefold)


def find(kind: str, name: str) -> Written | None:
    """The file that goes by ``name``, or None."""
    folded = fold(name)
    if not folded:
        return None
    room = f"catalog/{_room(kind)}"
    key = (kind, folded, discovery.stamps(room))
    if (path := _found.get(key)) is not None and path.exists():
        # A file may have been edited since; one that no longer goes by the name is looked for anew.
        known = written_entry(kind, path)
        if known.answers(folded):
            return known
    written = next((each for each in mentioning(kind, name) if each.answers(folded)), None)
    if written is not None:
        _found[key] = written.path
    return written


#: Where names were found: (kind, folded name, when the rooms last gained or lost a file) -> the file.
_found: dict[tuple[str, str, tuple[int, ...]], Path] = {}


def mentioning(kind: str, name: str) -> Iterator[Written]:
    """The files whose text or own name holds ``name``, those of later directories first.

    Far cheaper than to parse them all: a file that does not contain a name's letters cannot be about it.
    """
    folded = fold(name)
    for path in reversed(discovery.files(f"catalog/{_room(kind)}", ".toml")):
        if folded in fold(path.stem) or folded in _folded_text(path, _stamp(path)):
            yield written_entry(kind, path)


def entry(kind: str, name: str, *, where: str | None = None) -> CatalogEntry:
    """The entry of ``kind`` that goes by ``name``.

    Raises InputError: MW-E201 (unknown name, with the nearest), MW-E202 (unknown kind), MW-E203..MW-E209 (its file).
    """
    written = find(kind, name)
    if written is None:
        raise unknown(kind, name, where or _FLAGS[kind])
    return build(written)


def unknown(kind: str, name: str, where: str) -> InputError:
    """The error that says which ``kind`` is not known and what comes nearest."""
    said = {
        "gpu": _("'{name}' is not a GPU of the catalog."),
        "model": _("'{name}' is not a model of the catalog."),
        "nic": _("'{name}' is not a network adapter of the catalog."),
        "node": _("'{name}' is not a node of the catalog."),
        "price": _("'{name}' is not a price of the catalog."),
        "reliability": _("'{name}' is not a record of failures in the catalog."),
        "site": _("'{name}' is not a site of the catalog."),
    }[kind]
    return InputError("MW-E201", said.format(name=name), where=where, nearest=did_you_mean(name, spellings(kind)))


def spellings(kind: str) -> list[str]:
    """Every name and alias of a kind, the names first."""
    entries = list(written_entries(kind))
    return [*(each.name for each in entries), *(alias for each in entries for alias in each.names("aliases"))]


def written_entries(kind: str) -> Iterator[Written]:
    """Every file of a kind, parsed but not validated."""
    for path in discovery.files(f"catalog/{_room(kind)}", ".toml"):
        yield written_entry(kind, path)


def written_entry(kind: str, path: Path) -> Written:
    """One file of a kind, parsed but not validated. Raises InputError MW-E203 where it is not TOML."""
    return Written(kind, path, _parse(path, _stamp(path)))


def build(written: Written, *, assumed_source: str | None = None) -> CatalogEntry:
    """The noun of a file, every value with its Fact.

    ``assumed_source``: the source of values that name none (for a file of the reader's own). Raises InputError:
    MW-E204 (no source or label), MW-E205 (wrong or unknown field), MW-E206 (missing fields), MW-E207 (a sparse peak),
    MW-E208/209 (a model that cannot be), MW-E110..113 (a quantity without its unit).
    """
    place = written.path.name
    provenance = Provenance.of(written.data, place, assumed_source=assumed_source)
    body = {key: value for key, value in written.data.items() if key not in _BESIDE}
    read = functools.partial(model_values, written.name) if written.kind == "model" else _values
    values = read(body, provenance)
    aliases = (*written.names("aliases"), *written.names("short_names"))
    return _noun(
        NOUNS[written.kind], {**values, "name": written.name, "aliases": aliases, "facts": provenance.facts}, place
    )


def _values(body: Mapping[str, Any], provenance: Provenance) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, written in body.items():
        dimension = dimension_of(name)
        if is_value(written):
            values[name] = provenance.value(name, written, dimension)
            continue
        for inner in written:
            if "sparse" in inner.casefold():
                raise InputError(
                    "MW-E207",
                    _("peaks with 2:4 sparsity are never stored."),
                    where=f"{provenance.place}: {name}.{inner}",
                    nearest=_("Give the dense peak."),
                )
        values[name] = {key: provenance.value(f"{name}.{key}", value, dimension) for key, value in written.items()}
    return values


def _noun(noun: type[CatalogEntry], values: dict[str, Any], place: str) -> CatalogEntry:
    try:
        return noun.model_validate(values)
    except ValidationError as error:
        raise field_error(error, noun, place) from None


def field_error(error: ValidationError, noun: type[Any], place: str) -> InputError:
    """A pydantic error as ours: all missing fields at once (MW-E206), else the first wrong one (MW-E205)."""
    problems = error.errors()
    if missing := [".".join(map(str, p["loc"])) for p in problems if p["type"] == "missing"]:
        unknown_fields = [".".join(map(str, p["loc"])) for p in problems if p["type"] == "extra_forbidden"]
        return InputError(
            "MW-E206",
            _("missing: {fields}.").format(fields=", ".join(missing)),
            where=place,
            nearest=_("Unknown: {fields}.").format(fields=", ".join(unknown_fields)) if unknown_fields else None,
        )
    first = problems[0]
    where = f"{place}: {'.'.join(map(str, first['loc']))}"
    if first["type"] == "extra_forbidden":
        wrong = str(first["loc"][-1])
        return InputError(
            "MW-E205",
            _("unknown field."),
            where=where,
            nearest=did_you_mean(wrong, noun.model_fields),
        )
    return InputError("MW-E205", f"{first['msg']}.", where=where)


def _room(kind: str) -> str:
    if kind not in NOUNS:
        raise InputError(
            "MW-E202",
            _("'{kind}' is not a kind of catalog entry.").format(kind=kind),
            nearest=did_you_mean(kind, kinds()),
        )
    return kind


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dict. Raises InputError MW-E203 with the line where it is not UTF-8 TOML or cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except PermissionError as error:
        raise unreadable("MW-E203", path, error) from None
    except OSError as error:
        raise InputError(
            "MW-E203",
            _("cannot be read: {reason}.").format(reason=error.strerror or error),
            where=str(path),
        ) from None
    except UnicodeDecodeError:
        raise InputError("MW-E203", _("is not a text file."), where=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError("MW-E203", _("is not TOML: {reason}.").format(reason=error), where=str(path)) from None


def unreadable(code: str, path: Path, error: PermissionError) -> EnvironmentLackError:
    """The error for a file that is there but may not be read: the permission is missing, not the input wrong."""
    return EnvironmentLackError(
        code,
        _("cannot be read: {reason}.").format(reason=error.strerror or error),
        where=str(path),
        nearest=_("Type: {line}").format(line=f"chmod +r {shlex.quote(str(path))}"),
    )


#: The package's own files do not change while it runs; those of other directories may.
_OWN = f"{discovery.PACKAGE_ROOT}{os.sep}"


def _stamp(path: Path) -> tuple[int, int]:
    if str(path).startswith(_OWN):
        return 0, 0
    status = path.stat()
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=1024)
def _folded_text(path: Path, _stamp: tuple[int, int]) -> str:
    return fold(path.read_text(encoding="utf-8", errors="replace"))


@functools.lru_cache(maxsize=1024)
def _parse(path: Path, _stamp: tuple[int, int]) -> dict[str, Any]:
    return read_toml(path)
