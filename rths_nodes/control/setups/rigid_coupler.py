"""Actuators that move one rigid coupler (loading beam, platform) by translation and rotation in a plane.

The kinematics are those of :mod:`rths_nodes.core.coupler`. The coupler may be fixed to some of many degrees of
freedom: with its own q = P x, P the ``pose``, the forces act on all as P' J' f, the same virtual work. What P
leaves out nobody moves and no force is fed back to.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.control import Setup
from rths_nodes.core.coupler import Coupler, Geometry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import matrix, params
from rths_nodes.core.samples import Array, Motion


class RigidCoupler(Setup):
    """Actuators on one rigid coupler in a plane: two move x and theta (y is guided), three move x, y and theta.

    The degrees of freedom are the translation of the reference point (m) and the rotation (rad,
    counter-clockwise), their forces N and N m; or those of the structure, of which ``pose`` makes them. Beyond the
    reach - the largest rotation, the shortest length, a pose in which the actuators jam - everything it gives is
    nan, which trips the rig.
    """

    @params
    class Params(Geometry):
        """Points (x, y) in the plane of the coupler, in the pose at rest."""

        pose: tuple[tuple[float, ...], ...] | None = matrix(
            "motion of the coupler per motion of each degree of freedom of the structure: a row each for x, (y) "
            "and theta, a column for each degree of freedom; they are the same if left out",
            "m/m",
            None,
        )

    def __init__(self, params: Params, n_dof: int, n_axes: int) -> None:
        self._pose = None if params.pose is None else np.array(params.pose)
        own = n_dof if self._pose is None else len(self._pose)
        if own not in (2, 3) or n_axes != own:
            raise ConfigError(
                f"setup rigid_coupler: {n_axes} axes for {own} degrees of freedom: must be 2 for x, theta or 3 "
                "for x, y, theta; with more in the structure give setup.pose"
            )
        self._coupler = Coupler(params, own, n_axes, "setup")
        if self._pose is not None:
            if self._pose.shape[1] != n_dof:
                raise ConfigError(
                    f"setup.pose: rows of {self._pose.shape[1]} numbers; must be {n_dof}, one for each degree of "
                    "freedom"
                )
            if np.linalg.matrix_rank(self._pose) < own:
                raise ConfigError("setup.pose: its rows depend on each other: the coupler cannot move on its own")
            self._transposed, self._inverse = self._pose.T.copy(), np.linalg.pinv(self._pose)

    def axes(self, motion: Motion) -> Motion:
        p = self._pose
        if p is not None:
            motion = Motion(p.dot(motion.displacement), p.dot(motion.velocity), p.dot(motion.acceleration))
        return self._coupler.axes(motion)

    def forces(self, axis_forces: Array, displacement: Array) -> Array:
        if self._pose is None:
            return self._coupler.forces(axis_forces, displacement)
        found: Array = self._transposed.dot(self._coupler.forces(axis_forces, self._pose.dot(displacement)))
        return found

    def degrees_of_freedom(self, displacement: Array) -> Array:
        """By Newton's method from the linear solution; nan where it ends beyond the reach."""
        pose = self._coupler.degrees_of_freedom(displacement)
        if self._pose is None:
            return pose
        found: Array = self._inverse @ pose
        return found
