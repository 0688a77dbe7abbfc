# SPDX-License-Identifier: Apache-2.0
"""Study: all runs of a design, with a journal to resume from, and tables as CSV and Parquet."""

from __future__ import annotations

import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rths_nodes.analysis.study_table import LOST, REFUSED, is_number
from rths_nodes.app.studies import engine, runs
from rths_nodes.app.studies.design import Design, Row
from rths_nodes.app.studies.engine import Lost, Progress, Say, Shown, silent, summed, warn
from rths_nodes.app.studies.results import Study
from rths_nodes.app.studies.runs import Findings
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems, within
from rths_nodes.core.text_files import write_columns
from rths_nodes.recording.records import locked

NAME = "runs.jsonl"
_BEGIN, _SUM = b'{"key":"', b',"crc32":"'


class Journal:
    """Stores the result of each finished run, by key, as a line of a file in ``folder``.

    Only one process may write. The next start drops an incomplete last line. Lines end with a checksum (CRC-32);
    lines of earlier versions may have no checksum. Raises ConfigError if a line is damaged or another process
    writes.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self._file = self.path.open("a+b")
        if locked(self._file):
            self._file.close()
            raise ConfigError(f"{folder}: another study writes to this folder") from None
        self.results: dict[str, Data] = {}
        self._read()

    def _read(self) -> None:
        self._file.seek(0)
        complete, ours, problems = 0, False, Problems()
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n") and line[: len(_BEGIN)] == _BEGIN[: len(line)]:
                break
            ours = ours or _SUM in line
            with problems.gathered(), within(f"{self.path}, line {number}"):
                key, result = _entry(line)
                self.results[key] = result
            complete += len(line)
        if problems:
            self._file.close()
            if not (ours or self.results):
                raise ConfigError(f"{self.path}: is not the journal of a study. Use another folder")
            problems.refuse()
        self._file.truncate(complete)
        self._file.seek(0, os.SEEK_END)

    def add(self, key: str, result: dict[str, object]) -> None:
        body = json.dumps({"key": key, "result": result}, separators=(",", ":")).encode()[:-1]
        self._file.write(body + _SUM + _crc(body) + b'"}\n')
        self._file.flush()
        self.results[key] = result

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _crc(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)


def _entry(line: bytes) -> tuple[str, dict[str, object]]:
    body, sign, digest = line.rpartition(_SUM)
    why = "the line does not contain the result of a run"
    if sign and digest != _crc(body) + b'"}\n':
        why = "the checksum does not match"
    else:
        with suppress(ValueError, TypeError, KeyError):
            entry = json.loads(body + b"}" if sign else line)
            Findings(**entry["result"])
            if set(entry) == {"key", "result"}:
                return str(entry["key"]), entry["result"]
    raise ConfigError(f"is damaged, because {why}. Delete the line to repeat its run")


CSV, PARQUET, PAGE = "table.csv", "table.parquet", "study.html"


def undone(design: Design, journal: Journal) -> list[Row]:
    """Return the remaining runs, in turn from each kind, so that the completed runs represent all costs."""
    rows: dict[str, Row] = {}
    for row in design.rows:
        if row.scenario and row.key not in journal.results:
            rows.setdefault(row.key, row)
    before: Counter[Hashable] = Counter()
    turns = {}
    for row in rows.values():
        turns[row.key] = before[_kind(row)]
        before[_kind(row)] += 1
    return sorted(rows.values(), key=lambda row: turns[row.key])


def _kind(row: Row) -> Hashable:
    return tuple(level for level in row.levels.values() if isinstance(level, str))


def run(
    design: Design, journal: Journal, where: engine.Where, progress: Progress | None = None
) -> dict[str, Data]:
    """Execute the remaining runs and write each result immediately.

    Return the results of lost runs by key. The next call repeats these runs.
    """
    rows, lost = undone(design, journal), {}
    response = runs.needs_response(design.indices)
    chosen = where.engine_of(design.base, len(rows) * design.base.samples)
    jobs = ((number, (row.scenario, response, chosen)) for number, row in enumerate(rows))
    for number, plain in engine.as_completed(runs.run_safely, jobs, len(rows), where, progress):
        if isinstance(plain, Lost):
            lost[rows[number].key] = {"outcome": LOST, "reason": plain.reason}
        else:
            journal.add(rows[number].key, plain)
    return lost


def table(design: Design, results: dict[str, Data]) -> Study:
    rows = design.rows
    findings = [Findings(**_result(row, results)) for row in rows]
    values = [one.values for one in findings]
    columns: dict[str, list[object]] = {
        "run": [row.number for row in rows],
        "name": [row.name for row in rows],
        "outcome": [one.outcome for one in findings],
        "reason": [one.reason for one in findings],
    }
    for factor in design.factors:
        columns[factor] = [row.levels[factor] for row in rows]
    if len(design.plants) > 1:
        columns["plant"] = [row.plant.number for row in rows]
    for key in design.drawn:
        drawn = [row.plant.values.get(key, math.nan) for row in rows]
        columns[key] = [x if is_number(x) or isinstance(x, str) else json.dumps(x) for x in drawn]
    for name in dict.fromkeys([*design.indices, *(name for row in values for name in row)]):
        columns[name] = [row.get(name, math.nan) for row in values]
    columns["scenario"] = [row.scenario for row in rows]
    head = design.name, design.description, design.base.name
    return Study(*head, columns, tuple(design.factors), design.indices, design.drawn, design.titles)


def _result(row: Row, results: dict[str, Data]) -> Data:
    if row.reason:
        return {"outcome": REFUSED, "reason": row.reason}
    return results.get(row.key) or {"outcome": LOST, "reason": "was not run"}


def write(table: Study, folder: Path) -> None:
    write_columns(table.columns, folder / CSV)
    if not parquet_missing():
        write_parquet(table, folder / PARQUET)


class Hooks(NamedTuple):
    shown: Shown = silent
    say: Say = warn
    begun: Callable[[int], None] = lambda left: None


def complete(design: Design, folder: Path, where: engine.Where, hooks: Hooks) -> Study:
    with Journal(folder) as journal:
        rows = undone(design, journal)
        samples = len(rows) * design.base.samples
        first = {_kind(row): row for row in reversed(rows)}
        kinds = [runs.from_json(row.scenario, row.name) for row in first.values()]
        where = runs.decided(where, samples, [design.base, *kinds], hooks.say)
        hooks.begun(len(rows))
        try:
            with hooks.shown(design.name) as progress:
                lost = run(design, journal, where, summed(progress))
        except BaseException as error:
            done = sum(row.key in journal.results for row in rows)
            error.add_note(f"number of further runs with results in {folder}: {done}")
            raise
        return table(design, journal.results | lost)


def write_all(table: Study, folder: Path) -> None:
    from rths_nodes.analysis.report.studies import write_study

    write(table, folder)
    write_study(table, folder / PAGE)


def parquet_missing() -> str:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return "pyarrow is missing, so only the CSV file is written, no Parquet file (pip install pyarrow)"
    return ""


def write_parquet(table: Study, path: Path) -> None:
    if problem := parquet_missing():
        raise ConfigError(problem)
    import pyarrow
    from pyarrow import parquet

    columns = {
        name: values if all(map(is_number, values)) else list(map(str, values))
        for name, values in table.columns.items()
    }
    parquet.write_table(pyarrow.table(columns), path)
