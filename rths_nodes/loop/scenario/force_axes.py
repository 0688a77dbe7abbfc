# SPDX-License-Identifier: Apache-2.0
"""Force axes: force target during the test, required keys and invalid combinations.

After a period at constant position, the target follows a value or a table. tau is the time since the change of
mode, and F_0 is the force measured at this change:

    value    F_0 + (value - F_0) s(tau / ramp_time),     s(x) = x^3 (10 - 15 x + 6 x^2), 1 from x = 1 on
    table    linear between rows; constant before the first row and after the last row

A vertical load V requires the axial force V / cos b of an actuator inclined by b (``mechanics/axial_load.py``).
The rate of the target is limited to ``SHARE`` of the force rate limit, also from F_0 to the first row of a table.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from operator import itemgetter
from typing import Any

from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.limits import QUANTITIES, Limits
from rths_nodes.core.parameters import evolved, flag, matrix, number, params
from rths_nodes.laboratory.force_control import CONTROLLER
from rths_nodes.mechanics.axial_load import vertical_share

DISPLACEMENT, FORCE = AXIS_MODES = ("displacement", "force")

OF_FORCE = ("force_rate", "force_error")
"""Limits that only force axes have."""


SHARE = 0.9
"""Largest rate of a target, as a fraction of the force rate limit."""

STEEPEST = 1.875
"""Largest slope of s(x)."""


@params
class Load:
    """Force target of an axis, with the sign convention of its measured force."""

    value: float | None = number(
        "target force, in the scale of the structure; must be left out if table is set",
        "N",
        None,
        at_least=-1e9,
        at_most=1e9,
    )
    ramp_time: float | None = number(
        "time in which the force changes to value", "s", None, more_than=0.0, at_most=3600.0
    )
    table: tuple[tuple[float, ...], ...] | None = matrix(
        "rows of two numbers: time since force control began (s), and force (N); a CSV file has the same two "
        "columns",
        "s, N",
        None,
    )
    held_for: float = number(
        "time at the start of the test during which the axis holds its position, before force control begins",
        "s",
        0.0,
        at_least=0.0,
        at_most=3600.0,
    )
    held_from: float | None = number(
        "time since the start of the test after which the axis holds its position again; default: never",
        "s",
        None,
        more_than=0.0,
        at_most=86_400.0,
    )
    vertical: bool = flag(
        "true: value or table is the vertical component of the force of an inclined actuator. Its axial force is "
        "this component divided by the cosine of the inclination, which is computed from column and coupled_to of "
        "the law. false: value or table is the axial force",
        False,
    )

    def over(self, scale: float) -> Load:
        if scale == 1.0:
            return self
        value = None if self.value is None else self.value / scale
        table = None if self.table is None else tuple((time, force / scale) for time, force in self.table)
        return evolved(self, value=value, table=table)

    def validate(self, path: str) -> None:
        if (self.value is None) == (self.table is None):
            raise ConfigError(f"{path}: must have either value and ramp_time, or table")
        if (self.value is None) != (self.ramp_time is None):
            raise ConfigError(f"{path}.ramp_time: must be set if value is set, and left out if table is set")
        if self.table is not None:
            if len(self.table[0]) != 2:
                raise ConfigError(
                    f"{path}.table: the rows have {len(self.table[0])} numbers, but must have 2 (time and force)"
                )
            times = [row[0] for row in self.table]
            if times[0] < 0.0 or any(b <= a for a, b in pairwise(times)):
                raise ConfigError(f"{path}.table: the times must be >= 0 s and must increase from row to row")
        if self.held_from is not None and self.held_from <= self.held_for:
            raise ConfigError(f"{path}.held_from = {self.held_from:g} s: must be > held_for = {self.held_for:g} s")

    @property
    def largest(self) -> float:
        values = [self.value] if self.value is not None else [row[1] for row in self.table or ()]
        return max(values, key=abs)

    @property
    def rise(self) -> float:
        """Time from the change of mode until the target has its final value, s."""
        return float(self.table[-1][0] if self.table else self.ramp_time or 0.0)

    def wanted(self, after: float, first: float) -> float:
        """Return the force target (N) at time ``after`` (s) of force control that began at ``first`` (N)."""
        if self.value is not None and self.ramp_time is not None:
            x = min(after / self.ramp_time, 1.0)
            share = x * x * x * (10.0 - 15.0 * x + 6.0 * x * x)
            return first + share * (self.value - first)
        table = self.table or ()
        index = bisect_right(table, after, key=itemgetter(0))
        if index == 0 or index == len(table):
            return table[max(index - 1, 0)][1]
        (t0, f0), (t1, f1) = table[index - 1 : index + 1]
        return f0 + (f1 - f0) * (after - t0) / (t1 - t0)

    def check(self, limits: Limits, path: str) -> None:
        largest = abs(self.largest)
        if largest >= limits.force:
            raise ConfigError(
                f"{path}: the force reaches {largest:g} N, but must be < limits.force = {limits.force:g} N"
            )
        rate = SHARE * (limits.force_rate or 0.0)
        if self.value is not None and self.ramp_time is not None:
            fastest = STEEPEST * abs(self.value) / self.ramp_time
            if fastest > rate:
                shortest = STEEPEST * abs(self.value) / rate
                raise ConfigError(
                    f"{path}.ramp_time = {self.ramp_time:g} s: must be >= {shortest:.4g} s to remain within "
                    f"limits.force_rate = {limits.force_rate:g} N/s"
                )
        for (t0, f0), (t1, f1) in pairwise(self.table or ()):
            if abs(f1 - f0) > rate * (t1 - t0):
                raise ConfigError(
                    f"{path}.table: the rate from {f0:g} N at {t0:g} s to {f1:g} N at {t1:g} s is "
                    f"{abs(f1 - f0) / (t1 - t0):g} N/s, but must be <= {rate:g} N/s, {SHARE:g} of "
                    "limits.force_rate"
                )


def load_history(load: Load, force_rate: float, dt: float, force: float) -> Callable[[float], float]:
    """Return a function that computes the force target (N) of an axis whose force control begins at ``force`` (N).

    Call the function once per sample of ``dt`` s, in order, with the time since force control began (s).
    ``force_rate`` is the limit of the axis, N/s.
    """
    step, target = SHARE * force_rate * dt, force

    def next_target(after: float) -> float:
        nonlocal target
        away = load.wanted(after, force) - target
        target += max(-step, min(step, away))
        return target

    return next_target


def check_mode(axis: Any, path: str) -> None:
    limits, where = axis.limits, join(path, "limits")
    for key_path, value, needed in (
        (join(path, "load"), axis.load, "a force target"),
        (join(path, "force_control"), axis.force_control, "a force controller"),
        (f"{where}.force_rate", limits.force_rate, "this limit, in N/s"),
        (f"{where}.force_error", limits.force_error, "this limit, in N"),
    ):
        if value is not None and axis.mode != FORCE:
            raise ConfigError(f"{key_path}: must be left out unless the mode of the axis is force")
        if value is None and axis.mode == FORCE:
            raise ConfigError(f"{key_path}: missing; an axis whose mode is force requires {needed}")
    if axis.mode != FORCE:
        return
    if limits.tracking_error is not None:
        raise ConfigError(
            f"{where}.tracking_error: must be left out, because an axis whose mode is force does "
            "not follow a displacement. Use force_error"
        )
    for key in limits.levels.in_effect() if limits.levels is not None else ():
        if QUANTITIES[key].in_metres:
            raise ConfigError(
                f"{where}.levels.{key}: must be left out, because commands of an axis whose mode is force are in N"
            )
    axis.own_load.check(limits, join(path, "load"))


def check_force_axes(scenario: Any) -> None:
    forced = scenario.force_axes
    if not forced:
        return
    names = tuple(scenario.axes)
    if len(forced) == len(names):
        raise ConfigError(f"axes: at least one of the axes {', '.join(names)} must have the mode displacement")
    if names[-len(forced) :] != forced:
        moved = ", ".join(name for name in names if name not in forced)
        raise ConfigError(
            f"axes: list {', '.join(forced)} after {moved}, because axes whose mode is force must be last"
        )
    for name in forced:
        _check_scales(scenario, name)
        if scenario.axes[name].load.vertical:
            _check_vertical(scenario, name)
    _check_who_closes(scenario, forced)


def _check_scales(scenario: Any, name: str) -> None:
    groups, scales, law = scenario.stop_groups, scenario.similitude, scenario.axes[name].force_control.law
    index = list(scenario.axes).index(name)
    for other, (other_name, scale) in enumerate(zip(scenario.axes, scales, strict=True)):
        coupled = law.column is not None and law.coupled_to == other + 1
        if (coupled or groups[other] == groups[index]) and scale != scales[index]:
            raise ConfigError(
                f"axes.{name}: the scales (similitude) of length and force are {scales[index].length:g} and "
                f"{scales[index].force:g}, but must be {scale.length:g} and {scale.force:g} as for "
                f"{other_name}, because both axes move the same specimen"
            )


def _check_vertical(scenario: Any, name: str) -> None:
    axis = scenario.axes[name]
    law, limits, path = axis.force_control.law, axis.limits, f"axes.{name}.load.vertical"
    length = None if law.column is None else law.column.actuator_length
    if length is None or law.coupled_to > len(scenario.moved_axes):
        raise ConfigError(
            f"{path}: requires column.actuator_length and coupled_to in force_control.law. Omit the key vertical "
            "if the actuator stays upright"
        )
    moved, load = scenario.axes[scenario.moved_axes[law.coupled_to - 1]].limits, abs(axis.own_load.largest)
    most = load / vertical_share(moved.stroke, length)
    if most >= limits.force:
        raise ConfigError(f"{path}: the force reaches {most:g} N, but must be < limits.force = {limits.force:g} N")
    fastest, rest = load * moved.stroke * moved.velocity / length**2, (1.0 - SHARE) * limits.force_rate
    if fastest > rest:
        raise ConfigError(
            f"{path}: the inclination changes the force at a rate of {fastest:g} N/s, but the rate must be <= "
            f"{rest:g} N/s, the part of limits.force_rate that the load does not use"
        )


def _check_who_closes(scenario: Any, forced: tuple[str, ...]) -> None:
    port = scenario.port
    for name in forced:
        if scenario.axes[name].force_control.closed_by != CONTROLLER or port.cannot_be_built:
            continue
        kind = type(port).type_name
        if not port.carries_force:
            raise ConfigError(
                f"axes.{name}.force_control.closed_by = 'controller': the port {kind} transmits only "
                "displacements. Use 'nodes'"
            )
        on_rig = scenario.axes[name].rig_axis
        if scenario.rig_file is not None and not port.builds_axes and on_rig.force_command is None:
            raise ConfigError(
                f"axes.{name}.force_control.closed_by = 'controller': the rig file has no force_command (a "
                f"channel for commands in N) for the axis {on_rig.name}. Use 'nodes'"
            )
