"""Formulas that can explain themselves.

``@formula(source, unit)`` leaves a function as it is until a ``Ledger`` is open; then each call is recorded with its
arguments, result and calls below, so the explanation is the computation itself and never a second implementation.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True)
class Entry:
    """One recorded call: a node of the explanation tree.

    ``order`` counts the calls of a ledger; ``within`` names the functions through which the call came, innermost
    first, so that calls of one formula for different purposes (tensor- or data-parallel traffic) can be told apart.
    """

    name: str
    unit: str
    source: str
    what: str
    arguments: dict[str, Any]
    result: Any = None
    children: list[Entry] = field(default_factory=list)
    order: int = 0
    within: tuple[str, ...] = ()


@dataclass(slots=True)
class Ledger:
    """Records formula calls while it is open.

    ``sources`` maps an argument name to ``(value, source)`` for values that come from the catalog; it is filled by
    the caller of the cost model and lets the tree end in catalog sources.
    """

    roots: list[Entry] = field(default_factory=list)
    sources: dict[str, tuple[Any, str]] = field(default_factory=dict)
    _stack: list[Entry] = field(default_factory=list)
    _calls: int = 0

    @contextmanager
    def recording(self) -> Iterator[Ledger]:
        """Open this ledger for the calls made inside the ``with`` block (this thread or task only)."""
        token = _active.set(self)
        try:
            yield self
        finally:
            _active.reset(token)

    def entries(self) -> list[Entry]:
        """Every recorded call in the order in which they were made."""
        found: list[Entry] = []
        pending = list(self.roots)
        while pending:
            entry = pending.pop()
            found.append(entry)
            pending.extend(entry.children)
        return sorted(found, key=lambda entry: entry.order)

    def find(self, name: str) -> list[Entry]:
        """Every recorded call of the formula ``name`` in the order in which they were made."""
        return [entry for entry in self.entries() if entry.name == name]


_active: ContextVar[Ledger | None] = ContextVar("meshwright_ledger", default=None)

#: name -> (unit, source, one-line meaning) of every formula that was imported
FORMULAS: dict[str, tuple[str, str, str]] = {}


def _callers() -> tuple[str, ...]:
    """Names of this package's functions that led to the present call of a formula, innermost first."""
    found = []
    frame = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("meshwright"):
        found.append(frame.f_code.co_name)
        # functools.cached_property stands between two of ours without being one.
        above = frame.f_back
        while above is not None and above.f_globals.get("__name__") == "functools":
            above = above.f_back
        if above is None:
            break
        frame = above
    return tuple(found)


def formula(source: str, unit: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a pure function as a formula with the ``source`` it comes from and the ``unit`` of its result."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        name = function.__name__
        what = (inspect.getdoc(function) or "").split("\n", 1)[0]
        FORMULAS[name] = (unit, source, what)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            ledger = _active.get()
            if ledger is None:
                return function(*args, **kwargs)
            bound: Mapping[str, Any] = signature.bind(*args, **kwargs).arguments
            entry = Entry(name, unit, source, what, dict(bound), order=ledger._calls, within=_callers())
            ledger._calls += 1
            (ledger._stack[-1].children if ledger._stack else ledger.roots).append(entry)
            ledger._stack.append(entry)
            try:
                result = function(*args, **kwargs)
            finally:
                ledger._stack.pop()
            entry.result = result
            return result

        return call

    return decorate
