# SPDX-License-Identifier: Apache-2.0
"""Solution of a linear system that contains one nonlinear specimen. Only the specimen's force is approximated.

The system is z' = A z + B u + e F with the state z and the inputs u. F is the force of a specimen whose
displacement x and velocity v are linear in z. In each substep, the linear part is exact for inputs that change
linearly. A first pass holds the force; in a second pass, it changes linearly. RK4 advances the specimen's states
along the motion of the first pass. The error is of second order in the substep. The motion after substep j is

    (x, v)_j = P_j (z, u) + sum_i (g_{j-i} F_i + c_{j-i} F*_{i+1})

F* is the force after the first pass. P_j, g and c are constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import Numbers, all_nan, ceiling, matvec_into, numbers, put
from rths_nodes.core.decay import HARD_LIMIT, LONGEST, decay_of
from rths_nodes.core.kernels import advance_of
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.core.simulators import Specimen
from rths_nodes.mechanics.structure import transition

Stepping = Callable[..., tuple[object, Array]]
TOGETHER = 16
"""Largest number J of substeps in one matrix product. The sums of forces have about J^2 terms."""


def substeps_of(dt: float, longest: float) -> int:
    return max(1, math.ceil(dt / longest * (1.0 - ROUNDING)))


Way = tuple[float, float, float, tuple[float, float, float]]
"""Substep (s), velocity (m/s) up to which one increment suffices, largest increment count, fields of ``Decay``."""


class Constants(NamedTuple):
    """Constants for n states, m inputs and p outputs. A sample takes B matrix products, each for J substeps."""

    sizes: tuple[int, int, int, int]
    ramp: bool
    places: tuple[Array, ...]
    """B matrices ``(2 J, n + 2 m)`` that map z and inputs, without forces, to x and v after each substep."""
    onward: tuple[Array, ...]
    """B matrices ``(n + p, n + 2 m + 2 J + 1)`` that map z, inputs and forces to final z and outputs."""
    held: tuple[float, float]
    """Change of x and v in a substep per newton of a constant force, m/N and m/(N s)."""
    correction: tuple[float, float]
    """Change of x and v in a substep per newton of a force that grows from zero, m/N and m/(N s)."""
    later: tuple[list[float], list[float]]
    """Effects of F and F* in earlier substeps on x and v, in lists for fast indexing; the latest one is last."""
    way: Way
    specimen: object


class State(NamedTuple):
    """Arrays of the linear system (modified in place), and the specimen's states, motion and force."""

    system: Array
    """Array (z, inputs before, inputs now, forces)."""
    moved: Array
    """x and v after each substep, without the forces of these substeps, ``(2 J,)``."""
    inner: tuple[float, ...]
    displacement: float
    velocity: float
    force: float


def states_along(rate: Callable[..., Numbers]) -> Callable[..., Numbers]:
    advance: Callable[..., Numbers] = advance_of(rate)

    def go(k: Way, specimen: object, s: Numbers, x0: float, v0: float, x1: float, v1: float) -> Numbers:
        """Advance the specimen's states while its motion changes from (x0, v0) to (x1, v1).

        Several increments are used if the states decay fast.
        """
        h, fastest, most, decay = k
        faster = abs(v1) if abs(v1) > abs(v0) else abs(v0)
        if faster <= fastest:
            x, v = 0.5 * (x0 + x1) + 0.125 * h * (v0 - v1), 0.5 * (v0 + v1)
            return advance(specimen, s, h, x0, v0, x, v, x1, v1)
        at_rest, per_velocity, _ = decay
        count = ceiling((at_rest + per_velocity * faster) * h / LONGEST)
        if not count <= most:
            return all_nan(s)
        # equal increments; the displacement is the cubic that matches position and velocity at both ends
        part, index, x_before, v_before = h / count, 1.0, x0, v0
        while index <= count:
            t = index / count
            rest = 1.0 - t
            x = rest * rest * (x0 + t * (2.0 * x0 + h * v0)) + t * t * (x1 + rest * (2.0 * x1 - h * v1))
            v = v0 + t * (v1 - v0)
            middle, even = 0.5 * (x_before + x) + 0.125 * part * (v_before - v), 0.5 * (v_before + v)
            s = advance(specimen, s, part, x_before, v_before, middle, even, x, v)
            x_before, v_before, index = x, v, index + 1.0
        return s

    return go


def no_states(k: Way, specimen: object, s: Numbers, x0: float, v0: float, x1: float, v1: float) -> Numbers:
    return s


