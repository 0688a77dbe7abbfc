# SPDX-License-Identifier: Apache-2.0
"""Study (``doc/studies.md``): design from a file, runs with a journal to resume from, and tables.

The runs are all combinations of the levels of the factors, each with the same plants. Plants are overrides, drawn
from the scenario's ``scatter`` by number and seed.
"""

from __future__ import annotations

import hashlib
import html
import itertools
import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rths_nodes.analysis.study_table import LOST, REFUSED, StudyTable, is_number, shown
from rths_nodes.analysis.units import COLUMN
from rths_nodes.app.studies import engine, runs
from rths_nodes.app.studies.engine import Lost, Progress, Say, Shown, silent, summed, warn
from rths_nodes.app.studies.runs import Findings, known_indices, needs_response, shown_indices, to_json
from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.distributions import KINDS, Distribution, distribution
from rths_nodes.core.errors import ConfigError, Problems, show, unknown, within
from rths_nodes.core.inputs import Named, named_files
from rths_nodes.core.parameters import flag, integer, mapping, params, text, texts
from rths_nodes.core.text_files import replaced, write_columns
from rths_nodes.core.validation import from_data, walk
from rths_nodes.core.version import __version__
from rths_nodes.core.yaml_text import parse, source_of
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import declaration, pairs_of, replace, with_case
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.records import locked

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

MOST_RUNS = 100_000
LARGEST = float(np.finfo(float).max)
CASE = "case"
COLUMNS = ("run", "name", "outcome", "reason", "plant", "scenario")
"""Columns of the table, in addition to factors, drawn values and indices."""
LEVELS = ("list", "grid", "log_grid", "settings")


@params
class StudyFile:
    version: int = integer("version of this file format", at_least=1, at_most=1)
    name: str = text("name of the study")
    description: str = text("purpose of the study", "")
    scenario: str = text("name of a shipped scenario, or path of a YAML file, relative to the study file")
    case: str = text("case of the scenario", "")
    set: dict[str, object] = mapping("changes of the scenario in all runs, as section.key: value")
    factors: dict[str, object] = mapping(
        "varied keys, as section.key: {list: [...]} or with another kind of levels"
    )
    plants: int = integer("number of plants drawn for each combination of the factors", "", 0, at_least=0)
    nominal: bool = flag("true: run the scenario's own plant in addition to the drawn plants", False)
    seed: int = integer("seed of the drawn plants", "", 1, at_least=0)
    indices: tuple[str, ...] = texts("indices in the tables, named as in rths compare")

    def validate(self, path: str) -> None:
        if not self.name.isprintable() or os.sep in self.name or self.name[:1] in ("", "."):
            raise ConfigError(f"name = {show(self.name)}: must be a valid name of a folder")


@dataclass(frozen=True)
class Level:
    """Level of a factor: label and changes. ``case`` is empty unless the level is a case of the scenario."""

    label: float | str
    changes: tuple[tuple[str, object], ...] = ()
    case: str = ""


@dataclass(frozen=True)
class Row:
    """Run of a study, with the ``scenario`` as text.

    ``reason`` is set and ``scenario`` is empty if the scenario is invalid. ``key`` identifies the scenario, the
    contents of its files and the version of this package. It also identifies the process if a component does not
    belong to a package.
    """

    number: int
    name: str
    levels: Mapping[str, float | str]
    plant: Plant
    scenario: str
    reason: str
    key: str


