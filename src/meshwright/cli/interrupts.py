"""Ctrl-C while a command works: the first press asks it to stop with what it has, a second one ends it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupts:
    """Remembers Ctrl-C inside the ``with`` block instead of raising wherever the program happens to be.

    ``check`` raises KeyboardInterrupt where stopping is safe; what is computed, written or printed after it is whole.
    Outside the main thread signals cannot be caught, and nothing changes.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._catches = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Interrupts:
        if self._catches:
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if self._catches:
            signal.signal(signal.SIGINT, self._before)

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self.pressed:
            raise KeyboardInterrupt
