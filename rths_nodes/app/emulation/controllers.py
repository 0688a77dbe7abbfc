# SPDX-License-Identifier: Apache-2.0
"""Limits of an emulated receiver, and its controllers with force loops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rths_nodes.control.force_controllers.servo_valve import ServoValve
from rths_nodes.core import registry
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, Array, Measurement
from rths_nodes.laboratory.calibration import Gains
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.laboratory.ports.udp_opening import load_of
from rths_nodes.laboratory.receiver import ReceiverLimits, ReceiverLoad
from rths_nodes.loop.scenario.axis import Axis
from rths_nodes.mechanics.axial_load import lengths_of

SWITCHING_S = 0.02
"""Time for a controller to report another mode, s."""
FROZEN_S = 0.05
"""Time in which a load cell with noise changes its reading, s."""


def receiver_limits(limits: Limits, away: float, gains: Gains) -> ReceiverLimits:
    """Return the limits of an axis in units of the port; ``away``: error as time at the velocity limit, s."""
    command, force = abs(gains.command), abs(gains.force)
    error = min(limits.velocity * away, limits.stroke)
    return ReceiverLimits(
        limits.stroke / command,
        limits.velocity / command,
        limits.deceleration / command,
        math.inf,
        limits.force / force,
        error / command,
    )


def receiver_loads(
    axes: Mapping[str, Axis], gains: Sequence[Gains], moved: Sequence[str], dt: float
) -> list[ReceiverLoad]:
    """Return the force loops of ``axes``, in the order and in the units (``gains``) of the port; dt s.

    ``moved`` are the displacement axes in the order of the test, which the laws count.
    """
    names, found = list(axes), list[ReceiverLoad]()
    for axis, own in zip(axes.values(), gains, strict=True):
        far, control = load_of(axis), axis.force_control
        if far is None or control is None:
            found.append(ReceiverLoad())
            continue
        law: AnyParams = control.law
        column, coupled, curvature = law.column, 0, 0.0
        if column is not None:
            coupled = names.index(moved[law.coupled_to - 1])
            curvature = (
                sum(1.0 / length for length in lengths_of(column)) * gains[coupled].command ** 2 / own.command
            )
        found.append(
            ReceiverLoad(
                *far.times(1.0 / abs(own.command), 1.0 / abs(own.newtons)),
                law.stiffness * own.command / own.newtons,
                curvature,
                own.force / own.newtons,
                round(FROZEN_S / dt) if axis.sensors.force_noise_rms > axis.sensors.force_resolution else 0,
                coupled,
            )
        )
    return found


class Controllers:
    """Controllers of the ``axes`` with a valve and force loops; other axes follow their commands.

    Raises ConfigError for an axis whose controller should close the loop by a law without a valve.
    """

    def __init__(self, axes: Mapping[str, Axis], dt: float) -> None:
        self._valves: list[tuple[int, ServoValve]] = []
        for index, (name, axis) in enumerate(axes.items()):
            control = axis.force_control
            if control is None or not by_controller(axis):
                continue
            law: AnyParams = control.law
            if not isinstance(law, ServoValve.Params):
                raise ConfigError(
                    f"axes.{name}.force_control.law.type = {type(law).type_name!r}: the controller of an emulated "
                    "rig is a servo_valve"
                )
            self._valves.append((index, registry.build("force_controller", law, dt)))
        self._n = len(axes)
        self.start(np.zeros(self._n))

    def __bool__(self) -> bool:
        return bool(self._valves)

    def start(self, places: Array) -> None:
        """Hold all axes at ``places`` ``(n_axes,)`` m."""
        self.modes = bytearray([MODE_DISPLACEMENT] * self._n)
        self._led = places.copy()
        for index, valve in self._valves:
            valve.stand(float(places[index]))

    def led(self, command: Array, modes: bytes, shown: Measurement, stands: bool) -> Array:
        """Return the positions of all pistons ``(n_axes,)`` m after ``shown``; commands in m and N by ``modes``.

        The valves are shut while the rig ``stands``.
        """
        found = command.copy()
        for index, valve in self._valves:
            asked, place, force = (float(each[index]) for each in (command, shown.displacement, shown.force))
            if stands:
                found[index] = self._led[index]
            elif modes[index] == MODE_FORCE:
                found[index] = valve.step(asked, force if math.isfinite(force) else asked, 0.0)
            else:
                found[index] = valve.hold(asked, place if math.isfinite(place) else asked)
            self.modes[index] = modes[index]
        self._led = found
        return found
