# SPDX-License-Identifier: Apache-2.0
"""Location of the package's messages, scenarios and launch files, in a checkout or an installation."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = "rths_nodes"


def prefixes() -> list[Path]:
    folders = [*os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep), sys.prefix]
    return [Path(prefix) for prefix in folders if prefix]


def resource(*parts: str) -> Path:
    """Return the path of an installed or checked-out file or folder, e.g. ``resource("config", "scenarios")``.

    Raises FileNotFoundError with the searched locations.
    """
    root = Path(__file__).resolve().parents[2]
    places = [root] if (root / "package.xml").is_file() else []
    places += [prefix / "share" / PACKAGE for prefix in prefixes()]
    for folder in places:
        if (folder / Path(*parts)).exists():
            return folder / Path(*parts)
    raise FileNotFoundError(f"{'/'.join(parts)} of {PACKAGE} was not found in {', '.join(map(str, places))}")
