"""Output files: written whole or not at all, so that a reader sees the old file or the new one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from meshwright.errors import InputError
from meshwright.i18n import _


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content becomes the file ``path`` when the block ends well; else ``path`` stays as it was.

    A device or a pipe cannot be replaced by a renamed file; it is written to. Raises InputError MW-E411 (a directory)
    or MW-E416 (cannot be written); a reader that went away (BrokenPipeError) is the caller's.
    """
    refuse_directory(path)
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                yield stream
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
            # mkstemp makes files private; the user's usual permissions are wanted here.
            umask = os.umask(0)
            os.umask(umask)
            Path(temporary).chmod(path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~umask)
            Path(temporary).replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(path, error) from None


def refuse_directory(path: Path) -> None:
    """Raises InputError MW-E411 where a file is meant and ``path`` is a directory."""
    if path.is_dir():
        raise InputError("MW-E411", _("this is a directory."), where=str(path), nearest=_("Name a file."))


def unwritable(path: Path, error: OSError) -> InputError:
    """What to say where ``path`` cannot be written."""
    return InputError(
        "MW-E416",
        _("cannot be written: {reason}.").format(reason=error.strerror or error),
        where=str(path),
        nearest=_("Does the directory {directory} exist, and may you write there?").format(directory=path.parent),
    )
