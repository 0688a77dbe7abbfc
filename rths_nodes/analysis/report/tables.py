# SPDX-License-Identifier: Apache-2.0
"""Tables of the report: indices of the axes and of the test, response, limits, loads and timing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.analysis import published_indices
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.index_definitions import AXIS_INDICES, DEFINITIONS, RESPONSE, TEST_INDICES, Kind
from rths_nodes.analysis.response_errors import response_errors
from rths_nodes.analysis.study_table import UNIT_BY_WORD
from rths_nodes.analysis.units import DASH, HOPS, KN, MM, US, clocks, number, quantity, rounded
from rths_nodes.core import samples
from rths_nodes.core.data import Data
from rths_nodes.core.limits import QUANTITIES, STOP, Level, Limits, OfExpression, unit_of_level
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.schema import axis_names
from rths_nodes.loop.stages.frozen import frozen_notes
from rths_nodes.loop.supervision.levels import WHOLE_RIG, level_notes
from rths_nodes.loop.timing import clock_notes, pause_notes
from rths_nodes.recording.run import Run


class Row(NamedTuple):
    """Row of a table. ``values`` has one value for each column or a single value for all columns."""

    title: str
    values: list[str]
    unit: str
    meaning: str = ""


class Table(NamedTuple):
    corner: str
    heads: list[str]
    rows: list[Row]

    def without_gaps(self) -> Table:
        kept = [
            column for column in range(len(self.heads)) if any(row.values[column] != DASH for row in self.rows)
        ]
        rows = [row._replace(values=[row.values[column] for column in kept]) for row in self.rows]
        return Table(self.corner, [self.heads[column] for column in kept], rows)


_PERCENTILES = {"mean": "mean_s", "median": "median_s", "99 %": "p99_s", "99.9 %": "p999_s", "largest": "max_s"}
_USUAL = {"mean": "mean_s", "median": "median_s"}
_COUNTED = (("Missed ticks", "missed"), ("Commands that were received too late to be sent", "late_commands"))
_FLAGGED = (
    (samples.FLAG_BRIDGED, "bridged"),
    (samples.FLAG_SLOWED, "slowed"),
    (samples.FLAG_SLIPPED, "slipped"),
    (samples.FLAG_SATURATED, "with a saturated sensor"),
    (samples.FLAG_SOFT_START, "in the soft start"),
    (samples.FLAG_TRIPPED, "in the safe stop"),
    (samples.FLAG_FROZEN, "with frozen copies of the specimen"),
)
_WHILE_FORCE = "max |target − measured| while the mode is force"
_LOADS = (
    Kind("Largest error of force", "max_force_error_n", KN, "kN", _WHILE_FORCE),
    Kind("Largest error, relative", "max_force_error_percent", 1.0, "%", "as a share of the largest target"),
    Kind("RMS error of force", "rms_force_error_n", KN, "kN", ""),
)


def tables(evaluation: Evaluation, reference: bool) -> dict[str, Table | None]:
    return {
        "indices": indices(evaluation),
        "published": evaluation.or_left_out("published indices", lambda: published(evaluation), None),
        "response": response(evaluation) if reference else None,
        "loads": loads(evaluation),
        "limits": limits(evaluation),
        "timing": timing(evaluation.run),
    }


def indices(evaluation: Evaluation) -> Table | None:
    """Return the table of indices; None without indices. If true values are known, each axis has two columns."""
    if len(evaluation.run.time) < 2:
        return None
    columns = _columns(evaluation)
    rows = _rows(AXIS_INDICES, columns.values()) + _rows(TEST_INDICES, [evaluation.run.metrics])
    return Table("Index", list(columns), rows) if any({*row.values} != {DASH} for row in rows) else None


def _rows(kinds: Iterable[Kind], columns: Iterable[Mapping[str, object]]) -> list[Row]:
    every = list(columns)
    return [
        Row(kind.title, [rounded(column.get(kind.key), kind.factor) for column in every], kind.unit, kind.meaning)
        for kind in kinds
    ]


def _columns(evaluation: Evaluation) -> dict[str, Mapping[str, object]]:
    measured, called = _measured(evaluation), axis_names(evaluation.scenario)
    if not evaluation.true_is_known:
        return {called[name]: row for name, row in measured.items()}
    both = {"measured": measured, "true": evaluation.indices(true=True)}
    return {f"{called[name]} {kind}": rows[name] for name in measured for kind, rows in both.items()}


def _measured(evaluation: Evaluation) -> dict[str, Data]:
    recorded: Data = evaluation.run.metrics.get("axes") or {}
    offline = evaluation.indices()
    return {
        name: {key: value for key, value in offline.get(name, {}).items() if key.startswith("fei")}
        | dict(recorded.get(name, {}))
        for name in evaluation.run.axes
    }


def side_by_side(tests: Mapping[str, Evaluation]) -> Table:
    columns = [_measured(evaluation) for evaluation in tests.values()]
    axes = list(columns[0])
    rows = []
    for kind in AXIS_INDICES:
        for axis in axes:
            (row,) = _rows([kind], [column.get(axis, {}) for column in columns])
            rows.append(row._replace(title=f"{row.title}, {axis}") if len(axes) > 1 else row)
    rows += _rows(TEST_INDICES, [evaluation.run.metrics for evaluation in tests.values()])
    return Table("Index", list(tests), [row for row in rows if any(value != DASH for value in row.values)])


def published(evaluation: Evaluation) -> Table | None:
    kind = evaluation.scenario.indices
    columns = {
        key: column for key, column in published_indices.published_indices(evaluation)._asdict().items() if column
    }
    rows = []
    for name in columns.get("measured", {}):
        quantity, _, unit = name.rpartition("_")
        numbers = published_indices.numbers(kind, name).items()
        meaning = ", ".join(f"{number} in the {order}" for order, number in numbers)
        values = [rounded(column.get(name)) for column in columns.values()]
        rows.append(Row(quantity.replace("_", " "), values, UNIT_BY_WORD[unit], meaning))
    return Table(f"Indices of {kind}", list(columns), rows) if rows else None


def response(evaluation: Evaluation) -> Table:
    errors = response_errors(evaluation)
    rows = [
        Row(title, [rounded(row[key]) for row in errors.values()], "%", DEFINITIONS[name].meaning)
        for name, (title, key) in RESPONSE.items()
    ]
    return Table("Error of", list(errors), rows)


def timing(run: Run) -> Table:
    shown = _USUAL if run.in_lockstep else _PERCENTILES
    loop, *clocks_of_host = (
        (title, run.timing.get(key, {})) for key, title in clocks(run.information.get("host", ""))
    )
    hops = run.timing.get("hops", {})
    timed = [loop, *((title, hops.get(key, {})) for key, title in HOPS), *clocks_of_host]
    for peer, clock in run.timing.get("clocks", {}).items():
        way = {"median_s": clock["round_trip_median_s"], "max_s": clock["round_trip_max_s"]}
        timed.append((f"round trip to the machine of the {peer} node", way))
    rows = [Row(title, [rounded(clock.get(key), US) for key in shown.values()], "µs") for title, clock in timed]
    return Table("", list(shown), [row for row in rows if {*row.values} != {DASH}]).without_gaps()


def paced(run: Run) -> str:
    if run.in_lockstep:
        return "The test ran in lockstep, as fast as the machine allowed, so no servo period limits its times."
    return f"The servo period is {quantity(run.scenario.dt, US, 'µs', 3)}."


_SHOWN = {
    "m": (MM, "mm"),
    "m/s": (MM, "mm/s"),
    "N": (KN, "kN"),
    "N/s": (KN, "kN/s"),
    "samples": (1.0, "samples"),
    "1": (100.0, "%"),
}


def limits(evaluation: Evaluation) -> Table:
    run, rows = evaluation.run, []
    levels, called = run.timing.get("levels", {}), axis_names(evaluation.scenario)
    for index, (axis, limit) in enumerate(evaluation.scenario.limits.items()):
        if run.made_elsewhere and not limit.are_stated:
            continue
        reached = _of_load(run, axis, limit) if limit.of_force else _of_motion(run, index, axis, limit)
        for name, unit, largest, values in reached:
            finite = values[np.isfinite(values)]
            if largest is not None and len(finite):
                ends = (-largest, float(finite.min()), float(finite.max()), largest)
                rows.append(_limit(called[axis], name, ends, _SHOWN[unit], DASH, STOP))
        for name, level in (limit.levels.in_effect() if limit.levels else {}).items():
            numbers = levels.get(axis, {}).get(name, {})
            rows.append(_level(called[axis], name, level, numbers, QUANTITIES[name].unit))
    of_rig = evaluation.scenario.levels.in_effect(simulated=False, rate=evaluation.scenario.servo_rate)
    for name, numbers in levels.get(WHOLE_RIG, {}).items():
        rows.append(_level(WHOLE_RIG, name, of_rig[name], numbers, unit_of_level(name, of_rig[name])))
    heads = ["minimum", "lowest", "highest", "maximum", "used, %", "samples told", "action"]
    return Table("Limit", heads, rows).without_gaps()


_Reached = tuple[tuple[str, str, Any, Array], ...]


def _of_motion(run: Run, index: int, axis: str, limit: Limits) -> _Reached:
    rig, measured, command = run.scenario.axes[axis].rig_axis, run.displacement[:, index], run.command[:, index]
    altered = rig is not None and (rig.corrections or rig.feedback_filter) is not None
    return (
        ("stroke", "m", limit.stroke, np.append(measured, command)),
        ("velocity of commands", "m/s", limit.velocity, run.rates(command)),
        ("force, as corrected" if altered else "force", "N", limit.force, run.force[:, index]),
        ("tracking_error", "m", limit.tracking_error, run.target[:, index] - measured),
    )


def _of_load(run: Run, axis: str, limit: Limits) -> _Reached:
    loads = run.loads
    assert loads is not None
    index = loads.names.index(axis)
    held, command = loads.held[:, index], loads.command[:, index]
    return (
        ("stroke", "m", limit.stroke, np.append(loads.displacement[:, index], held)),
        ("velocity of commands", "m/s", limit.velocity, run.rates(held)),
        ("force", "N", limit.force, np.append(loads.force[:, index], command)),
        ("force_rate", "N/s", limit.force_rate, run.rates(command)),
        ("force_error", "N", limit.force_error, loads.error[:, index]),
    )


def loads(evaluation: Evaluation) -> Table:
    metrics = evaluation.run.metrics.get("force_axes", {})
    called = axis_names(evaluation.scenario)
    return Table("Load on", [called[axis] for axis in metrics], _rows(_LOADS, metrics.values()) if metrics else [])


def _level(axis: str, name: str, level: Level, numbers: Mapping[str, float], unit: str) -> Row:
    ends = (level.minimum, numbers.get("lowest"), numbers.get("highest"), level.maximum)
    shown = (1.0, unit) if isinstance(level, OfExpression) else _SHOWN[unit]
    return _limit(axis, f"level of {name}", ends, shown, rounded(numbers.get("samples"), digits=9), level.action)


def _limit(
    axis: str, name: str, ends: Sequence[object], shown: tuple[float, str], samples: str, action: str
) -> Row:
    low, lowest, highest, high = map(number, ends)
    used = [value / end for value, end in ((lowest, low), (highest, high)) if value is not None and end]
    values = [*(rounded(end, shown[0]) for end in ends), rounded(max(used, default=None), 100.0), samples, action]
    return Row(f"{axis}: {name.replace('_', ' ')}", values, shown[1])


def flagged(run: Run) -> list[str]:
    counts = [f"{n} {noun}" for flag, noun in _FLAGGED if (n := int(((run.flags & flag) != 0).sum()))]
    clean = "No sample was bridged, slipped or saturated."
    timed = ((title, number(run.timing.get(name))) for title, name in _COUNTED)
    notes = (*frozen_notes(run.metrics), *level_notes(run.timing), *clock_notes(run.timing))
    return [
        f"Flagged samples: {', '.join(counts)}." if counts else clean,
        *(f"The test {note}." for note in pause_notes(run.timing)),
        *(f"{title}: {count:.0f}." for title, count in timed if count is not None),
        *(f"{note}." for note in notes),
    ]
