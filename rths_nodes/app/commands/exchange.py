# SPDX-License-Identifier: Apache-2.0
"""Commands that exchange recordings with other programs.

``rths export``: write recordings as CSV, MATLAB or HDF5 files, or as a DesignSafe archive.

Each exported file contains the units (SI) of its histories. The groups of histories are ``samples`` (axes),
``steps`` (degrees of freedom) and ``updating`` (quantities of updated models).

``rths import``: convert the data of a test from another program into a recording.

Without a scenario, the components have the type ``elsewhere``. The histories can then be viewed and fitted, but
not recomputed.
"""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.hosts import open_writer, recorded_topics
from rths_nodes.core import tables, text_files, yaml_text
from rths_nodes.core.errors import ConfigError, Problems, unknown, within
from rths_nodes.core.expressions import FORCES
from rths_nodes.core.limits import WIDEST, Limits
from rths_nodes.core.parameters import integer, number, params, section, sections, text
from rths_nodes.core.samples import Array, Command, Measurement, Target
from rths_nodes.core.tables import ACCELERATIONS, LENGTHS, TIMES, VELOCITIES, Placed, Table, column, even_step
from rths_nodes.core.text_files import LARGEST
from rths_nodes.core.validation import from_data, to_data
from rths_nodes.loop.embedded import Outcome
from rths_nodes.loop.options import LOCKSTEP
from rths_nodes.loop.provenance import hashes, information
from rths_nodes.loop.scenario import files as scenarios
from rths_nodes.loop.scenario.assembly import Assembly, Names
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import bag, procedure
from rths_nodes.recording.reading import read_run, recorded_scenario
from rths_nodes.recording.run import (
    ELSEWHERE,
    Run,
    facts_of,
    groups_of,
    samples_of,
    steps_of,
    write_csv,
    write_mat,
)
from rths_nodes.recording.sink import RecordingSink

GLOBAL, COORDINATOR = "global_model", "coordinator"
SIMULATED, TESTED = "simulation_substructure", "experimental_substructures"
OUTPUT, REPORT = "output", "report"
NUMERICAL = ("structure", "reduction", "ground_motion", "interface", "soft_start", "seed")
RIG = ("axes", "rig", "port", "rig_file")
HEAD = ("version", "name", "description")

FORMS, ARCHIVE = ("csv", "mat", "hdf5"), "designsafe"
ENDINGS = {"mat": ".mat", "hdf5": ".h5"}


def write_hdf5(run: Run, path: Path) -> None:
    h5py = tables.hdf5("HDF5")
    content = io.BytesIO()  # h5py fails with tracebacks on a full disk
    with h5py.File(content, "w") as file:
        file.attrs.update(facts_of(run))
        for group, histories in groups_of(run):
            for history in histories:
                item = file.create_dataset(f"{group}/{history.name}", data=history.values, compression="gzip")
                item.attrs["unit"] = history.unit
                item.attrs["columns"] = list(history.columns)
    text_files.write(path, content.getvalue())


def write(run: Run, stem: Path, form: str) -> Iterator[Path]:
    if form == "csv":
        for name, histories in groups_of(run):
            path = stem.with_name(f"{stem.name}_{name}.csv")
            write_csv(histories, path)
            yield path
        return
    path = stem.with_name(stem.name + ENDINGS[form])
    (write_mat if form == "mat" else write_hdf5)(run, path)
    yield path


def write_archive(runs: Mapping[str, Run], folder: Path) -> Iterator[Path]:
    """Write tests in DesignSafe's layout and yield the path of each file. Raises OSError if a write fails."""
    from rths_nodes.analysis.report.document import write_report

    first = next(iter(runs.values()))
    data = first.scenario.data()
    head = {name: data[name] for name in HEAD if name in data}
    coordinator = {name: value for name, value in data.items() if name not in (*HEAD, *NUMERICAL, *RIG)}
    of_rig = {name: value for name, value in data.items() if name in RIG and name != "axes"}
    yield _text(folder / GLOBAL / "scenario.yaml", yaml_text.dump(data))
    yield _text(folder / COORDINATOR / "settings.yaml", yaml_text.dump(head | coordinator))
    model = {name: data[name] for name in NUMERICAL if name in data}
    yield _text(folder / SIMULATED / "model.yaml", yaml_text.dump(head | model))
    for axis, content in data["axes"].items():
        yield _text(folder / TESTED / axis / "rig.yaml", yaml_text.dump(head | of_rig | {"axes": {axis: content}}))
    for name, run in runs.items():
        yield from _outputs(name, run, folder)
        page = folder / REPORT / f"{name}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        write_report(run, page)
        yield page
    yield _text(folder / "README.md", _readme(runs))


