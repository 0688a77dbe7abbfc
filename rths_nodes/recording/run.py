# SPDX-License-Identifier: Apache-2.0
"""Data of a test: arrays, scenario, indices and timing, and their export to CSV and MAT files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core import yaml_text
from rths_nodes.core.data import Data
from rths_nodes.core.samples import (
    EMPTY,
    FLAG_BRIDGED,
    FLAG_SLOWED,
    FLAG_TRIPPED,
    MODE_FORCE,
    Array,
    Command,
    Measurement,
    Target,
)
from rths_nodes.core.text_files import replaced, write_columns
from rths_nodes.loop.options import LOCKSTEP
from rths_nodes.loop.scenario import assembly
from rths_nodes.loop.scenario.assembly import Names
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.timing import LateData

Flags = NDArray[np.uint32]

OF_DOF = ("displacement", "velocity", "acceleration", "exact_acceleration", "external_force", "restoring_force")
"""Fields of a Target with one value for each degree of freedom."""
ENERGIES = ("input_energy", "kinetic_energy", "strain_energy", "damping_energy")
"""Fields of a Target with the energies of the model, J."""
ELSEWHERE = "elsewhere"
"""Name of the host of an imported test, and of the type of its unknown components."""
_ROWS = 1 << 16


@dataclass(eq=False)
class Loads:
    """Data of the force axes ``names`` of a Run: arrays ``(n, n_force)`` for samples 0 ... n-1.

    ``target`` and ``command`` (N) are NaN while an axis is held. ``held`` is the displacement command (m) of a
    held axis, and NaN in force mode. ``force`` and ``true_force`` are in N, ``displacement`` and
    ``true_displacement`` in m.
    """

    names: tuple[str, ...]
    target: Array
    command: Array
    held: Array
    displacement: Array
    force: Array
    true_displacement: Array
    true_force: Array

    @property
    def error(self) -> Array:
        return self.target - self.force


Rows = dict[str, dict[str, Array]]


def split(rows: Mapping[str, Mapping[str, Array]], names: tuple[str, ...]) -> tuple[Rows, Loads | None]:
    streams = {stream: dict(fields) for stream, fields in rows.items()}
    if not names:
        return streams, None
    behind: Rows = {}
    for stream in ("measurement", "command", "true_state"):
        for name, values in streams[stream].items():
            if values.shape[1] > 1:
                n = values.shape[1] - len(names)
                behind.setdefault(stream, {})[name] = values[:, n:]
                streams[stream][name] = values[:, :n]
    measured, commanded, true = behind["measurement"], behind["command"], behind["true_state"]
    forced = measured["control_mode"] == MODE_FORCE
    by_force = forced & (commanded["control_mode"] == MODE_FORCE)
    applied = np.where(forced, np.nan, measured["command"])
    return streams, Loads(
        names,
        np.where(by_force, commanded["target"], np.nan),
        np.where(by_force, commanded["command"], np.nan),
        applied,
        measured["displacement"],
        measured["force"],
        true["displacement"],
        true["force"],
    )


@dataclass(eq=False)
class Run:
    """Data of one test in SI units and rig time: ``n`` samples (0 ... n-1), ``n_steps`` steps (0 ... n_steps-1).

    Arrays with one row per sample: ``time (n,)`` s; ``target``, ``command``, ``displacement``,
    ``true_displacement`` ``(n, n_axes)`` m; ``force``, ``true_force`` ``(n, n_axes)`` N; ``flags (n,)`` of
    measurement and command; ``compensator (n, len(compensator_names))``. ``command`` is the compensator's command.
    Before the first command and during a safe stop, ``target`` and ``command`` are the command applied to the rig.
    In a brief run of a study, ``compensator`` has one row per report of the compensator, and velocities,
    accelerations and restoring forces are omitted.

    Arrays with one row per step: ``step_time (n_steps,)`` s; ``dof_displacement``, ``dof_velocity``,
    ``dof_acceleration`` ``(n_steps, n_dof)``; ``exact_acceleration``, ``external_force``, ``restoring_force``
    ``(n_steps - 1, n_dof)`` of steps 0 ... n_steps-2; ``energies`` ``(n_steps - 1, 4)`` J (input, kinetic, strain,
    damping), without rows if all degrees of freedom are observed. ``dof_names`` are the names of the ``n_dof``
    observed degrees of freedom.

    The components of ``scenario`` are not built, because they may not be installed here.
    """

    scenario: Scenario
    information: dict[str, str]
    dof_names: tuple[str, ...]
    time: Array
    target: Array
    command: Array
    displacement: Array
    force: Array
    true_displacement: Array
    true_force: Array
    flags: Flags
    compensator_names: tuple[str, ...]
    compensator: Array
    step_time: Array
    dof_displacement: Array
    dof_velocity: Array
    dof_acceleration: Array
    exact_acceleration: Array
    external_force: Array
    restoring_force: Array
    energies: Array
    metrics: Data = field(default_factory=dict)
    timing: Data = field(default_factory=dict)
    integrator: Data = field(default_factory=dict)
    updating_names: tuple[str, ...] = ()
    updating_time: Array = field(default_factory=lambda: EMPTY)
    updating: Array = field(default_factory=lambda: np.zeros((0, 0)))
    """Quantities of the updated model ``(n, len(updating_names))``, one row for each time in ``updating_time``."""
    notes: tuple[str, ...] = ()
    loads: Loads | None = None
    """Data of the force axes, which are not in the other arrays; None if there are no force axes."""

    @property
    def axes(self) -> tuple[str, ...]:
        return self.scenario.moved_axes

    @property
    def outcome(self) -> str:
        return self.information.get("outcome", "unknown")

    @property
    def missing(self) -> NDArray[np.bool_]:
        """True for each sample that lacks a value of a recorded channel, ``(n,)``."""
        values = np.isfinite(np.hstack((self.target, self.command, self.displacement, self.force)))
        return np.asarray(~values[:, values.any(axis=0)].all(axis=1))

    @property
    def incomplete(self) -> str:
        """Number and range of the missing samples, as text; empty for a complete recording."""
        recorded, stated = len(self.time), self.information.get("samples", "")
        numbers = np.flatnonzero(self.missing)
        sent = int(stated) if recorded and stated.isdecimal() else 0
        if self.outcome == "finished":
            sent = self.scenario.samples + 1
        count = len(numbers) + max(0, sent - recorded)
        if not count:
            return ""
        first = numbers[0] if len(numbers) else recorded
        last = sent - 1 if sent > recorded else numbers[-1]
        return f"{count} of {max(recorded, sent)} samples are missing ({first} to {last})"

    @property
    def in_lockstep(self) -> bool:
        """True if the test ran without a clock, so that the servo period did not limit computing times."""
        return self.information.get("pace") == LOCKSTEP

    @property
    def made_elsewhere(self) -> bool:
        return self.information.get("host") == ELSEWHERE

    @property
    def bridged(self) -> int:
        return self.late.bridged

    @property
    def not_valid(self) -> str:
        """Reason why a finished test is not valid, otherwise an empty string."""
        return self.late.not_valid(len(self.time) - 1) if self.outcome == "finished" else ""

    @property
    def late(self) -> LateData:
        bridged = np.flatnonzero(self.flags & FLAG_BRIDGED)
        late = LateData.of_bridged(bridged, self.scenario.dt, self.scenario.bridge.max_bridge)
        # actuator nodes of other packages report no timing; versions before 0.10 report no gap
        return LateData.from_timing({"longest_gap_s": late.gap} | self.timing, late.bridged, late.max_bridge)

    @property
    def ending(self) -> str:
        return self.late.ending(self.outcome, len(self.time) - 1)

    def rates(self, values: Array) -> Array:
        """Return changes of ``values`` ``(n, ...)`` per second, ``(n - 1, ...)``; NaN during a hold or pause."""
        rates = np.diff(values, axis=0) / self.scenario.dt
        rates[(self.flags[1:] & FLAG_SLOWED) > 0] = np.nan
        return rates

    def arrays(self) -> dict[str, Array]:
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        loads = {} if self.loads is None else vars(self.loads)
        return arrays | {f"loads.{name}": value for name, value in loads.items() if isinstance(value, np.ndarray)}


def _table(width: int, begun: Array | None) -> Array:
    first = np.zeros((0, width)) if begun is None else begun
    return np.vstack((first, np.full((_ROWS, width), np.nan)))


def _first(table: Array, rows: int) -> Array:
    values = np.full((rows, table.shape[1]), np.nan)
    values[: len(table)] = table[:rows]
    return values


def longest_stretch(usable: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the indices of the longest unbroken sequence of ``usable`` samples ``(n,)``."""
    if not usable.any():
        return np.arange(0)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], usable, [False]))))
    longest = 2 * int(np.argmax(edges[1::2] - edges[::2]))
    return np.arange(edges[longest], edges[longest + 1])


