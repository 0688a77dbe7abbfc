# SPDX-License-Identifier: Apache-2.0
"""Display of uncertain numbers: no more digits than are significant."""

from __future__ import annotations

import pytest

from rths_nodes.analysis.units import interval, uncertain


@pytest.mark.parametrize(
    ("value", "deviation", "text"),
    [
        (1.0234, 0.0051, "1.023 +- 0.005"),
        (-2.5e-6, 3e-8, "-2.50e-06 +- 3e-08"),
        (12.3, 2.0, "12 +- 2"),
        (0.004, 0.02, "0.004 +- 0.02"),
        (1.5, 0.0, "1.5"),
    ],
)
def test_a_value_ends_where_its_deviation_begins(value: float, deviation: float, text: str) -> None:
    assert uncertain(value, deviation) == text


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [
        (11.923, 12.0412, "11.92 to 12.04"),
        (3.0, 51.2, "3 to 51"),
        (0.0, 1e-7, "0.000 to 0.000"),
        (2.0, 2.0, "2.000 to 2.000"),
    ],
)
def test_an_interval_has_two_digits_of_its_width(least: float, most: float, text: str) -> None:
    assert interval(least, most) == text
