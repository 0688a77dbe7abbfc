# SPDX-License-Identifier: Apache-2.0
"""Linear loops of a test at small motion: force loop of an axis, closed loop in continuous and discrete time.

:func:`turn` gives the number of zeros of a function of the complex frequency, and thus the number of unstable
modes of a loop. **Force loop** of a force-controlled axis, at small motion about its load:

    L(z) = z^-(1 + q) C(z) G(z)                                 open loop

C is the controller's law from measured force to command. G is the response of actuator, specimen and load cell
from command to measured force. q is the transport of the Commands in samples, or 0 if the controller closes the
loop. A law integrates, so the response of C does not decay, but the response of C (1 - 1/z) does. The unstable
modes are the zeros outside of the unit circle of

    1 - 1/z + L(z) (1 - 1/z)

At the angular frequency w with |L| = 1, a stable loop tolerates an additional delay of (pi + arg L) / w. Where L
is real and negative, it tolerates a factor 1 / |L| on the stiffness.

**Continuous time**:

    Z(s) = s^2 M + s C + K + T' S(s) H(s / r) T                 equation of motion, closed loop

M, C and K belong to the numerical substructure. T maps degrees of freedom to axes, and T' maps forces of the axes
to degrees of freedom. S is the dynamic stiffness of the specimens. H is the response of the specimens'
displacement to the target: compensator, transport and actuator. The complex frequency s (rad/s) belongs to the
structure. On a time axis that is r times slower, the rig moves with s / r. Integrator and ramp are exact, and
measurements have no error (Horiuchi, Nakagawa, Sugano, Konno 1996, Eqs. (1), (5), (6), extended to a rig).

**Discrete time**: once per step h, the integrator with the state y_k computes a Target u_k (displacement,
velocity, acceleration) from the forces f_k measured at the end of step k (``Integrator.linearised``):

    y_{k+1} = A y_k + B f_k,    u_{k+1} = C y_k + D f_k,    f_k = sum_l P_l u_{k-l}

P_l is the response of the axes' forces to one Target, l steps after its due sample. It is every n-th servo sample
of the impulse response (``impulses.py``), with n samples in a step. With z = e^{s h} and m states, the motions of
the closed loop are the zeros of

            | z I - A                       -B           |
    det     |                                            | / z^m,      P(z) = sum_l P_l z^{-l}
            | -P(z)/z C                I - P(z)/z D      |

The determinant has no pole outside the unit circle and is 1 at infinity. The angle by which it turns around zero
along the unit circle therefore gives the number of unstable modes. If an integrator repeats every q steps
(:class:`Period`), z^q replaces z.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.protocols import StepMatrices
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.mechanics.butterworth import Butterworth
from rths_nodes.mechanics.small_specimen import SmallSpecimen

HZ = 2.0 * math.pi
CHANGE = 0.5
"""Largest change of the determinant's complex logarithm (magnitude, turn in rad) between adjacent points.