class Design:
    """Checked study with its factors, plants and runs.

    ``scenario`` replaces the scenario that the study file names. A path in the study file is relative to
    ``folder``. Raises ConfigError with all problems of the study.
    """

    def __init__(self, study: StudyFile, folder: Path, scenario: Scenario | None = None) -> None:
        self.name, self.description = study.name, study.description
        beside = folder / os.path.expanduser(study.scenario)
        base = scenario or files.load(beside if beside.is_file() else study.scenario)
        self.base = replace(with_case(base, study.case) if study.case else base, pairs_of(study.set), "set")
        self.seed, problems = study.seed, Problems()
        self.factors: dict[str, tuple[Level, ...]] = {}
        scatter = dict(self.base.scatter) if study.plants else {}
        for name, data in study.factors.items():
            with problems.gathered():
                if isinstance(data, Mapping) and len(data) == 1 and next(iter(data)) in KINDS:
                    distribution(data, f"factors.{name}")
                    scatter[name] = data
                else:
                    self.factors[name] = _levels(name, data, self.base)
        problems.refuse()
        levels = [level for levels in self.factors.values() for level in levels]
        changed = {*study.set, *(key for level in levels for key in dict(level.changes))}
        cases = filter(None, [study.case, *(level.case for level in levels)])
        refuse_scattered(base, scatter, changed, cases, self.factors)
        if scatter and not study.plants:
            raise ConfigError(f"plants = 0: must be > 0 to draw {', '.join(scatter)}")
        self.base = replace(self.base, [(["scatter"], scatter)])
        self.plants = plants(self.base, study.plants, study.seed, study.nominal)
        self.count = len(self.plants) * math.prod(len(levels) for levels in self.factors.values())
        if self.count > MOST_RUNS:
            raise ConfigError(f"number of runs = {self.count}: must be <= {MOST_RUNS}")
        self.indices = study.indices or shown_indices(self.base)
        self._hash = cache(Named.hash)
        self._check()

    @property
    def drawn(self) -> tuple[str, ...]:
        return tuple(self.base.scatter)

    @property
    def titles(self) -> dict[str, str]:
        names = _short([*self.factors, *self.drawn])
        return {key: _titled(self.base, key, name.replace("_", " ")) for key, name in names.items()}

    @cached_property
    def rows(self) -> list[Row]:
        names = _short(list(self.factors))
        rows: list[Row] = []
        for chosen in itertools.product(*self.factors.values()):
            levels = dict(zip(self.factors, chosen, strict=True))
            labels = [f"{names[name]}={shown(level.label)}" for name, level in levels.items()]
            reason, scenario = "", self.base
            try:
                scenario = self._with(levels)
            except ConfigError as error:
                reason = "; ".join(error.problems)
            for plant in self.plants:
                name = labels + ([f"plant {plant.number}"] if len(self.plants) > 1 else [])
                rows.append(self._row(len(rows), ", ".join(name), levels, plant, scenario, reason))
        return rows

    def _row(
        self, number: int, label: str, levels: Mapping[str, Level], plant: Plant, scenario: Scenario, reason: str
    ) -> Row:
        name, resolved, contents = label or self.base.name, "", ""
        if not reason:
            try:
                plant = plant.on(scenario)
                data = plant.applied(scenario).data() | {"cases": {}}
                resolved, contents = to_json(data), " ".join(map(self._hash, named_files(Scenario, data)))
            except ConfigError as error:
                reason = "; ".join(error.problems)
        session = registry.session_of(part for _, part in walk(scenario)) if registry.added() else ""
        response = "with response " if needs_response(self.indices) else ""  # otherwise not computed
        parts = f"{__version__} {session}{response}{contents}{resolved or name}"
        key = hashlib.sha256(parts.encode()).hexdigest()[:20]
        labels = {factor: level.label for factor, level in levels.items()}
        return Row(number, name, labels, plant, resolved, reason, key)

    def _with(self, levels: Mapping[str, Level]) -> Scenario:
        scenario = self.base
        for level in levels.values():
            if level.case:
                scenario = with_case(scenario, level.case)
        changes = dict(change for level in levels.values() for change in level.changes)
        return replace(scenario, pairs_of(changes), "factors")

    def _check(self) -> None:
        """Check the index names. Check each level once, with all other factors at their first level."""
        first = {name: levels[0] for name, levels in self.factors.items()}
        known_names = set(known_indices(checked_loop(self._with(first)).assembly))
        problems = Problems()
        for name, levels in self.factors.items():
            for level in levels[1:]:
                with problems.gathered():
                    scenario = self._with(first | {name: level})
                    try:
                        known_names.update(known_indices(checked_loop(scenario).assembly))
                    except ConfigError:
                        continue
        problems += [
            f"factors.{name}: is the name of another column of the table; choose another name"
            for name in self.factors
            if name in COLUMNS or name in known_names
        ]
        problems.refuse()
        for index in self.indices:
            if index not in known_names:
                raise unknown("indices", "index", index, known_names)


def load(path: str | os.PathLike[str]) -> Design:
    data = parse(source_of(path, f"study {str(path)!r}"), str(path))
    with within(str(path)):
        return Design(from_data(StudyFile, data), Path(path).parent)


def refuse_scattered(
    scenario: Scenario,
    scatter: Mapping[str, object],
    changed: Iterable[str],
    cases: Iterable[str],
    varied: Collection[str] = (),
) -> None:
    """Raise ConfigError if a drawn value would replace a value that ``changed`` or ``cases`` set.

    A value drawn relative to the scenario's value is refused only if its key is in ``varied``.
    """
    keys = {*changed, *varied, *(key for case in cases for key in scenario.cases[case].set)}
    both = [
        key
        for key, data in scatter.items()
        if key in varied
        or (
            not distribution(data, key).refers_to_nominal
            and any(f"{key}.".startswith(f"{other}.") or other.startswith(f"{key}.") for other in keys)
        )
    ]
    if both:
        doubled = ", ".join(sorted(both))
        raise ConfigError(f"{scenario.name}: scatters {doubled}, which is set, varied or tuned. Set scatter: {{}}")


