"""Servo-hydraulic actuators on one specimen, perhaps with a damper in it (Phillips & Spencer 2012, section 3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core import channels, registry
from rths_nodes.core.checks import TestContext
from rths_nodes.core.decay import check_at, stated
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.models.coupled_rig import CoupledModel, RigConstants, force_input, state_space
from rths_nodes.core.parameters import component, number, params, text, vector
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.rigs.linear_with_specimen import LinearWithSpecimen, NoSpecimen, substeps_of

Rows = tuple[tuple[float, ...], ...]


class CoupledServoHydraulic:
    """Actuators of first order, coupled through a linear specimen (Eq. 2.9), with a damper of any kind in it.

    Actuator i pushes on degree of freedom i; the force of axis i is that of its load cell, f_i. The linear part
    is solved exactly between the sub-steps in which the damper goes on. The damper is a ``specimen`` that stands
    where ``damper_location`` says; one that has a voltage makes the input ``damper_voltage``. The actuators'
    constants are not published; the defaults reproduce row (c) of Table 3.1.
    """

    @params
    class Params(RigConstants):
        """Parameters of the specimen, the damper and the actuators; a list of one number holds for all axes."""

        damper: Any = component("specimen", "damper as part of the specimen; none if left out", None)
        damper_location: tuple[float, ...] | None = vector(
            "elongation of the damper per displacement of each axis; if left out, it is between ground and axis 1",
            "1",
            None,
        )
        longest_substep: float = number(
            "sub-steps of the damper within a sample are no longer", "s", 1.0 / 8000.0, more_than=0.0
        )
        hold: str = text(
            "how the command runs within a sample: straight (ramp) or held (staircase)",
            "ramp",
            ("ramp", "staircase"),
        )

        def validate(self, path: str) -> None:
            """Refuses matrices and lists that do not fit together."""
            self.model(path)
            n = len(self.mass)
            if self.damper_location is not None and len(self.damper_location) != n:
                shown = show(self.damper_location)
                raise ConfigError(f"{path}.damper_location = {shown}: must be {n} numbers, one for each axis")

        def fits(self, test: TestContext) -> None:
            """Refuses a damper that moves too fast for the servo rate."""
            if self.damper is not None and len(test.axes) == len(self.mass):
                largest = float(np.abs(self.location()) @ test.velocity_limits)
                check_at(stated(self.damper), f"damper ({type(self.damper).type_name})", largest, test.dt)

        def cautions(self, test: TestContext) -> list[str]:
            """Warns of a held command."""
            if self.hold == "ramp":
                return []
            return [
                "hold = staircase: the force read at each tick carries the ripple of the steps, which acts as "
                "damping that is not there: the response may be tens of per cent wrong and tracking look perfect"
            ]

        def location(self) -> Array:
            """Elongation of the damper per displacement of each axis, ``(n_axes,)``."""
            return np.array(self.damper_location or np.eye(len(self.mass))[0])

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        model = params.model()
        n = self._n = len(model.mass)
        if n != n_axes:
            raise ConfigError(f"rig.mass: {n} rows; must be {n_axes}, the test has {n_axes} axes")
        self._damper = _damper(params)
        self._driven = hasattr(self._damper, "voltage")
        self._passive_voltage: float = getattr(self._damper, "voltage", 0.0)
        self._ramp = params.hold == "ramp"
        substeps = substeps_of(dt, params.longest_substep) if params.damper else 1
        self._plant = self._linear(model, params.location(), dt, substeps)
        self.auxiliary_inputs: tuple[str, ...] = (channels.DAMPER_VOLTAGE,) if self._driven else ()
        self.auxiliary_names = channels.accelerations(n)
        if params.damper:
            self.auxiliary_names += (channels.DAMPER_DISPLACEMENT, channels.DAMPER_FORCE)
        self.reset()

    def _linear(self, model: CoupledModel, location: Array, dt: float, substeps: int) -> LinearWithSpecimen:
        system, inputs, outputs = state_space(model)
        column = force_input(model, location)
        n = self._n
        self._acceleration = np.column_stack([outputs[2 * n : 3 * n], column[n : 2 * n]])
        nothing = np.zeros(n)
        rows = (np.concatenate([location, nothing, nothing]), np.concatenate([nothing, location, nothing]))
        return LinearWithSpecimen((system, inputs), column, rows, self._damper, dt, substeps)

    def reset(self) -> None:
        """At rest at zero, and commanded to be there."""
        if self._driven:
            self._damper.voltage = self._passive_voltage
        self._plant.reset()
        self._command = np.zeros(self._n)
        self._look()

    def step(self, command: Array, auxiliary: Array) -> None:
        """One sample on, with the command ``(n_axes,)`` m and the held voltage ``(1,)`` V of a driven damper."""
        if self._driven:
            self._damper.voltage = float(auxiliary[0])
        self._plant.step(self._command if self._ramp else command, command)
        self._command = command.copy()
        self._look()

    def _look(self) -> None:
        n, plant = self._n, self._plant
        state = plant.state_and_force.copy()
        self.displacement, self.velocity, self.force = state[:n], state[n : 2 * n], state[2 * n : 3 * n]
        measured = self._acceleration.dot(state).tolist()
        if len(self.auxiliary_names) > n:
            measured += plant.displacement, plant.force
        self.auxiliary = np.array(measured)


def _damper(params: CoupledServoHydraulic.Params) -> Any:
    if params.damper is None:
        return NoSpecimen()
    return registry.build("specimen", params.damper)
