# SPDX-License-Identifier: Apache-2.0
"""Tests of ensembles of plants drawn from the scatter of a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from messages import naming

import rths_nodes
from rths_nodes.app.studies.study import plants
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


def test_plant_depends_on_number_and_seed_only() -> None:
    drawn = plants(scattered(), 3, 1)[-1]
    assert drawn == plants(scattered(), 3, 1)[-1]
    assert drawn.values not in [plants(scattered(), *pair)[-1].values for pair in ((4, 1), (3, 2))]


def test_compensators_and_cases_get_the_same_plants() -> None:
    expected = [drawn.values for drawn in plants(scattered(), 5, 1)]
    case = load(scattered(), case="alpha_15_k_p_04")
    for scenario in (scattered(SCATTER, "compensator.type=none"), case, scattered(SCATTER, "seed=5")):
        assert [drawn.values for drawn in plants(scenario, 5, 1)] == expected


def test_further_key_does_not_change_other_values() -> None:
    alone = plants(scattered({ACTUATOR: SCATTER[ACTUATOR]}), 2, 1)[-1].values
    assert plants(scattered(), 2, 1)[-1].values[ACTUATOR] == alone[ACTUATOR]


def test_relative_scatter_refers_to_scenario_value() -> None:
    half = scattered(SCATTER, f"{SPECIMEN}=3.8e6")  # as in a case
    for drawn in plants(scattered(), 20, 1):
        assert drawn.values[SPECIMEN] == pytest.approx(7.6e6, rel=0.1)
        assert drawn.of(half).axes["story_1"].specimen.stiffness == pytest.approx(0.5 * drawn.values[SPECIMEN])


def test_like_scales_with_another_key() -> None:
    """The damping scales with the root of the stiffness at a constant damping ratio."""
    stiffness, damping = "axes.story_1.specimen.stiffness", "axes.story_1.specimen.damping"
    leader = {stiffness: {"relative_uniform": 0.5}}
    scenario = scattered({damping: {"like": [stiffness, 0.5]}, "structure.mass": {"like": stiffness}} | leader)
    values, nominal = plants(scenario, 2, 1)[-1].values, scenario.axes["story_1"].specimen
    factor = values[stiffness] / nominal.stiffness
    assert factor == pytest.approx(plants(scattered(leader), 2, 1)[-1].values[stiffness] / nominal.stiffness)
    assert abs(factor - 1.0) > 0.01
    assert values[damping] == pytest.approx(nominal.damping * factor**0.5)
    assert values["structure.mass"] == pytest.approx(scenario.structure.mass * factor)


@pytest.mark.parametrize("leader", ["axes.story_1.specimen.damping", "duration"])
def test_like_unscattered_key_is_refused(leader: str) -> None:
    scatter = {"axes.story_1.specimen.damping": {"like": "duration"}, "structure.mass": {"like": leader}}
    with pytest.raises(ConfigError, match=naming("structure.mass.like", "unknown", "scattered")):
        scattered(scatter)


def test_like_key_with_changed_sign_is_refused() -> None:
    scatter = {"seed": {"integers": [-9, -8]}, "structure.mass": {"like": "seed"}}
    with pytest.raises(ConfigError, match=naming("structure.mass", "like")):
        plants(scattered(scatter), 1, 1)


def test_drawn_scenario_and_recording_store_values(tmp_path: Path) -> None:
    drawn = plants(scattered(), 7, 1)[-1]
    scenario = drawn.of(scattered())
    assert (scenario.name, scenario.scatter) == ("chen_ricles_2010.plant_7", {})
    rths_nodes.run(scenario, record=tmp_path / "run")
    for stored in (scenario, rths_nodes.read(tmp_path / "run").scenario):
        assert stored.axes["story_1"].actuator.alpha == drawn.values[ACTUATOR]
        assert stored.recording.drawn == {"plant": 7, "seed": 1, "values": drawn.values}


def test_nominal_plant_is_unchanged_scenario() -> None:
    ensemble = plants(scattered(), 2, 1, nominal=True)
    assert [drawn.number for drawn in ensemble] == [0, 1, 2]
    assert ensemble[0].of(scattered()).data() == scattered({}).data()
    assert [drawn.number for drawn in plants(scattered({}), 0, 1)] == [0]


@pytest.mark.parametrize(
    ("scatter", "parts"),
    [
        ({"axes.story_1.actuator.alfa": {"normal": [1, 1]}}, ("actuator.alfa", "alfa", "unknown")),
        ({"duration.x": {"normal": [1, 1]}}, ("scatter", "duration.x", "0.2")),
        ({"name": {"relative_normal": 0.1}}, ("scatter", "name", "relative_normal")),
        ({ACTUATOR: {"uniform": [-3, -2]}}, ("1", "axes.story_1.actuator.alpha", ">= 1")),
    ],
)
def test_impossible_draws_are_refused(scatter: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        plants(scattered(scatter), 1, 1)[-1].of(scattered(scatter))


def test_scenario_refuses_unknown_distribution() -> None:
    with pytest.raises(ConfigError, match=naming("scatter", "axes.story_1.actuator.alpha", "unknown", "norml")):
        scattered({ACTUATOR: {"norml": [1, 2]}})


def test_plants_need_scatter() -> None:
    with pytest.raises(ConfigError, match=naming("chen_ricles_2010", "draw", "3")):
        plants(scattered({}), 3, 1)


def test_scatter_that_would_replace_other_values_is_refused() -> None:
    soft = {"soft": {"set": {"axes.story_1.actuator": {"type": "first_order", "alpha": 60.0}}}}
    scenario = from_data(Scenario, scattered().data() | {"cases": soft})
    for options in ({"cases": ["soft"]}, {"parameters": {ACTUATOR: (10.0, 60.0)}}):
        with pytest.raises(ConfigError, match=naming("scatters", ACTUATOR, "set")):
            rths_nodes.tune(scenario, plants=1, **options)
    for options in ({"case": "soft"}, {"set": {ACTUATOR: 60.0}}):
        with pytest.raises(ConfigError, match=naming("scatters", ACTUATOR, "set")):
            rths_nodes.study(scenario=scenario, plants=1, **options)
