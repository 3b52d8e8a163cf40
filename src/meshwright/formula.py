"""Formulas that can explain themselves.

``@formula(source, unit)`` leaves a function as it is until a ``Ledger`` is open; then each call is recorded with its
arguments, result and calls below, so the explanation is the computation itself and never a second implementation.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True)
class Entry:
    """One recorded call: a node of the explanation tree."""

    name: str
    unit: str
    source: str
    what: str
    arguments: dict[str, Any]
    result: Any = None
    children: list[Entry] = field(default_factory=list)


@dataclass(slots=True)
class Ledger:
    """Records formula calls while it is open.

    ``sources`` maps an argument name to ``(value, source)`` for values that come from the catalog; it is filled by
    the caller of the cost model and lets the tree end in catalog sources.
    """

    roots: list[Entry] = field(default_factory=list)
    sources: dict[str, tuple[Any, str]] = field(default_factory=dict)
    _stack: list[Entry] = field(default_factory=list)

    @contextmanager
    def recording(self) -> Iterator[Ledger]:
        """Open this ledger for the calls made inside the ``with`` block (this thread or task only)."""
        token = _active.set(self)
        try:
            yield self
        finally:
            _active.reset(token)

    def find(self, name: str) -> list[Entry]:
        """Every recorded call of the formula ``name``, outermost first."""
        found: list[Entry] = []
        pending = list(self.roots)
        while pending:
            entry = pending.pop(0)
            if entry.name == name:
                found.append(entry)
            pending.extend(entry.children)
        return found


_active: ContextVar[Ledger | None] = ContextVar("meshwright_ledger", default=None)

#: name -> (unit, source, one-line meaning) of every formula that was imported
FORMULAS: dict[str, tuple[str, str, str]] = {}


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
            entry = Entry(name, unit, source, what, dict(bound))
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