def assembled(scenario: Scenario, rows: Mapping[str, Mapping[str, Array]], **fields: Any) -> Run:
    """Build a Run from ``rows``: recorded arrays by stream and field, with one row for each sample or step.

    Missing samples are NaN. The Run modifies these arrays. ``fields`` are the other fields of the Run: names,
    information, metrics and timing.
    """
    rows, loads = split(rows, scenario.force_axes)
    measured, commanded, true, target = (rows[n] for n in ("measurement", "command", "true_state", "target"))
    flags, sent_flags = (
        np.nan_to_num(stream["flags"][:, 0]).astype(np.uint32) for stream in (measured, commanded)
    )
    tripped = (flags & FLAG_TRIPPED) > 0
    applied = measured["command"]
    lost = np.isnan(commanded["target"][:, 0]) & (flags == 0)  # Commands that were sent, but not recorded
    lost[:1] = False
    for wanted in (commanded["target"], commanded["command"]):
        # use the command sent to the rig if a command is missing, or if the safe stop replaced it
        at = np.flatnonzero(np.isnan(wanted[:, 0]) | tripped)
        wanted[at] = np.where(np.isnan(applied[at]), wanted[at], applied[at])
    commanded["target"][lost] = np.nan
    n, m = len(flags), len(target["displacement"])
    energies = [target[name][1:] for name in ENERGIES]
    sent = any(np.isfinite(energy).any() for energy in energies)
    return Run(
        scenario=scenario,
        time=scenario.dt * np.arange(n, dtype=np.float64),
        target=commanded["target"],
        command=commanded["command"],
        displacement=measured["displacement"],
        force=measured["force"],
        true_displacement=true["displacement"],
        true_force=true["force"],
        # a Command replaced by the safe stop does not count as bridged
        flags=flags | np.where(tripped, sent_flags & ~np.uint32(FLAG_BRIDGED), sent_flags),
        compensator=rows["compensator_state"]["values"],
        step_time=scenario.step * scenario.time_ratio * np.arange(m, dtype=np.float64),
        dof_displacement=target["displacement"],
        dof_velocity=target["velocity"],
        dof_acceleration=target["acceleration"],
        # Target i contains the forces of step i - 1
        exact_acceleration=target["exact_acceleration"][1:],
        external_force=target["external_force"][1:],
        restoring_force=target["restoring_force"][1:],
        energies=np.hstack(energies) if sent else np.zeros((0, len(ENERGIES))),
        loads=loads,
        **fields,
    )