def _text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text_files.write(path, text.encode())
    return path


def _outputs(name: str, run: Run, folder: Path) -> Iterator[Path]:
    samples, steps = samples_of(run), steps_of(run)
    time = samples[0]
    for part, histories in ((COORDINATOR, samples), (SIMULATED, steps)):
        path = folder / part / OUTPUT / f"{name}.csv"
        write_csv(histories, path)
        yield path
    for axis in (*run.axes, *(run.loads.names if run.loads is not None else ())):
        files = [
            history._replace(values=history.values[:, [history.columns.index(axis)]], columns=(axis,))
            for history in samples
            if axis in history.columns
        ]
        path = folder / TESTED / axis / OUTPUT / f"{name}.csv"
        write_csv([time, *files], path)
        yield path
    facts = facts_of(run)
    facts.pop("scenario")
    yield _text(folder / COORDINATOR / OUTPUT / f"{name}_test.yaml", yaml_text.dump(facts))


def _readme(runs: Mapping[str, Run]) -> str:
    first = next(iter(runs.values()))
    rows = [
        f"| {name} | {run.ending} | {run.information.get('started', '')} | {len(run.time) - 1} |"
        for name, run in runs.items()
    ]
    lines: list[str] = [
        f"# {first.scenario.name}",
        "",
        first.scenario.description or "A real-time hybrid simulation.",
        "",
        "| test | outcome | started | samples |",
        "|---|---|---|---|",
        *rows,
        "",
        f"- `{GLOBAL}/scenario.yaml`: complete description of the test",
        f"- `{COORDINATOR}`: integrator, ramp, setup, compensator, monitor; `{OUTPUT}`: samples and metadata",
        f"- `{SIMULATED}`: structure and excitation; `{OUTPUT}`: degrees of freedom at all steps",
        f"- `{TESTED}`: actuator, sensors and limits of each axis; `{OUTPUT}`: samples",
        f"- `{REPORT}`: an HTML report of each test",
        "",
        "Tables are CSV files. The first line contains names and units (SI). Empty cells are unknown values.",
        "The exact acceleration, external force and restoring force in a row belong to the step in that row.",
        "These values are missing for the last step. Times and rates refer to the rig.",
        "A rotation has the headers of a translation, but its values are in rad, rad/s, rad/s^2 and N m.",
        "",
    ]
    return "\n".join(lines)


def export_arguments(add: arguments.Arguments) -> None:
    text = "folder of a recording, or of a test with all its rungs; each folder is exported under its own name"
    add("recording", text, nargs="+")
    add("--out DIR", "new or empty folder", required=True)
    add.removed(to="renamed; use --out")
    text = "format: csv, mat (MATLAB), hdf5 or designsafe (hybrid simulations in the DesignSafe archive)"
    add("--form", text, FORMS[0], choices=(*FORMS, ARCHIVE))


def _recordings(path: Path) -> list[tuple[str, Path]]:
    name = path.name if path.name.strip(".") else path.resolve().name
    if not procedure.exists(path):
        return [(name, path)]
    rungs = dict.fromkeys(rung.recording for rung in procedure.read(path).rungs if rung.recording)
    if not (recorded := [(f"{name}_{rung}", path / rung) for rung in rungs if (path / rung).is_dir()]):
        raise ConfigError(f"{path}: no rung of this test was recorded")
    return recorded


def _read(path: Path) -> Run:
    run = read_run(path)
    if (test := procedure.of_recording(path)) is None:
        return run
    record, _ = test
    facts = {"operator": record.operator, "specimen": record.specimen.id, "test": record.test_id}
    facts |= {"laboratory": record.laboratory, "client": record.client}
    return replace(run, information=run.information | {key: value for key, value in facts.items() if value})