def _levels(name: str, data: object, base: Scenario) -> tuple[Level, ...]:
    path = f"factors.{name}"
    if not isinstance(data, Mapping) or len(data) != 1:
        kinds = ", ".join([*LEVELS, *KINDS])
        raise ConfigError(f"{path} = {show(data)}: must be {{kind: values}}, where kind is one of {kinds}")
    ((kind, entries),) = data.items()
    if kind not in LEVELS:
        raise unknown(path, "kind of levels", kind, [*LEVELS, *KINDS])
    where = f"{path}.{kind}"
    if kind == "settings":
        named = isinstance(entries, Mapping) and all(isinstance(level, Mapping) for level in entries.values())
        if not named or not entries:
            raise ConfigError(f"{where} = {show(entries)}: must be a mapping of names to {{section.key: value}}")
        return tuple(Level(str(label), tuple(changes.items())) for label, changes in entries.items())
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{where} = {show(entries)}: must be a list with at least one entry")
    values: list[Any] = entries if kind == "list" else _grid(where, entries, kind == "log_grid")
    if name != CASE:
        return tuple(Level(_label(value), ((name, value),)) for value in values)
    for value in values:
        if not isinstance(value, str) or value not in base.cases:
            raise unknown(where, "case", value, base.cases)
    return tuple(Level(value, case=value) for value in values)


def _grid(where: str, bounds: list[Any], logarithmic: bool) -> list[float]:
    finite = len(bounds) == 3 and all(is_number(value) and abs(value) <= LARGEST for value in bounds)
    if not finite or bounds[2] != int(bounds[2]) or not 1 <= bounds[2] <= MOST_RUNS:
        raise ConfigError(f"{where} = {show(bounds)}: must be [first, last, number of values]")
    first, last, count = float(bounds[0]), float(bounds[1]), int(bounds[2])
    if logarithmic and not (first > 0.0 and last > 0.0):
        raise ConfigError(f"{where} = {show(bounds)}: the first and the last value must be > 0")
    spaced: list[float] = (np.geomspace if logarithmic else np.linspace)(first, last, count).tolist()
    return spaced


def _label(value: Any) -> float | str:
    if registry.is_component(value):
        return registry.name_of(value)
    return value if is_number(value) or isinstance(value, str) else json.dumps(value)


def _titled(base: Scenario, key: str, name: str) -> str:
    try:
        _, spec = declaration(base, key, key)
    except ConfigError:  # the factor names a group of settings, or is a key that only such a group sets
        return name
    if spec is None or not spec.unit:
        return name
    return f"{name.removesuffix(' per mm2')} ({spec.unit.replace('^2', '²')})"


def _short(names: list[str]) -> dict[str, str]:
    shortened = {}
    for name in names:
        parts, count = name.split("."), 1
        while any(other != name and other.split(".")[-count:] == parts[-count:] for other in names):
            count += 1
        shortened[name] = ".".join(parts[-count:])
    return shortened


NOMINAL = 0


@dataclass(frozen=True)
class Plant:
    number: int
    seed: int
    values: Data
    scatter: Mapping[str, Distribution]

    def on(self, scenario: Scenario) -> Plant:
        """Return this plant with values drawn about the nominal values of ``scenario``, e.g. of a case."""
        if not self.scatter:
            return self
        values = _values(scenario.data(), self.scatter, self.number, self.seed)
        return Plant(self.number, self.seed, values, self.scatter)

    def of(self, scenario: Scenario) -> Scenario:
        """Return ``scenario`` with this plant's values, drawn about the scenario's nominal values."""
        with within(f"plant {self.number} of seed {self.seed}"):
            drawn = self.on(scenario)
        return drawn.applied(scenario)

    def applied(self, scenario: Scenario) -> Scenario:
        """Return ``scenario`` with this plant's ``values`` and without scatter.

        The number of a drawn plant is added to the scenario's name. Raises ConfigError if a value is invalid.
        """
        with within(f"plant {self.number} of seed {self.seed}"):
            pairs: list[tuple[list[str], object]] = [*pairs_of(self.values), (["scatter"], {})]
            if self.number != NOMINAL:
                drawn = {"plant": self.number, "seed": self.seed, "values": dict(self.values)}
                pairs += [(["name"], f"{scenario.name}.plant_{self.number}"), (["recording", "drawn"], drawn)]
            return replace(scenario, pairs)


