# SPDX-License-Identifier: Apache-2.0
"""Which axes stop together."""

from __future__ import annotations

import pytest

from rths_nodes.loop.scenario import files


@pytest.mark.parametrize(
    ("name", "overrides", "groups"),
    [
        ("chen_ricles_2010", (), (0,)),
        ("two_actuator_coupler", (), (0, 0)),
        ("two_actuator_coupler", ("setup={type: identity}",), (0, 1)),
        ("two_actuator_coupler", ("setup={type: matrix, matrix: [[1, -2], [1, 2]]}",), (0, 0)),
        ("two_actuator_coupler", ("setup={type: matrix, matrix: [[1, 0], [0, 2]]}",), (0, 1)),
        ("three_independent_axes", (), (0, 1, 2)),
        ("three_independent_axes", ("setup.coupled=true",), (0, 0, 0)),
        ("marths_2023", (), (0, 0)),
        ("column_under_axial_load", (), (0, 0)),
    ],
)
def test_axes_of_one_specimen_are_one_group(
    name: str, overrides: tuple[str, ...], groups: tuple[int, ...]
) -> None:
    assert files.load(name, overrides).stop_groups == groups


def test_a_load_stands_on_the_specimen_of_the_axis_that_inclines_it() -> None:
    setup = files.load("column_under_axial_load").setup
    assert setup.stop_groups(1, 2) == (0, 0)
    assert setup.stop_groups(3, 4) == (0, 1, 2, 0)
