"""The constants of the cost model from ``catalog/constants/<name>.toml``.

``[constant."name"]`` or ``[constant."name.qualifier"]`` hold the fields of ``specs.constants.Constant``, ``[interval]``
those of ``IntervalSpec``. Values are in the unit that each constant names.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from meshwright import discovery
from meshwright.catalog.loader import field_error, read_toml
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.constants import Constant, Constants, IntervalSpec
from meshwright.specs.fact import Noun

N = TypeVar("N", bound=Noun)


def constants(source: str | Path = "default") -> Constants:
    """The constants called ``source`` in the catalog, or those of a file.

    A later directory of ``MESHWRIGHT_PATH`` overrides the file of the same name as a whole. Raises InputError:
    MW-E201 (unknown name), MW-E203 (not TOML), MW-E205/206 (wrong or missing fields, naming file and constant).
    """
    path = source if isinstance(source, Path) else _path(source)
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(
            "MW-E203",
            _("cannot be read: {reason}.").format(reason=error.strerror or error),
            where=str(path),
        ) from None
    return _read(path, (status.st_mtime_ns, status.st_size))


def _path(name: str) -> Path:
    found = discovery.files("catalog/constants", ".toml")
    for path in reversed(found):
        if path.stem == name:
            return path
    raise InputError(
        "MW-E201",
        _("'{name}' is not a set of constants of the catalog.").format(name=name),
        where="--calibration",
        nearest=did_you_mean(name, [path.stem for path in found]),
    )


@functools.lru_cache(maxsize=16)
def _read(path: Path, _stamp: tuple[int, int]) -> Constants:
    data = read_toml(path)
    place = path.name
    tables, interval = data.get("constant"), data.get("interval")
    if not isinstance(tables, Mapping) or not isinstance(interval, Mapping):
        missing = [f"[{key}]" for key in ("constant", "interval") if not isinstance(data.get(key), Mapping)]
        raise InputError("MW-E206", _("missing: {fields}.").format(fields=", ".join(missing)), where=place)
    by_name = {name: _noun(Constant, table, f"{place}: {name}") for name, table in tables.items()}
    return Constants(by_name, _noun(IntervalSpec, interval, f"{place}: interval"))


def _noun(noun: type[N], table: Any, place: str) -> N:
    try:
        return noun.model_validate(table)
    except ValidationError as error:
        raise field_error(error, noun, place) from None
