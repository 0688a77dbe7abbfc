# SPDX-License-Identifier: Apache-2.0
"""Journal of the runs of stops.py that take seconds each, line by line. The runs of several calls accumulate."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stop_figures import Found, Row

import rths_nodes


class Journal:
    """A file of JSON lines, one a run; a run counts where package, scenario and what is stated are the same."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines = path.read_text("utf-8").splitlines() if path is not None and path.exists() else []

    def read(self, row: Row) -> int:
        """Put into ``row`` the runs that were made; returns their number."""
        head, count = _head(row), 0
        for line in map(json.loads, self._lines):
            if {key: line.get(key) for key in head} == head:
                count += 1
                one = line["found"]
                row.add(one if isinstance(one, str) else _found(one))
        return count

    def keep(self, row: Row, one: Found | str) -> None:
        """Write down a run of ``row``, whole or not at all."""
        if self._path is not None:
            line = _head(row) | {"found": one if isinstance(one, str) else asdict(one)}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def _head(row: Row) -> dict[str, Any]:
    made = {"version": rths_nodes.__version__, "scenario": row.scenario.name, "dt": row.scenario.dt}
    return made | {"host": row.host, "cause": row.cause, "stated": list(map(float, row.stated.way))}


def _found(values: dict[str, Any]) -> Found:
    return Found(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