def widths(n_axes: int, n_dof: int, n_state: int, modes: bool = False) -> dict[str, dict[str, int]]:
    mode = {"control_mode": n_axes} if modes else {}
    axis = dict.fromkeys(("displacement", "force"), n_axes)
    return {
        "measurement": axis | {"command": n_axes, "flags": 1} | mode,
        "command": {"target": n_axes, "command": n_axes, "flags": 1} | mode,
        "true_state": axis,
        "compensator_state": {"values": n_state},
        "target": dict.fromkeys(OF_DOF, n_dof) | dict.fromkeys(ENERGIES, 1),
    }


class Collector:
    """Sink of the embedded loop that collects the data of a Run in memory."""

    def __init__(self, scenario: Scenario, names: Names) -> None:
        """Raise ConfigError if the histories of the test do not fit into memory."""
        self.scenario = scenario
        self._names = names
        self._modes = bool(scenario.force_axes)
        wide = widths(len(names.axes), len(names.observed), len(names.state), self._modes)
        sums = {stream: sum(fields.values()) for stream, fields in wide.items()}
        assembly.check_histories(scenario, sum(sums.values()) - sums["target"], sums["target"])
        self._wide = wide
        self._last_sample = self._last_step = -1
        self._updating: list[tuple[float, ...]] = []
        self._whole: Mapping[str, Mapping[str, Array]] | None = None

    @cached_property
    def _tables(self) -> Rows:
        begun, self._whole = self._whole or {}, None
        return {
            stream: {name: _table(width, begun.get(stream, {}).get(name)) for name, width in fields.items()}
            for stream, fields in self._wide.items()
        }

    def whole(self, rows: Mapping[str, Mapping[str, Array]]) -> None:
        """Store the histories of the first samples, by stream and field. Energies are set to NaN."""
        unknown = np.full((len(rows["target"]["displacement"]), 1), math.nan)
        self._whole = {**rows, "target": {**rows["target"], **dict.fromkeys(ENERGIES, unknown)}}
        self._last_sample, self._last_step = len(rows["measurement"]["flags"]) - 1, len(unknown) - 1

    def _put(self, stream: str, row: int, fields: Mapping[str, Any]) -> None:
        tables = self._tables[stream]
        for name, values in fields.items():
            table = tables[name]
            while row >= len(table):
                table = tables[name] = np.vstack((table, np.full_like(table, np.nan)))
            table[row] = values

    def _put_sample(self, stream: str, message: Command | Measurement, fields: dict[str, Any]) -> None:
        fields["flags"] = message.flags
        if self._modes and message.control_mode:
            fields["control_mode"] = list(message.control_mode)
        self._put(stream, message.sample, fields)

    def target(self, target: Target) -> None:
        self._last_step = max(self._last_step, target.step)
        fields = {name: getattr(target, name) for name in OF_DOF}
        if not math.isnan(target.energies[0]):
            fields |= zip(ENERGIES, target.energies, strict=False)
        self._put("target", target.step, fields)

    def command(self, command: Command) -> None:
        self._put_sample("command", command, {"target": command.target, "command": command.command})

    def measurement(self, measured: Measurement) -> None:
        self._last_sample = max(self._last_sample, measured.sample)
        fields = {"displacement": measured.displacement, "force": measured.force}
        if measured.command.size:
            fields["command"] = measured.command
        self._put_sample("measurement", measured, fields)

    def truth(self, true: Measurement) -> None:
        self._put("true_state", true.sample, {"displacement": true.displacement, "force": true.force})

    def state(self, sample: int, values: Sequence[float]) -> None:
        self._put("compensator_state", sample, {"values": values})

    def updating(self, sample: int, values: Sequence[float]) -> None:
        self._updating.append((sample * self.scenario.dt, *values))

    def run(self, **results: Data) -> Run:
        """Build the Run. ``results`` are its fields information, metrics, timing and integrator."""
        learnt = np.array(self._updating).reshape(-1, 1 + len(self._names.updating))
        rows = self._whole
        if rows is None:
            last = dict.fromkeys(self._wide, self._last_sample) | {"target": self._last_step}
            rows = {
                stream: {name: _first(table, 1 + last[stream]) for name, table in fields.items()}
                for stream, fields in self._tables.items()
            }
        return assembled(
            self.scenario,
            rows,
            updating_names=self._names.updating,
            updating_time=learnt[:, 0],
            updating=learnt[:, 1:],
            dof_names=self._names.observed,
            compensator_names=self._names.state,
            **{"information": {}} | {name: dict(values) for name, values in results.items()},
        )


