"""How the answer moves: the chosen layout again under the alternative of each assumption."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from meshwright.costmodel import legal, score
from meshwright.errors import InputError
from meshwright.plan.change import Case, apply
from meshwright.specs.constants import Constants
from meshwright.specs.estimate import BREAKDOWN_TERMS, Estimate
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.limits import NICS_PER_NODE
from meshwright.specs.plan import Assumed, Bought, Change, Runner

#: Paths that move no step: what they move is the whole training.
_AROUND = ("cluster.site.", "price")


def step_time_s(case: Case, constants: Constants) -> float | None:
    """Step time of one case; None where its layout breaks a rule."""
    batch = LayoutBatch.of([case.layout])
    if any(bool(violated.any()) for violated in legal(case.job, case.cluster, batch).values()):
        return None
    return float(score(case.job, case.cluster, batch, constants, np.inf).step_time_s[0])


def sensitivities(assumed: Mapping[str, Assumed], case: Case, constants: Constants) -> dict[str, Assumed]:
    """The assumptions with ``step_time_ratio`` filled in: the same layout, one assumption changed at a time.

    It stays None where there is no alternative or where the layout is not legal under it.
    """
    base = step_time_s(case, constants)
    answered = {}
    for name, assumption in assumed.items():
        ratio = None
        if assumption.alternative is not None and base:
            ratio = _ratio(assumption, case, constants, base)
        answered[name] = assumption.model_copy(update={"step_time_ratio": ratio})
    return answered


def _ratio(assumption: Assumed, case: Case, constants: Constants, base_s: float) -> float | None:
    if assumption.alternative is None or assumption.alternative.path.startswith(_AROUND):
        return None
    try:
        changed = step_time_s(apply(assumption.alternative, case), constants)
    except InputError:
        # The alternative itself cannot be built here (a sequence longer than the model's positions): no movement known.
        return None
    return None if changed is None or not np.isfinite(changed) else changed / base_s


def bought(case: Case, constants: Constants) -> tuple[Bought, ...]:
    """What twice the adapters of a node buy; nothing to buy on one node."""
    if case.cluster.n_nodes == 1 or 2 * case.cluster.nics_per_node > NICS_PER_NODE:
        return ()
    base = step_time_s(case, constants)
    change = Change(path="cluster.nics_per_node", value=2 * case.cluster.nics_per_node)
    changed = step_time_s(apply(change, case), constants)
    return () if not base or changed is None else (Bought(change=change, step_time_ratio=changed / base),)


def runners_up(layouts: tuple[Estimate, ...], chosen: int) -> tuple[Runner, ...]:
    """Why each other layout loses to ``layouts[chosen]``: the differences of breakdown terms, largest loss first.

    ``terms_s`` adds up to the difference of the step times; gains (negative) come last.
    """
    best = layouts[chosen]
    found = []
    for index, layout in enumerate(layouts):
        if index == chosen:
            continue
        differences = {term: layout.breakdown_s[term] - best.breakdown_s[term] for term in BREAKDOWN_TERMS}
        terms = dict(sorted(differences.items(), key=lambda item: -item[1]))
        found.append(
            Runner(
                layout_index=index,
                slower_ratio=layout.step_time_s / best.step_time_s,
                terms_s={term: value for term, value in terms.items() if value},
            )
        )
    return tuple(found)
