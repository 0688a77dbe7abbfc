"""What a node process leaves for the launch that has started it: how it has ended, and how the test did.

Launch says "process has died" of every process whose exit code is not 0. One that has left its last words ends
with 0, so launch says that only where it is so; the test ends as the last words say (``launch_end.EndOfLaunch``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rths_nodes.ros.hosting.results import Result

FILE = "RTHS_LAST_WORDS"
"""Environment variable with the file into which a process of launch writes its last words."""

_INDICES = "metrics."


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


def of_process(exit_code: int, problem: str, test: Result | None, numbers: Mapping[str, float]) -> LastWords:
    """The last words of a process that ends with ``exit_code``; ``numbers`` are those of its Summaries."""
    indices = {name: value for name, value in numbers.items() if name.startswith(_INDICES)}
    if test is None:
        return LastWords(exit_code, problem, indices=indices)
    return LastWords(exit_code, problem, test.exit_code, test.ending, indices)


def leave(words: LastWords) -> bool:
    """Write ``words`` for the launch that has started this process; False where there is none, or no room."""
    path = os.environ.get(FILE)
    if not path:
        return False
    try:
        Path(path).write_text(json.dumps(asdict(words)))
    except OSError:  # the exit code says it then
        return False
    return True


def read(path: Path) -> LastWords | None:
    """What a process has left; None where it has left nothing whole."""
    try:
        return LastWords(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
