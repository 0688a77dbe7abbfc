# SPDX-License-Identifier: Apache-2.0
"""Rules for force axes: required keys and excluded combinations."""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core.declarations import OfParams
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.limits import QUANTITIES
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.calibration import Similitude
from rths_nodes.laboratory.force_control import CONTROLLER
from rths_nodes.loop.scenario.loads import SHARE
from rths_nodes.mechanics.axial_load import vertical_share

DISPLACEMENT, FORCE = AXIS_MODES = ("displacement", "force")

OF_FORCE = ("force_rate", "force_error")
"""Limits that only force axes have."""


class AxesByMode:
    """Base of a scenario that provides its axes by mode, and their scales."""

    axes: Any
    rig: object
    setup: OfParams

    @property
    def force_axes(self) -> tuple[str, ...]:
        return tuple(name for name, axis in self.axes.items() if axis.mode == FORCE)

    @property
    def moved_axes(self) -> tuple[str, ...]:
        return tuple(name for name, axis in self.axes.items() if axis.mode != FORCE)

    @property
    def scaled(self) -> bool:
        return any(scale.length != 1.0 or scale.force != 1.0 for scale in self.similitude)

    @property
    def similitude(self) -> list[Similitude]:
        return [axis.rig_axis.similitude if axis.rig_axis else Similitude() for axis in self.axes.values()]

    @property
    def energy_scale(self) -> Array | None:
        """Ratio of structure energy to specimen energy, by moved axis; None without scale models."""
        scales = self.similitude[: len(self.moved_axes)]
        return np.array([scale.length * scale.force for scale in scales]) if self.scaled else None

    @property
    def stop_groups(self) -> tuple[int, ...]:
        """Group number of each axis, in order. Axes of one group move one specimen and stop together.

        Axes of a coupled rig form one group. For other rigs the setup declares groups (default: one).
        """
        n_axes, n_moved = len(self.axes), len(self.moved_axes)
        groups = (0,) * n_axes if self.rig is not None else self.setup.stop_groups(n_moved, n_axes)
        numbers: dict[int, int] = {}
        return tuple(numbers.setdefault(group, len(numbers)) for group in groups)


def check_mode(axis: Any, path: str) -> None:
    if axis.mode != FORCE:
        for key in ("load", "force_control"):
            if getattr(axis, key) is not None:
                raise ConfigError(f"{join(path, key)}: must be left out unless the mode of the axis is force")
        for key in OF_FORCE:
            if getattr(axis.limits, key) is not None:
                raise ConfigError(
                    f"{join(path, 'limits')}.{key}: must be left out unless the mode of the axis is force"
                )
        return
    for key, meaning in (
        ("load", "a force target"),
        ("force_control", "a force controller"),
    ):
        if getattr(axis, key) is None:
            raise ConfigError(f"{join(path, key)}: missing, but an axis whose mode is force needs {meaning}")
    limits = axis.limits
    for key, unit in (("force_rate", "N/s"), ("force_error", "N")):
        if getattr(limits, key) is None:
            raise ConfigError(
                f"{join(path, 'limits')}.{key}: missing, but an axis whose mode is force needs this limit, in "
                f"{unit}"
            )
    if limits.tracking_error is not None:
        raise ConfigError(
            f"{join(path, 'limits')}.tracking_error: must be left out, because an axis whose mode is force does "
            "not follow a displacement. Use force_error"
        )
    for key in limits.levels.in_effect() if limits.levels is not None else ():
        if QUANTITIES[key].in_metres:
            raise ConfigError(
                f"{join(path, 'limits')}.levels.{key}: must be left out, because commands of an axis whose mode "
                "is force are in N"
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
    names, groups = tuple(scenario.axes), scenario.stop_groups
    scales, index = scenario.similitude, names.index(name)
    law = scenario.axes[name].force_control.law
    for other, scale in enumerate(scales):
        coupled = law.column is not None and law.coupled_to == other + 1
        if (coupled or groups[other] == groups[index]) and scale != scales[index]:
            raise ConfigError(
                f"axes.{name}: the scales (similitude) of length and force are {scales[index].length:g} and "
                f"{scales[index].force:g}, but must be {scale.length:g} and {scale.force:g} as for "
                f"{names[other]}, because both axes move the same specimen"
            )


def _check_vertical(scenario: Any, name: str) -> None:
    axis = scenario.axes[name]
    law, limits, path = axis.force_control.law, axis.limits, f"axes.{name}.load.vertical"
    length = None if law.column is None else law.column.actuator_length
    if length is None or law.coupled_to > len(scenario.moved_axes):
        raise ConfigError(
            f"{path}: needs column.actuator_length and coupled_to in the law of the axis. Leave vertical out if "
            "the actuator stays upright"
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
