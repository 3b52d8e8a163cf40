"""Pipeline orders as torch.distributed.pipelining generates them, written the way ``torch_orders.json`` holds them.

    python tests/costmodel/schedule/torch_orders.py > tests/costmodel/schedule/torch_orders.json

An order is PyTorch's own shorthand, "0F0 3I0 3W0": virtual stage, forward / full backward / input gradient / weight
gradient (F, B, I, W), micro-batch; joined tasks stand in brackets.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

#: schedule, pp, vpp, micro-batches.
CASES = (
    *(("gpipe", pp, 1, m) for pp, m in ((2, 3), (4, 6))),
    *(("1f1b", pp, 1, m) for pp, m in ((2, 2), (4, 8), (5, 7))),
    *(("interleaved", pp, vpp, m) for pp, vpp, m in ((2, 2, 4), (4, 2, 8), (3, 3, 6))),
    *(("zb-h1", pp, 1, m) for pp, m in ((2, 1), (4, 3), (4, 4), (4, 12), (5, 10))),
    *(("zb-v", pp, 2, m) for pp, m in ((2, 4), (3, 7), (4, 8), (5, 17))),
    *(("dualpipev", pp, 2, m) for pp, m in ((2, 4), (3, 7), (4, 10), (5, 12))),
)
_LETTERS = {"FORWARD": "F", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W", "FULL_BACKWARD": "B"}


def key(schedule: str, pp: int, vpp: int, m: int) -> str:
    """How a case is called in the file."""
    return f"{schedule} pp={pp} vpp={vpp} m={m}"


def orders(schedule: str, pp: int, vpp: int, m: int) -> list[str]:
    """PyTorch's order of every rank; of 1F1B all but the last, whose forwards its listing numbers from 1.

    The schedules are asked without stages, which only a device group could hold.
    """
    from torch.distributed.pipelining import schedules

    def bare(kind: str, **fields: Any) -> Any:
        found = object.__new__(getattr(schedules, kind))
        vars(found).update(pp_group_size=pp, _n_microbatches=m, n_local_stages=vpp, num_stages=pp * vpp, **fields)
        return found

    rounds = max(1, m // pp)
    in_rounds = {"number_of_rounds": rounds, "microbatches_per_round": m // rounds}
    if schedule in ("gpipe", "1f1b"):
        single = bare(
            {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B"}[schedule],
            _num_stages=pp,
            _stage=SimpleNamespace(group_size=pp),
        )
        listed = single._get_pipeline_order()
        return [_text(listed[rank]) for rank in range(pp - (schedule == "1f1b"))]
    multiple = {
        "interleaved": ("ScheduleInterleaved1F1B", in_rounds),
        "zb-h1": ("ScheduleInterleavedZeroBubble", in_rounds),
        "zb-v": ("ScheduleZBVZeroBubble", {}),
        "dualpipev": ("ScheduleDualPipeV", {}),
    }
    kind, fields = multiple[schedule]
    return [_text(bare(kind, rank=rank, **fields)._calculate_single_rank_operations(rank)) for rank in range(pp)]


def _text(actions: list[Any]) -> str:
    found = []
    for action in actions:
        if action is not None and action.sub_actions:
            found.append("[" + " ".join(map(_word, action.sub_actions)) + "]")
        elif action is not None and action.computation_type.name in _LETTERS:
            found.append(_word(action))
    return " ".join(found)


def _word(action: Any) -> str:
    return f"{action.stage_index}{_LETTERS[action.computation_type.name]}{action.microbatch_index}"


def main() -> None:
    """Write the file."""
    import torch

    cases = {key(*case): orders(*case) for case in CASES}
    source = f"torch {torch.__version__}, torch.distributed.pipelining; written by torch_orders.py beside this file"
    print(json.dumps({"source": source, "label": "published", "orders": cases}, indent=1))


if __name__ == "__main__":
    main()
