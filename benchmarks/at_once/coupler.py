"""Two actuators on a rigid coupler in many poses at a time, as ``core/coupler.py`` has it for one."""

from __future__ import annotations

import numpy as np

from at_once.arrays import Array
from rths_nodes.core import coupler
from rths_nodes.core.coupler_kernels import ITERATIONS


class LongCoupler:
    """Two actuators so long that they keep their directions (``kinematics: long``) move x and theta.

    All arrays ``(2, runs)``: of the axes, or of x and theta.
    """

    def __init__(self, geometry: coupler.Geometry) -> None:
        """Raises ValueError for another kind of kinematics."""
        if geometry.kinematics != "long":
            raise ValueError(f"coupler.kinematics = {geometry.kinematics!r}: only 'long' is known here")
        one = coupler.Coupler(geometry, 2, 2, "coupler")
        k = one.constants
        self._arms = np.array([arm for _, arm, _, _ in k.axes])[:, :, None]
        self._directions = np.array([direction for _, _, direction, _ in k.axes])[:, :, None]
        self._inverse, self._largest, self._closed = np.array(k.inverse), geometry.largest_rotation, k.close

    def axes(self, x: Array, v: Array, a: Array) -> tuple[Array, Array, Array]:
        """Displacement, velocity and acceleration of the axes at those of x and theta."""
        (ux, uy), (sx, sy) = self._directions.swapaxes(0, 1), self._turned(x)
        rate = ux * (v[0] - v[1] * sy) + uy * (v[1] * sx)
        bx, by = a[0] - a[1] * sy - v[1] * v[1] * sx, a[1] * sx - v[1] * v[1] * sy
        return self._displacement(x, sx, sy), rate, ux * bx + uy * by

    def forces(self, axis_forces: Array, x: Array) -> Array:
        """Forces of x and theta of those of the axes in the pose ``x``."""
        (f, g), (u, w), (t, r) = axis_forces, *self._rows(x)
        return np.stack([u * f + w * g, t * f + r * g])

    def axis_forces(self, forces: Array, x: Array) -> Array:
        """Forces of the axes that balance those of x and theta in the pose ``x``."""
        (f, g), (u, w), (t, r) = forces, *self._rows(x)
        return np.stack([r * f - w * g, u * g - t * f]) / (u * r - w * t)

    def pose(self, displacement: Array, near: Array | None = None) -> tuple[Array, Array]:
        """x and theta of the axes' ``displacement``, and which runs ``(runs,)`` are beyond the reach.

        By Newton's method from the linear solution, or from a pose ``near`` it, each run until it is closed.
        """
        x = self._inverse @ displacement if near is None else near
        for _ in range(ITERATIONS):
            left = displacement - self._displacement(x, *self._turned(x))
            still = ~(np.abs(left).max(axis=0) <= self._closed)
            if not still.any():
                break
            x = np.where(still, x + self._solved(left, x), x)
        return x, still | ~(np.abs(x[1]) <= self._largest)

    def motion(self, x: Array, velocity: Array, acceleration: Array) -> tuple[Array, Array]:
        """Velocity and acceleration of x and theta in the pose ``x`` from those of the axes."""
        v = self._solved(velocity, x)
        turning = self.axes(x, v, np.zeros_like(v))[2]
        return v, self._solved(acceleration - turning, x)

    def _turned(self, x: Array) -> tuple[Array, Array]:
        """The arms ``(2, runs)``, x and y."""
        cosine, sine = np.cos(x[1]), np.sin(x[1])
        rx, ry = self._arms[:, 0], self._arms[:, 1]
        return cosine * rx - sine * ry, sine * rx + cosine * ry

    def _displacement(self, x: Array, sx: Array, sy: Array) -> Array:
        (rx, ry), (ux, uy) = self._arms.swapaxes(0, 1), self._directions.swapaxes(0, 1)
        found: Array = ux * (x[0] + sx - rx) + uy * (sy - ry)
        return found

    def _rows(self, x: Array) -> tuple[Array, Array]:
        """The Jacobian by its columns: of x and of theta ``(2, runs)`` each."""
        (ux, uy), (sx, sy) = self._directions.swapaxes(0, 1), self._turned(x)
        turns = sx * uy - sy * ux
        return np.broadcast_to(ux, turns.shape), turns

    def _solved(self, rates: Array, x: Array) -> Array:
        """Rates of x and theta of those of the axes."""
        (b, c), (u, w), (t, r) = rates, *self._rows(x)
        return np.stack([r * b - t * c, u * c - w * b]) / (u * r - w * t)
