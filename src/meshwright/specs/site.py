"""Site: what surrounds a cluster (building, storage, failures), and Reliability: how often a real one failed."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from meshwright.specs.fact import CatalogEntry
from meshwright.units import BytesPerS, Seconds


class Site(CatalogEntry):
    """What surrounds a cluster; None where it was not said.

    ``pue``: power of the whole building over that of its computers. ``storage_bytes_per_s``: what storage
    takes from one node while all write. ``restart_s``: from a failure until training goes on from its checkpoint.
    ``failures_per_1000_node_days``: failures that stop a job, for servers of eight GPUs.
    """

    name: str = ""
    pue: float | None = Field(default=None, ge=1.0, le=10.0)
    storage_bytes_per_s: BytesPerS | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    restart_s: Seconds | None = Field(default=None, ge=0.0, le=1e6)
    failures_per_1000_node_days: float | None = Field(default=None, ge=0.0, le=1e6)


class Reliability(CatalogEntry):
    """Failures of one real cluster over a time; ``counts`` says what its operators counted as one."""

    architecture: str
    n_gpus: PositiveInt
    gpus_per_node: PositiveInt
    days: float = Field(gt=0.0)
    failures_per_1000_node_days: float = Field(gt=0.0)
    counts: str

    @property
    def node_days(self) -> float:
        """How much was watched."""
        return self.n_gpus / self.gpus_per_node * self.days
