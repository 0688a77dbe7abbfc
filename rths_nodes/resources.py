"""Where the package keeps its messages, scenarios and launch files: in a checkout or as installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = "rths_nodes"


def resource(*parts: str) -> Path:
    """The path of an installed (or checked-out) file or folder, e.g. ``resource("config", "scenarios")``.

    Raises FileNotFoundError that names the places looked at.
    """
    root = Path(__file__).resolve().parent.parent
    places = [root] if (root / "package.xml").is_file() else []
    prefixes = [*os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep), sys.prefix]
    places += [Path(prefix) / "share" / PACKAGE for prefix in prefixes if prefix]
    for place in places:
        if (place / Path(*parts)).exists():
            return place / Path(*parts)
    raise FileNotFoundError(f"{'/'.join(parts)} of {PACKAGE} is in none of: {', '.join(map(str, places))}")
