"""Actuators that move one rigid coupler (loading beam, platform) by translation and rotation in a plane.

Actuator a is hinged at the anchor p_a on the reaction wall and at the attachment on the coupler, whose arm from
the reference point q_0 is r_a. With the translation q = (x, y) of that point, the rotation theta
(counter-clockwise), R(theta) its matrix and S = [[0, -1], [1, 0]]:

    arm            s_a = R r_a,  s_a' = theta' S s_a,  s_a'' = theta'' S s_a - theta'^2 s_a
    link           l_a = q_0 + q + s_a - p_a,  L_a = |l_a|,  u_a = l_a / L_a
    axis           d_a   = L_a - L_a(0)                                    positive when the actuator extends
                   d_a'  = u_a . w = J_a (x', y', theta'),  w = q' + s_a'
                   d_a'' = u_a . (q'' + s_a'') + (w . w - d_a'^2) / L_a    = J x'' + J' x'
    forces         (f_x, f_y, m) = sum_a f_a (u_a, u_a . S s_a) = J' f     the same virtual work in every pose

This is the inverse kinematics of a planar parallel manipulator with legs of variable length (Merlet, Parallel
Robots, 2nd ed. 2006), the loading unit of multi-axis hybrid tests. ``linear`` keeps J of the pose at rest:
d = J x, forces J' f. It leaves out (w . w - (u . w)^2) / 2 L - theta^2 u . r / 2, of second order, with
w = q + theta S r. ``long`` is exact for actuators so long that they keep their directions: u_a as at rest,
d_a = u_a . (q + s_a - r_a).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import matrix, number, params, text, vector
from rths_nodes.core.samples import Array, Motion

SINGULAR = 1e-3
"""Magnitude of the determinant of J, rotations counted in arcs of the longest arm, below which actuators jam."""

ITERATIONS = 20
"""Of Newton's method, which needs four to six within the reach."""

CLOSED = 1e-13
"""Error of an axis at which Newton's method ends, relative to the longest actuator."""


class _Link(NamedTuple):
    """One actuator in a pose: direction u, pin to pin length, and the arm from reference point to attachment."""

    ux: float
    uy: float
    length: float
    arm_x: float
    arm_y: float


def solved(rows: Array, right: Array) -> Array:
    """x ``(n,)`` of ``rows`` ``(n, n)`` x = ``right`` ``(n,)``; of two by Cramer's rule, a tenth of the time."""
    if len(rows) != 2:
        return np.asarray(np.linalg.solve(rows, right), float)
    ((a, b), (c, d)), (p, q) = rows.tolist(), right.tolist()
    determinant = a * d - b * c
    if determinant == 0.0:  # as numpy says it
        raise np.linalg.LinAlgError("Singular matrix")
    return np.array([(p * d - b * q) / determinant, (a * q - p * c) / determinant])


@params
class Geometry:
    """Points (x, y) in the plane of the coupler, in the pose at rest."""

    anchors: tuple[tuple[float, ...], ...] = matrix("pins on the reaction wall, one row x, y per axis", "m")
    attachments: tuple[tuple[float, ...], ...] = matrix("pins on the coupler, one row x, y per axis", "m")
    reference: tuple[float, ...] = vector(
        "point of the coupler whose translation is a degree of freedom", "m", (0.0, 0.0)
    )
    kinematics: str = text(
        "exact; long: exact for actuators so long that they keep their directions; linear: that of small motions",
        "exact",
        choices=("exact", "long", "linear"),
    )
    largest_rotation: float = number("magnitude of the rotation", "rad", 0.2, more_than=0.0, at_most=1.5)
    shortest_length: float = number(
        "length of each actuator, pin to pin with its piston in", "m", 0.1, more_than=0.0, at_most=100.0
    )

    def validate(self, path: str) -> None:
        """Refuses points that are not pairs, and actuators with one end only."""
        for name in ("anchors", "attachments"):
            rows = getattr(self, name)
            if len(rows[0]) != 2:
                raise ConfigError(f"{path}.{name}: rows of {len(rows[0])} numbers; must be 2, x and y in m")
        if len(self.reference) != 2:
            raise ConfigError(f"{path}.reference = {show(self.reference)}: must be 2 numbers, x and y in m")
        if len(self.anchors) != len(self.attachments):
            raise ConfigError(
                f"{path}.anchors: {len(self.anchors)} rows; must be {len(self.attachments)}, "
                f"as many as {path}.attachments"
            )


