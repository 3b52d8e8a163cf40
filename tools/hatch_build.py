"""Build hook: compile every ``locale/*/LC_MESSAGES/*.po`` to the ``.mo`` beside it, for wheels and editable installs.

The compiled files are not committed; a checkout that was never installed speaks English (``meshwright.i18n``).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LOCALE = Path("src/meshwright/locale")


def compile_catalogs(root: Path) -> list[Path]:
    """Compile the translations below ``root``; returns the ``.mo`` files written.

    Each file is replaced whole, so test workers that compile at the same time never read half of one.
    """
    written = []
    for source in sorted((root / LOCALE).glob("*/LC_MESSAGES/*.po")):
        with source.open("rb") as stream:
            catalog = read_po(stream, locale=source.parents[1].name, abort_invalid=True)
        target = source.with_suffix(".mo")
        handle, temporary = tempfile.mkstemp(dir=target.parent, suffix=".tmp")
        with os.fdopen(handle, "wb") as stream:
            write_mo(stream, catalog)
        Path(temporary).chmod(0o644)  # mkstemp makes files private; an installed package is read by everybody
        Path(temporary).replace(target)
        written.append(target)
    return written


class CatalogBuildHook(BuildHookInterface[BuilderConfig]):
    """Hatch finds this class by its base; ``initialize`` runs before the files of a wheel are collected."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the build; ``version`` is ``standard`` or ``editable``, and both need the files."""
        del version, build_data
        compile_catalogs(Path(self.root))
