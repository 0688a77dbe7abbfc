# SPDX-License-Identifier: Apache-2.0
"""Response errors against the whole structure: what tracking does not tell."""

from __future__ import annotations

import numpy as np
import pytest

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.response_errors import response, response_errors, whole_response
from rths_nodes.app import hosts
from rths_nodes.app.commands import compare
from rths_nodes.core import yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

PERFECT = ("axes.story_1.actuator.type=pure_delay", "compensator.type=none", "duration=5")


def test_a_perfect_actuator_gives_the_response_of_the_whole_up_to_the_integrator() -> None:
    errors = response_errors(Evaluation(hosts.run("chen_ricles_2010", PERFECT).read()))["x"]
    assert errors["displacement"] < 1.0
    assert errors["acceleration"] < 5.0
    finer = response_errors(Evaluation(hosts.run("chen_ricles_2010", (*PERFECT, "substeps=2")).read()))["x"]
    assert finer["displacement"] < 0.3 * errors["displacement"]


def test_a_late_actuator_gives_a_wrong_response() -> None:
    late = ("compensator.type=none", "duration=5", "axes.story_1.actuator.alpha=29")
    errors = response_errors(Evaluation(hosts.run("chen_ricles_2010", late).read()))["x"]
    assert errors["displacement"] > 10.0


def test_the_error_is_the_rms_of_the_difference() -> None:
    run = hosts.run("chen_ricles_2010", ("duration=3",)).read()
    whole = response(files.load("chen_ricles_2010", ["duration=3"]))
    expected = (
        100.0 * np.linalg.norm(run.dof_displacement - whole.displacement) / np.linalg.norm(whole.displacement)
    )
    assert response_errors(Evaluation(run))["x"]["displacement"] == pytest.approx(expected)
    ground = Assembly(files.load("chen_ricles_2010", ["duration=3"])).ground_acceleration
    np.testing.assert_allclose(whole_response(run.scenario)[1], whole.acceleration + ground[:, None])


def test_a_soft_start_does_not_count() -> None:
    soft = ("soft_start={amplitude: 0.002, rise_time: 0.1, duration: 0.3, fall_time: 0.1, rest_time: 0.5}",)
    plain, started = (hosts.run("chen_ricles_2010", (*PERFECT, *more)).read() for more in ((), soft))
    assert response_errors(Evaluation(started))["x"]["displacement"] == pytest.approx(
        response_errors(Evaluation(plain))["x"]["displacement"], rel=1e-6
    )


def test_a_test_without_a_structure_has_no_response() -> None:
    run = hosts.run("predefined_sine", ("duration=1",)).read()
    with pytest.raises(ConfigError, match="structure: missing"):
        response_errors(Evaluation(run))


def test_a_comparison_has_them_where_they_were_published() -> None:
    data = files.load("chen_ricles_2010", ["duration=1"]).data()
    data["cases"] = {"paper": {"published": {"response_x": 1.5, "J2_story_1": 0.5}}}
    loaded = files.from_text(yaml_text.dump(data), "test")
    chosen = compare.variants(loaded)
    assert compare.has_response(chosen)
    (result,) = compare.compare(chosen, response=True)
    assert result.values["response_x"] == result.response["x"]["displacement"]
    assert result.values["J2_story_1"] == result.values["J2"]


def test_a_report_has_them_when_asked() -> None:
    from rths_nodes.analysis.report.document import render

    run = hosts.run("chen_ricles_2010", (*PERFECT, "duration=2")).read()
    assert "Error of" not in render(run)
    page = render(run, reference=True)
    assert "Absolute acceleration" in page
    assert f"{response_errors(Evaluation(run))['x']['displacement']:.3g}"[:4] in page
