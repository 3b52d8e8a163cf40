"""What there is, is what lies in the directory: one file a concept, no list to edit.

Besides the installed package, every directory in ``MESHWRIGHT_PATH`` is looked into: ``DIR/catalog/gpu/mine.toml``,
``DIR/costmodel/block/mine.py`` and so on join the package's own files. Third parties use entry points of the group
``meshwright.<kind>`` (``meshwright.block``, ``meshwright.collective``, ``meshwright.schedule``).
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from meshwright.errors import InputError, MeshwrightError
from meshwright.i18n import _

PACKAGE_ROOT = Path(__file__).parent


def search_path() -> tuple[Path, ...]:
    """The package's own directory, then those of ``MESHWRIGHT_PATH`` in order."""
    extra = os.environ.get("MESHWRIGHT_PATH", "")
    return (PACKAGE_ROOT, *(Path(part).expanduser() for part in extra.split(os.pathsep) if part))


def files(room: str, suffix: str) -> list[Path]:
    """Files of a room such as ``catalog/gpu``, sorted by name; names that start with ``_`` are private."""
    return list(_files(room, suffix, search_path(), stamps(room)))


@functools.lru_cache(maxsize=256)
def _files(room: str, suffix: str, roots: tuple[Path, ...], _stamps: tuple[int, ...]) -> tuple[Path, ...]:
    found: list[Path] = []
    for root in roots:
        folder = root / room
        if folder.is_dir():
            found.extend(p for p in sorted(folder.iterdir()) if p.suffix == suffix and not p.name.startswith("_"))
    return tuple(found)


def stamps(room: str) -> tuple[int, ...]:
    """When the directories of a room last gained or lost a file, in nanoseconds; 0 where there is none."""
    found = []
    for root in search_path():
        try:
            found.append((root / room).stat().st_mtime_ns)
        except OSError:
            found.append(0)
    return tuple(found)


def modules(room: str) -> list[ModuleType]:
    """Import every Python file of a room such as ``costmodel/block``, plus the entry points of its last word.

    Raises InputError (MW-E302) where a file of ``MESHWRIGHT_PATH`` fails while it is imported.
    """
    return list(_modules(room, os.environ.get("MESHWRIGHT_PATH", "")))


@functools.cache
def _modules(room: str, _path: str) -> tuple[ModuleType, ...]:
    found = []
    for path in files(room, ".py"):
        if path.is_relative_to(PACKAGE_ROOT):
            found.append(importlib.import_module(f"meshwright.{room.replace('/', '.')}.{path.stem}"))
        else:
            found.append(_load(f"meshwright_path.{room.replace('/', '.')}.{path.stem}", path))
    group = f"meshwright.{room.rsplit('/', 1)[-1]}"
    found.extend(point.load() for point in importlib.metadata.entry_points(group=group))
    return tuple(found)


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except MeshwrightError:
        raise
    except Exception as error:  # whatever a user's file may do is the file's mistake, not ours
        del sys.modules[name]
        raise InputError(
            "MW-E302",
            _("this file of MESHWRIGHT_PATH cannot be loaded: {kind}: {message}").format(
                kind=type(error).__name__, message=error
            ),
            where=str(path),
            nearest=_("Mend the file, or take its directory out of MESHWRIGHT_PATH."),
        ) from error
    return module
