# SPDX-License-Identifier: Apache-2.0
"""Final report of a node process to launch: its end, and the outcome of the test.

Launch prints "process has died" for every non-zero exit code. A process that leaves a report exits with 0; the
report has the outcome (``ros/hosting/launch_end.py``). Light to import, for processes that are still loading
modules.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = "RTHS_LAST_WORDS"
"""Environment variable with the path of the report."""
DIED = "died"
"""File next to it, in which launch names a process that died without a report."""


@dataclass(frozen=True)
class LastWords:
    """End of a process: exit code, and problem or empty.

    ``test``: exit code of the test, if known, and ``ending``, its text. ``indices`` of the monitor by flat names,
    SI. ``late``: text on missed and bridged periods, or empty.
    """

    exit_code: int
    problem: str = ""
    test: int | None = None
    ending: str = ""
    indices: Mapping[str, float] = field(default_factory=dict)
    late: str = ""


def tell_launch(words: LastWords) -> bool:
    """Write the report for launch; return False without launch, or if that fails."""
    path = os.environ.get(FILE)
    if not path:
        return False
    try:
        Path(path).write_text(json.dumps(asdict(words)), encoding="utf-8")
    except OSError:  # the exit code reports it then
        return False
    return True


def read(path: Path) -> LastWords | None:
    """Return the report of a process; None if it is missing or incomplete."""
    try:
        return LastWords(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def died() -> str:
    """Return which process of this launch died, and how, or empty."""
    path = os.environ.get(FILE)
    try:
        return Path(path).with_name(DIED).read_text(encoding="utf-8") if path else ""
    except OSError:
        return ""