def export_command(options: arguments.Options) -> None:
    folder, inputs = Path(options.out), [Path(path) for path in options.recording]
    recordings = [recording for path in inputs for recording in _recordings(path)]
    if len(set(names := [name for name, _ in recordings])) < len(names):
        raise ConfigError(f"the recordings must have different names ({', '.join(names)}). Export them separately")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--out {folder}: exists and is not an empty folder; give a new folder")
    runs = {name: _read(path) for name, path in recordings}
    if empty := [f"{name}: has no samples to export" for name, recorded in runs.items() if not len(recorded.time)]:
        raise ConfigError(*empty)
    for recorded in runs.values():
        terminal.tell(recorded.notes)
    if options.form == ARCHIVE and len({recorded.scenario.name for recorded in runs.values()}) > 1:
        summary = ", ".join(f"{name} {recorded.scenario.name}" for name, recorded in runs.items())
        raise ConfigError(f"--form {ARCHIVE}: all recordings must have the same scenario ({summary})")
    with terminal.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in filter(procedure.exists, inputs):
            print(shutil.copy(path / procedure.FILE, folder / f"{path.resolve().name}_{procedure.FILE}"))
        if options.form == ARCHIVE:
            paths = write_archive(runs, folder)
        else:
            paths = (path for name, run in runs.items() for path in write(run, folder / name, options.form))
        for path in paths:
            print(path)


# Import

AXIS = ("target", "command", "displacement", "force")
MOTION = ("displacement", "velocity", "acceleration")
FEWEST = 3
SLOWEST, FASTEST = 10.0, 100e3
"""Range of plausible sample rates, Hz. Any other rate suggests a wrong unit of time."""
SPIKE = 20.0
"""Largest ratio of a displacement step to the 99 % quantile of all steps that is accepted as noise."""
FAR = 10.0
"""Largest accepted ratio of a value to its limit. A larger ratio indicates a wrong unit."""


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
    """Motion of a degree of freedom in columns, one row per sample. Only the last sample of each step is used."""

    displacement: Placed = column(LENGTHS, "displacement of the numerical substructure")
    velocity: Placed | None = column(VELOCITIES, "velocity; default: unknown", optional=True)
    acceleration: Placed | None = column(ACCELERATIONS, "acceleration; default: unknown", optional=True)


