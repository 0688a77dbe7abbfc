# SPDX-License-Identifier: Apache-2.0
"""Bytes between the element genericClient of OpenSees and this server: a greeting, then vectors of doubles.

All numbers are little-endian. The greeting is eleven int32: numbers of displacements, velocities, accelerations,
forces and times that the client sends, and of each that it requests, and the length of every vector. A vector of
the client begins with its action.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.errors import IntegratorError
from rths_nodes.core.samples import EMPTY, Array

Indices = NDArray[np.intp]

GREETING = struct.Struct("<11i")

TRIAL, COMMIT, FORCE, INITIAL_STIFFNESS, TANGENT_STIFFNESS, DAMPING, MASS, DIE = 3, 5, 10, 12, 13, 14, 15, 99
ACTIONS = {
    TRIAL: "setTrialResponse",
    COMMIT: "commitState",
    FORCE: "getForce",
    INITIAL_STIFFNESS: "getInitialStiff",
    TANGENT_STIFFNESS: "getTangentStiff",
    DAMPING: "getDamp",
    MASS: "getMass",
    DIE: "die",
}
"""Actions of a client; the first two and the last have no answer."""

LONGEST_VECTOR = 65_536
"""Doubles; no vector needs more than n x n, and a greeting must not fill the memory."""

FARTHEST = 1e6
"""m, m/s, m/s^2 or s; larger values are no response of a structure, and their derivatives would overflow."""


@dataclass(frozen=True)
class Request:
    """Request of the client: its action, and for TRIAL displacement (m), velocity (m/s) ``(n,)`` and time (s)."""

    action: int
    displacement: Array = field(default_factory=lambda: EMPTY)
    velocity: Array = field(default_factory=lambda: EMPTY)
    time: float = 0.0


def vector_length(greeting: bytes, n: int) -> int:
    """Return the length of a client's vectors. Raises IntegratorError unless it has ``n`` degrees of freedom."""
    *sizes, length = GREETING.unpack(greeting)
    expected = [n, n, n, 0, 1, 0, 0, 0, n, 0]
    if sizes != expected:
        raise IntegratorError(
            "the client greets with sizes [disp, vel, accel, force, time] of what it sends and of what it wants "
            f"back {sizes[:5]} and {sizes[5:]}: must be {expected[:5]} and {expected[5:]}, for a genericClient "
            f"with {n} degrees of freedom"
        )
    least = max(3 * n + 2, n * n)
    if not least <= length <= LONGEST_VECTOR:
        raise IntegratorError(
            f"the client greets with vectors of {length} doubles (-dataSize): must be >= {least} and <= "
            f"{LONGEST_VECTOR}"
        )
    return int(length)


def request(vector: bytes, places: Indices) -> Request:
    """Return the request in ``vector``; ``places`` are our degrees of freedom there. Raises IntegratorError."""
    n = len(places)
    values = np.frombuffer(vector, "<f8")
    action = float(values[0])
    if action not in ACTIONS:
        known = ", ".join(f"{number} {name}" for number, name in ACTIONS.items())
        raise IntegratorError(f"the client asks for the action {action:g}; known: {known}")
    if action != TRIAL:
        return Request(int(action))
    told = values[1 : 3 * n + 2].astype(float)
    if not (np.abs(told) <= FARTHEST).all():  # false for nan
        worst = told[np.argmin(np.abs(told) <= FARTHEST)]
        raise IntegratorError(
            f"the client sends the trial response {worst:g}: must be a number between -{FARTHEST:g} and "
            f"{FARTHEST:g} (m, s)"
        )
    return Request(TRIAL, told[places], told[n + places], float(told[3 * n]))


def answer(values: Array, length: int, places: Indices) -> bytes:
    """Return a vector of ``length`` doubles with ``values`` at their ``places`` first, a matrix by columns."""
    vector, theirs = np.zeros(length, "<f8"), np.zeros_like(values)
    theirs[np.ix_(*[places] * values.ndim)] = values
    vector[: values.size] = theirs.ravel("F")
    return vector.tobytes()
