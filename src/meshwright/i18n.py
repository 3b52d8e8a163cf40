"""Text for people goes through ``_``: English in the source, translations in ``locale/``.

The language is ``--lang`` if given, else LANGUAGE, LC_ALL, LC_MESSAGES, LANG; an unknown one falls back to English.
"""

from __future__ import annotations

import gettext
import os
from pathlib import Path

DOMAIN = "meshwright"
LOCALE_DIR = Path(__file__).parent / "locale"

_translation: gettext.NullTranslations | None = None


def set_language(language: str | None) -> None:
    """Choose the language of every later message; None means: as the environment says."""
    global _translation  # noqa: PLW0603 - one process speaks one language
    _translation = gettext.translation(DOMAIN, LOCALE_DIR, languages=_candidates(language), fallback=True)


def _candidates(language: str | None) -> list[str]:
    names = [language] if language else []
    if not language:
        for variable in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
            if value := os.environ.get(variable):
                names = value.split(":")
                break
    # POSIX locales come as zh_CN.UTF-8, browsers and people write zh-CN or zh.
    return [("zh_CN" if name.lower().startswith("zh") else name.split(".")[0].replace("-", "_")) for name in names]


def language() -> str:
    """The language of messages as HTML's ``lang`` writes it: ``en`` or ``zh-CN``."""
    if _translation is None:
        set_language(None)
        return language()
    return _translation.info().get("language", "en").replace("_", "-")


def _(message: str) -> str:
    """Translate one message (English is the key)."""
    if _translation is None:
        set_language(None)
        return _(message)
    return _translation.gettext(message)


def N_(message: str) -> str:  # noqa: N802 - gettext's own name for "mark, translate later"
    """Mark a message for extraction where it is defined; ``_`` translates it where it is shown."""
    return message
