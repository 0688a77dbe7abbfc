# SPDX-License-Identifier: Apache-2.0
"""Discrete-time loop of a hybrid test for small motion: integrator, ramp and servo samples.

Once per step h, the integrator with the state y_k computes a Target u_k (displacement, velocity, acceleration)
from the forces f_k measured at the end of step k (``Integrator.linearised``):

    y_{k+1} = A y_k + B f_k,    u_{k+1} = C y_k + D f_k,    f_k = sum_l P_l u_{k-l}

P_l is the response of the axes' forces to one Target, l steps after its due sample: every n-th servo sample of the
impulse response (``impulses.py``), with n samples in a step.

With z = e^{s h} and m states, the motions of the closed loop are the zeros of

            | z I - A                       -B           |
    det     |                                            | / z^m,      P(z) = sum_l P_l z^{-l}
            | -P(z)/z C                I - P(z)/z D      |

The determinant has no pole outside the unit circle and is 1 at infinity, so the angle by which it turns around
zero along the unit circle gives the number of growing motions. If an integrator repeats every q steps
(:class:`Period`), z^q replaces z.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rths_nodes.analysis.stability.continuous_loop import WholeStructure
from rths_nodes.analysis.stability.force_loops import ForceLoop
from rths_nodes.analysis.stability.impulses import KINDS, Impulses
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.protocols import StepMatrices
from rths_nodes.core.samples import ROUNDING, Array

CHANGED = 0.1
CHUNK = 256
MARGINAL = 1e-7
"""Largest ratio of growth to frequency of a marginal motion."""
HALVINGS = 20
KEPT = 8
PERIODS = 256


class Lines(NamedTuple):
    """Computes a sum of rows, each multiplied by e^{-angle p} with consecutive powers p from ``first`` on.

    The rows are in ``blocks`` ``(few, few * columns)``, whose dimensions are position in a block, and block times
    column.
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
        """Return angles (rad) from 0 to pi between which the sum changes by the fraction ``CHANGED``.

        Every column has equal weight, whatever its unit. A resonance whose terms have decayed to 1e-10 at the last
        power is several times as wide as the distance between angles.
        """
        few = len(self.blocks)
        lines = self.blocks.reshape(few, few, -1).transpose(1, 0, 2).reshape(few * few, -1)
        largest = np.abs(lines).max(axis=0)
        lines = lines[:, largest > 0.0] / largest[largest > 0.0]
        points = 1 << (4 * len(lines) - 1).bit_length()
        angles = 2.0 * math.pi / points * np.arange(points // 2 + 1)
        sizes, changes = np.zeros(len(angles)), np.zeros(len(angles) - 1)
        late = np.exp(-1j * self.first * angles)
        for column in lines.T:  # one at a time: all columns of a large structure would fill the memory
            values = np.fft.rfft(column, points) * late
            sizes += np.abs(values) ** 2
            changes += np.abs(np.diff(values)) ** 2
        larger = np.maximum(np.maximum(sizes[1:], sizes[:-1]), np.finfo(float).tiny)
        passed = np.diff(np.floor(np.cumsum(np.sqrt(changes / larger)) / CHANGED), prepend=0.0) > 0.0
        return np.asarray(angles[1:][passed])


class Period(NamedTuple):
    """Matrices of a period of q steps of an integrator with m states.

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
class SampledLoop:
    """Computes the responses of a closed loop for small motion in discrete time.

    ``integrator`` returns the steps (of ``step`` s, in the time of the structure) for a scale factor of the
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
    _periods: Callable[[float], Period] = field(init=False, repr=False)
    _lines: Callable[[float], Lines] = field(init=False, repr=False)
    _grids: Callable[[float], Array] = field(init=False, repr=False)

    sampled = True
    finest = 1e-10

    def __post_init__(self) -> None:
        def period(ratio: float) -> Period:
            return Period.of(self.integrator(ratio), self.forces_of, self.whole.time_ratio)

        object.__setattr__(self, "_periods", lru_cache(PERIODS)(period))
        object.__setattr__(self, "_lines", lru_cache(KEPT)(self._read))
        object.__setattr__(self, "_grids", lru_cache(KEPT)(lambda delay: self._lines(delay).grid()))

    @property
    def period(self) -> int:
        return len(self._periods(1.0).target) // (KINDS * len(self.whole.mass))

    def reach(self, ratio: float) -> float:
        """Return ``ratio``, or a lower factor on the natural frequencies that the integrator permits."""
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
        """Return a grid (rad/s) on which the rig's response, with a further ``delay`` (s), changes little."""
        return self._grids(delay) / (self.period * self.step)

    @property
    def scale(self) -> float:
        return self.whole.scale

    @property
    def border(self) -> float:
        """Growth rate (rad/s) above which a motion is treated as growing."""
        return MARGINAL * self.scale

    @property
    def time_ratio(self) -> float:
        return self.whole.time_ratio

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
        """Angular frequency of the structure at the Nyquist frequency of the periods, rad/s."""
        return math.pi / (self.period * self.step)

    def rig(self, omega: Frequencies) -> Complex:
        """Return the ratio of displacement to target, ``(n, n_axes, n_axes)``, without images due to the ramp."""
        responses, first = self.impulses.displacements, self.impulses.first
        times = self.dt * (first + np.arange(len(responses)))
        waves = np.exp(-1j * np.multiply.outer(omega, times)) / self.per_step
        parts = np.tensordot(waves, responses, 1).reshape(len(waves), self.n_axes, KINDS, -1)
        derivatives = (1j * np.asarray(omega)[:, None]) ** np.arange(KINDS)
        of_dof = np.einsum("fakd,fk->fad", parts, derivatives)
        return np.asarray(of_dof @ np.linalg.pinv(self.axes_of))

    def _read(self, delay: float) -> Lines:
        """Return responses ``(t, q n_axes, q 3 n_dof)`` for powers of e^{-s q h}, with q steps h in a period.

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
        """Return forces per Target at ``s`` (rad/s), ``(n, q n_axes, q 3 n_dof)``; perfect rig at ``share`` 0."""
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
        """Return force per force on the axes, ``(n, q n_axes, q n_axes)``. The critical point is -1."""
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

        ``gain`` multiplies the forces. ``delay`` is a further delay of every axis (s), linear between samples as
        in the actuator ``pure_delay``. ``ratio`` multiplies the natural frequencies by changing the numerical mass
        and damping, while ``s`` refers to the unscaled structure. ``share`` is 0 for a perfect rig.
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
