# SPDX-License-Identifier: Apache-2.0
"""Excitations that have derivatives: their protocol, and what the finite ones share.

These have a beginning, an end, and smooth ways from and to rest.

Functions of time come as triples of values and first and second derivatives, ``(n,)`` each, so that an excitation
that is used as a displacement has its exact velocity and acceleration.
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
    """A ground motion with exact derivatives: it can be a prescribed displacement (m), too.

    Of that the derivatives are velocity (m/s) and acceleration (m/s^2).
    """

    def sample(self, times: Array) -> Array:
        """Values at ``times`` (s), ``(n,)``."""
        ...

    def derivatives(self, times: Array) -> tuple[Array, Array]:
        """First and second derivative of the values at ``times`` (s), ``(n,)`` each."""
        ...


class Finite(ABC):
    """An excitation that is known with its derivatives; ``seed`` is not used."""

    def __init__(self, params: AnyParams, seed: int) -> None:
        self._p = params

    def sample(self, times: Array) -> Array:
        return self._triple(times)[0]

    def derivatives(self, times: Array) -> tuple[Array, Array]:
        return self._triple(times)[1:]

    @abstractmethod
    def _triple(self, times: Array) -> Triple: ...


def product(a: Triple, b: Triple) -> Triple:
    """The product of two functions with its derivatives."""
    return a[0] * b[0], a[1] * b[0] + a[0] * b[1], a[2] * b[0] + 2.0 * a[1] * b[1] + a[0] * b[2]


def wave(angle: Triple) -> Triple:
    """The sine of an angle (rad) that is a function of time."""
    sine, cosine = np.sin(angle[0]), np.cos(angle[0])
    return sine, angle[1] * cosine, angle[2] * cosine - angle[1] * angle[1] * sine


def rise(times: Array, length: float) -> Triple:
    """From 0 at time 0 to 1 at ``length`` (s): the polynomial of the fifth order without kink in acceleration."""
    if length == 0.0:
        return (times >= 0.0).astype(float), np.zeros(times.shape), np.zeros(times.shape)
    x = np.clip(times / length, 0.0, 1.0)
    rest = 1.0 - x
    value = x * x * x * (10.0 - 15.0 * x + 6.0 * x * x)
    return value, 30.0 * x * x * rest * rest / length, 60.0 * x * rest * (rest - x) / length**2


def window(times: Array, duration: float, taper: float) -> Triple:
    """1 from time 0 to ``duration`` (s), exactly 0 outside; it rises and falls smoothly within ``taper`` (s)."""
    up, down = rise(times, taper), rise(duration - times, taper)
    return product(up, (down[0], -down[1], down[2]))


def taper_parameter(default: float) -> Field:
    return number("time of a smooth rise at the beginning and fall at the end", "s", default, at_least=0.0)


def check_taper(taper: float, duration: float, path: str, unit: str = "s") -> None:
    """Raises ConfigError when rise and fall do not fit into ``duration``; ``path`` is that of the taper."""
    if 2.0 * taper > duration:
        raise ConfigError(f"{path} = {taper:g} {unit}: must be <= {duration / 2.0:g} {unit}, half the excitation")


def excitation_cautions(name: str, frequency: float, duration: float, test: TestContext) -> list[str]:
    """Warnings where the test ends before the excitation, or its steps are too long for parameter ``name``."""
    found = []
    if duration > test.duration:
        found.append(f"lasts {duration:g} s, the test ends after {test.duration:g} s")
    highest = 0.5 / test.step
    if frequency >= highest:
        found.append(f"{name} = {frequency:g} Hz: the integration step resolves less than {highest:g} Hz")
    return found
