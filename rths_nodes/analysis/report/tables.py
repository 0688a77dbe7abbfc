# SPDX-License-Identifier: Apache-2.0
"""Tables of the report: indices, response, limits, loads, timing, set-up, sensors and parameters of a test."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.analysis import published_indices
from rths_nodes.analysis.cautions import cautions
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.index_definitions import AXIS_INDICES, DEFINITIONS, RESPONSE, TEST_INDICES, Kind
from rths_nodes.analysis.report.procedure import Part, grid
from rths_nodes.analysis.response_errors import response_errors
from rths_nodes.analysis.share_of_structure import Partition, partition
from rths_nodes.analysis.study_table import UNIT_BY_WORD
from rths_nodes.analysis.units import DASH, HOPS, KN, MM, PERCENT, US, clocks, exact, number, quantity, rounded
from rths_nodes.core import registry, samples
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.limits import QUANTITIES, STOP, Level, Limits, OfExpression, unit_of_level
from rths_nodes.core.parameters import Spec, declared, is_params, type_of
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import to_data
from rths_nodes.laboratory.calibration import Channel
from rths_nodes.laboratory.corrections import corrections_in_words
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario.judgement import Judgement
from rths_nodes.loop.scenario.schema import Scenario, axis_names, simulation
from rths_nodes.loop.stages.frozen import frozen_notes
from rths_nodes.loop.supervision.levels import WHOLE_RIG, level_notes
from rths_nodes.loop.timing import clock_notes, pause_notes
from rths_nodes.recording.run import Run


class Row(NamedTuple):
    """Row of a table. ``values`` holds one value for each column, or a single value for all columns."""

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
_COUNTED = (("Missed ticks", "missed"), ("Commands received too late to be sent to the rig", "late_commands"))
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
    Kind("Largest force error", "max_force_error_n", KN, "kN", _WHILE_FORCE),
    Kind("Largest force error, relative", "max_force_error_percent", 1.0, "%", "as a share of the largest target"),
    Kind("RMS force error", "rms_force_error_n", KN, "kN", ""),
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
    """Return the table of indices, or None if it is empty. Each axis has two columns if true values are known."""
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
        timed.append((f"round trip to the host of the {peer} node", way))
    rows = [Row(title, [rounded(clock.get(key), US) for key in shown.values()], "µs") for title, clock in timed]
    return Table("", list(shown), [row for row in rows if {*row.values} != {DASH}]).without_gaps()


def paced(run: Run) -> str:
    if run.in_lockstep:
        return "The test ran in lockstep, as fast as possible, so no servo period limits these durations."
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
    heads = ["minimum", "lowest", "highest", "maximum", "used, %", "samples beyond", "action"]
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


MODES = 8
_CHANNELS = ("displacement", "force", "command")
_HEADS = (
    *("Channel", "Sensor", "Unit", "± range", "scale", "sign", "resolution", "noise"),
    *("Calibrated", "Certificate"),
)
_COLUMNS = (("mass, t", 1e-3), ("damping, kN s/m", KN), ("stiffness, kN/mm", KN / MM))


def set_up(evaluation: Evaluation, record: ProcedureRecord | None) -> list[Part]:
    rest = [_sensors(evaluation.scenario), _cautions(evaluation)]
    if evaluation.scenario.structure is None:
        none = Part("Partition", words=("No structure is computed, because the displacements are prescribed.",))
        return [none, *rest]
    checks = record.checks.items() if record else ()
    measured = {axis: row.stiffness for axis, row in checks if row.stiffness is not None}
    split: Partition | None = evaluation.or_left_out(
        "partition of the structure", lambda: partition(evaluation.assembly, measured), None
    )
    return [*([] if split is None else [_partition(split), _modes(split)]), *rest]


def _cautions(evaluation: Evaluation) -> Part:
    day, simulated = date.today(), bool(simulation(evaluation.scenario))
    with suppress(ValueError):
        day = date.fromisoformat(evaluation.run.information.get("started", "")[:10])
    nothing: list[Judgement] = []
    result = evaluation.or_left_out("cautions", lambda: cautions(evaluation.scenario, simulated, day), nothing)
    return Part("Cautions", words=() if result else ("None.",), items=tuple(map(str, result)))


def _partition(partition: Partition) -> Part:
    rows = []
    for index, name in enumerate(partition.names):
        row = [name]
        for numerical, tested, (_, factor) in zip(
            partition.numerical, partition.experimental, _COLUMNS, strict=True
        ):
            lab = rounded(tested[index, index], factor) if partition.source else DASH
            row += [rounded(numerical[index, index], factor), lab]
        rows.append(row)
    heads = [f"{title}: {part}" for title, _ in _COLUMNS for part in ("numerical", "experimental")]
    unknown = "is unknown, because neither the structure nor a model of the specimen states it"
    whence = f"is taken {partition.source}" if partition.source else unknown
    notes = (
        "The values are the diagonal elements of the matrices, by degree of freedom. The experimental part "
        f"{whence}.",
    )
    return Part("Partition: numerical and experimental", words=notes, grid=grid(("", *heads), rows))


def _modes(partition: Partition) -> Part:
    title = "Natural frequencies and damping of the whole structure"
    unknown = "The modes are unknown, because the experimental part of the structure is not stated."
    if not len(partition.frequencies):
        return Part(title, words=(unknown,))
    rows = [
        [str(mode), rounded(f), rounded(1.0 / f if f > 0.0 else math.nan), rounded(ratio, PERCENT)]
        for mode, (f, ratio) in enumerate(zip(partition.frequencies[:MODES], partition.ratios, strict=False), 1)
    ]
    notes = ["The modes belong to both substructures together, at small motion and without actuators."]
    if left := len(partition.frequencies) - len(rows):
        notes.append(f"Number of further modes up to {partition.frequencies[-1]:.4g}\u00a0Hz: {left}.")
    heads = ("Mode", "frequency, Hz", "period, s", "damping, %")
    return Part(title, words=tuple(notes), grid=grid(heads, rows))


def _sensors(scenario: Scenario) -> Part:
    called, rows, corrected = axis_names(scenario), [], []
    for name, axis in scenario.axes.items():
        if rig := axis.rig_axis:
            rows += [_channel(f"{called[name]}: {noun}", getattr(rig, noun)) for noun in _CHANNELS]
            if corrections := corrections_in_words(rig, scenario.port.builds_axes):
                corrected.append(f"{called[name]}: {'; '.join(corrections)}.")
    auxiliary = scenario.rig_file.auxiliary if scenario.rig_file else {}
    rows += [_channel(name, channel) for name, channel in auxiliary.items()]
    if not rows:
        simulated = [
            [
                name,
                *_simulated(axis.sensors, "displacement", MM, "mm"),
                *_simulated(axis.sensors, "force", KN, "kN"),
            ]
            for name, axis in scenario.axes.items()
        ]
        keys = [f"{noun}: {key}" for noun in ("displ.", "force") for key in ("range", "resolution", "noise")]
        none = "The test has no rig file, so the sensors are simulated and have no calibration."
        table = grid(("Axis", *keys), simulated)
        ideal = () if table else ("The sensors have neither range nor resolution nor noise.",)
        return Part("Sensors", words=(none, *ideal), grid=table)
    dated = all(row[8] != DASH for row in rows if not row[0].endswith(": command"))
    undated = [] if dated else ["A channel without a date has no calibration in the rig file."]
    return Part("Sensors and channels of the rig file", words=(*undated, *corrected), grid=grid(_HEADS, rows))


def _channel(title: str, channel: Channel) -> list[str]:
    numbers = (channel.range, channel.scale, channel.sign, channel.resolution, channel.noise_rms)
    cells = [f"{value:g}" if value else DASH for value in numbers]
    about = (channel.calibrated or DASH, channel.certificate or DASH)
    return [title, channel.sensor or DASH, channel.unit, *cells, *about]


def _simulated(sensors: object, noun: str, factor: float, unit: str) -> list[str]:
    values = (getattr(sensors, f"{noun}_{key}") for key in ("range", "resolution", "noise_rms"))
    return [quantity(value, factor, unit, 3) if value else DASH for value in values]


def floors(scenario: Scenario) -> dict[str, float]:
    """Return the smallest detectable rms error (m) of each axis: sqrt(noise^2 + resolution^2 / 12)."""
    result = {}
    for name, axis in scenario.axes.items():
        if axis.rig_axis is not None:
            channel = axis.rig_axis.displacement
            noise, step = (value * channel.unit_si for value in (channel.noise_rms, channel.resolution))
        else:
            noise, step = axis.sensors.displacement_noise_rms, axis.sensors.displacement_resolution or 0.0
        result[name] = float(np.hypot(noise, step / math.sqrt(12.0)))
    return result


def floor(evaluation: Evaluation, record: ProcedureRecord | None) -> Part:
    title = "Error and floor of the sensor"
    if len(evaluation.counted) < 2:
        return Part(title)
    run, floors_of_axes, called = evaluation.run, floors(evaluation.scenario), axis_names(evaluation.scenario)
    before = record.offsets_before.axes if record and record.offsets_before else {}
    rows = []
    for index, axis in enumerate(run.axes):
        target = run.target[evaluation.counted, index]
        error = target - run.displacement[evaluation.counted, index]
        seen = before[axis].displacement_scatter if axis in before else math.nan
        noise = floors_of_axes[axis] or math.nan
        sizes = [[float(np.abs(x).max()), float(np.sqrt(np.mean(x**2)))] for x in (error, target)]
        row = [called[axis]]
        for of_error, of_target in zip(*sizes, strict=True):
            row += [rounded(of_error, MM), rounded(of_error / of_target if of_target else math.nan, PERCENT)]
        most = np.fmax(noise, seen if seen > 0.0 else math.nan)
        rows.append([*row, rounded(noise, MM), rounded(seen, MM), rounded(sizes[0][1] / most)])
    if all(row[-1] == DASH for row in rows):
        return Part(
            title, words=("No displacement sensor has a stated noise or resolution, so no floor is known.",)
        )
    heads = (
        *(
            "Axis",
            "largest error, mm",
            "largest error, % of target",
            "rms error, mm",
            "rms error, % of rms target",
        ),
        *("floor of the sensor, mm", "scatter at rest, mm", "rms error divided by floor"),
    )
    notes = (
        "The floor of a sensor is the rms of its noise and resolution, √(noise² + resolution²/12), from the rig "
        "file or the simulated sensor. The scatter at rest is the rms while the offsets were taken.",
    )
    return Part(title, words=notes, grid=grid(heads, rows))


LEFT_OUT = ("version", "name", "description", "cases", "scatter")
"""Keys of a scenario that the header of the page shows, or that apply only to other runs."""
ELSEWHERE = tuple(f"rig_axis.{key}." for key in ("displacement", "force", "command", "limits"))
"""Prefixes of parameters that are listed in other tables."""
SECTIONS = ("component", "section")


class Section(NamedTuple):
    title: str
    type: str
    meaning: str
    table: Table


def parameters(scenario: Scenario, defaults: bool = True) -> list[Section]:
    test: list[Row] = []
    result: list[Section] = []
    for name, spec in declared(type(scenario)).items():
        built, title = getattr(scenario, name), name.replace("_", " ").capitalize()
        if name == "axes":
            title = "Axes" if len(built) > 1 else f"Axis {next(iter(built))}"
            rows_by_axis = {axis: list(_inside(built[axis], defaults)) for axis in built}
            result.append(Section(title, "", "", _side_by_side(rows_by_axis)))
        elif spec.kind in SECTIONS and built is not None:
            kind = _type("", built, spec.family) if spec.family else Row("", [""], "")
            rows = list(_inside(built, defaults))
            if rows or kind.values[0]:
                result.append(Section(title, kind.values[0], kind.meaning, _side_by_side({name: rows})))
        elif spec.kind not in SECTIONS and name not in LEFT_OUT and (defaults or _chosen(built, spec)):
            test.append(_plain(name, built, spec))
    return [Section("Test", "", "", _side_by_side({"": test})), *result]


def _chosen(value: object, spec: Spec) -> bool:
    return bool(to_data(value) != to_data(spec.left_out))


def _side_by_side(axes: Mapping[str, list[Row]]) -> Table:
    if len(axes) == 1:
        return Table("Parameter", ["Value"], *axes.values())
    by_axis = [{row.title: row for row in rows} for rows in axes.values()]
    names = list(dict.fromkeys(name for rows in by_axis for name in rows))
    parts = [name.partition(".")[0] for name in names]
    result = []
    for name in sorted(names, key=lambda name: parts.index(name.partition(".")[0])):  # keep sections together
        present = [rows[name] for rows in by_axis if name in rows]
        meanings = dict.fromkeys(row.meaning for row in present)
        values = [rows[name].values[0] if name in rows else DASH for rows in by_axis]
        unit = next((row.unit for row in present if row.unit), "")
        result.append(Row(name, values, unit, "; ".join(filter(None, meanings))))
    return Table("Parameter", list(axes), result)


def _type(name: str, component: object, family: str) -> Row:
    description = ""
    with suppress(ConfigError):
        description = registry.description(family, type_of(component)).rstrip(".")
    return Row(name, [type_of(component)], "", description)


def _inside(built: object, defaults: bool, path: str = "") -> Iterator[Row]:
    for key, spec in declared(type(built)).items():
        value, name = getattr(built, key), join(path, key)
        named = isinstance(value, Mapping) and spec.kind in ("sections", "components")
        parts = {join(name, inner): entry for inner, entry in value.items()} if named else {name: value}
        for heading, part in parts.items():
            if is_params(part):
                if type_of(part):
                    yield _type(heading, part, spec.family)
                yield from _inside(part, defaults, heading)
            elif defaults or (_chosen(part, spec) and not heading.startswith(ELSEWHERE)):
                yield _plain(heading, part, spec)


def _plain(name: str, value: object, spec: Spec) -> Row:
    unit = "" if spec.unit == "1" else spec.unit.replace("^2", "²")
    return Row(name, [exact(to_data(value))], unit if value is not None else "", spec.doc)