@params
class Columns:
    """Assigns the columns of a file to quantities."""

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
    """Test from another program, in SI units. Unknown values are NaN.

    The histories ``moved`` (displacement), ``velocity`` and ``acceleration`` have the shape ``(n, n_dof)``. The
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
    """Read ``file`` (at most ``most`` bytes) as a test of ``scenario``.

    The file ``columns`` maps columns to quantities. Raises ConfigError if a file is invalid or unsuitable.
    """
    wanted = read_map(columns)
    with within(str(columns)):
        table = Table(file, most)
        histories = _histories(wanted, table)
        times, cautions = histories.get("time"), list(table.notes)
        rate = float(wanted.servo_rate or 0.0) if times is None else _rate(times)
        if times is not None and not SLOWEST <= rate <= FASTEST:
            cautions.append(
                f"time: the rate is {rate:g} Hz, but rates of {SLOWEST:g} to {FASTEST:g} Hz are usual; check "
                "time.unit"
            )
        samples = len(next(iter(histories.values())))
        dof_names = tuple(wanted.degrees_of_freedom or wanted.axes)
        if scenario is None:
            test = _new_scenario(wanted, rate, samples)
        else:
            test = _fitting(scenario, wanted, rate, samples)
            dof_names = Assembly(test).names.observed or dof_names
        for name in wanted.degrees_of_freedom:
            if name not in dof_names:
                raise unknown("degrees_of_freedom", "degree of freedom", name, dof_names)
        for name in wanted.axes:
            limits = test.axes[name].limits
            if not limits.are_stated:
                cautions.append(f"axes.{name}.limits: missing, so the units cannot be checked")
            cautions += _beyond(histories, limits, rate, f"axes.{name}")

    def side_by_side(section: str, names: Iterable[str], key: str) -> Array:
        missing = np.full(test.samples + 1, math.nan)
        return np.column_stack(
            [histories.get(f"{section}.{name}.{key}", missing)[: test.samples + 1] for name in names]
        )

    axes = [side_by_side("axes", wanted.axes, key) for key in AXIS]
    dof = [side_by_side("degrees_of_freedom", dof_names, key) for key in MOTION]
    return Elsewhere(test, tuple(cautions), dof_names, *axes, *dof)


def read_map(path: Path) -> Columns:
    data = yaml_text.parse(yaml_text.source_of(path, str(path)), str(path))
    with within(str(path)):
        return from_data(Columns, data)


def _histories(wanted: Columns, table: Table) -> dict[str, Array]:
    """Return the histories in ``table``, keyed by their paths in the column map, e.g. ``axes.NAME.force``.

    A missing target is replaced by the command, and vice versa. A degree of freedom without columns gets the
    target of the axis with the same name. Raises ConfigError if columns are too short or differ in length.
    """
    columns = {"time": wanted.time}
    for name, axis in wanted.axes.items():
        columns |= {f"axes.{name}.{key}": getattr(axis, key) for key in AXIS}
    for name, motion in wanted.degrees_of_freedom.items():
        columns |= {f"degrees_of_freedom.{name}.{key}": getattr(motion, key) for key in MOTION}
    histories = {path: column.read(table, path) for path, column in columns.items() if column is not None}
    lengths = {path: len(values) for path, values in histories.items()}
    for path, count in lengths.items():
        if count < FEWEST:
            raise ConfigError(f"{path}: has {count} samples, but must have at least {FEWEST}")
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{path} {count}" for path, count in lengths.items())
        raise ConfigError(f"the columns have different lengths: {text}")
    for name in wanted.axes:
        target, command = f"axes.{name}.target", f"axes.{name}.command"
        if target not in histories:
            histories[target] = histories[command]
        histories.setdefault(command, histories[target])
        if name not in wanted.degrees_of_freedom:
            histories[f"degrees_of_freedom.{name}.displacement"] = histories[target]
    return histories


def _beyond(histories: Mapping[str, Array], limits: Limits, rate: float, path: str) -> Iterator[str]:
    for key in AXIS:
        values = histories.get(f"{path}.{key}")
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
    with within("time"):
        step, tolerance = even_step(times)
    rate = 1.0 / step
    if rate >= 1.0 and abs(rate - round(rate)) * (times[-1] - times[0]) <= tolerance * rate:  # times are rounded
        return float(round(rate))
    return float(f"{rate:.6g}")


def _new_scenario(wanted: Columns, rate: float, samples: int) -> Scenario:
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
        "servo_rate": rate,
        "substeps": 1,
        "duration": (samples - 1) / rate,
        "seed": 0,
        "integrator": nobody,
        "compensator": nobody,
        "axes": axes,
    }
    return recorded_scenario(yaml_text.dump(data), "the test")


def _fitting(scenario: Scenario, wanted: Columns, rate: float, samples: int) -> Scenario:
    problems = Problems()
    if tuple(wanted.axes) != scenario.moved_axes:
        moved, named = ", ".join(scenario.moved_axes), ", ".join(wanted.axes)
        problems.append(f"axes = {named}: must be {moved}, as in {scenario.name}")
    for name, axis in wanted.axes.items():
        if axis.limits is not None:
            problems.append(f"axes.{name}.limits: must be left out, because the scenario has limits")
    if abs(rate - scenario.servo_rate) > 1e-4 * scenario.servo_rate:
        problems.append(
            f"the rate is {rate:.9g} Hz, but must be {scenario.servo_rate:.9g} Hz, as in {scenario.name}"
        )
    problems.refuse()
    steps = (samples - 1) // scenario.samples_per_step
    return scenarios.replace(scenario, [(["soft_start"], None), (["duration"], steps * scenario.step)])


def import_arguments(add: arguments.Arguments) -> None:
    add("file", "file with histories: text in columns, MATLAB, HDF5 or netCDF")
    add("columns", "YAML file that assigns columns and units to quantities (doc/import.md)")
    add("--record DIR", "new directory for the recording", required=True)
    add("--largest MIB", "maximum size of the file, and of its numbers in memory, MiB", LARGEST >> 20)
    add("--scenario", "scenario of the test (optional): name of a shipped scenario or path of a YAML file")
    add.scenario(names=("--rig", "--set", "--case"))


def import_command(options: arguments.Options) -> None:
    if not options.scenario and (options.rig or options.set or options.case):
        raise ConfigError("--rig, --set, --case: require --scenario")
    bag.check_free(Path(options.record))
    scenario = arguments.scenario(options) if options.scenario else None
    test = read(Path(options.file), Path(options.columns), scenario, options.largest << 20)
    own_scenario = test.scenario
    about = information(own_scenario, own_scenario.run_id(), ELSEWHERE, LOCKSTEP)
    about |= {"source": f"{Path(options.file).name}, sha256 {hashes([options.file])[options.file]}"}
    writer = open_writer(options.record, recorded_topics("rths", own_scenario), about)
    recording = RecordingSink(writer.write, writer.close, own_scenario, test.names, "rths", about)
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
