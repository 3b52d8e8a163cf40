"""The cost model: pure functions of arrays. One entry: ``evaluate``; ``legal`` says which layouts it may be given."""

from meshwright.costmodel.axis import legal, rules
from meshwright.costmodel.step import evaluate, memory_peak_bytes, pipeline_times, score

__all__ = ["evaluate", "legal", "memory_peak_bytes", "pipeline_times", "rules", "score"]