Two roots close to an interval turn the determinant by 2 pi, which the values at the ends of the interval do not
show. In the adjacent intervals, such roots change the magnitude 9-fold (e^2.2, geometric mean). ``CHANGE`` is less
than a quarter of this exponent."""
MOST = 50_000
ROUNDS = 60
VANISHED = 1e-9
"""Magnitude of an open loop below which rounding determines its sign."""
SLOWEST = 1e-7
"""Lowest frequency in the search, relative to the Nyquist frequency."""
POINTS = 8_000
HAIR = 1e-13
SLOW = 1e-3
"""Fraction of the highest natural frequency at which the delay is evaluated."""
CHANGED = 0.1
CHUNK = 256
MARGINAL = 1e-7
"""Largest ratio of growth rate to frequency of a marginal motion."""
HALVINGS = 20
KEPT = 8
PERIODS = 256
KINDS = 3
Response = Callable[[Frequencies], Complex]
"""Function from angular frequency ``(n,)`` (rad/s, may be complex) to ``(n,)`` or ``(n, n_axes, n_axes)``."""


def turn(function: Callable[[Frequencies], Complex], path: Frequencies) -> float:
    """Return the angle by which ``function`` turns around zero along ``path``, rad.

    Intervals in which the logarithm of the function changes by more than ``CHANGE``, and adjacent intervals, are
    halved repeatedly. Raises ConfigError if too many points are needed: a root is on the path, or the values are
    only rounding errors.
    """
    values = function(path)
    for _ in range(ROUNDS):
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.log(values[1:] / values[:-1])
        fast = ~(np.abs(steps) < CHANGE)  # a change of NaN is also too large
        if not fast.any():
            return float(steps.imag.sum())
        where = path[:-1][fast]
        fast[1:], fast[:-1] = fast[1:] | fast[:-1], fast[:-1] | fast[1:]
        halved = np.flatnonzero(fast)
        if len(path) + len(halved) > MOST:
            break
        between = 0.5 * (path[halved] + path[halved + 1])
        path = np.insert(path, halved + 1, between)
        values = np.insert(values, halved + 1, function(between))
    raise ConfigError(
        f"stability: {len(path)} frequencies do not resolve the growing motions near "
        f"{float(np.median(where.imag)) / HZ:.4g} Hz. A motion neither grows nor decays, or rounding "
        "hides its growth"
    )


@dataclass(frozen=True, eq=False)
class ForceLoop:
    """Force loop of an axis at its ``load`` (N), closed by the nodes or the controller.

    ``law`` and ``plant`` are impulse responses ``(n,)``; the response of the law includes (1 - 1/z). ``late`` is
    the number of additional samples of delay in the loop. ``dt`` is the sample period, s.
    """

    axis: str
    closed_by: str
    load: float
    law: Array
    plant: Array
    late: int
    dt: float
    low: Butterworth | None = None

    @property
    def stiffness(self) -> float:
        """Low-frequency stiffness of specimen and actuator, N/m."""
        return float(self.plant.sum())

    def open(self, omega: Frequencies) -> Complex:
        """Return the open loop L at ``omega`` ``(n,)`` rad/s, which must be positive."""
        return np.asarray(self._finite(omega) / (1.0 - np.exp(-1j * omega * self.dt)), complex)

    def _finite(self, omega: Frequencies) -> Complex:
        response = np.exp(-1j * omega * self.late * self.dt)
        for answer in (self.law, self.plant):
            response = response * taps(omega, answer, self.dt * np.arange(len(answer)))
        return response if self.low is None else response * self.low.frequency_response(omega)

    def growing(self, delay: float = 0.0, gain: float = 1.0) -> int:
        """Return the number of unstable modes for an additional ``delay`` (s) and a ``gain`` on the stiffness."""

        def characteristic(s: Complex) -> Complex:
            omega = s.imag
            loop = gain * np.exp(-1j * omega * delay) * self._finite(omega)
            return np.asarray(1.0 - np.exp(-1j * omega * self.dt) + loop)

        return round(-turn(characteristic, 1j * np.concatenate(([0.0], self._grid))) / math.pi)

    @cached_property
    def _grid(self) -> Array:
        top = math.pi / self.dt
        return np.geomspace(SLOWEST * top, top, POINTS)

    @cached_property
    def stable(self) -> bool:
        return self.growing() == 0

    @cached_property
    def further_delay(self) -> tuple[float, float] | None:
        """Smallest additional delay (s) at which a mode is unstable, and its frequency (Hz), or None."""
        delays = [
            ((math.pi + phase) % (2.0 * math.pi) / omega, omega / HZ)
            for omega, phase in self._crossings(lambda loop: np.abs(loop) - 1.0)
        ]
        return min(delays, default=None)

    @cached_property
    def gain(self) -> float | None:
        """Smallest factor above 1 on the stiffness at which a mode is unstable, or None."""
        real = [omega for omega, _ in self._crossings(lambda loop: loop.imag)]
        loop = self.open(np.array([*real, math.pi / self.dt])).real  # also real at the Nyquist frequency
        gains = -1.0 / loop[loop < -VANISHED]
        return min(gains[gains > 1.0].tolist(), default=None)

    def _crossings(self, function: Callable[[Complex], Array]) -> Iterator[tuple[float, float]]:
        from scipy.optimize import brentq

        def at(omega: float) -> float:
            return float(function(self.open(np.array([omega])))[0])

        grid = self._grid[:-1]
        values = function(self.open(grid))
        for index in np.flatnonzero(values[1:] * values[:-1] < 0.0).tolist():
            omega = float(brentq(at, grid[index], grid[index + 1], rtol=1e-12))
            yield omega, float(np.angle(self.open(np.array([omega]))[0]))

    def text(self) -> str:
        name = f"force loop of {self.axis} at {self.load:g} N, closed by the {self.closed_by}"
        if not self.stable:
            return f"{name}: UNSTABLE"
        limits = []
        if (further := self.further_delay) is not None:
            limits.append(f"the delay may grow by {1e3 * further[0]:.4g} ms (motion of {further[1]:.4g} Hz)")
        if (gain := self.gain) is not None:
            limits.append(f"the specimen may be {gain:.3g} times as stiff")
        return f"{name}: stable; {', or '.join(limits) or 'no delay and no stiffness is critical'}"

    def data(self) -> Data:
        stable = self.stable
        delay, frequency = (self.further_delay if stable else None) or (None, None)
        return {
            "axis": self.axis,
            "closed_by": self.closed_by,
            "load_n": self.load,
            "stiffness_n_per_m": self.stiffness,
            "stable": stable,
            "further_delay_s": delay,
            "further_delay_motion_hz": frequency,
            "gain_margin": self.gain if stable else None,
        }


@dataclass(frozen=True, eq=False)
class WholeStructure:
    """Both substructures at small motion with a perfect rig, which moves the specimens exactly.

    ``mass``, ``damping`` and ``stiffness`` are the numerical substructure, ``(n_dof, n_dof)``. ``axes_of`` is T
    ``(n_axes, n_dof)``, ``forces_of`` is T' ``(n_dof, n_axes)``. The specimens move ``time_ratio`` times slower.
    """

    mass: Array
    damping: Array
    stiffness: Array
    axes_of: Array
    forces_of: Array
    specimens: tuple[SmallSpecimen, ...]
    time_ratio: float = field(default=1.0, kw_only=True)

    @cached_property
    def inverse(self) -> Array:
        return np.asarray(np.linalg.inv(self.mass), float)

    def specimen_stiffness(self, s: Array | Complex) -> Complex:
        """Return the dynamic stiffness of the specimens, ``(n, n_axes)`` N/m, at the structure's ``s`` (rad/s)."""
        return np.stack([specimen.at(s / self.time_ratio) for specimen in self.specimens], axis=-1)

    def numerical(self, s: Array | Complex) -> Complex:
        """Return the dynamic stiffness of the numerical substructure, ``(n, n_dof, n_dof)`` N/m."""
        w = s[:, None, None]
        return np.asarray(w**2 * self.mass + w * self.damping + self.stiffness)

    @cached_property
    def scale(self) -> float:
        """Highest frequency of the structure with its specimens, rad/s, used to scale determinants."""
        tested = np.diag([specimen.stiffness for specimen in self.specimens])  # internal states are ignored
        whole_stiffness = self.stiffness + self.forces_of @ tested @ self.axes_of
        eigenvalues = np.linalg.eigvals(self.inverse @ whole_stiffness)
        return float(np.sqrt(np.abs(eigenvalues).max())) or 1.0

    def states(self, rig: Array | Complex) -> Complex:
        """Return the roots (rad/s) of structure and specimens for a constant response of the rig, ``(n, m)``.

        The response ``rig`` ``(n, n_axes, n_axes)`` is the identity for a perfect rig. The state consists of x, x'
        and the states of the specimens, which are displaced by rig T x.
        """
        n, r = len(self.mass), self.time_ratio
        moved = rig @ self.axes_of
        stiffness = np.array([one.stiffness for one in self.specimens])
        damping = np.array([one.damping / r for one in self.specimens])
        held = self.stiffness + self.forces_of @ (stiffness[:, None] * moved)
        slowed = self.damping + self.forces_of @ (damping[:, None] * moved)
        size = 2 * n + sum(len(one.states) for one in self.specimens)
        matrix = np.zeros((len(rig), size, size), complex)
        matrix[:, :n, n : 2 * n] = np.eye(n)
        inverse: Array | Complex = self.inverse
        if any(one.mass for one in self.specimens):
            masses = np.array([one.mass / r**2 for one in self.specimens])
            inverse = np.linalg.inv(self.mass + self.forces_of @ (masses[:, None] * moved))
        matrix[:, n : 2 * n, :n] = -inverse @ held
        matrix[:, n : 2 * n, n : 2 * n] = -inverse @ slowed
        first = 2 * n
        for axis, one in enumerate(self.specimens):
            rows = slice(first, first + len(one.states))
            matrix[:, rows, :n] = r * one.displacement_to_state[:, None] * moved[:, axis, None, :]
            matrix[:, rows, n : 2 * n] = one.velocity_to_state[:, None] * moved[:, axis, None, :]
            matrix[:, rows, rows] = r * one.states
            force = np.outer(self.forces_of[:, axis], one.force_of_state)
            matrix[:, n : 2 * n, rows] = -inverse @ force
            first = rows.stop
        return np.asarray(np.linalg.eigvals(matrix), complex)


