# SPDX-License-Identifier: Apache-2.0
"""Rigs with a node per axis: conditions, and the scenario of one axis."""

from __future__ import annotations

from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.parameters import evolved
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.loop.scenario.force_axes import DISPLACEMENT, FORCE
from rths_nodes.loop.scenario.schema import Scenario


def check_layout(scenario: Scenario) -> None:
    """Raise ConfigError for a rig whose axes cannot have a node each."""
    if scenario.rig is not None:
        raise ConfigError("rig: couples its axes, so they have one actuator node; actuator_nodes must be one")
    if scenario.port.one_node:
        kind = type(scenario.port).type_name
        raise ConfigError(f"port.type = {kind!r}: has all axes in one datagram; actuator_nodes must be one")
    if scenario.port.watchdog is not None:
        raise ConfigError(
            f"port.watchdog = {scenario.port.watchdog:g} s: is for a rig with one actuator node; a node per axis "
            "stops its axis by itself"
        )
    for name, axis in scenario.axes.items():
        control = axis.force_control
        if control is not None and by_controller(axis) and control.law.column is not None:
            raise ConfigError(
                f"axes.{name}.force_control.law.column: is for a rig with one actuator node; the simulated "
                "controller of an axis with a node of its own sees no drift of another one"
            )
        for noun in ("sensors", "output"):
            if (other := getattr(axis, noun).cabled_to) not in (None, name):
                raise ConfigError(
                    f"axes.{name}.{noun}.cabled_to = {show(other)}: is for a rig with one actuator node; a node "
                    "per axis reaches its own axis only"
                )
        if axis.sensors.second is not None:
            raise ConfigError(
                f"axes.{name}.sensors.second: is an auxiliary channel, for a rig with one actuator node; axes "
                "with a node each have none"
            )
        if not name.isidentifier() or not name.isascii() or "__" in name:
            raise ConfigError(
                f"axes.{name}: must be ASCII letters, digits and single _, not a digit first, to name the "
                "namespace of its node"
            )


def alone(scenario: Scenario, axis: str) -> Scenario:
    """Return the rig of ``scenario`` with this axis only. Raises ConfigError with the known axes."""
    check_layout(scenario)
    if axis not in scenario.axes:
        raise unknown("namespace", "axis", axis, scenario.axes)
    mine = scenario.axes[axis]
    if mine.mode == FORCE and not by_controller(mine):  # the actuator node closes its force loop
        mine = evolved(mine, mode=DISPLACEMENT, load=None, force_control=None)
    return evolved(scenario, axes={axis: mine})


def takes_force(scenario: Scenario, axis: str) -> bool:
    """Return whether the node of ``axis`` gets Commands in N."""
    return axis in scenario.axes and by_controller(scenario.axes[axis])
