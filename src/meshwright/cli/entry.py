"""Where the commands ``mw`` and ``meshwright`` start: little is imported before Ctrl-C is looked after."""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> int:
    """Run the process's own arguments and return the exit status; Ctrl-C while modules load ends with 130."""
    before = signal.signal(signal.SIGINT, _leave)
    from meshwright.cli import app  # noqa: PLC0415 - only now, as it loads the libraries of the terminal

    signal.signal(signal.SIGINT, before)
    return app.main()


def _leave(_number: int, _frame: FrameType | None) -> None:
    # Nothing was begun, and the translations may not be loaded: leave at once, in the words of no language.
    os._exit(130)
