"""What can go wrong, said once: a code, what, where, the nearest right thing, and the exit status."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from meshwright.i18n import _

EXIT_OK = 0
EXIT_CONDITION = 1
EXIT_INPUT = 2
EXIT_ENVIRONMENT = 3
EXIT_BUG = 70
EXIT_INTERRUPTED = 130


class MeshwrightError(Exception):
    """Base of every error that a user can cause or cure.

    ``code`` is stable (``MW-E101``), ``where`` names the file, flag or field, ``nearest`` is the nearest right thing.
    """

    exit_code = EXIT_BUG

    def __init__(self, code: str, message: str, *, where: str | None = None, nearest: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.nearest = nearest

    def __str__(self) -> str:
        text = self.message if self.where is None else f"{self.where}: {self.message}"
        return text if self.nearest is None else f"{text} {self.nearest}"


class InputError(MeshwrightError):
    """The input is wrong: exit 2."""

    exit_code = EXIT_INPUT


class ConditionError(MeshwrightError):
    """The input is fine, the asked-for condition does not hold (nothing fits): exit 1."""

    exit_code = EXIT_CONDITION


class EnvironmentLackError(MeshwrightError):
    """An extra, a device or a permission is missing here: exit 3, with the line to type."""

    exit_code = EXIT_ENVIRONMENT


def did_you_mean(name: str, known: Iterable[str], *, show: int = 6, fold_case: bool = True) -> str:
    """The nearest known name as a question, or the list of what there is.

    ``fold_case``: capitals do not matter (they do in units, where Mb is an eighth of MB).
    """
    names = list(known)
    fold = str.casefold if fold_case else str
    folded = {fold(candidate): candidate for candidate in names}
    close = difflib.get_close_matches(fold(name), list(folded), n=1, cutoff=0.55)
    if close:
        return _("Did you mean {name}?").format(name=folded[close[0]])
    if len(names) > show:
        return _("Known: {names}, ...").format(names=", ".join(names[:show]))
    return _("Known: {names}.").format(names=", ".join(names))