def measurement_of(run: Run, sample: int) -> Measurement:
    """Return Measurement ``sample`` of a Run, without auxiliary channels. Force axes come last."""
    rows = [values[sample] for values in (run.displacement, run.force, run.command)]
    if (loads := run.loads) is not None:
        applied = np.where(np.isnan(loads.held[sample]), loads.command[sample], loads.held[sample])
        behind = (loads.displacement[sample], loads.force[sample], applied)
        rows = [np.concatenate(pair) for pair in zip(rows, behind, strict=True)]
    displacement, force, command = (row.copy() for row in rows)
    return Measurement(sample, displacement, force, command)


UNITS_OF_AXES = {
    "target": "m",
    "command": "m",
    "displacement": "m",
    "force": "N",
    "true_displacement": "m",
    "true_force": "N",
}
UNITS_OF_DOF = {
    "dof_displacement": "m",
    "dof_velocity": "m/s",
    "dof_acceleration": "m/s^2",
    "exact_acceleration": "m/s^2",
    "external_force": "N",
    "restoring_force": "N",
}

UNITS_OF_LOADS = {"target": "N", "command": "N", "held": "m"} | {
    name: unit for name, unit in UNITS_OF_AXES.items() if name not in ("target", "command")
}
LONGEST_FIELD = 31


