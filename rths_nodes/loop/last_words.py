# SPDX-License-Identifier: Apache-2.0
"""Last words of a node process for the launch that has started it: how it has ended, and how the test did.

Launch says "process has died" of every process whose exit code is not 0. One that has left its last words ends
with 0, so launch says that only where it is so; the test ends as they say (``ros/hosting/launch_end.py``).
Light to import: a process that still loads its modules has last words, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = "RTHS_LAST_WORDS"
"""Environment variable with the file into which a process of launch writes its last words."""
DIED = "died"
"""File beside it, into which launch writes which process has died without any."""


@dataclass(frozen=True)
class LastWords:
    """The end of a process: its exit code, and its problem in words; empty where it has none.

    ``test``: exit code of the test, where the process has heard of one, and ``ending``, how it ended in words.
    ``indices``: those of the monitor, by flat names, SI.
    """

    exit_code: int
    problem: str = ""
    test: int | None = None
    ending: str = ""
    indices: Mapping[str, float] = field(default_factory=dict)


def tell_launch(words: LastWords) -> bool:
    """Write ``words`` for the launch that has started this process; False where there is none, or no room."""
    path = os.environ.get(FILE)
    if not path:
        return False
    try:
        Path(path).write_text(json.dumps(asdict(words)), encoding="utf-8")
    except OSError:  # the exit code says it then
        return False
    return True


def read(path: Path) -> LastWords | None:
    """Return the last words that a process has left; None where it has left nothing whole."""
    try:
        return LastWords(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def died() -> str:
    """Which other process of the launch of this one has died, and how; empty: none, as far as launch has said."""
    path = os.environ.get(FILE)
    try:
        return Path(path).with_name(DIED).read_text(encoding="utf-8") if path else ""
    except OSError:
        return ""
