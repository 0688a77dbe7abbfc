# SPDX-License-Identifier: Apache-2.0
"""Damping models and modes: closed forms, and the ratios that they were given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.numerical.structures.damping import frequencies_and_ratios, modes

MASS = 2e4 * np.eye(3)
STIFFNESS = 4e7 * np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])


def test_the_modes_of_a_uniform_frame_in_closed_form() -> None:
    """w_j = 2 sqrt(k/m) sin((2 j - 1) pi / (2 (2 n + 1)))."""
    omega, shapes = modes(MASS, STIFFNESS)
    angles = (2.0 * np.arange(1, 4) - 1.0) * math.pi / 14.0
    np.testing.assert_allclose(omega, 2.0 * math.sqrt(4e7 / 2e4) * np.sin(angles), rtol=1e-12)
    np.testing.assert_allclose(shapes.T @ MASS @ shapes, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(shapes.T @ STIFFNESS @ shapes, np.diag(omega**2), atol=1e-9)


def test_a_body_that_is_free_has_a_mode_of_frequency_zero() -> None:
    omega, _ = modes(np.eye(2), np.array([[1.0, -1.0], [-1.0, 1.0]]))
    np.testing.assert_allclose(omega, [0.0, math.sqrt(2.0)], atol=1e-7)


def test_rayleigh_has_the_coefficients_of_the_tadc_frame(make: Callable[..., Any]) -> None:
    a, b = make("damping", "rayleigh").coefficients(MASS, STIFFNESS)
    assert a == pytest.approx(0.586717901, abs=1e-9)
    assert b == pytest.approx(5.286145631e-4, abs=1e-13)


def test_rayleigh_gives_its_ratios_and_what_follows_in_other_modes(make: Callable[..., Any]) -> None:
    model = make("damping", "rayleigh", ratios=[0.01, 0.05], modes=[3, 1])
    a, b = model.coefficients(MASS, STIFFNESS)
    frequencies, ratios = frequencies_and_ratios(MASS, model.matrix(MASS, STIFFNESS), STIFFNESS)
    omega = 2.0 * math.pi * frequencies
    np.testing.assert_allclose(ratios, 0.5 * (a / omega + b * omega), rtol=1e-9)
    np.testing.assert_allclose(ratios[[0, 2]], [0.05, 0.01], rtol=1e-9)


@pytest.mark.parametrize("ratios", [(0.05,), (0.01, 0.2, 0.7)])
def test_modal_gives_its_ratios_in_every_mode(make: Callable[..., Any], ratios: tuple[float, ...]) -> None:
    damping = make("damping", "modal", ratios=list(ratios)).matrix(MASS, STIFFNESS)
    frequencies, found = frequencies_and_ratios(MASS, damping, STIFFNESS)
    np.testing.assert_allclose(found, ratios * (3 // len(ratios)), rtol=1e-9)
    np.testing.assert_allclose(2.0 * math.pi * frequencies, modes(MASS, STIFFNESS)[0], rtol=1e-9)


def test_modal_and_rayleigh_agree_on_two_masses(make: Callable[..., Any]) -> None:
    mass, stiffness = np.diag([2.0, 3.0]), np.array([[50.0, -20.0], [-20.0, 20.0]])
    one, other = (
        make("damping", name, ratios=[0.02, 0.04]).matrix(mass, stiffness) for name in ("rayleigh", "modal")
    )
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_an_overdamped_mass_has_a_ratio_above_one() -> None:
    frequencies, ratios = frequencies_and_ratios(np.eye(1), np.array([[50.0]]), np.array([[100.0]]))
    assert frequencies[0] == pytest.approx(10.0 / (2.0 * math.pi))
    assert ratios[0] == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("rayleigh", {"ratios": [0.02]}, ("damping.ratios", "(0.02,)", "2")),
        ("rayleigh", {"modes": [1, 1]}, ("damping.modes", "(1.0, 1.0)", "2")),
        ("rayleigh", {"modes": [1, 1.5]}, ("2", "different", "whole", "numbers")),
        ("rayleigh", {"modes": [1, 4]}, ("structure.damping.modes", "(1.0, 4.0)", "<= 3")),
        ("modal", {"ratios": [0.02, 0.03]}, ("structure.damping.ratios", "1", "3", "numbers")),
        ("modal", {"ratios": [1.0]}, ("damping.ratios[0]", "1", ">= 0", "< 1")),
        ("matrix", {"matrix": [[1.0]]}, ("structure.damping.matrix", "symmetric", "3 x 3")),
        (
            "matrix",
            {"matrix": [[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]},
            ("structure.damping.matrix", "symmetric"),
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    make: Callable[..., Any], name: str, data: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        make("damping", name, **data).matrix(MASS, STIFFNESS)


def test_rayleigh_needs_modes_of_different_frequency(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=naming("> 0", "differ")):
        make("damping", "rayleigh").matrix(np.eye(2), np.eye(2))


def test_rayleigh_has_its_ratios_at_frequencies_whatever_the_structure(make: Callable[..., Any]) -> None:
    """The two of a mode are those of the modes; 5 % at 13.493 and 165.125 rad/s is a = 1.2474, b = 5.5986e-4."""
    omega, _ = modes(MASS, STIFFNESS)
    given = (omega[[0, 2]] / (2.0 * math.pi)).tolist()
    by_frequency = make("damping", "rayleigh", ratios=[0.01, 0.05], frequencies=given)
    by_mode = make("damping", "rayleigh", ratios=[0.01, 0.05], modes=[1, 3])
    assert by_frequency.coefficients(MASS, STIFFNESS) == pytest.approx(by_mode.coefficients(MASS, STIFFNESS))
    pair = [13.493 / (2.0 * math.pi), 165.125 / (2.0 * math.pi)]
    a, b = make("damping", "rayleigh", ratios=[0.05, 0.05], frequencies=pair).coefficients(MASS, STIFFNESS)
    assert a == pytest.approx(2.0 * 0.05 * 13.493 * 165.125 / (13.493 + 165.125))
    assert b == pytest.approx(2.0 * 0.05 / (13.493 + 165.125))


def test_rayleigh_refuses_one_frequency_twice(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=naming("damping.frequencies", "2", "numbers")):
        make("damping", "rayleigh", frequencies=[2.0, 2.0])
