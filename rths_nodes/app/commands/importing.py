# SPDX-License-Identifier: Apache-2.0
"""``rths import``: convert the data of a test from another program into a recording.

Without a scenario, the components have the type ``elsewhere``. The histories can then be viewed and fitted, but
not recomputed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.app.commands import arguments
from rths_nodes.app.hosts import open_writer, recorded_topics
from rths_nodes.core import yaml_text
from rths_nodes.core.errors import ConfigError, Problems, unknown, within
from rths_nodes.core.expressions import FORCES
from rths_nodes.core.limits import WIDEST, Limits
from rths_nodes.core.parameters import integer, number, params, section, sections, text
from rths_nodes.core.samples import Array, Command, Measurement, Target
from rths_nodes.core.tables import ACCELERATIONS, LENGTHS, TIMES, VELOCITIES, Placed, Table, column
from rths_nodes.core.text_files import LARGEST
from rths_nodes.core.validation import from_data, to_data
from rths_nodes.loop.embedded import Outcome
from rths_nodes.loop.options import LOCKSTEP
from rths_nodes.loop.provenance import hashes, information
from rths_nodes.loop.scenario.assembly import Assembly, Names
from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.supervision.states import State
from rths_nodes.numerical.ground_motions.readers.columns import FormatError, even_step
from rths_nodes.recording import bag
from rths_nodes.recording.reading import recorded_scenario
from rths_nodes.recording.run import ELSEWHERE
from rths_nodes.recording.sink import RecordingSink

AXIS = ("target", "command", "displacement", "force")
MOTION = ("displacement", "velocity", "acceleration")
FEWEST = 3
SLOWEST, FASTEST = 10.0, 100e3
"""Range of plausible sample rates, Hz. Any other rate suggests that the unit of the times is wrong."""
SPIKE = 20.0
"""Largest displacement step that is accepted as noise, as a multiple of the 99 % quantile of all steps."""
FAR = 10.0
"""Largest accepted value, as a multiple of its limit. The unit of a larger value must be wrong."""


@params
class AxisColumns:
    target: Placed | None = column(LENGTHS, "target of the axis; default: the command", optional=True)
    command: Placed | None = column(LENGTHS, "command sent to the actuator; default: the target", optional=True)
    displacement: Placed = column(LENGTHS, "measured displacement")
    force: Placed | None = column(FORCES, "measured force; default: unknown", optional=True)
    limits: Limits | None = section(Limits, "limits of the axis; not allowed with a scenario", None)

    def validate(self, path: str) -> None:
        if self.target is None and self.command is None:
            raise ConfigError(f"{path}: must have a target or a command")


@params
class Motion:
    """Columns of a degree of freedom, with one row per sample. Only the last sample of each step is used."""

    displacement: Placed = column(LENGTHS, "displacement of the numerical substructure")
    velocity: Placed | None = column(VELOCITIES, "velocity; default: unknown", optional=True)
    acceleration: Placed | None = column(ACCELERATIONS, "acceleration; default: unknown", optional=True)


@params
class Columns:
    """Map from the columns of a file to quantities."""

    version: int = integer("version of this file format", at_least=1, at_most=1)
    name: str = text("name of the test", "")
    servo_rate: float | None = number("sample rate; default: derived from the times", "Hz", None, more_than=0.0)
    time: Placed | None = column(TIMES, "times of the samples, evenly spaced", optional=True)
    axes: dict[str, AxisColumns] = sections(AxisColumns, "columns of each axis, by name of the axis")
    degrees_of_freedom: dict[str, Motion] = sections(
        Motion, "columns of the numerical substructure, by name of the degree of freedom", optional=True
    )

    def validate(self, path: str) -> None:
        if (self.servo_rate is None) == (self.time is None):
            presence = "both are given" if self.time is not None else "neither is given"
            raise ConfigError(f"give exactly one of servo_rate and time; {presence}")


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """Holds a test from another program, in SI units. Unknown values are NaN.

    The histories ``moved`` (displacement), ``velocity`` and ``acceleration`` have the shape ``(n, n_dof)``; the
    other histories have the shape ``(n, n_axes)``.
    """

    scenario: Scenario
    cautions: tuple[str, ...]
    dof_names: tuple[str, ...]
    target: Array
    command: Array
    displacement: Array
    force: Array
    moved: Array
    velocity: Array
    acceleration: Array

    @property
    def names(self) -> Names:
        dof = self.dof_names
        return Names(dof, dof, dof, self.scenario.moved_axes, (), (), ())

    def send(self, *sinks: Any) -> None:
        per_step = self.scenario.samples_per_step
        self._send_target(0, sinks)
        for sample in range(len(self.target)):
            target, command = self.target[sample], self.command[sample]
            for sink in sinks if sample else ():
                sink.command(Command(sample, target, command))
            for sink in sinks:
                sink.measurement(Measurement(sample, self.displacement[sample], self.force[sample], command))
            if sample % per_step == 0 and sample + per_step < len(self.target):
                self._send_target(sample + per_step, sinks)

    def _send_target(self, sample: int, sinks: Iterable[Any]) -> None:
        step, no = sample // self.scenario.samples_per_step, np.full(len(self.dof_names), math.nan)
        x, v, a = self.moved[sample], self.velocity[sample], self.acceleration[sample]
        for sink in sinks:
            sink.target(Target(step, x, v, a, no, no, no))


def read(file: Path, columns: Path, scenario: Scenario | None = None, most: int = LARGEST) -> Elsewhere:
    """Read ``file`` (at most ``most`` bytes) with the map in the file ``columns``, as a test of ``scenario``.

    Raises ConfigError if ``file`` or the map is invalid, or if they do not match each other or the scenario.
    """
    wanted = read_map(columns)
    with within(str(columns)):
        histories = _Histories(wanted, Table(file, most))
        if scenario is None:
            return histories.of(_new_scenario(wanted, histories))
        fitting = _fitting(scenario, wanted, histories)
        return histories.of(fitting, Assembly(fitting).names.observed)


def read_map(path: Path) -> Columns:
    data = yaml_text.parse(yaml_text.source_of(path, str(path)), str(path))
    with within(str(path)):
        return from_data(Columns, data)


class _Histories:
    def __init__(self, wanted: Columns, table: Table) -> None:
        self._lengths = dict[str, int]()
        times = None if wanted.time is None else self._numbers(wanted.time, table, "time")
        self.rate = float(wanted.servo_rate or 0.0) if times is None else _rate(times)
        self.axes = {
            name: self._axis(columns_of_axis, table, f"axes.{name}")
            for name, columns_of_axis in wanted.axes.items()
        }
        self.dof = {
            name: [
                self._numbers(getattr(columns_of_axis, key), table, f"degrees_of_freedom.{name}.{key}")
                for key in MOTION
            ]
            for name, columns_of_axis in wanted.degrees_of_freedom.items()
        }
        if len(set(self._lengths.values())) > 1:
            lengths = ", ".join(f"{path} {count}" for path, count in self._lengths.items())
            raise ConfigError(f"the columns have different lengths: {lengths}")
        self.samples = next(iter(self._lengths.values()))
        self.cautions = list(table.notes)
        if times is not None and not SLOWEST <= self.rate <= FASTEST:
            self.cautions.append(
                f"time: the rate is {self.rate:g} Hz, but rates of {SLOWEST:g} to {FASTEST:g} Hz are usual; check "
                "time.unit"
            )

    def _axis(self, columns: AxisColumns, table: Table, path: str) -> list[Array | None]:
        values = [self._numbers(getattr(columns, key), table, f"{path}.{key}") for key in AXIS]
        target, command, *measured = values
        return [command if target is None else target, target if command is None else command, *measured]

    def _numbers(self, column: Placed | None, table: Table, path: str) -> Array | None:
        if column is None:
            return None
        values = column.read(table, path)
        if len(values) < FEWEST:
            raise ConfigError(f"{path}: has {len(values)} samples, but must have at least {FEWEST}")
        self._lengths[path] = len(values)
        return values

    def of(self, scenario: Scenario, dof_names: Sequence[str] = ()) -> Elsewhere:
        """Return the histories as a test of ``scenario``.

        ``dof_names`` defaults to the degrees of freedom of the map or, if the map has none, to the axes.
        """
        names, nothing = tuple(dof_names) or tuple(self.dof or self.axes), [None] * len(MOTION)
        sources = {name: [row[0], None, None] for name, row in self.axes.items()} | self.dof
        for name in self.dof:
            if name not in names:
                raise unknown("degrees_of_freedom", "degree of freedom", name, names)
        for name, columns in self.axes.items():
            if not scenario.axes[name].limits.are_stated:
                self.cautions.append(f"axes.{name}.limits: missing, so that the units cannot be checked")
            self.cautions += _beyond(columns, scenario.axes[name].limits, self.rate, f"axes.{name}")
        samples = scenario.samples + 1
        axes = [_side_by_side(columns, samples) for columns in zip(*self.axes.values(), strict=True)]
        dof = zip(*[sources.get(name, nothing) for name in names], strict=True)
        return Elsewhere(
            scenario, tuple(self.cautions), names, *axes, *[_side_by_side(columns, samples) for columns in dof]
        )


def _side_by_side(columns: Sequence[Array | None], samples: int) -> Array:
    return np.column_stack(
        [np.full(samples, math.nan) if column is None else column[:samples] for column in columns]
    )


def _beyond(columns: Sequence[Array | None], limits: Limits, rate: float, path: str) -> Iterator[str]:
    for key, values in zip(AXIS, columns, strict=True):
        if values is None:
            continue
        name, limit, units = (
            ("force", limits.force, FORCES) if key == "force" else ("stroke", limits.stroke, LENGTHS)
        )
        unit = next(iter(units))
        row = int(np.argmax(np.abs(values)))
        peak = abs(float(values[row]))
        excess = f"{path}.{key}: {peak:.4g} {unit} in row {row + 1} exceeds limits.{name} = {limit:g} {unit}"
        if peak > FAR * limit:
            raise ConfigError(f"{excess}; check {path}.{key}.unit")
        if peak > limit:
            yield excess
        if key == "force":
            continue
        steps = np.abs(np.diff(values))
        row = int(np.argmax(steps))
        speed, usual = rate * float(steps[row]), float(np.quantile(steps, 0.99))
        if speed > limits.velocity and (key != "displacement" or steps[row] > SPIKE * usual):
            yield (
                f"{path}.{key}: {speed:.4g} m/s from row {row + 1} to row {row + 2} exceeds "
                f"limits.velocity = {limits.velocity:g} m/s"
            )


def _rate(times: Array) -> float:
    try:
        step, tolerance, odd = even_step(times)
    except FormatError as error:
        raise ConfigError(f"time: {error}") from None
    if odd is not None:
        gaps = np.diff(times)
        digits = max(9, 3 + int(np.ceil(np.log10(np.abs(times).max() / (np.abs(gaps).max() or 1.0)))))
        raise ConfigError(
            f"time: {times[odd + 1]:.{digits}g} s in row {odd + 2} is {gaps[odd]:.4g} s after the previous row; "
            f"the steps must be even, {np.median(gaps):.4g} s each"
        )
    rate = 1.0 / step
    if rate >= 1.0 and abs(rate - round(rate)) * (times[-1] - times[0]) <= tolerance * rate:  # rounded times
        return float(round(rate))
    return float(f"{rate:.6g}")


def _new_scenario(wanted: Columns, histories: _Histories) -> Scenario:
    if not wanted.name:
        raise ConfigError("name: missing; required without a scenario")
    nobody = {"type": ELSEWHERE}
    axes = {
        name: {"actuator": nobody, "specimen": nobody, "limits": to_data(axis.limits or WIDEST)}
        for name, axis in wanted.axes.items()
    }
    data = {
        "version": 1,
        "name": wanted.name,
        "servo_rate": histories.rate,
        "substeps": 1,
        "duration": (histories.samples - 1) / histories.rate,
        "seed": 0,
        "integrator": nobody,
        "compensator": nobody,
        "axes": axes,
    }
    return recorded_scenario(yaml_text.dump(data), "the test")


def _fitting(scenario: Scenario, wanted: Columns, histories: _Histories) -> Scenario:
    problems = Problems()
    if tuple(wanted.axes) != scenario.moved_axes:
        moved, named = ", ".join(scenario.moved_axes), ", ".join(wanted.axes)
        problems.append(f"axes = {named}: must be {moved}, as in {scenario.name}")
    for name, axis in wanted.axes.items():
        if axis.limits is not None:
            problems.append(f"axes.{name}.limits: must be left out, because the scenario has limits")
    if abs(histories.rate - scenario.servo_rate) > 1e-4 * scenario.servo_rate:
        problems.append(
            f"the rate is {histories.rate:.9g} Hz, but must be {scenario.servo_rate:.9g} Hz, as in {scenario.name}"
        )
    problems.refuse()
    steps = (histories.samples - 1) // scenario.samples_per_step
    return replace(scenario, [(["soft_start"], None), (["duration"], steps * scenario.step)])


def add_arguments(add: arguments.Arguments) -> None:
    add("file", "file with histories: text in columns, MATLAB, HDF5 or netCDF")
    add("columns", "YAML file that assigns columns and units to quantities (doc/import.md)")
    add("--record DIR", "new directory for the recording", required=True)
    add("--largest MIB", "maximum size of the file, and of its numbers in memory, MiB", LARGEST >> 20)
    add("--scenario", "scenario of the test (optional): name of a shipped scenario or path of a YAML file")
    add.scenario(names=("--rig", "--set", "--case"))


def run(options: arguments.Options) -> None:
    if not options.scenario and (options.rig or options.set or options.case):
        raise ConfigError("--rig, --set, --case: require --scenario")
    bag.check_free(Path(options.record))
    scenario = arguments.scenario(options) if options.scenario else None
    test = read(Path(options.file), Path(options.columns), scenario, options.largest << 20)
    own_scenario = test.scenario
    about = information(own_scenario, own_scenario.run_id(), ELSEWHERE, LOCKSTEP)
    about |= {"source": f"{Path(options.file).name}, sha256 {hashes([options.file])[options.file]}"}
    writer = open_writer(options.record, recorded_topics("rths", own_scenario), about)
    recording = RecordingSink(writer, own_scenario, test.names, "rths", about)
    monitor = MonitorStage(own_scenario, len(test.dof_names), math.nan)
    try:
        test.send(recording, monitor)
    except BaseException:
        recording.abandon("the import was aborted")
        raise
    samples = len(test.target) - 1
    recording.close(Outcome(State.FINISHED, "", samples, monitor.metrics(), {}, {}))
    axes = ", ".join(own_scenario.moved_axes)
    for caution in test.cautions:
        print(f"caution: {caution}")
    print(
        f"{options.record}: {axes}, {samples} samples at {own_scenario.servo_rate:g} Hz, "
        f"{own_scenario.duration:g} s"
    )
