# SPDX-License-Identifier: Apache-2.0
"""Which rigs can have a node per axis, and the scenario of one axis."""

from __future__ import annotations

from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.validation import to_data
from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.loop.scenario.schema import Scenario


def check_layout(scenario: Scenario) -> None:
    """Refuse, with ConfigError, a rig whose axes cannot have a node each."""
    if scenario.rig is not None:
        raise ConfigError("rig: couples its axes, so they have one actuator node; actuator_nodes must be one")
    if scenario.force_axes:
        raise ConfigError(
            f"axes.{scenario.force_axes[0]}.mode = 'force': its force loop reads the axes beside it, so they have "
            "one actuator node; actuator_nodes must be one"
        )
    if scenario.port.one_node:
        kind = type(scenario.port).type_name
        raise ConfigError(f"port.type = {kind!r}: has all axes in one datagram; actuator_nodes must be one")
    if scenario.port.watchdog is not None:
        raise ConfigError(
            f"port.watchdog = {scenario.port.watchdog:g} s: is for a rig with one actuator node; a node per axis "
            "stops its axis by itself"
        )
    if scenario.bridge.pauses:
        raise ConfigError(
            "bridge.when_late = 'pause': is for a rig with one actuator node; a node per axis counts its Commands"
        )
    for name, axis in scenario.axes.items():
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
    """The rig of ``scenario`` with this axis only. Raises ConfigError that lists the known axes."""
    check_layout(scenario)
    if axis not in scenario.axes:
        raise unknown("namespace", "axis", axis, scenario.axes)
    return replace(scenario, [(["axes"], {axis: to_data(scenario.axes[axis])})])
