"""Messages for people: extract them from the source, update the translations, check that nothing is untranslated.

python tools/messages.py update   # after adding or changing a message: then translate what it lists
python tools/messages.py check    # what CI runs: exit 1 where a message is missing, fuzzy or broken
python tools/messages.py compile  # .po -> .mo without a build
"""

from __future__ import annotations

import ast
import io
import re
import sys
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po
from hatch_build import LOCALE, compile_catalogs

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path("src/meshwright")
KEYWORDS = {"_": None, "N_": None}
#: str.format fields such as ``{n_gpus}`` or ``{step:.2f}``
PLACEHOLDER = re.compile(r"\{[^{}]*\}")
#: Without dates and tool versions: a header that changes with every run hides the real changes in a diff.
HEADER = r"""msgid ""
msgstr ""
"Project-Id-Version: meshwright\n"
"Language: {language}\n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=utf-8\n"
"Content-Transfer-Encoding: 8bit\n"
"Plural-Forms: nplurals=1; plural=0;\n"

"""


def extract(root: Path = ROOT) -> Catalog:
    """Every message of the source below ``root`` with the files that say it (no line numbers: they only churn)."""
    catalog = Catalog(project="meshwright", fuzzy=False)
    found = extract_from_dir(root / SOURCE, method_map=[("**.py", "python")], keywords=KEYWORDS)
    for filename, _line, message, comments, context in found:
        catalog.add(message, locations=[((SOURCE / filename).as_posix(), 0)], auto_comments=comments, context=context)
    for path in sorted((root / SOURCE).rglob("*.py")):
        for line in formula_meanings(path.read_text(encoding="utf-8")):
            catalog.add(line, locations=[(path.relative_to(root).as_posix(), 0)])
    return catalog


def formula_meanings(source: str) -> list[str]:
    """First docstring lines of the functions marked ``@formula``: what ``mw explain`` says of them."""
    if "@formula" not in source:
        return []
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    marked = [
        function
        for function in functions
        if any(
            isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "formula"
            for mark in function.decorator_list
        )
    ]
    return [text.split("\n", 1)[0] for function in marked if (text := ast.get_docstring(function))]


def translations(root: Path = ROOT) -> dict[Path, Catalog]:
    """The translations that exist: path of the ``.po`` -> its catalog."""
    found = {}
    for path in sorted((root / LOCALE).glob("*/LC_MESSAGES/*.po")):
        with path.open("rb") as stream:
            found[path] = read_po(stream, locale=path.parents[1].name)
    return found


def _placeholders(text: str) -> list[str]:
    return sorted(PLACEHOLDER.findall(text))


def _texts(message: Message) -> tuple[str, str]:
    # No plural forms are used, so both sides are plain text; None or a tuple stands for "nothing yet".
    return (str(message.id), message.string if isinstance(message.string, str) else "")


def problems(template: Catalog, translated: Catalog) -> list[str]:
    """What keeps ``translated`` from being complete: one line a message, empty when nothing does."""
    found = []
    for message in template:
        if not message.id:
            continue
        other = translated.get(message.id)
        source, target = _texts(other or message)
        if other is None or not target:
            found.append(f"untranslated: {source!r}")
        elif other.fuzzy:
            found.append(f"fuzzy: {source!r}")
        elif _placeholders(source) != _placeholders(target):
            found.append(f"placeholders differ: {source!r} -> {target!r}")
    known = {message.id for message in template}
    found += [f"no longer in the source: {m.id!r}" for m in translated if m.id and m.id not in known]
    return found


def update(root: Path = ROOT) -> list[str]:
    """Merge the extracted messages into each translation; returns what is left to translate."""
    template = extract(root)
    left = []
    for path, catalog in translations(root).items():
        catalog.update(template, no_fuzzy_matching=True)
        catalog.obsolete.clear()
        body = io.BytesIO()
        write_po(body, catalog, width=110, sort_output=True, include_lineno=False, omit_header=True)
        path.write_bytes(HEADER.format(language=path.parents[1].name).encode() + body.getvalue())
        left += problems(template, catalog)
    return left


def check(root: Path = ROOT) -> list[str]:
    """The problems of every translation, each with its file."""
    template = extract(root)
    return [
        f"{path.relative_to(root)}: {line}"
        for path, catalog in translations(root).items()
        for line in problems(template, catalog)
    ]


def main(arguments: list[str]) -> int:
    """Run one of ``update``, ``check``, ``compile``; returns the exit status."""
    if arguments == ["compile"]:
        print(*compile_catalogs(ROOT), sep="\n")
        return 0
    if arguments not in (["update"], ["check"]):
        print(__doc__, file=sys.stderr)
        return 2
    found = update() if arguments == ["update"] else check()
    print(*found, f"{len(found)} message(s) to mend" if found else "every message is translated", sep="\n")
    return 1 if found and arguments == ["check"] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
