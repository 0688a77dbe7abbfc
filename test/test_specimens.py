"""Specimens: loss factors of the notes' specimens L and H; H follows its closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rths_nodes.actuators.specimen_path import SpecimenPath

LOWEST, HIGHEST = 0.5, 1.0
"""Hz: the frequencies in which a frame of 0.77 Hz moves."""
SAMPLES = 2000
"""Per period."""


def loss_factor(specimen: Any, amplitude: float, frequency: float) -> float:
    """Energy of the third loop over 2 pi times the elastic energy at the largest displacement."""
    time = np.arange(3 * SAMPLES + 1) / (SAMPLES * frequency)
    omega = 2.0 * math.pi * frequency
    x = amplitude * np.sin(omega * time)
    v = omega * amplitude * np.cos(omega * time)
    path = SpecimenPath(specimen, 1.0 / (SAMPLES * frequency))
    force = np.array([path.move(*state) for state in zip(x.tolist(), v.tolist(), strict=True)])
    loop = slice(2 * SAMPLES, 3 * SAMPLES + 1)
    energy = np.trapezoid(force[loop], x[loop])
    peak = 2 * SAMPLES + SAMPLES // 4
    return float(energy / (math.pi * force[peak] * amplitude))


@pytest.mark.parametrize(
    ("name", "amplitude", "low", "high"),
    [
        ("kelvin_voigt", 0.001, 0.26, 0.53),
        ("kelvin_voigt", 0.030, 0.26, 0.53),
        ("softening_elastomeric", 0.001, 0.1, 0.2),
        ("softening_elastomeric", 0.030, 0.5, 0.7),
    ],
)
@pytest.mark.parametrize("frequency", [LOWEST, HIGHEST])
def test_loss_factor(
    make: Callable[..., Any], name: str, amplitude: float, low: float, high: float, frequency: float
) -> None:
    assert low <= loss_factor(make("specimen", name), amplitude, frequency) <= high


def test_the_loss_factor_of_a_spring_and_dashpot_is_c_omega_over_k(make: Callable[..., Any]) -> None:
    expected = 0.64e6 * 2.0 * math.pi * 0.77 / 7.6e6
    assert loss_factor(make("specimen", "kelvin_voigt"), 0.01, 0.77) == pytest.approx(expected, rel=1e-5)


def test_specimen_h_softens_with_amplitude(make: Callable[..., Any]) -> None:
    path = SpecimenPath(make("specimen", "softening_elastomeric"), 1.0)
    forces = [path.move(x, 0.0) for x in np.linspace(0.0, 0.06, 61).tolist()]
    assert forces[1] / 0.001 == pytest.approx(7.6e6, rel=0.05)
    assert forces[60] - forces[59] == pytest.approx(2.0e6 * 0.001, rel=0.05)


def virgin(x: float) -> float:
    """Specimen H, loaded slowly for the first time: exponent 1 makes z = 1 - exp(-x / x_f)."""
    return 2.0e6 * x + 60e3 * (1.0 - math.exp(-x * 5.6 / 60e-3))


def test_the_path_converges_with_the_fourth_order(make: Callable[..., Any]) -> None:
    end, errors = 0.06, []
    for parts in (1, 2, 4):
        path = SpecimenPath(make("specimen", "softening_elastomeric"), 1.0)
        force = [path.move(end * (part + 1) / parts, 0.0) for part in range(parts)][-1]
        errors.append(abs(force - virgin(end)))
    assert errors[0] / errors[1] > 12.0
    assert errors[1] / errors[2] > 12.0
    assert errors[2] < 1e-5 * virgin(end)


def test_inner_states_see_the_displacement_on_the_way() -> None:
    class Integral:
        """A specimen that adds up its displacement over time."""

        initial_state = (0.0,)

        def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
            return state[0]

        def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
            return (displacement,)

    path = SpecimenPath(Integral(), 0.5)
    assert path.move(2.0, 0.0) == pytest.approx(0.5 * 0.5 * 2.0)
    assert path.move(2.0, 0.0) == pytest.approx(0.5 + 0.5 * 2.0)


def test_the_velocity_adds_the_dashpot_only(make: Callable[..., Any]) -> None:
    slow, fast = (SpecimenPath(make("specimen", "softening_elastomeric"), dt) for dt in (1.0, 0.01))
    assert fast.move(0.002, 0.2) - slow.move(0.002, 0.0) == pytest.approx(0.20e6 * 0.2, rel=1e-9)
