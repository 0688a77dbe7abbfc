# SPDX-License-Identifier: Apache-2.0
"""Ensembles: the same plants for every law, recorded with the run, refused where they cannot be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from messages import naming

import rths_nodes
from rths_nodes.app.studies.ensembles import plant, plants
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.files import load
from rths_nodes.loop.scenario.schema import Scenario

ACTUATOR, SPECIMEN = "axes.story_1.actuator.alpha", "axes.story_1.specimen.stiffness"
SCATTER = {ACTUATOR: {"normal": [29.0, 3.0]}, SPECIMEN: {"relative_uniform": 0.1}}


def scattered(scatter: dict[str, Any] = SCATTER, *overrides: str) -> Scenario:
    return from_data(
        Scenario, load("chen_ricles_2010", ["duration=0.2", *overrides]).data() | {"scatter": scatter}
    )


def test_a_plant_is_known_by_number_and_seed() -> None:
    one, other, of_other_seed = (plant(scattered(), *which) for which in ((3, 1), (4, 1), (3, 2)))
    assert one == plant(scattered(), 3, 1)
    assert one.values != other.values
    assert one.values != of_other_seed.values


def test_every_law_and_every_case_gets_the_same_plants() -> None:
    chosen = [
        scattered(SCATTER, "compensator.type=none"),
        load(scattered(), case="alpha_15_k_p_04"),
        scattered(SCATTER, "seed=5"),
    ]
    expected = [drawn.values for drawn in plants(scattered(), 5, 1)]
    for scenario in chosen:
        assert [drawn.values for drawn in plants(scenario, 5, 1)] == expected


def test_a_further_key_changes_no_other() -> None:
    alone = plant(scattered({ACTUATOR: SCATTER[ACTUATOR]}), 2, 1).values
    assert plant(scattered(), 2, 1).values[ACTUATOR] == alone[ACTUATOR]


def test_a_relative_scatter_is_one_of_the_scenario_s_value() -> None:
    for drawn in plants(scattered(), 20, 1):
        assert drawn.values[SPECIMEN] == pytest.approx(7.6e6, rel=0.1)


def test_what_is_like_another_key_goes_with_it() -> None:
    """A dashpot of a constant damping ratio goes with the root of the stiffness."""
    stiffness, damping = "axes.story_1.specimen.stiffness", "axes.story_1.specimen.damping"
    leader = {stiffness: {"relative_uniform": 0.5}}
    scenario = scattered({damping: {"like": [stiffness, 0.5]}, "structure.mass": {"like": stiffness}} | leader)
    found, nominal = plant(scenario, 2, 1), scenario.axes["story_1"].specimen
    factor = found.values[stiffness] / nominal.stiffness
    assert factor == pytest.approx(plant(scattered(leader), 2, 1).values[stiffness] / nominal.stiffness)
    assert abs(factor - 1.0) > 0.01
    assert found.values[damping] == pytest.approx(nominal.damping * factor**0.5)
    assert found.values["structure.mass"] == pytest.approx(scenario.structure.mass * factor)


@pytest.mark.parametrize("leader", ["axes.story_1.specimen.damping", "duration"])
def test_nothing_goes_with_what_is_not_drawn_itself(leader: str) -> None:
    scatter = {"axes.story_1.specimen.damping": {"like": "duration"}, "structure.mass": {"like": leader}}
    with pytest.raises(ConfigError, match=naming("structure.mass.like", "unknown", "scattered")):
        scattered(scatter)


def test_what_goes_with_a_key_that_changes_its_sign_is_refused() -> None:
    scatter = {"seed": {"integers": [-9, -8]}, "structure.mass": {"like": "seed"}}
    with pytest.raises(ConfigError, match=naming("structure.mass", "like")):
        plant(scattered(scatter), 1, 1)


def test_the_drawn_scenario_has_the_values_and_tells_of_them() -> None:
    drawn = plant(scattered(), 7, 1)
    scenario = drawn.of(scattered())
    assert scenario.axes["story_1"].actuator.alpha == drawn.values[ACTUATOR]
    assert scenario.name == "chen_ricles_2010.plant_7"
    assert scenario.scatter == {}
    assert scenario.recording.drawn == {"plant": 7, "seed": 1, "values": drawn.values}


def test_a_recording_tells_of_its_plant(tmp_path: Path) -> None:
    drawn = plant(scattered(), 7, 1)
    rths_nodes.run(drawn.of(scattered()), record=tmp_path / "run")
    scenario = rths_nodes.read(tmp_path / "run").scenario
    assert scenario.recording.drawn == {"plant": 7, "seed": 1, "values": drawn.values}
    assert scenario.axes["story_1"].actuator.alpha == drawn.values[ACTUATOR]


def test_the_nominal_plant_is_the_scenario_as_it_stands() -> None:
    found = plants(scattered(), 2, 1, nominal=True)
    assert [drawn.number for drawn in found] == [0, 1, 2]
    assert found[0].of(scattered()).data() == scattered({}).data()
    assert [drawn.number for drawn in plants(scattered({}), 0, 1)] == [0]


@pytest.mark.parametrize(
    ("scatter", "words"),
    [
        (
            {"axes.story_1.actuator.alfa": {"normal": [1, 1]}},
            ("actuator.alfa", "alfa", "unknown"),
        ),
        ({"duration.x": {"normal": [1, 1]}}, ("scatter", "duration.x", "0.2")),
        ({"name": {"relative_normal": 0.1}}, ("scatter", "name", "relative_normal")),
        ({ACTUATOR: {"uniform": [-3, -2]}}, ("1", "axes.story_1.actuator.alpha", ">= 1")),
    ],
)
def test_what_cannot_be_drawn_is_refused(scatter: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        plant(scattered(scatter), 1, 1).of(scattered(scatter))


def test_a_scenario_refuses_what_is_no_distribution() -> None:
    with pytest.raises(ConfigError, match=naming("scatter", "axes.story_1.actuator.alpha", "unknown", "norml")):
        scattered({ACTUATOR: {"norml": [1, 2]}})


def test_without_scatter_there_are_no_plants() -> None:
    with pytest.raises(ConfigError, match=naming("chen_ricles_2010", "draw", "3")):
        plants(scattered({}), 3, 1)
