"""What every test may use: the shared data folder, compiled translations, a quiet hypothesis, a clean environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from meshwright.i18n import set_language

ROOT = Path(__file__).resolve().parents[1]

# Timings of single examples say nothing on a shared machine; in CI the same examples run each time.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_configure(config: pytest.Config) -> None:
    """Compile the translations once, so that tests never read those of an older checkout."""
    if hasattr(config, "workerinput"):
        return
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from hatch_build import compile_catalogs
    finally:
        sys.path.remove(str(ROOT / "tools"))
    compile_catalogs(ROOT)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of measured data beside the checkout. Missing: fail in CI, skip on a user's machine."""
    folder = ROOT.parent / "shared"
    if not (folder / "data").is_dir():
        missing = "no folder 'shared' beside the checkout: tests against measured data cannot run"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return folder


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's language, colours or own catalog must not change what the tests see."""
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "MESHWRIGHT_PATH", "FORCE_COLOR", "COLUMNS", "MESHWRIGHT_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    set_language("en")
