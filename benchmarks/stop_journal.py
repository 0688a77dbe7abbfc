# SPDX-License-Identifier: Apache-2.0
"""Journal of the real-time runs of stops.py. The runs of several calls accumulate."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stop_figures import Figures, Row

import rths_nodes


class Journal:
    """File of JSON lines, one per run. Runs of other versions, scenarios or stated travels are ignored."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines = path.read_text("utf-8").splitlines() if path is not None and path.exists() else []

    def read(self, row: Row) -> int:
        """Add the stored runs to ``row`` and return their number."""
        head, count = _head(row), 0
        for line in map(json.loads, self._lines):
            if {key: line.get(key) for key in head} == head:
                count += 1
                run = line["found"]
                row.add(run if isinstance(run, str) else _figures(run))
        return count

    def keep(self, row: Row, run: Figures | str) -> None:
        """Append a run of ``row``."""
        if self._path is not None:
            line = _head(row) | {"found": run if isinstance(run, str) else asdict(run)}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def _head(row: Row) -> dict[str, Any]:
    test = {"version": rths_nodes.__version__, "scenario": row.scenario.name, "dt": row.scenario.dt}
    return test | {"host": row.host, "cause": row.cause, "stated": list(map(float, row.stated.way))}


def _figures(values: dict[str, Any]) -> Figures:
    return Figures(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
