"""Jobs and clusters that the tests of the search share; the names are those of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from meshwright import catalog
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob


@pytest.fixture(scope="session")
def job() -> Callable[..., TrainingJob]:
    """Makes a job with small numbers; keywords as TrainingJob's."""

    def make(model: str = "gpt2", **fields: Any) -> TrainingJob:
        return TrainingJob(**{"model": catalog.model(model), "seq_len": 1024, "global_batch": 16, **fields})

    return make


@pytest.fixture(scope="session")
def cluster() -> Callable[..., Cluster]:
    """Makes the cluster of a text."""

    def make(text: str = "8xA100-80GB") -> Cluster:
        return catalog.cluster(text)[0]

    return make


@pytest.fixture(scope="session")
def constants() -> Constants:
    """The constants of the catalog."""
    return catalog.constants()
