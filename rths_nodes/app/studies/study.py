# SPDX-License-Identifier: Apache-2.0
"""Study: all runs of a design, with a journal to resume from, and tables as CSV and Parquet."""

from __future__ import annotations

import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.analysis.study_table import LOST, REFUSED, StudyTable
from rths_nodes.app.studies import engine, remaining, runs
from rths_nodes.app.studies.design import CASE, Design, Row
from rths_nodes.app.studies.runs import Findings
from rths_nodes.app.studies.tasks import Lost, Progress, Say, Shown, silent, warn
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.core.text_files import write_columns
from rths_nodes.loop.scenario.schema import Scenario
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
            try:
                key, result = _entry(line)
                self.results[key] = result
            except ConfigError as error:
                problems += error.within(f"{self.path}, line {number}").problems
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
    if sign and digest != _crc(body) + b'"}\n':
        raise _damaged("the checksum does not match")
    try:
        entry = json.loads(body + b"}" if sign else line)
        if set(entry) != {"key", "result"}:
            raise ValueError("not these two")
        Findings(**entry["result"])
        return str(entry["key"]), entry["result"]
    except (ValueError, TypeError):
        raise _damaged("the line does not contain the result of a run") from None


def _damaged(why: str) -> ConfigError:
    return ConfigError(f"is damaged, because {why}. Delete the line to repeat its run")


CSV, PARQUET, PAGE = "table.csv", "table.parquet", "study.html"


def undone(design: Design, journal: Journal) -> list[Row]:
    """Return the remaining runs, with the first of each kind at the beginning, so that costs are known early."""
    rows_left, seen = [], set(journal.results)
    for row in design.rows:
        if row.key not in seen and row.scenario:
            rows_left.append(row)
            seen.add(row.key)
    before: Counter[Hashable] = Counter()
    turns = []
    for row in rows_left:
        turns.append(before[kind(row)[0]])
        before[kind(row)[0]] += 1
    return [rows_left[number] for number in np.argsort(turns, kind="stable")]


def kind(row: Row) -> tuple[Hashable, ...]:
    """Return the kind of a run: the names of its settings, then its case. Runs of one kind have equal cost."""
    named = tuple(level for factor, level in row.levels.items() if factor != CASE and isinstance(level, str))
    return named, row.levels.get(CASE)


def of_each_kind(rows: Sequence[Row]) -> list[Scenario]:
    first = {kind(row): row for row in reversed(rows) if row.scenario}
    return [runs.from_json(row.scenario, row.name) for row in first.values()]


def weighed(rows: Sequence[Row], report: Callable[[float, float], None], where: engine.Where) -> Progress:
    return remaining.weighed(
        report, [kind(row) for row in rows], at_once=0 if where.scheduler else where.processes
    )


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


def table(design: Design, results: dict[str, Data]) -> StudyTable:
    rows = design.rows
    rows_of_table = [Findings(**_result(row, results)) for row in rows]
    values = [one.values for one in rows_of_table]
    indices = list(dict.fromkeys([*design.indices, *(name for row in values for name in row)]))
    columns: dict[str, list[object]] = {
        "run": [row.number for row in rows],
        "name": [row.name for row in rows],
        "outcome": [one.outcome for one in rows_of_table],
        "reason": [one.reason for one in rows_of_table],
    }
    for factor in design.factors:
        columns[factor] = [row.levels[factor] for row in rows]
    if len(design.plants) > 1:
        columns["plant"] = [row.plant.number for row in rows]
    for key in design.drawn:
        columns[key] = [_number_or_text(row.plant.values.get(key, math.nan)) for row in rows]
    for name in indices:
        columns[name] = [row.get(name, math.nan) for row in values]
    columns["scenario"] = [row.scenario for row in rows]
    head = design.name, design.description, design.base.name
    return StudyTable(*head, columns, tuple(design.factors), design.indices, design.drawn, design.titles)


def _number_or_text(value: object) -> float | str:
    return value if isinstance(value, (int, float, str)) and not isinstance(value, bool) else json.dumps(value)


def _result(row: Row, results: dict[str, dict[str, object]]) -> Data:
    if row.reason:
        return {"outcome": REFUSED, "reason": row.reason}
    return results.get(row.key) or {"outcome": LOST, "reason": "was not run"}


def write(table: StudyTable, folder: Path) -> None:
    write_columns(table.columns, folder / CSV)
    if not parquet_missing():
        write_parquet(table, folder / PARQUET)


class Hooks(NamedTuple):
    shown: Shown = silent
    say: Say = warn
    begun: Callable[[int], None] = lambda left: None


def complete(
    design: Design,
    folder: Path,
    where: engine.Where,
    hooks: Hooks,
) -> StudyTable:
    with Journal(folder) as journal:
        rows = undone(design, journal)
        samples = len(rows) * design.base.samples
        where = runs.decided(where, samples, [design.base, *of_each_kind(rows)], hooks.say)
        hooks.begun(len(rows))
        try:
            # the executor waits for its import, which would fail at the exit of Python
            with hooks.shown(design.name) as progress, ThreadPoolExecutor(1) as writers:
                writers.submit(load_writers)
                lost = run(design, journal, where, weighed(rows, progress, where))
        except BaseException as error:
            error.add_note(
                f"number of further runs with results in {folder}: {len(rows) - len(undone(design, journal))}"
            )
            raise
        result = table(design, journal.results | lost)
    if rows:
        engine.release(where)
    return result


def load_writers() -> None:
    """Import the modules for the Parquet file and the page (about 1 s) while other processes run."""
    import rths_nodes.analysis.report.studies  # noqa: F401

    if not parquet_missing():
        import pyarrow

        pyarrow.array([0.0])  # this call imports pandas


def write_all(table: StudyTable, folder: Path, where: engine.Where) -> None:
    from rths_nodes.analysis.report import studies as page

    write(table, folder)
    page.write_study(table, folder / PAGE)


def parquet_missing() -> str:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return "pyarrow is missing, so only the CSV file is written, no Parquet file (pip install pyarrow)"
    return ""


def write_parquet(table: StudyTable, path: Path) -> None:
    if problem := parquet_missing():
        raise ConfigError(problem)
    import pyarrow
    from pyarrow import parquet

    columns = {name: pyarrow.array(_typed(values)) for name, values in table.columns.items()}
    parquet.write_table(pyarrow.table(columns), path)


def _typed(values: Sequence[Any]) -> list[Any]:
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return list(values)
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return [float(value) for value in values]
    return [str(value) for value in values]
