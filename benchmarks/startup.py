"""CPU time of ``mw --help`` in a fresh process (the bar is 0.25 s), and what it imports.

Run: ``python benchmarks/startup.py``. User plus system time of the child, best of five: on a shared machine the best
run is the one that was disturbed least.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys

BAR_S = 0.25
RUNS = 5
COMMAND = [sys.executable, "-m", "meshwright", "--help"]


def cpu_time_s() -> float:
    """User and system seconds of one ``mw --help``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(COMMAND, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"LANG": "C.UTF-8"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def main() -> None:
    """Print the best time beside the bar."""
    cpu_time_s()  # writes the .pyc files
    best_s = min(cpu_time_s() for _ in range(RUNS))
    print(f"mw --help: {best_s * 1e3:.0f} ms CPU (bar {BAR_S * 1e3:.0f} ms)")


if __name__ == "__main__":
    main()
