# SPDX-License-Identifier: Apache-2.0
"""Excitations with derivatives: their protocol, and common parts of the finite ones.

The latter have a beginning, an end, and smooth transitions from and to rest. Functions of time are triples of
values and first and second derivatives, ``(n,)`` each, so that an excitation used as a displacement has its exact
velocity and acceleration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import Field, number
from rths_nodes.core.samples import Array

Triple = tuple[Array, Array, Array]


@runtime_checkable
class Formula(Protocol):
    """A ground motion with exact derivatives, or a prescribed displacement (m) with velocity and acceleration."""

    def sample(self, times: Array) -> Array:
        """Return values at ``times`` (s), ``(n,)``."""
        ...

    def derivatives(self, times: Array) -> tuple[Array, Array]:
        """Return first and second derivative of the values at ``times`` (s), ``(n,)`` each."""
        ...


class Finite(ABC):
    """A finite excitation with derivatives; ``seed`` is not used."""

    def __init__(self, params: AnyParams, seed: int) -> None:
        self._p = params

    def sample(self, times: Array) -> Array:
        return self._triple(times)[0]

    def derivatives(self, times: Array) -> tuple[Array, Array]:
        return self._triple(times)[1:]

    @abstractmethod
    def _triple(self, times: Array) -> Triple: ...


def product(a: Triple, b: Triple) -> Triple:
    return a[0] * b[0], a[1] * b[0] + a[0] * b[1], a[2] * b[0] + 2.0 * a[1] * b[1] + a[0] * b[2]


def wave(angle: Triple) -> Triple:
    """Return the sine of an angle (rad)."""
    sine, cosine = np.sin(angle[0]), np.cos(angle[0])
    return sine, angle[1] * cosine, angle[2] * cosine - angle[1] * angle[1] * sine


def rise(times: Array, length: float) -> Triple:
    """Rise from 0 at time 0 to 1 at ``length`` (s) by a polynomial of fifth order, smooth in acceleration."""
    if length == 0.0:
        return (times >= 0.0).astype(float), np.zeros(times.shape), np.zeros(times.shape)
    x = np.clip(times / length, 0.0, 1.0)
    rest = 1.0 - x
    value = x * x * x * (10.0 - 15.0 * x + 6.0 * x * x)
    return value, 30.0 * x * x * rest * rest / length, 60.0 * x * rest * (rest - x) / length**2


def window(times: Array, duration: float, taper: float) -> Triple:
    """Return 1 from time 0 to ``duration`` (s), exactly 0 outside, smooth within ``taper`` (s) at both ends."""
    up, down = rise(times, taper), rise(duration - times, taper)
    return product(up, (down[0], -down[1], down[2]))


def taper_parameter(default: float) -> Field:
    return number("time of a smooth rise at the beginning and fall at the end", "s", default, at_least=0.0)


def check_taper(taper: float, duration: float, path: str, unit: str = "s") -> None:
    """Raise ConfigError if rise and fall exceed ``duration``; ``path`` is the place of the taper."""
    if 2.0 * taper > duration:
        raise ConfigError(f"{path} = {taper:g} {unit}: must be <= {duration / 2.0:g} {unit}, half the excitation")


def excitation_cautions(name: str, frequency: float, duration: float, test: TestContext) -> list[str]:
    """Return cautions for a test shorter than the excitation, or too long steps for parameter ``name``."""
    found = []
    if duration > test.duration:
        found.append(f"lasts {duration:g} s, the test ends after {test.duration:g} s")
    highest = 0.5 / test.step
    if frequency >= highest:
        found.append(f"{name} = {frequency:g} Hz: the integration step resolves less than {highest:g} Hz")
    return found