def linear_with_specimen(
    force: Callable[..., float], go: Callable[..., Numbers], driven: Callable[..., object]
) -> Stepping:
    def step(k: Constants, s: State, inputs: Array, voltage: float) -> tuple[tuple[object, ...], Array]:
        """Advance the system and its specimen by one sample."""
        (n, m, blocks, count), ramp, places, onward, held, correction, later, way, specimen = k
        (x_held, v_held), (x_more, v_more), (x_later, v_later) = held, correction, later
        states, moved, inner, x0, v0, f = s
        specimen = driven(specimen, voltage)
        if ramp:
            put(states, n, states[n + m : n + 2 * m])
        else:
            put(states, n, inputs)
        put(states, n + m, inputs)
        shown = np.zeros(len(onward[0]))
        for block in range(blocks):
            matvec_into(moved, places[block], states[: n + 2 * m])
            first = numbers(moved)
            forces = numbers(states[n + 2 * m :])
            forces[0] = f
            for index in range(count):
                x1 = first[2 * index] + x_held * f
                v1 = first[2 * index + 1] + v_held * f
                skipped = 2 * (count - 1 - index)
                for index_of_block in range(2 * index):
                    x1 += x_later[skipped + index_of_block] * forces[index_of_block]
                    v1 += v_later[skipped + index_of_block] * forces[index_of_block]
                inner = go(way, specimen, inner, x0, v0, x1, v1)
                passed = force(specimen, inner, x1, v1)
                x0, v0 = x1 + x_more * (passed - f), v1 + v_more * (passed - f)
                f = force(specimen, inner, x0, v0)
                forces[2 * index + 1], forces[2 * index + 2] = passed, f
            put(states, n + 2 * m, forces)
            matvec_into(shown, onward[block], states)
            put(states, 0, shown[:n])
        return (states, moved, inner, x0, v0, f), shown

    return step


def undriven(k: object, voltage: float) -> object:
    return k


def step_of(specimen: Specimen) -> Stepping:
    (_, _, force, rate, driven), _ = specimen.bound()
    go = states_along(rate) if specimen.initial_state else no_states
    return linear_with_specimen(force, go, undriven if specimen.voltage is None or driven is None else driven)


def constants(
    linear: tuple[Array, Array],
    column: Array,
    rows: tuple[Array, Array],
    seen: Array,
    specimen: Specimen,
    dt: float,
    substeps: int,
    ramp: bool = True,
) -> Constants:
    """Return the constants of z' = A z + B u + e F, with (A, B) = ``linear`` and e = ``column``.

    The two ``rows`` ``(n,)`` map z to displacement and velocity. ``seen`` ``(p, n + 1)`` maps z and F to outputs.
    """
    system, inputs = linear
    n, m, h = len(system), inputs.shape[1], dt / substeps
    count = max(divisor for divisor in range(1, TOGETHER + 1) if substeps % divisor == 0)
    phi, before, now = transition(system, np.column_stack([inputs, column]), h)
    start, end = before[:, -1], now[:, -1]
    to_place = np.vstack(rows)
    powers = [np.eye(n)]
    for _ in range(count):
        powers.append(phi @ powers[-1])
    places, onward = [], []
    for first in range(0, substeps, count):
        # z after each substep as a function of (z, inputs before, inputs now) and the forces F_0, F*_1, F_1, ...
        of_all = np.hstack([np.eye(n), np.zeros((n, 2 * m + 2 * count + 1))])
        shares = []
        for index in range(count):
            of_all = phi @ of_all
            of_all[:, n : n + 2 * m] += _driven(before[:, :-1], now[:, :-1], first + index, substeps)
            of_all[:, n + 2 * m + 2 * index] += start
            of_all[:, n + 2 * m + 2 * index + 1] += end
            shares.append(to_place @ of_all[:, : n + 2 * m])
        places.append(np.asfortranarray(np.vstack(shares)))
        last = np.zeros((1, of_all.shape[1]))
        last[0, -1] = 1.0
        onward.append(np.asfortranarray(np.vstack([of_all, seen @ np.vstack([of_all, last])])))
    later = [to_place @ powers[age] @ np.column_stack([start, end]) for age in range(count - 1, 0, -1)]
    x_later, v_later = np.hstack([*later, np.zeros((2, 1))]).tolist()
    decay, of_specimen = decay_of(specimen), specimen.bound()[1]
    return Constants(
        (n, m, substeps // count, count),
        ramp,
        tuple(places),
        tuple(onward),
        tuple((to_place @ (start + end)).tolist()),
        tuple((to_place @ end).tolist()),
        (x_later, v_later),
        (h, decay.fastest(h), HARD_LIMIT / substeps, decay.numbers),
        of_specimen,
    )


def _driven(before: Array, now: Array, index: int, substeps: int) -> Array:
    start, end = index / substeps, (index + 1) / substeps
    return np.hstack([(1.0 - start) * before + (1.0 - end) * now, start * before + end * now])


def rest_of(specimen: Specimen) -> Callable[[Constants], State]:
    kernel, of_specimen = specimen.bound()
    inner = tuple(specimen.initial_state)

    def rest(k: Constants) -> State:
        states, moved = np.zeros(k.onward[0].shape[1]), np.zeros(len(k.places[0]))
        return State(states, moved, inner, 0.0, 0.0, kernel.force(of_specimen, inner, 0.0, 0.0))

    return rest