class Coupler:
    """Actuators on one rigid coupler in a plane: two move x and theta (y is guided), three move x, y and theta.

    The degrees of freedom are the translation of the reference point (m) and the rotation (rad,
    counter-clockwise), their forces N and N m. Beyond the reach - the largest rotation, the shortest length, a
    pose in which the actuators jam - everything it gives is nan, which trips the rig.
    """

    def __init__(self, params: Geometry, n_dof: int, n_axes: int, path: str) -> None:
        """Raises ConfigError, with the ``path`` of the parameters, for actuators that cannot move the coupler."""
        if len(params.anchors) != n_axes:
            raise ConfigError(f"{path}.anchors: {len(params.anchors)} rows; must be {n_axes}, one for each axis")
        self._path = path
        self._planar = n_dof == 3
        self._linear = params.kinematics == "linear"
        self._long = params.kinematics == "long"
        self._largest_rotation, self._shortest = params.largest_rotation, params.shortest_length
        anchors, attachments = np.array(params.anchors), np.array(params.attachments)
        arms = attachments - params.reference
        self._rest: list[float] = np.hypot(*(attachments - anchors).T).tolist()
        self._scale = float(np.hypot(*arms.T).max()) or 1.0
        # anchor as seen from the reference point at rest
        self._ends = list(zip((anchors - params.reference).tolist(), arms.tolist(), strict=True))
        with np.errstate(invalid="ignore"):  # one without length is refused below
            self._directions = ((attachments - anchors) / np.array(self._rest)[:, None]).tolist()
        self._last_pose: tuple[float, float, float] | None = None
        self._last_links: list[_Link] = []
        self._check_rest()
        self._jacobian = self._rows(self._links(np.zeros(n_dof)))
        self._transposed = self._jacobian.T.copy()
        self._inverse = np.linalg.inv(self._jacobian)
        self._nowhere = np.full(n_axes, math.nan)

    def _check_rest(self) -> None:
        for axis, length in enumerate(self._rest):
            if length < self._shortest:
                raise ConfigError(
                    f"{self._path}.anchors[{axis}]: its actuator is {length:g} m long at rest: must be >= "
                    f"{self._path}.shortest_length = {self._shortest:g} m"
                )
        links = self._links(np.zeros(len(self._ends)))
        self._sign = math.copysign(1.0, self._determinant(links))
        if self._jams(links):
            raise ConfigError(
                f"{self._path}.attachments: the actuators jam, a motion of the coupler is left undriven: the "
                "lines of action of two must not cut the y axis through the reference point at one height, those "
                "of three must not be parallel or go through one point"
            )

    def axes(self, motion: Motion) -> Motion:
        """Motion of the axes ``(n_axes,)`` from that of the degrees of freedom ``(n_dof,)``."""
        pose = motion.displacement
        if self._linear:
            if self._reaches_linearly(pose):
                t = self._jacobian
                return Motion(t @ pose, t @ motion.velocity, t @ motion.acceleration)
        elif self._open(pose, links := self._links(pose)):
            return self._moving(motion, links)
        return Motion(self._nowhere, self._nowhere, self._nowhere)

    def _moving(self, motion: Motion, links: list[_Link]) -> Motion:
        """Displacement, velocity and acceleration of the axes in exact kinematics."""
        vx, vy, spin = self._split(motion.velocity)
        ax, ay, spin_rate = self._split(motion.acceleration)
        displacement, velocity, acceleration = [], [], []
        for (ux, uy, length, sx, sy), rest in zip(links, self._rest, strict=True):
            wx, wy = vx - spin * sy, vy + spin * sx
            rate = ux * wx + uy * wy
            bx, by = ax - spin_rate * sy - spin * spin * sx, ay + spin_rate * sx - spin * spin * sy
            displacement.append(length - rest)
            velocity.append(rate)
            turning = 0.0 if self._long else (wx * wx + wy * wy - rate * rate) / length
            acceleration.append(ux * bx + uy * by + turning)
        return Motion(np.array(displacement), np.array(velocity), np.array(acceleration))

    def forces(self, axis_forces: Array, displacement: Array) -> Array:
        """Forces ``(n_dof,)`` N and N m of the axes' forces ``(n_axes,)`` N in the pose ``displacement``."""
        if self._linear:
            forces = self._transposed @ axis_forces
            return forces if self._reaches_linearly(displacement) else self._nowhere
        links = self._links(displacement)
        if not self._open(displacement, links):
            return self._nowhere
        return np.asarray(axis_forces @ self._rows(links))

    def axis_forces(self, forces: Array, displacement: Array) -> Array:
        """Forces of the axes ``(n_axes,)`` N that balance ``forces`` ``(n_dof,)`` in the pose ``displacement``."""
        return solved(self._rows_at(displacement).T, forces)

    def degrees_of_freedom(self, displacement: Array, near: Array | None = None) -> Array:
        """Pose ``(n_dof,)`` of the axes' ``displacement`` ``(n_axes,)`` m; nan where it lies beyond the reach.

        By Newton's method from the linear solution, or from a pose ``near`` it.
        """
        pose: Array = self._inverse @ displacement if near is None or self._linear else near
        if self._linear:
            return pose if self._reaches_linearly(pose) else self._nowhere
        wanted, close = displacement.tolist(), CLOSED * max(self._rest)
        for _ in range(ITERATIONS):
            links = self._links(pose)
            if not self._open(pose, links):
                break
            lengths = zip(wanted, links, self._rest, strict=True)
            left = [goal - (link.length - rest) for goal, link, rest in lengths]
            if max(map(abs, left)) <= close:
                return pose
            pose = pose + solved(self._rows(links), np.array(left))
        return self._nowhere

    def motion(self, axes: Motion, near: Array | None = None) -> Motion:
        """Motion of the degrees of freedom ``(n_dof,)`` from that of the axes; ``near`` as above."""
        pose = self.degrees_of_freedom(axes.displacement, near)
        rows = self._rows_at(pose)
        velocity = solved(rows, axes.velocity)
        turning = self.axes(Motion(pose, velocity, np.zeros_like(velocity))).acceleration
        return Motion(pose, velocity, solved(rows, axes.acceleration - turning))

    def _rows_at(self, pose: Array) -> Array:
        return self._jacobian if self._linear else self._rows(self._links(pose))

    def _split(self, values: Array) -> tuple[float, float, float]:
        """x, y, theta of a vector of the degrees of freedom; y is zero where it is guided."""
        if self._planar:
            x, y, theta = values.tolist()
            return x, y, theta
        x, theta = values.tolist()
        return x, 0.0, theta

    def _links(self, displacement: Array) -> list[_Link]:
        """The links in a pose; those of the last one are kept, because what is asked of it comes in a row."""
        pose = self._split(displacement)
        if pose != self._last_pose:
            self._last_links = self._links_in(*pose)
            self._last_pose = pose
        return self._last_links

    def _links_in(self, x: float, y: float, theta: float) -> list[_Link]:
        if not math.isfinite(theta):  # the sine of infinity is an error in plain floats
            theta = math.nan
        cosine, sine = math.cos(theta), math.sin(theta)
        links = []
        for ((px, py), (rx, ry)), (ux, uy), rest in zip(self._ends, self._directions, self._rest, strict=True):
            sx, sy = cosine * rx - sine * ry, sine * rx + cosine * ry
            if self._long:
                length = rest + ux * (x + sx - rx) + uy * (y + sy - ry)
            else:
                lx, ly = x + sx - px, y + sy - py
                length = math.hypot(lx, ly)
                ux, uy = (lx / length, ly / length) if length > 0.0 else (math.nan, math.nan)
            links.append(_Link(ux, uy, length, sx, sy))
        return links

    def _rows(self, links: list[_Link], scale: float = 1.0) -> Array:
        """The Jacobian ``(n_axes, n_dof)`` m/m and m/rad, or m per ``scale`` of rotation."""
        turns = [(link.arm_x * link.uy - link.arm_y * link.ux) / scale for link in links]
        if self._planar:
            return np.array([(link.ux, link.uy, turn) for link, turn in zip(links, turns, strict=True)])
        return np.array([(link.ux, turn) for link, turn in zip(links, turns, strict=True)])

    def _open(self, displacement: Array, links: list[_Link]) -> bool:
        """True within the reach."""
        return self._reaches(displacement, [link.length for link in links]) and not self._jams(links)

    def _reaches(self, displacement: Array, lengths: list[float]) -> bool:
        # written so that nan does not pass
        turned = abs(float(displacement[-1])) <= self._largest_rotation
        return turned and all(self._shortest <= length < math.inf for length in lengths)

    def _reaches_linearly(self, pose: Array) -> bool:
        return self._reaches(pose, (self._jacobian @ pose + self._rest).tolist())

    def _jams(self, links: list[_Link]) -> bool:
        """True where the actuators lock, and beyond, where they would hold the coupler the other way round."""
        return not self._sign * self._determinant(links) > SINGULAR

    def _determinant(self, links: list[_Link]) -> float:
        """Of the Jacobian, rotations as arcs of the longest arm: without unit, about 1 for a good rig."""
        if self._planar:
            return float(np.linalg.det(self._rows(links, self._scale)))
        (ax, ay, _, rx, ry), (bx, by, _, sx, sy) = links
        return (ax * (sx * by - sy * bx) - bx * (rx * ay - ry * ax)) / self._scale
