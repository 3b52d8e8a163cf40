"""Meshwright: the performance engineer's workbench for GPU clusters.

The verbs are functions of this package; numpy and pydantic load with the first call:

>>> import meshwright
>>> found = meshwright.plan("gpt3-175b", cluster="128x8 A100-80GB", global_batch=1536)  # doctest: +SKIP
>>> found.layouts[found.chosen].step_time_s  # doctest: +SKIP

``plan`` and ``estimate`` take a request of ``meshwright.specs.request``, or a model and the request's fields.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

__all__ = ["catalog", "estimate", "explain", "plan", "validate"]

_VERBS = frozenset(__all__)
#: Verbs that take a request object; the class is ``specs.request.<name>``.
_REQUESTS = {"plan": "PlanRequest", "estimate": "EstimateRequest"}


def _verb(name: str) -> Any:
    """The function of a verb; for those with a request also callable with the request's fields."""
    function = getattr(importlib.import_module(f"meshwright.verbs.{name}"), name)
    if name not in _REQUESTS:
        return function
    request_type = getattr(importlib.import_module("meshwright.specs.request"), _REQUESTS[name])

    def with_fields(request: Any = None, /, **fields: Any) -> Any:
        if isinstance(request, request_type):
            return function(request, **fields)
        beside = {key: fields.pop(key) for key in ("on_progress", "timeline") if key in fields}
        return function(request_type(**({"model": request} if request is not None else {}), **fields), **beside)

    with_fields.__name__, with_fields.__doc__ = name, function.__doc__
    return with_fields


class _VerbRoom(ModuleType):
    """A package whose name is also a verb (``meshwright.plan``): calling it runs the verb."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _verb(self.__name__.rpartition(".")[2])(*args, **kwargs)


class _Package(ModuleType):
    """This package; Python binds each sub-package here when it is imported, which is when it becomes callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _VERBS and type(value) is ModuleType:
            value.__class__ = _VerbRoom
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _VERBS:
        raise AttributeError(f"module 'meshwright' has no attribute '{name}'")
    if importlib.util.find_spec(f"meshwright.{name}") is not None:
        return importlib.import_module(f"meshwright.{name}")
    return _verb(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_VERBS})
