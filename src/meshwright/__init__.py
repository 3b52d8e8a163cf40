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

__all__ = ["catalog", "compare", "estimate", "explain", "fit", "plan", "scale", "validate"]

_VERBS = frozenset(__all__)
#: Verbs that take a request object; the class is ``specs.request.<name>``.
_REQUESTS = {
    "plan": "PlanRequest",
    "estimate": "EstimateRequest",
    "scale": "ScaleRequest",
    "fit": "FitRequest",
    "compare": "CompareRequest",
}
#: Keywords of a verb that are no field of its request.
_BESIDE = {
    "plan": ("on_progress", "timeline"),
    "estimate": ("timeline",),
    "scale": ("on_progress",),
    "fit": ("on_progress",),
    "compare": ("on_progress",),
}


def _verb(name: str) -> Any:
    """The function of a verb; for those with a request also callable with the request's fields."""
    function = getattr(importlib.import_module(f"meshwright.verbs.{name}"), name)
    if name not in _REQUESTS:
        return function
    request_type = getattr(importlib.import_module("meshwright.specs.request"), _REQUESTS[name])

    def with_fields(request: Any = None, /, *others: Any, **fields: Any) -> Any:
        if others:
            raise _one_positional(name, others[0])
        if isinstance(request, request_type):
            return function(request, **fields)
        beside = {key: fields.pop(key) for key in _BESIDE[name] if key in fields}
        if request is not None:
            fields["model"] = request
        return function(_request(name, request_type, fields), **beside)

    with_fields.__name__, with_fields.__doc__ = name, function.__doc__
    return with_fields


def _one_positional(name: str, other: Any) -> Exception:
    """The error (MW-E101) for a second argument without a keyword; a text is most likely the cluster."""
    from meshwright.errors import InputError  # noqa: PLC0415 - `import meshwright` stays light
    from meshwright.i18n import _  # noqa: PLC0415

    return InputError(
        "MW-E101",
        _("only the model may stand without a keyword."),
        where=f"meshwright.{name}",
        nearest=_("Write it like '{example}'.").format(example=f"cluster={other!r}"),
    )


def _request(name: str, request_type: Any, fields: dict[str, Any]) -> Any:
    """The request of a verb from keywords. Raises InputError MW-E101 (no such keyword) or MW-E103 (wrong value)."""
    from pydantic import ValidationError  # noqa: PLC0415 - `import meshwright` stays light

    from meshwright.errors import InputError, did_you_mean  # noqa: PLC0415
    from meshwright.i18n import _  # noqa: PLC0415

    known = [*request_type.model_fields, *_BESIDE[name]]
    for key in fields:
        if key not in known:
            message = _("'{name}' is not an option.").format(name=key)
            nearest = did_you_mean(key, known, show=len(known))
            raise InputError("MW-E101", message, where=f"meshwright.{name}", nearest=nearest)
    try:
        return request_type(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        expected = str(request_type.model_fields[key].annotation).replace("<class '", "").replace("'>", "")
        raise InputError(
            "MW-E103",
            _("{value} cannot be read.").format(value=repr(first["input"])),
            where=f"meshwright.{name}({key}=...)",
            nearest=_("It takes {kind}.").format(kind=expected.replace("pathlib.", "")),
        ) from None


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
