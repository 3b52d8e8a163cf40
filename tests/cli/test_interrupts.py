"""The first Ctrl-C is remembered, checked where stopping is safe; the second ends at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from meshwright.cli.interrupts import Interrupts
from meshwright.errors import EXIT_INTERRUPTED


def test_first_press_waits_second_raises() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        interrupts.check()
        signal.raise_signal(signal.SIGINT)
        assert interrupts.pressed
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_are_left_alone() -> None:
    seen: list[bool] = []

    def work() -> None:
        with Interrupts() as interrupts:
            interrupts.check()
            seen.append(interrupts.pressed)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


#: Runs the command line in a child that says when its modules are there, and leaves before the interpreter winds down:
#: what Python itself does with a signal at its start and end is not ours to test.
CHILD = """
import os, sys
import meshwright.verbs.plan
from meshwright.cli import app
print("ready", file=sys.stderr, flush=True)
status = app.main(sys.argv[1:])
sys.stdout.flush()
os._exit(status)
"""


@pytest.mark.parametrize("delay_s", [0.05, 0.1, 0.2, 0.3])
def test_an_interrupted_plan_keeps_or_completes_its_file(tmp_path: Path, delay_s: float) -> None:
    """Whenever it comes, the file is the old one or a whole plan with layouts, and what is printed is a whole page."""
    path = tmp_path / "plan.json"
    path.write_text("an older plan\n")
    command = [
        sys.executable, "-c", CHILD, "plan", "gpt3-175b", "--cluster", "512x8 A100-80GB", "--global-batch", "4096",
        "--out", str(path),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().strip() == "ready"
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert process.returncode in (0, EXIT_INTERRUPTED)
    if path.read_text() != "an older plan\n":
        assert json.loads(path.read_text())["layouts"]
        assert "\nNext\n" in out
