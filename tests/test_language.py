"""Every text for people exists in Chinese, with the same placeholders, and is shown where Chinese is asked for."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from babel.messages.pofile import read_po

ROOT = Path(__file__).resolve().parents[1]
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def _tool(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _tool("messages", monkeypatch)


def _mw(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-m", "meshwright", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")} | environment,
    )


def test_every_message_is_translated(messages: ModuleType) -> None:
    assert messages.check() == []


def test_translations_are_chinese(messages: ModuleType) -> None:
    """A translation that merely repeats the English text is only right for names and symbols."""
    repeated = []
    for catalog in messages.translations().values():
        for message in catalog:
            words = re.sub(r"\{[^{}]*\}", "", str(message.id))
            if re.search(r"[a-z]{4,} [a-z]{2,}", words) and not CHINESE.search(str(message.string)):
                repeated.append(message.id)
    assert repeated == []


def test_the_check_finds_what_is_wrong(messages: ModuleType, tmp_path: Path) -> None:
    source = tmp_path / "src" / "meshwright"
    locale = source / "locale" / "zh_CN" / "LC_MESSAGES"
    locale.mkdir(parents=True)
    (source / "words.py").write_text('_("one {n}")\n_("two")\nN_("three")\n_("four")\n', encoding="utf-8")
    (locale / "meshwright.po").write_text(
        messages.HEADER.format(language="zh_CN")
        + 'msgid "one {n}"\nmsgstr "一 {m}"\n\nmsgid "two"\nmsgstr ""\n\n'
        + '#, fuzzy\nmsgid "three"\nmsgstr "三"\n\nmsgid "gone"\nmsgstr "走"\n',
        encoding="utf-8",
    )
    found = "\n".join(messages.check(tmp_path))
    for expected in (
        "placeholders differ: 'one {n}'",
        "untranslated: 'two'",
        "fuzzy: 'three'",
        "untranslated: 'four'",
        "no longer in the source: 'gone'",
    ):
        assert expected in found
    left = messages.update(tmp_path)
    with (locale / "meshwright.po").open("rb") as stream:
        updated = read_po(stream, locale="zh_CN")
    assert {str(m.id) for m in updated if m.id} == {"one {n}", "two", "three", "four"}
    assert len(left) == 4


def test_the_build_hook_compiles(messages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gettext

    hook_module = _tool("hatch_build", monkeypatch)
    folder = tmp_path / "src" / "meshwright" / "locale" / "zh_CN" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (folder / "meshwright.po").write_text(
        messages.HEADER.format(language="zh_CN") + 'msgid "one {n}"\nmsgstr "一 {n}"\n', encoding="utf-8"
    )
    hook = hook_module.CatalogBuildHook(str(tmp_path), {}, None, None, str(tmp_path), "wheel")
    hook.initialize("editable", {})
    translation = gettext.translation("meshwright", tmp_path / "src" / "meshwright" / "locale", languages=["zh_CN"])
    assert translation.gettext("one {n}") == "一 {n}"
    assert [path.name for path in folder.iterdir() if path.suffix == ".tmp"] == []


@pytest.mark.parametrize(
    "arguments", [("--lang", "zh-CN", "--help"), ("--help", "--lang=zh"), ("plan", "--help", "--lang", "ZH_cn")]
)
def test_help_speaks_chinese_when_asked(arguments: tuple[str, ...]) -> None:
    done = _mw(*arguments)
    assert done.returncode == 0, done.stderr
    described = [line for line in done.stdout.splitlines() if re.match(r"  \S", line)]
    assert described
    assert all(CHINESE.search(line) for line in described), done.stdout


def test_the_environment_chooses_the_language() -> None:
    assert CHINESE.search(_mw("--help", LANG="zh_CN.UTF-8").stdout)
    assert not CHINESE.search(_mw("--help", LANG="zh_CN.UTF-8", LC_ALL="en_US.UTF-8").stdout)
    assert not CHINESE.search(_mw("--help", LANG="xx_XX.UTF-8").stdout)
    assert not CHINESE.search(_mw("--lang", "en", "--help", LANG="zh_CN.UTF-8").stdout)


def test_errors_are_translated_too() -> None:
    done = _mw("plam", "--lang", "zh-CN")
    assert done.returncode == 2
    assert done.stdout == ""
    assert CHINESE.search(done.stderr)
    assert "plan" in done.stderr
