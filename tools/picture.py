"""Draw the pictures of the documentation: the terminal's own output of a real plan, and the report of another.

Run: ``python tools/picture.py`` (after a change of what ``mw plan`` prints). No retouching: the searches run here, rich
draws what was printed as SVG, and Chromium, where there is one, photographs the report at two places.
"""

from __future__ import annotations

import html
import io
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from meshwright.cli.plan import print_answer
from meshwright.cli.terminal import WIDTH
from meshwright.i18n import _, set_language
from meshwright.report.answer import write_report
from meshwright.specs.request import PlanRequest
from meshwright.verbs.plan import plan
from meshwright.verbs.report import scaling_of

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
REQUEST = PlanRequest(model="llama-65b", cluster="256x8 A100-80GB", seq_len=2048, global_batch=2048, tokens="1.4T")
#: The report's own: experts, context and pipeline parallelism, and a whole training.
REPORTED = PlanRequest(model="mixtral-8x22b", cluster="32x8 H100", seq_len=8192, global_batch=512, tokens="1T")
#: The report twice side by side, the second one scrolled to the section of this heading.
SECOND = "One step, rank by rank"
PANES = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 24px; display: flex; gap: 24px; background: #e9edf2; }}
iframe {{ border: 0; border-radius: 12px; width: 900px; height: 1230px; background: #fff;
  box-shadow: 0 6px 24px rgb(20 30 50 / 18%); }}
</style><iframe srcdoc="{report}"></iframe><iframe srcdoc="{report}"></iframe><script>
addEventListener("load", () => setTimeout(() => {{
  const inner = document.querySelectorAll("iframe")[1].contentDocument;
  const heading = [...inner.querySelectorAll("h2")].find((each) => each.textContent === "{heading}");
  inner.defaultView.scrollTo(0, heading.getBoundingClientRect().top - 24);
}}, 2000));
</script>"""
PANES_SIZE = (1872, 1278)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def command(request: PlanRequest) -> str:
    """The command line whose output is drawn."""
    flags = {"--cluster": request.cluster, "--seq-len": request.seq_len, "--global-batch": request.global_batch}
    words = ["mw", "plan", str(request.model)]
    for flag, value in (flags | {"--tokens": request.tokens}).items():
        words += [flag, str(value)]
    return shlex.join(words)


def draw_report(picture: Path) -> bool:
    """Photograph the report of ``REPORTED``; False where there is no browser."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        report, panes = Path(folder) / "report.html", Path(folder) / "panes.html"
        found = plan(REPORTED)
        write_report(found, report, scaling=scaling_of(REPORTED, found))
        text = html.escape(report.read_text(encoding="utf-8"), quote=True)
        panes.write_text(PANES.format(report=text, heading=_(SECOND)), encoding="utf-8")
        words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        words += ["--disable-background-networking", "--disable-sync", f"--user-data-dir={folder}/profile"]
        words += [f"--window-size={','.join(map(str, PANES_SIZE))}", "--virtual-time-budget=20000"]
        subprocess.run([*words, f"--screenshot={picture}", panes.as_uri()], check=True, capture_output=True)
    return True


def main() -> None:
    """Search and draw, the terminal in each language."""
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
    set_language("en")
    print(IMAGES / "report.png" if draw_report(IMAGES / "report.png") else "no Chromium: report.png is as it was")


if __name__ == "__main__":
    main()
