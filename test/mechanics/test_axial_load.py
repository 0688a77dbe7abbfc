# SPDX-License-Identifier: Apache-2.0
"""Tests of the geometry of a column under an inclined actuator against closed form and virtual work."""

from __future__ import annotations

import math

import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.mechanics.axial_load import (
    ColumnGeometry,
    directions_at,
    extension_at,
    horizontal_share,
    lengths_of,
    shortening_at,
)


def test_drift_of_20_mm_shortens_3_m_column_by_67_um() -> None:
    load = lengths_of(ColumnGeometry(column_length=3.0))
    assert shortening_at(load, 0.0, 0.020) == pytest.approx(-(0.020**2) / 6.0, rel=2e-5)
    assert shortening_at(load, 0.0, 0.020) * 1e9 == pytest.approx(-66.67e3, rel=1e-4), "67 kN at 1000 kN/mm"
    assert extension_at(load, 0.0, 0.020) == pytest.approx(3.0 - math.sqrt(9.0 - 0.020**2), abs=1e-15)


def test_inclined_actuator_adds_its_own_shortening() -> None:
    load = lengths_of(ColumnGeometry(column_length=3.0, actuator_length=2.0))
    assert extension_at(load, 0.0, 0.020) == pytest.approx(0.020**2 * (1.0 / 6.0 + 1.0 / 4.0), rel=1e-4)


@pytest.mark.parametrize("actuator", [None, 1.5])
@pytest.mark.parametrize("drift", [0.0, 0.02, -0.3])
def test_extension_and_shortening_are_inverse(actuator: float | None, drift: float) -> None:
    load = lengths_of(ColumnGeometry(column_length=3.0, actuator_length=actuator))
    for shortening in (-1e-3, 0.0, 5e-4):
        extension = extension_at(load, shortening, drift)
        assert shortening_at(load, extension, drift) == pytest.approx(shortening, abs=1e-14)


@pytest.mark.parametrize("actuator", [None, 1.5])
def test_directions_satisfy_virtual_work(actuator: float | None) -> None:
    """Unit forces of actuator and column along e and c: dc / de and dc / du."""
    load, e, u, h = lengths_of(ColumnGeometry(column_length=3.0, actuator_length=actuator)), 4e-4, 0.13, 1e-6
    sin_a, cos_a, sin_b, cos_b = directions_at(load, e, u)
    by_extension = (shortening_at(load, e + h, u) - shortening_at(load, e - h, u)) / (2.0 * h)
    by_drift = (shortening_at(load, e, u + h) - shortening_at(load, e, u - h)) / (2.0 * h)
    assert by_extension == pytest.approx(cos_a / cos_b, rel=1e-8)
    assert by_drift == pytest.approx(-sin_a - cos_a / cos_b * sin_b, rel=1e-8)


def test_shortening_beyond_reach_is_nan() -> None:
    load = lengths_of(ColumnGeometry(column_length=3.0, actuator_length=2.0))
    assert math.isnan(shortening_at(load, 0.0, 2.5))
    assert horizontal_share(0.02, 2.0) == pytest.approx(0.01, rel=1e-4)


def test_zero_column_length_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("column_length", "0 m", "> 0")):
        from_data(ColumnGeometry, {"column_length": 0.0})