class History(NamedTuple):
    """Values of a quantity in ``unit``, ``(n,)`` or ``(n, len(columns))``, with the names of the columns."""

    name: str
    values: Array
    unit: str
    columns: tuple[str, ...] = ()


def samples_of(run: Run) -> list[History]:
    histories = [History("time", run.time, "s")]
    histories += [History(name, getattr(run, name), unit, run.axes) for name, unit in UNITS_OF_AXES.items()]
    histories += [History("flags", run.flags.astype(float), "1")]
    histories += [History("compensator", run.compensator, "", run.compensator_names)]
    if (loads := run.loads) is not None:
        units = UNITS_OF_LOADS.items()
        histories += [History(f"load_{name}", getattr(loads, name), unit, loads.names) for name, unit in units]
    return _recorded(histories)


def steps_of(run: Run) -> list[History]:
    histories = [History("step_time", run.step_time, "s")]
    histories += [History(name, getattr(run, name), unit, run.dof_names) for name, unit in UNITS_OF_DOF.items()]
    return _recorded(histories)


def _recorded(histories: list[History]) -> list[History]:
    return [history for history in histories if history.values.size and np.isfinite(history.values).any()]


def groups_of(run: Run) -> list[tuple[str, list[History]]]:
    time = History("updating_time", run.updating_time, "s")
    updating = [time, History("updating", run.updating, "", run.updating_names)] if run.updating.size else []
    groups = [("samples", samples_of(run)), ("steps", steps_of(run)), ("updating", updating)]
    return [(name, histories) for name, histories in groups if histories]


def facts_of(run: Run) -> dict[str, str]:
    return dict(run.information) | {"scenario": yaml_text.dump(run.scenario.data())}


def columns_of(histories: list[History]) -> dict[str, list[float]]:
    columns = {}
    for history in histories:
        unit = f" ({history.unit})" if history.unit else ""
        rows = history.values.reshape(len(history.values), -1).T.tolist()
        for column, values in zip(history.columns or ("",), rows, strict=True):
            columns[f"{column}.{history.name}{unit}" if column else f"{history.name}{unit}"] = values
    return columns


def write_csv(histories: list[History], path: Path) -> None:
    """Write a CSV file; create its folder if needed. Missing rows and NaN become empty cells. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_columns(columns_of(histories), path)


def write_mat(run: Run, path: Path) -> None:
    from scipy.io import savemat

    histories = [history for _, group in groups_of(run) for history in group]
    values = {history.name: history.values for history in histories}
    facts = {
        "axes": np.array(run.axes, dtype=object),
        "load_axes": np.array(() if run.loads is None else run.loads.names, dtype=object),
        "degrees_of_freedom": np.array(run.dof_names, dtype=object),
        "compensator_names": np.array(run.compensator_names, dtype=object),
        "updating_names": np.array(run.updating_names, dtype=object),
        "units": {history.name: history.unit for history in histories},
        "test": {name[:LONGEST_FIELD]: value for name, value in facts_of(run).items()},
    }
    with replaced(path) as beside:
        savemat(beside, values | facts, oned_as="column", do_compression=True)
