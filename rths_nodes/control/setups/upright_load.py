# SPDX-License-Identifier: Apache-2.0
"""Setup that removes the lateral force of an inclined load actuator from the force of the axis that inclines it.

If the column head drifts by u, a load actuator above it inclines by b, with sin b = u / sqrt(L^2 + u^2) for the
length L from pin to pin. Its force P pushes the head sideways with P sin b. The load cell of the actuator that
moves the head measures

    F = R - P sin b,        so that        R = F + P sin b

is the restoring force of the specimen, including the P-Delta effect of an upright load. The small change e of L
under the load is neglected; its relative effect on the correction is e / L, 2.5e-4 for 0.5 mm on 2 m.
"""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core import registry
from rths_nodes.core.arithmetic import Numbers, first, raised
from rths_nodes.core.control import Setup, SetupKernel, SetupOfKernel, functions_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import OfParams, TestContext, component, integer, number, params
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.axial_load import horizontal_share

Motions = tuple[Numbers, Numbers, Numbers]
Constants = tuple[object, float, int, int]
"""Constants of the inner setup, and the results of :func:`places`."""


def upright(inner_axes: Callable[..., Motions], inner_forces: Callable[..., Numbers]) -> tuple[Function, Function]:
    def axes(k: Constants, x: Numbers, v: Numbers, a: Numbers) -> Motions:
        coupler, _, _, _ = k
        return inner_axes(coupler, x, v, a)

    def forces(k: Constants, axis_forces: Numbers, displacement: Numbers) -> Numbers:
        """Forces of the specimen: removes the load actuator's lateral force from the axis that moves the head."""
        coupler, length, by, load = k
        pose, _, _ = inner_axes(coupler, displacement, displacement, displacement)
        moved = first(pose, axis_forces)
        if load < len(axis_forces):  # without load axes (model of the specimen alone) there is no correction
            moved = raised(moved, by, axis_forces[load] * horizontal_share(pose[by], length))
        return inner_forces(coupler, moved, displacement)

    return axes, forces


class UprightLoad(SetupOfKernel):
    """Setup that corrects the forces of another ``setup`` for an inclined load actuator."""

    takes_loads = True

    @params
    class Params:
        actuator_length: float = number(
            "length of the load actuator from pin to pin", "m", more_than=0.0, at_most=100.0
        )
        force_axis: int = integer(
            "number of the load actuator among the axes controlled by force, from 1", "", 1, at_least=1
        )
        inclined_by: int = integer(
            "number of the displacement axis that inclines the load actuator, from 1", "", 1, at_least=1
        )
        setup: OfParams = component(
            "setup", "setup that converts between degrees of freedom and displacement axes", {"type": "identity"}
        )

        def fits(self, test: TestContext) -> None:
            loads = len(test.force_axes)
            for key, most, phrase in (
                ("force_axis", loads, "axes controlled by force"),
                ("inclined_by", len(test.axes) - loads, "displacement axes"),
            ):
                if getattr(self, key) > most:
                    raise ConfigError(f"{key} = {getattr(self, key)}: must be <= {most}, the number of {phrase}")

        def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
            groups = list(self.setup.stop_groups(n_moved, n_axes))
            load = n_moved + self.force_axis - 1
            groups[load] = groups[self.inclined_by - 1]
            return tuple(groups)

    def __init__(self, params: Params, n_dof: int, n_axes: int) -> None:
        self._inner: Setup = registry.build("setup", params.setup, n_dof, n_axes)
        if self._inner.takes_loads:
            raise ConfigError(
                "setup.setup.type = 'upright_load': must be another type, because setup already corrects the load"
            )
        self._axes, self._forces = upright(*functions_of(self._inner))
        self._constants = None, *places(params, n_axes)

    @classmethod
    def kernel_of(cls, params: Params) -> SetupKernel | None:
        inner: SetupKernel | None = registry.kernel_of("setup", params.setup)
        if inner is None:
            return None
        constants, *functions = inner
        return SetupKernel(
            lambda params, n_dof, n_axes: (constants(params.setup, n_dof, n_axes), *places(params, n_axes)),
            *upright(*functions),
        )

    def degrees_of_freedom(self, displacement: Array) -> Array:
        return self._inner.degrees_of_freedom(displacement)


def places(params: UprightLoad.Params, n_axes: int) -> tuple[float, int, int]:
    """Return the load actuator's length (m), the index of the axis that inclines it, and its own index.

    Raises ConfigError if ``inclined_by`` exceeds the number of displacement axes.
    """
    if params.inclined_by > n_axes:
        raise ConfigError(
            f"setup.inclined_by = {params.inclined_by}: must be <= {n_axes}, the number of displacement axes"
        )
    return params.actuator_length, params.inclined_by - 1, n_axes + params.force_axis - 1
