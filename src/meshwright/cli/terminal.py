"""The terminal: 80 columns unless told otherwise, colour only where a person looks, progress on stderr."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from rich.console import Console

from meshwright.i18n import _

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from meshwright.specs.report import Progress

WIDTH = 80
#: ``--wide`` into a pipe, where there is no terminal to ask
WIDE = 160
#: Work shorter than this shows no progress bar.
PATIENCE_S = 1.0


class _Stripped:
    """Stdout without the spaces that pad a table to its width: what is piped gets compared, mailed and committed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write ``text`` with the spaces at the ends of its lines removed."""
        return self._stream.write(re.sub(r" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class PlainConsole(Console):
    """A console that leaves it to the program what a reader's leaving means (rich ends it with status 1)."""

    def on_broken_pipe(self) -> None:
        """Pass the BrokenPipeError on."""
        raise BrokenPipeError


def plain_console(*, wide: bool = False) -> Console:
    """The console of stdout: exactly 80 columns, or the terminal's with ``wide``; colour only on a terminal."""
    if not _is_unicode() and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a '?' in a Latin-1 terminal beats a crash
    width = max(WIDTH, shutil.get_terminal_size((WIDE, 24)).columns) if wide else WIDTH
    stream = sys.stdout if sys.stdout.isatty() else cast("TextIO", _Stripped(sys.stdout))
    return PlainConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)


def _is_unicode() -> bool:
    return (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")


def bar_characters() -> str:
    """Nine characters from empty to full, one eighth each (three where the terminal has no Unicode)."""
    return " ▏▎▍▌▋▊▉█" if _is_unicode() else "        #"


def print_text(text: str) -> None:
    """Text as it is (a JSON document): no wrapping, no colour."""
    sys.stdout.write(text)


def note_written(*paths: Path | None) -> None:
    """Say on stderr which files were written."""
    for path in paths:
        if path is not None:
            print(_("Written: {path}").format(path=path), file=sys.stderr)


class SearchProgress:
    """A progress bar on stderr that appears after a second, on a terminal only, and leaves nothing behind.

    Used as a context manager; the object itself is the callback that takes a ``Progress``.
    """

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Show how far the search is."""
        if not self._shown or progress.elapsed_s < PATIENCE_S:
            return
        if self._bar is None:
            self._bar = self._start(progress.total)
        best = "-" if progress.best_step_time_s is None else f"{progress.best_step_time_s:.3g} s"
        self._bar.update(
            self._bar.task_ids[0],
            completed=progress.visited,
            total=progress.total,
            description=_("{searched:,} layouts scored, best {best}").format(searched=progress.searched, best=best),
        )

    def _start(self, total: int) -> Bar:
        # Imported here: a search that is over within a second shows no bar.
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
        from rich.progress import Progress as NewBar  # noqa: PLC0415

        bar = NewBar(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.add_task("", total=total)
        bar.start()
        return bar
