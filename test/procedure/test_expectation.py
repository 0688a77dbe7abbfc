# SPDX-License-Identifier: Apache-2.0
"""The stiffness of the small move stands beside what the scenario expects; one that is far off is signed."""

from __future__ import annotations

import pytest
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.procedure.machine import ActRefused
from rths_nodes.procedure.small_move import DECLARED, SCENARIO

UNKNOWN = ("    stiffness: 7.6e6\n    stiffness_known_to: 0.03\n", "")


def checked(w):
    w.refer()
    return w.session.check()["story_1"]


@pytest.mark.parametrize(
    ("wrong", "ratio"),
    [
        ("sensors.force_scale=0.1", 0.1),
        ("sensors.force_scale=2", 2.0),
        ("sensors.displacement_scale=0.5", 2.0),
        ("sensors.displacement_scale=1.2", 1.0 / 1.2),
        ("sensors.force_scale=1", 1.0),
    ],
)
def test_a_wrong_scale_is_the_ratio_to_the_stiffness_of_the_scenario(walk, wrong, ratio):
    w = walk(f"axes.story_1.{wrong}", rig=UNKNOWN)
    found = checked(w)
    assert found.ratios == {SCENARIO: pytest.approx(ratio, rel=0.02)}
    told = f"the stiffness of story_1 is {ratio:.2f} times the scenario's"
    assert sum(told in words for words in found.remarks) == 1
    if 0.67 <= ratio <= 1.5:
        assert found.unlike == []
        return
    assert found.unlike == [told]
    w.session.sign_for("scale of displacement of story_1 not verified", "A. Nyone")
    w.session.sign_for("scale of force of story_1 not verified", "A. Nyone")
    with pytest.raises(ConfigError, match=naming("open item")):
        w.session.sign_for("story_1", "A. Nyone")
    with pytest.raises(ActRefused, match=naming(told, "verify")):
        w.session.position()
    (last,) = w.session.clearance.unsigned()
    assert last.startswith("stiffness of story_1")
    w.session.sign_for(last, "A. Nyone")
    assert mentions(w.record.deviations, told, "Nyone")
    w.session.position()


def test_a_wrong_scale_of_the_displacement_is_named_beside_the_static_error(walk):
    found = checked(walk("axes.story_1.sensors.displacement_scale=0.5", rig=UNKNOWN))
    words = "the axis moves by 50% of its command. The control loop has a static error, or the scale of the "
    assert any(words in each for each in found.remarks)


def test_a_specimen_that_depends_on_the_rate_is_expected_as_it_is_there(walk):
    """It is as stiff as its spring at rest only: 2e6 of 10e6 N/m."""
    maxwell = "{type: maxwell_damper, damping: 0.3e6, series_stiffness: 8.0e6, parallel_stiffness: 2.0e6}"
    found = checked(walk(f"axes.story_1.specimen={maxwell}", rig=UNKNOWN))
    assert found.ratios == {SCENARIO: pytest.approx(1.0, rel=0.02)}
    assert found.unlike == []
    assert found.stiffness < 2.5e6


def test_that_nothing_is_known_is_said(walk):
    w = walk(rig=UNKNOWN)
    w.refer()  # its port is built: from here on the scenario lacks the specimen, as one of a real rig may
    object.__setattr__(w.session.scenario.axes["story_1"], "specimen", None)
    found = w.session.check()["story_1"]
    assert (found.ratios, found.unlike) == ({}, [])
    assert any(mentions(words, "compared", "describes") for words in found.remarks)


def test_what_has_a_force_in_motion_only_has_no_stiffness_to_be_compared(walk):
    """Neither is anything said of what is known of it: the words are that it has none."""
    w = walk("axes.story_1.specimen={type: maxwell_damper, damping: 0.3e6, series_stiffness: 8.0e6}", rig=UNKNOWN)
    found = checked(w)
    assert (found.stiffness, found.ratios, found.unlike) == (None, {}, [])
    assert any(mentions(words, "force", "motion") for words in found.remarks)
    assert not any(mentions(words, "compared", "describes") for words in found.remarks)


def test_what_an_integrator_counts_on_is_compared_too(walk):
    client = "integrator={type: remote, experimental_stiffness: [[0.76e6]]}"
    w = walk(client, "structure=null", "ground_motion={type: none}", rig=UNKNOWN)
    found = checked(w)
    assert found.ratios[DECLARED] == pytest.approx(10.0, rel=0.02)
    told = [text.removeprefix("the ") for text in found.unlike]
    assert told == [f"stiffness of story_1 is {found.ratios[DECLARED]:.2f} times {DECLARED}"]