def plants(scenario: Scenario, count: int, seed: int, nominal: bool = False) -> list[Plant]:
    """Return plants 1 to ``count`` of ``seed``, preceded by the nominal plant if ``nominal`` is true.

    Return only the nominal plant if ``count`` is 0. Raises ConfigError if the scatter is missing or invalid.
    """
    if not count:
        return [Plant(NOMINAL, seed, {}, {})]
    if count > MOST_RUNS:
        raise ConfigError(f"plants = {count}: must be <= {MOST_RUNS}")
    if not scenario.scatter:
        raise ConfigError(f"{scenario.name}: has no scatter from which to draw {count} plants")
    scatter = {key: distribution(text, f"scatter: {key}") for key, text in scenario.scatter.items()}
    # draw leaders before the keys that follow them
    ordered = dict(sorted(scatter.items(), key=lambda item: bool(item[1].leader)))
    first = [Plant(NOMINAL, seed, {}, {})] if nominal else []
    return [*first, *(Plant(number, seed, {}, ordered).on(scenario) for number in range(1, count + 1))]


def _values(data: Data, scatter: Mapping[str, Distribution], number: int, seed: int) -> dict[str, object]:
    problems = Problems()
    values: dict[str, object] = {}
    for key, distribution_of_key in scatter.items():
        with problems.gathered():
            nominal = _at(data, key)
            # one random stream per key, so that an additional key does not change other values
            generator = np.random.default_rng([seed, number, zlib.crc32(key.encode())])
            with within(f"scatter: {key}"):
                if not (leader := distribution_of_key.leader):
                    values[key] = distribution_of_key.draw(generator, nominal)
                elif leader in values:
                    values[key] = distribution_of_key.following(nominal, values[leader], _at(data, leader))
    problems.refuse()
    return values


def _at(data: object, key: str) -> object:
    branch = data
    for name in key.split("."):
        if not isinstance(branch, Mapping):
            raise ConfigError(f"scatter: {key}: {show(branch)} has no {name}")
        if name not in branch:
            raise unknown(f"scatter: {key}", "key", name, branch)
        branch = branch[name]
    return branch


NAME = "runs.jsonl"
_BEGIN, _SUM = b'{"key":"', b',"crc32":"'


class Journal:
    """Stores the result of each finished run, by key, as a line of a file in ``folder``.

    Only one process may write. An incomplete last line is dropped when the file is opened. Lines end with a
    checksum (CRC-32), which lines of earlier versions may lack. Raises ConfigError if a line is damaged or another
    process writes.
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
    """Return the remaining runs. Kinds of runs alternate, so that the completed runs are representative."""
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
    """Execute the remaining runs and write each result to ``journal`` immediately.

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


class Study(StudyTable):
    __doc__ = StudyTable.__doc__

    def __repr__(self) -> str:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes().items())
        return f"<Study {self.title}: {outcomes}; {', '.join(self.indices)}>"

    def _repr_html_(self) -> str:
        rows = [
            [self.title_of(index), group, *cells] for index in self.indices for group, cells in self.summary(index)
        ]
        return html_table(["index", "group", "finished", "median", "5 %", "95 %", "worst"], rows)

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a pandas table with one row per run: outcome, factors, drawn values, indices.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ConfigError
            If pandas is not installed.

        Examples
        --------
        >>> import rths_nodes
        >>> levels = {"compensator.alpha_es": {"list": [15, 29]}}
        >>> table = rths_nodes.study(scenario="predefined_sine", set={"duration": 0.5}, factors=levels, jobs=1)
        >>> table.to_dataframe()["outcome"].tolist()
        ['finished', 'finished']
        """
        return data_frame({key: value for key, value in self.columns.items() if key != "scenario"})

    def plot(self, index: str, ax: Axes | None = None, style: str | None = None, width: float = COLUMN) -> Axes:
        """Draw the magnitudes of an index by group: runs, median, and range from 5 to 95 %.

        Parameters
        ----------
        index : str
            Name in ``indices``, or another index column.
        ax, style, width : optional
            As in :meth:`rths_nodes.Run.plot`.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ConfigError
            If the index is unknown.

        Examples
        --------
        >>> import rths_nodes
        >>> from matplotlib.figure import Figure
        >>> short, levels = {"duration": 0.5}, {"compensator.alpha_es": {"list": [15, 29]}}
        >>> table = rths_nodes.study(scenario="predefined_sine", set=short, factors=levels, jobs=1)
        >>> table.plot("max_error_mm", Figure().subplots()).get_xlabel()
        'largest control error (mm)'
        """
        from rths_nodes.analysis.figures.plot import plot_by_label

        rows = {group: rows.tolist() for group, rows in self.groups.items()}
        return plot_by_label(self, index, rows, ax, style, width)


def data_frame(columns: Mapping[str, object]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError:
        raise ConfigError("to_dataframe: requires pandas (pip install pandas)") from None
    return pandas.DataFrame(columns)


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{html.escape(head)}</th>" for head in heads)]
    lines += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


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
            error.add_note(f"results of {done} further runs are stored in {folder}")
            raise
        return table(design, journal.results | lost)


def write_all(table: Study, folder: Path) -> None:
    from rths_nodes.analysis.report.document import write_study

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
    with replaced(path) as beside:
        parquet.write_table(pyarrow.table(columns), beside)
