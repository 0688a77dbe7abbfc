"""A Run: the arrays of a test with its scenario, indices and timing. It stands alone, without ROS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED, Array, Command, Measurement, Target
from rths_nodes.loop.scenario.assembly import Names
from rths_nodes.loop.scenario.schema import Scenario

Flags = np.ndarray[Any, np.dtype[np.uint32]]

_MARGIN = 1024
"""Samples kept beyond the end of the test at first: a safe stop may outlast it."""


@dataclass(eq=False)
class Run:
    """Everything a report needs. ``n`` samples (0 ... n-1), ``n_steps`` steps (0 ... n_steps-1); SI units.

    Arrays per sample: ``time (n,)`` s; ``target``, ``command`` (as the compensator gave them; before the first
    command, and during a safe stop, both hold the applied command), ``displacement``, ``true_displacement``
    ``(n, n_axes)`` m; ``force``, ``true_force`` ``(n, n_axes)`` N; ``flags (n,)`` of measurement and command;
    ``compensator (n, len(compensator_names))``.
    Arrays per step: ``step_time (n_steps,)`` s; ``dof_displacement``, ``dof_velocity``, ``dof_acceleration``
    ``(n_steps, n_dof)``; ``exact_acceleration``, ``external_force``, ``restoring_force``
    ``(n_steps - 1, n_dof)`` of steps 0 ... n_steps-2. All times and rates are those of the rig.
    """

    scenario: Scenario
    information: dict[str, str]
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
    metrics: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, Any] = field(default_factory=dict)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(self.scenario.axes)

    @property
    def outcome(self) -> str:
        """``finished``, ``held``, ``tripped`` or what else the recording says."""
        return self.information.get("outcome", "unknown")

    def arrays(self) -> dict[str, Array]:
        """All histories by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}


class _Table:
    """Rows by number, growing in large pieces; rows that never came are nan."""

    def __init__(self, width: int, rows: int) -> None:
        self.values = np.full((rows, width), np.nan)

    def put(self, row: int, values: Any) -> None:
        while row >= len(self.values):
            self.values = np.vstack((self.values, np.full_like(self.values, np.nan)))
        self.values[row] = values


def _whole(flags: Array) -> Flags:
    return np.nan_to_num(flags).astype(np.uint32)


def _together(measured: Flags, commanded: Flags, tripped: NDArray[np.bool_]) -> Flags:
    """Flags of Measurements and Commands; one that the safe policy has replaced bridges nothing."""
    return measured | np.where(tripped, commanded & ~np.uint32(FLAG_BRIDGED), commanded)


class Collector:
    """A sink that gathers a Run in memory: of a live embedded test, or of a recording that is read."""

    def __init__(self, scenario: Scenario, names: Names) -> None:
        self.scenario = scenario
        self._names = names.state
        n_axes, n_dof = len(names.axes), len(names.observed)
        rows = scenario.samples + _MARGIN
        self._per_axis = {
            name: _Table(n_axes, rows)
            for name in ("target", "command", "displacement", "force", "true_displacement", "true_force")
        }
        self._applied = _Table(n_axes, rows)
        self._flags, self._command_flags = _Table(1, rows), _Table(1, rows)
        self._compensator = _Table(len(self._names), rows)
        self._per_step = {
            name: _Table(n_dof, scenario.steps + 2)
            for name in ("displacement", "velocity", "acceleration", "exact", "external", "restoring")
        }
        self._last_sample = self._last_step = -1

    def target(self, target: Target) -> None:
        step, table = target.step, self._per_step
        self._last_step = max(self._last_step, step)
        table["displacement"].put(step, target.displacement)
        table["velocity"].put(step, target.velocity)
        table["acceleration"].put(step, target.acceleration)
        if step > 0:
            table["exact"].put(step - 1, target.exact_acceleration)
            table["external"].put(step - 1, target.external_force)
            table["restoring"].put(step - 1, target.restoring_force)

    def command(self, command: Command) -> None:
        self._per_axis["target"].put(command.sample, command.target)
        self._per_axis["command"].put(command.sample, command.command)
        self._command_flags.put(command.sample, command.flags)

    def measurement(self, measured: Measurement) -> None:
        sample, table = measured.sample, self._per_axis
        self._last_sample = max(self._last_sample, sample)
        table["displacement"].put(sample, measured.displacement)
        table["force"].put(sample, measured.force)
        self._flags.put(sample, measured.flags)
        if measured.command.size:
            self._applied.put(sample, measured.command)

    def truth(self, true: Measurement) -> None:
        self._per_axis["true_displacement"].put(true.sample, true.displacement)
        self._per_axis["true_force"].put(true.sample, true.force)

    def state(self, sample: int, values: Sequence[float]) -> None:
        self._compensator.put(sample, values)

    def run(
        self,
        information: dict[str, str] | None = None,
        metrics: dict[str, Any] | None = None,
        timing: dict[str, Any] | None = None,
    ) -> Run:
        """The Run of what has come in so far."""
        n, m = self._last_sample + 1, self._last_step + 1
        axis = {name: table.values[:n].copy() for name, table in self._per_axis.items()}
        flags = _whole(self._flags.values[:n, 0])
        tripped = (flags & FLAG_TRIPPED) > 0
        applied = self._applied.values[:n]
        for name in ("target", "command"):
            # where none came, or the safe policy has replaced it, what the rig was sent: never what was refused
            replaced = np.isnan(axis[name][:, :1]) | tripped[:, None]
            axis[name] = np.where(replaced & ~np.isnan(applied), applied, axis[name])
        step = {name: table.values[:m].copy() for name, table in self._per_step.items()}
        return Run(
            scenario=self.scenario,
            information=dict(information or {}),
            time=self.scenario.dt * np.arange(n, dtype=np.float64),
            flags=_together(flags, _whole(self._command_flags.values[:n, 0]), tripped),
            compensator_names=self._names,
            compensator=self._compensator.values[:n].copy(),
            step_time=self.scenario.step * self.scenario.time_ratio * np.arange(m, dtype=np.float64),
            dof_displacement=step["displacement"],
            dof_velocity=step["velocity"],
            dof_acceleration=step["acceleration"],
            exact_acceleration=step["exact"][: m - 1],
            external_force=step["external"][: m - 1],
            restoring_force=step["restoring"][: m - 1],
            metrics=dict(metrics or {}),
            timing=dict(timing or {}),
            **axis,
        )
