"""Constants: the few physical numbers that the cost model cannot derive, each with prior and provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshwright.specs.fact import Label, Noun


class Constant(Noun):
    """One physical constant. ``prior`` and ``prior_sd_ratio`` are what physics or data sheets say before any fit.

    ``value`` is what the cost model uses; ``standard_error_ratio`` (of the value) what the fit left open, None where
    nothing was fitted; ``identified_by`` names the kind of observation that pins it down.
    """

    value: float
    unit: str
    prior: float
    prior_sd_ratio: float
    standard_error_ratio: float | None = None
    label: Label
    source: str
    identified_by: str
    what: str


class IntervalSpec(Noun):
    """How wide predictions are: log-standard deviations, from residuals of rows left out of the fit.

    ``base_sd`` holds everywhere; ``launch_sd``, ``tp_comm_sd`` and ``network_sd`` (gradient and pipeline traffic) are
    weighted with the share of the step that the term takes, since a step that waits for launches or networks is
    predicted less well than one that computes. Each entry of ``unseen_sd`` is added in quadrature where the
    prediction leaves the ground that ``validated_*`` describe (``costmodel.interval`` says which entry when).
    """

    base_sd: float
    launch_sd: float
    tp_comm_sd: float
    network_sd: float
    unseen_sd: Mapping[str, float]
    per_doubling_beyond_scale_sd: float
    validated_gpus: tuple[str, ...]
    validated_attention: tuple[str, ...]
    validated_fabrics: tuple[str, ...]
    validated_schedules: tuple[str, ...]
    validated_precisions: tuple[str, ...]
    validated_blocks: tuple[str, ...]
    validated_overlap: bool
    validated_n_gpus: int
    source: str


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants by name. ``name.qualifier`` (``gemm_ceiling_ratio.ampere``) overrides ``name``."""

    by_name: Mapping[str, Constant]
    interval: IntervalSpec
    _values: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_values", {name: constant.value for name, constant in self.by_name.items()})

    def get(self, name: str, *qualifiers: str) -> float:
        """The value of ``name``, of its first known qualified form if there is one."""
        for qualifier in qualifiers:
            if (value := self._values.get(f"{name}.{qualifier}")) is not None:
                return value
        return self._values[name]

    def replace(self, values: Mapping[str, float]) -> Constants:
        """The same constants with other values (for fitting and sensitivities)."""
        changed = {
            name: c.model_copy(update={"value": values[name]}) if name in values else c
            for name, c in self.by_name.items()
        }
        return Constants(changed, self.interval)
