"""Draw the README's picture: the terminal's own output of a real plan, as SVG.

Run: ``python tools/picture.py`` (after a change of what ``mw plan`` prints). No screenshot, no retouching: the search
runs here and rich draws what it printed.
"""

from __future__ import annotations

import io
import shlex
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from meshwright.cli.plan import print_answer
from meshwright.cli.terminal import WIDTH
from meshwright.i18n import set_language
from meshwright.specs.request import PlanRequest
from meshwright.verbs.plan import plan

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
REQUEST = PlanRequest(model="llama-65b", cluster="256x8 A100-80GB", seq_len=2048, global_batch=2048, tokens="1.4T")


def command(request: PlanRequest) -> str:
    """The command line whose output is drawn."""
    flags = {"--cluster": request.cluster, "--seq-len": request.seq_len, "--global-batch": request.global_batch}
    words = ["mw", "plan", str(request.model)]
    for flag, value in (flags | {"--tokens": request.tokens}).items():
        words += [flag, str(value)]
    return shlex.join(words)


def main() -> None:
    """Search and draw, once in each language."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for language, name in (("en", "plan.svg"), ("zh_CN", "plan.zh-CN.svg")):
        set_language(language)
        console = Console(
            record=True,
            width=WIDTH,
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
            highlight=False,
            markup=False,
            emoji=False,
        )
        console.print(f"$ {command(REQUEST)}\n", style="bold cyan", soft_wrap=False)
        print_answer(console, plan(REQUEST))
        svg = console.export_svg(title="mw plan", theme=DIMMED_MONOKAI)
        (IMAGES / name).write_text(svg, encoding="utf-8")
        print(IMAGES / name)


if __name__ == "__main__":
    main()
