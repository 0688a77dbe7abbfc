# SPDX-License-Identifier: Apache-2.0
"""Servo-hydraulic actuators on one specimen, optionally with a damper (Phillips & Spencer 2012, section 3)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.control import DAMPER_DISPLACEMENT, DAMPER_FORCE, DAMPER_VOLTAGE, accelerations
from rths_nodes.core.decay import check_at, stated
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import OfParams, TestContext, component, number, params, type_of, vector
from rths_nodes.core.samples import Array
from rths_nodes.core.simulators import NoSpecimen, Rig, RigKernel, Shown, Specimen, still
from rths_nodes.laboratory.actuators.unloaded import hold_parameter
from rths_nodes.laboratory.rigs.linear_with_specimen import (
    Constants,
    State,
    constants,
    rest_of,
    step_of,
    substeps_of,
)
from rths_nodes.mechanics.coupled_rig import RigConstants, force_input, state_space


class CoupledServoHydraulic(Rig):
    """First-order actuators, coupled through a linear specimen that may contain a damper of any kind.

    The model is Eq. (2.9) of Phillips & Spencer (2012). Actuator i acts on degree of freedom i. The force of axis
    i is the load-cell force. The linear part is solved exactly between the substeps of the damper. A ``damper``
    with a voltage adds the input ``damper_voltage``. The constants of the actuators have not been published; the
    defaults reproduce row (c) of Table 3.1.
    """

    SOURCES = ("phillips_spencer_2012",)

    @params
    class Params(RigConstants):
        damper: OfParams | None = component("specimen", "damper as part of the specimen; default: none", None)
        damper_location: tuple[float, ...] | None = vector(
            "elongation of the damper per displacement of each axis; default: a damper between ground and axis 1",
            "1",
            None,
        )
        longest_substep: float = number("longest substep of the damper", "s", 1.0 / 8000.0, more_than=0.0)
        hold: str = hold_parameter("ramp")

        def validate(self, path: str) -> None:
            self.model(path)
            n = len(self.mass)
            if self.damper_location is not None and len(self.damper_location) != n:
                shown = show(self.damper_location)
                raise ConfigError(f"{path}.damper_location = {shown}: must be {n} numbers, one for each axis")

        def fits(self, test: TestContext) -> None:
            if self.damper is not None and len(test.axes) == len(self.mass):
                largest = float(np.abs(self.location()) @ test.velocity_limits)
                check_at(stated(self.damper), f"damper ({type_of(self.damper)})", largest, test.dt)

        def cautions(self, test: TestContext) -> list[str]:
            if self.hold == "ramp":
                return []
            return [
                "hold = staircase: the steps cause a ripple in the measured force, which acts as false "
                "damping. The response may be wrong by tens of per cent, although the tracking looks perfect"
            ]

        def location(self) -> Array:
            return np.array(self.damper_location or np.eye(len(self.mass))[0])

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        n = len(params.mass)
        if n != n_axes:
            raise ConfigError(
                f"rig.mass: the number of rows is {n}; must be {n_axes}, one for each axis of the test"
            )
        damper = _damper(params)
        self.auxiliary_inputs = () if damper.voltage is None else (DAMPER_VOLTAGE,)
        self.auxiliary_names = accelerations(n)
        if params.damper:
            self.auxiliary_names += (DAMPER_DISPLACEMENT, DAMPER_FORCE)
        super().__init__(params, dt, n_axes, _kernel(damper))

    @classmethod
    def kernel_of(cls, params: Params, n_axes: int) -> RigKernel:
        return _kernel(_damper(params))


def _kernel(damper: Specimen) -> RigKernel:
    return RigKernel(
        lambda plant, dt: _constants(plant, damper, dt),
        rest_of(damper),
        coupled(step_of(damper), damper.voltage is not None),
        shown_at_rest,
    )


def coupled(onward: Callable[..., tuple[object, Array]], driven: bool) -> Callable[..., tuple[object, Shown]]:
    def step(k: Constants, s: State, command: Array, auxiliary: Array) -> tuple[object, Shown]:
        """Advance the rig by one sample. The outputs that follow the forces are auxiliary channels."""
        after, force = onward(k, s, command, float(auxiliary[0]) if driven else 0.0)
        n, m, _, _ = k[0]
        return after, (force[:m], force[m : 2 * m], force[2 * m : n], force[n:])

    return step


def shown_at_rest(k: Constants, s: State) -> Shown:
    n, m, _, _ = k.sizes
    return (*still(m)[:3], k.onward[-1][n:, -1] * s.force)


def _constants(params: CoupledServoHydraulic.Params, damper: Specimen, dt: float) -> Constants:
    model, location = params.model(), params.location()
    system, inputs, outputs = state_space(model)
    column = force_input(model, location)
    n = len(model.mass)
    nothing = np.zeros(n)
    rows = np.concatenate([location, nothing, nothing]), np.concatenate([nothing, location, nothing])
    seen = np.column_stack([outputs[2 * n : 3 * n], column[n : 2 * n]])  # accelerations
    if params.damper:
        seen = np.vstack([seen, [*rows[0], 0.0], [*nothing, *nothing, *nothing, 1.0]])
    substeps = substeps_of(dt, params.longest_substep) if params.damper else 1
    return constants((system, inputs), column, rows, seen, damper, dt, substeps, params.hold == "ramp")


def _damper(params: CoupledServoHydraulic.Params) -> Specimen:
    if params.damper is None:
        return NoSpecimen()
    built: Specimen = registry.build("specimen", params.damper)
    return built
