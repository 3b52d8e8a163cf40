"""Requests: what a person typed, as text. The verbs turn them into nouns; nothing here is looked up or checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import field_validator

from meshwright.specs.fact import Noun


class JobRequest(Noun):
    """What to train and where, as text; None means "not said": the verb assumes a value and reports it.

    ``model`` is a catalog name, a ``config.json`` or a TOML file; ``cluster`` a text such as ``8xH100``. ``seq_len``
    and ``document_len`` in tokens, ``global_batch`` in sequences, ``tokens`` a count such as ``1.4T``, ``lora`` a rank,
    ``expert_load`` the fullest expert rank over the mean. ``overlap`` switches both of Megatron's overlap flags.
    ``set`` holds ``path=value`` texts (``cluster.nics_per_node=8``, ``job.cuda_graphs=true``).
    """

    model: str | None = None
    cluster: str | None = None
    seq_len: int | None = None
    global_batch: int | None = None
    tokens: str | None = None
    kind: str | None = None
    precision: str | None = None
    master_dtype: str | None = None
    grad_dtype: str | None = None
    optimizer: str | None = None
    lora: int | None = None
    document_len: int | None = None
    expert_load: float | None = None
    attention: str | None = None
    overlap: bool | None = None
    cuda_graphs: bool | None = None
    set: tuple[str, ...] = ()

    @field_validator("model", "cluster", mode="before")
    @classmethod
    def _path_as_text(cls, value: Any) -> Any:
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    @field_validator(
        "seq_len",
        "global_batch",
        "lora",
        "document_len",
        "expert_load",
        "top",
        "pick",
        mode="before",
        check_fields=False,
    )
    @classmethod
    def _no_truth_value(cls, value: Any) -> Any:
        # To Python True is 1; nobody means a batch of one by it.
        if isinstance(value, bool):
            raise ValueError("a truth value is no count")  # noqa: TRY004 - pydantic turns only ValueError into its own
        return value


class PlanRequest(JobRequest):
    """A search. ``fix`` pins layout columns (``tp=4,recompute=full``), ``max_memory`` lowers what a GPU may fill
    (``70 GiB``), ``top`` is the number of layouts shown, ``out`` the file that receives the document.
    ``objective`` ranks (``time``, ``memory``, ``cost``, ``energy``); ``deadline`` (``30 days``) and ``budget``
    (``2M USD``) are conditions on the whole training; ``price`` is that of a GPU; ``placement`` asks for the ranks.
    ``also`` widens the search: ``schedules``, ``dispatchers``, ``offload`` or ``all``, joined by commas.
    """

    fix: str | None = None
    max_memory: str | None = None
    objective: str | None = None
    deadline: str | None = None
    budget: str | None = None
    price: str | None = None
    placement: bool = False
    also: str | None = None
    top: int = 5
    out: Path | None = None


class EstimateRequest(JobRequest):
    """One layout: ``layout`` as text, or the layout number ``pick`` (from 1) of the plan file ``plan``.

    ``sensitivities``: whether each assumption is evaluated the other way too, which takes ten times as long.
    """

    layout: str | None = None
    plan: Path | None = None
    pick: int = 1
    sensitivities: bool = True
    out: Path | None = None


class ScaleRequest(JobRequest):
    """A curve over GPU counts: ``gpus`` such as ``8..1024`` or ``8,16,32``; ``weak`` lets the batch grow with them.

    ``price`` is a rate (``2.5 USD/GPUh``), a provider or a tier of the catalog.
    """

    gpus: str | None = None
    weak: bool = False
    fix: str | None = None
    max_memory: str | None = None
    price: str | None = None
    out: Path | None = None


class FitRequest(JobRequest):
    """Does it fit, and what does: ``layout`` pins columns of the layout, ``max_memory`` lowers what a GPU may fill."""

    layout: str | None = None
    max_memory: str | None = None
    out: Path | None = None


class CompareRequest(JobRequest):
    """Several ``clusters`` against each other; ``deadline`` such as ``10d``, ``budget`` such as ``2M USD``.

    ``price`` holds texts as in ScaleRequest, each for all clusters or, as ``H100=2.5 USD/GPUh``, for one GPU.
    """

    clusters: tuple[str, ...] = ()
    deadline: str | None = None
    budget: str | None = None
    price: tuple[str, ...] = ()
    fix: str | None = None
    max_memory: str | None = None
    out: Path | None = None

    @field_validator("clusters", "price", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str | os.PathLike) else value

    @field_validator("clusters", mode="before")
    @classmethod
    def _paths_as_text(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return tuple(os.fspath(item) if isinstance(item, os.PathLike) else item for item in value)


class WhyNotRequest(JobRequest):
    """Why not the layouts that agree with ``layout``: against layout ``pick`` of the plan file ``plan``, or, with a
    job instead of a file, against the fastest that a search finds.
    """

    layout: str
    plan: Path | None = None
    pick: int = 1
