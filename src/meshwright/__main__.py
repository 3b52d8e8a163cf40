"""``python -m meshwright`` is ``mw``."""

from __future__ import annotations

from meshwright.cli.entry import main

if __name__ == "__main__":
    raise SystemExit(main())