@dataclass(frozen=True, eq=False)
class ContinuousLoop(WholeStructure):
    """Closed loop for small motion in continuous time.

    ``compensator`` and ``actuators`` are functions of the rig's frequency (rad/s). ``dt`` is the servo period, s.
    ``transport`` is the delay of the port, s.
    """

    compensator: Response
    actuators: tuple[Response, ...]
    dt: float
    transport: float = 0.0

    finest = 1e-13
    force_loops: ClassVar[tuple[ForceLoop, ...]] = ()
    fed_back: ClassVar[bool] = False

    @property
    def border(self) -> float:
        """Growth rate (rad/s) at which crossings are searched for, to avoid the poles of an undamped structure."""
        return HAIR * self.scale

    @property
    def whole(self) -> WholeStructure:
        return self

    def reach(self, ratio: float) -> float:
        return ratio

    @property
    def n_axes(self) -> int:
        return len(self.actuators)

    @property
    def highest(self) -> float:
        """Nyquist frequency of the servo in structure time, rad/s."""
        return float(self.time_ratio * np.pi / self.dt)

    @property
    def delay(self) -> float:
        """Low-frequency delay of the slowest axis without a compensator, s."""
        omega = np.array([SLOW * self.scale / self.time_ratio])
        return float(max(-np.angle(response(omega)[0]) / omega[0] for response in self.actuators)) + self.transport

    def rig(self, omega: Frequencies) -> Complex:
        """Return the ratio of displacement to target, ``(n, n_axes, n_axes)``, at the rig's ``omega`` (rad/s)."""
        actuators = np.stack([response(omega) for response in self.actuators], axis=-1)
        late = actuators * np.exp(-1j * omega * self.transport)[:, None]
        command = self.compensator(omega)
        if command.ndim == 1:
            command = command[:, None, None] * np.eye(len(self.actuators))
        return np.asarray(late[:, :, None] * command)

    def open_loop(self, s: Frequencies) -> Complex:
        """Return the open loop from force to force, ``(n, n_axes, n_axes)``. An eigenvalue of -1 is critical."""
        tested = self.specimen_stiffness(s)[:, :, None] * self.rig(-1j * s / self.time_ratio)
        flexibility = self.axes_of @ np.linalg.solve(self.numerical(s), self.forces_of + 0.0 * s[:, None, None])
        return np.asarray(tested @ flexibility)

    def characteristic(self, s: Frequencies, gain: float = 1.0, delay: float = 0.0, ratio: float = 1.0) -> Complex:
        """Return det(M^-1 Z(s)) ``(n,)``, whose zeros are the motions of the closed loop.

        ``gain`` multiplies the specimens' forces. ``delay`` is an additional delay of every axis (s). ``ratio``
        multiplies all times of the rig, which is equivalent to multiplying the structure's natural frequencies.
        """
        omega = -1j * s * ratio / self.time_ratio
        way = self.rig(omega) * (gain * np.exp(-1j * omega * delay))[:, None, None]
        tested = self.specimen_stiffness(s)[:, :, None] * way
        impedance = self.numerical(s) + self.forces_of @ tested @ self.axes_of
        scaled = self.inverse @ impedance / self.scale**2
        return np.asarray(np.linalg.det(scaled), complex)


class Lines(NamedTuple):
    """Computes a sum of arrays, each multiplied by e^{-angle p}, with the powers p = ``first``, ``first`` + 1, ...

    The flattened arrays form ``few`` blocks. Row i of ``blocks`` ``(few, few * columns)`` is row i of all blocks.
    """

    first: float
    blocks: Array
    shape: tuple[int, ...]

    @classmethod
    def of(cls, first: float, lines: Array) -> Lines:
        flat = lines.reshape(len(lines), -1)
        few = math.ceil(math.sqrt(len(flat)))
        padded = np.pad(flat, ((0, few * few - len(flat)), (0, 0)))
        blocks = padded.reshape(few, few, -1).transpose(1, 0, 2).reshape(few, -1)
        return cls(first, np.ascontiguousarray(blocks), lines.shape[1:])

    def at(self, angles: Complex) -> Complex:
        """Return the sum at ``angles`` ``(n,)``, as ``(n, ...)``."""
        few = len(self.blocks)
        fine = np.exp(-np.multiply.outer(angles, np.arange(few)))
        coarse = np.exp(-np.multiply.outer(angles, self.first + few * np.arange(few)))
        inside = np.vstack([fine.real, fine.imag]) @ self.blocks
        real, imag = inside.reshape(2, len(angles), few, -1)
        values = (coarse[:, None, :] @ real + 1j * (coarse[:, None, :] @ imag))[:, 0]
        return np.asarray(values.reshape(len(angles), *self.shape))

    def grid(self) -> Array:
        """Return angles (rad) from 0 to pi, between which the sum changes by about ``CHANGED`` (relative).

        Every column has equal weight, whatever its unit. The angles are selected from a uniform grid. It is finer
        than the width of a resonance whose terms have decayed to 1e-10 at the last power.
        """
        few = len(self.blocks)
        lines = self.blocks.reshape(few, few, -1).transpose(1, 0, 2).reshape(few * few, -1)
        largest = np.abs(lines).max(axis=0)
        lines = lines[:, largest > 0.0] / largest[largest > 0.0]
        points = 1 << (4 * len(lines) - 1).bit_length()
        angles = 2.0 * math.pi / points * np.arange(points // 2 + 1)
        sizes, changes = np.zeros(len(angles)), np.zeros(len(angles) - 1)
        late = np.exp(-1j * self.first * angles)
        for column in lines.T:  # one column at a time: all of them may not fit in memory
            values = np.fft.rfft(column, points) * late
            sizes += np.abs(values) ** 2
            changes += np.abs(np.diff(values)) ** 2
        larger = np.maximum(np.maximum(sizes[1:], sizes[:-1]), np.finfo(float).tiny)
        passed = np.diff(np.floor(np.cumsum(np.sqrt(changes / larger)) / CHANGED), prepend=0.0) > 0.0
        return np.asarray(angles[1:][passed])


class Period(NamedTuple):
    """Matrices of one period (q steps) of an integrator with m states.

    The forces of all steps form one vector, as do the Targets. ``onward`` is ``(m, m)``, ``force`` ``(m, q
    n_axes)``, ``target`` ``(q 3 n_dof, m)``, and ``through`` ``(q 3 n_dof, q n_axes)``.
    """

    onward: Array
    force: Array
    target: Array
    through: Array

    @classmethod
    def of(cls, steps: Sequence[StepMatrices], forces_of: Array, time_ratio: float) -> Period:
        onward, n_axes = np.eye(len(steps[0].onward)), forces_of.shape[1]
        force = np.zeros((len(onward), 0))
        targets, through = [], []
        for step in steps:
            slower = np.repeat(time_ratio ** -np.arange(KINDS, dtype=float), len(forces_of))[:, None]
            rest = np.zeros((len(slower), len(steps) * n_axes - force.shape[1] - n_axes))
            targets.append(slower * step.target @ onward)
            through.append(np.hstack([slower * step.target @ force, slower * step.through @ forces_of, rest]))
            force = np.hstack([step.onward @ force, step.force @ forces_of])
            onward = step.onward @ onward
        return cls(onward, force, np.vstack(targets), np.vstack(through))


@dataclass(frozen=True, eq=False)
class Impulses:
    """Responses to unit impulses of the Targets, on the time axis of the rig.

    ``forces`` (N) and ``displacements`` (m) of the axes are ``(samples, n_axes, 3 n_dof)``. Columns are
    the responses to displacements (per m), velocities (per m/s) and accelerations (per m/s^2) of a Target. The
    ramp begins in row 0: sample ``first`` = 1 - samples_per_step, counted from the sample where the Target is due.
    """

    forces: Array
    displacements: Array
    first: int
    at_once: Array | None
    """Forces that the setup adds due to the displacement of the same Target, ``(n_axes, n_dof)`` N/m, or None."""
    delay_of: Callable[[], float]
    """Function that computes ``delay``. The delay is not needed to judge the stability alone."""

    @cached_property
    def delay(self) -> float:
        """Low-frequency delay of the rig's slowest axis, with transport, s. Raises ConfigError if unknown."""
        return self.delay_of()


@dataclass(frozen=True, eq=False)
class SampledLoop:
    """Closed loop for small motion in discrete time.

    ``integrator`` returns the steps (of ``step`` s, in structure time) for a scale factor of the
    natural frequencies, or raises ConfigError. ``axes_of`` ``(n_axes, n_dof)`` and ``forces_of`` ``(n_dof,
    n_axes)`` belong to the setup. ``per_step`` is the number of servo samples of a step. ``separate`` is true if
    every axis has its own specimen. ``force_loops`` are judged separately.
    """

    whole: WholeStructure
    axes_of: Array
    forces_of: Array
    integrator: Callable[[float], Sequence[StepMatrices]]
    impulses: Impulses
    step: float
    per_step: int
    assumptions: tuple[str, ...] = ()
    separate: bool = True
    force_loops: tuple[ForceLoop, ...] = ()
    fed_back: bool = False
    """True if the commands depend on measurements."""

    finest = 1e-10

    @cached_property
    def _periods(self) -> Callable[[float], Period]:
        def period(ratio: float) -> Period:
            return Period.of(self.integrator(ratio), self.forces_of, self.time_ratio)

        return lru_cache(PERIODS)(period)

    @cached_property
    def _lines(self) -> Callable[[float], Lines]:
        return lru_cache(KEPT)(self._read)

    @cached_property
    def _grids(self) -> Callable[[float], Array]:
        return lru_cache(KEPT)(lambda delay: self._lines(delay).grid())

    @property
    def period(self) -> int:
        return len(self._periods(1.0).target) // (KINDS * len(self.whole.mass))

    def reach(self, ratio: float) -> float:
        """Return ``ratio`` (factor on natural frequencies), moved towards 1 until the integrator supports it."""
        for _ in range(HALVINGS):
            if self.reaches(ratio):
                return ratio
            ratio = 0.5 * (1.0 + ratio)
        return 1.0

    def reaches(self, ratio: float) -> bool:
        try:
            self._periods(ratio)
        except ConfigError:
            return False
        return True

    def rig_grid(self, delay: float = 0.0) -> Array:
        """Return a grid (rad/s) that resolves the rig's response with an additional ``delay`` (s)."""
        return self._grids(delay) / (self.period * self.step)

    @property
    def scale(self) -> float:
        return self.whole.scale

    @property
    def time_ratio(self) -> float:
        return self.whole.time_ratio

    @property
    def border(self) -> float:
        """Growth rate (rad/s) above which a mode counts as unstable."""
        return MARGINAL * self.scale

    @property
    def dt(self) -> float:
        """Servo period, s."""
        return self.step * self.whole.time_ratio / self.per_step

    @property
    def delay(self) -> float:
        return self.impulses.delay

    @property
    def n_axes(self) -> int:
        return int(self.forces_of.shape[1])

    @property
    def highest(self) -> float:
        """Nyquist frequency of the integrator's periods in structure time, rad/s."""
        return math.pi / (self.period * self.step)

    def rig(self, omega: Frequencies) -> Complex:
        """Return the ratio of displacement to target, ``(n, n_axes, n_axes)``, without aliases of the ramp."""
        responses, first = self.impulses.displacements, self.impulses.first
        times = self.dt * (first + np.arange(len(responses)))
        waves = np.exp(-1j * np.multiply.outer(omega, times)) / self.per_step
        parts = np.tensordot(waves, responses, 1).reshape(len(waves), self.n_axes, KINDS, -1)
        derivatives = (1j * np.asarray(omega)[:, None]) ** np.arange(KINDS)
        of_dof = np.einsum("fakd,fk->fad", parts, derivatives)
        return np.asarray(of_dof @ np.linalg.pinv(self.axes_of))

    def _read(self, delay: float) -> Lines:
        """Return the responses ``(t, q n_axes, q 3 n_dof)`` for powers of e^{-s q h}, with q steps h in a period.

        Row block i and column block j hold the force at step i of a period due to the Target of step j.
        """
        n, q, forces, first = self.per_step, self.period, self.impulses.forces, self.impulses.first
        late = delay / self.dt
        # a Target of step k is due at step k + 1; its response begins with the first sample that it affects
        lowest = math.floor((first + late - 1.0) / n) + 2
        pushed = self.impulses.at_once  # forces added by the setup have no delay
        lowest = lowest if pushed is None else min(lowest, 1)
        highest = math.ceil((first + len(forces) + late) / n) + 1
        places = (np.arange(lowest, highest + 1) - 1) * n - late - first
        integral = np.floor(places + ROUNDING)
        part = np.clip(places - integral, 0.0, 1.0)[:, None, None]
        padded = np.concatenate([0.0 * forces[:1], forces, 0.0 * forces[:1]])
        index = np.clip(integral.astype(int) + 1, 0, len(padded) - 1)
        after = np.clip(integral.astype(int) + 2, 0, len(padded) - 1)
        read = (1.0 - part) * padded[index] + part * padded[after]
        if pushed is not None:
            read[1 - lowest, :, : pushed.shape[1]] += pushed
        powers = np.arange((lowest - q + 1) // q, -(-(highest + q - 1) // q) + 1)
        steps = powers[:, None, None] * q + np.arange(q)[:, None] - np.arange(q)
        inside = (steps >= lowest) & (steps <= highest)
        blocks = np.where(inside[..., None, None], read[np.clip(steps - lowest, 0, len(read) - 1)], 0.0)
        rows, columns = forces.shape[1:]
        lines = blocks.transpose(0, 1, 3, 2, 4).reshape(len(powers), q * rows, q * columns)
        return Lines.of(float(powers[0]), lines)

    def _way(self, s: Complex, delay: float = 0.0, share: float = 1.0, ratio: float = 1.0) -> Complex:
        """Return force per Target at ``s`` (rad/s), ``(n, q n_axes, q 3 n_dof)``; ``share`` 0 is a perfect rig."""
        q = self.period
        values = self._lines(delay).at(s * (q * self.step))
        if share == 1.0:
            return values
        at_place = np.zeros_like(values).reshape(len(s), q, self.n_axes, q, -1)
        stiffness = self.whole.specimen_stiffness(s / ratio)[:, :, None] * self.axes_of
        n_dof = stiffness.shape[2]
        for step in range(q):
            once = 1.0 if step else np.exp(-s * q * self.step)[:, None, None]
            at_place[:, step, :, step - 1, :n_dof] = once * stiffness
        return np.asarray(share * values + (1.0 - share) * at_place.reshape(values.shape))

    def open_loop(self, s: Frequencies) -> Complex:
        """Return the open loop from force to force, ``(n, q n_axes, q n_axes)``. Eigenvalue -1 is critical."""
        period, parts = self._periods(1.0), []
        for some in np.array_split(np.asarray(s, np.complex128), math.ceil(len(s) / CHUNK)):
            w = np.exp(some * self.period * self.step)[:, None, None]
            memory = np.linalg.solve(w * np.eye(len(period.onward)) - period.onward, period.force + 0.0 * w)
            parts.append(-self._way(some) @ (period.target @ memory + period.through))
        return np.concatenate(parts)

    def characteristic(
        self, s: Frequencies, gain: float = 1.0, delay: float = 0.0, ratio: float = 1.0, share: float = 1.0
    ) -> Complex:
        """Return the determinant (see the module), ``(n,)``. Its zeros are the motions (rad/s) of the closed loop.

        ``gain`` multiplies the forces. ``delay`` is an additional delay of every axis (s), linear between samples
        as in the actuator ``pure_delay``. ``ratio`` multiplies the natural frequencies by changing the numerical
        mass and damping, while ``s`` refers to the unscaled structure. ``share`` is 0 for a perfect rig.
        """
        period, q = self._periods(ratio), self.period
        m, n = len(period.onward), period.force.shape[1]
        parts = []
        for some in np.array_split(np.asarray(ratio * np.asarray(s), np.complex128), math.ceil(len(s) / CHUNK)):
            w = np.exp(some * q * self.step)
            way = gain * self._way(some, delay, share, ratio)
            matrix = np.empty((len(some), m + n, m + n), complex)
            matrix[:, :m, :m] = np.eye(m) - period.onward / w[:, None, None]
            matrix[:, :m, m:] = -period.force / w[:, None, None]
            matrix[:, m:, :m] = -way @ period.target
            matrix[:, m:, m:] = np.eye(n) - way @ period.through
            parts.append(np.linalg.det(matrix))
        return np.concatenate(parts)
