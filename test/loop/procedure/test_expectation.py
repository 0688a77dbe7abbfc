"""The stiffness of the small move stands beside what the scenario expects; one that is far off is signed."""

from __future__ import annotations

import re

import pytest

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.strict import build
from rths_nodes.loop.procedure.expectation import DECLARED, SCENARIO
from rths_nodes.loop.procedure.records import ProcedureRecord
from rths_nodes.loop.procedure.session import ActRefused, RigSession
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.rig_file import RigFile, on_rig
from rths_nodes.loop.scenario.schema import Scenario

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
    told = f"stiffness of story_1 is {ratio:.2f} of the scenario's"
    assert sum(told in words for words in found.remarks) == 1
    if 0.67 <= ratio <= 1.5:
        assert found.unlike == []
        return
    assert found.unlike == [told]
    w.session.sign_for("scale of displacement of story_1 not verified", "A. Nyone")
    w.session.sign_for("scale of force of story_1 not verified", "A. Nyone")
    with pytest.raises(ConfigError, match="is not to be signed for"):
        w.session.sign_for("story_1", "A. Nyone")
    with pytest.raises(ActRefused, match=f"{re.escape(told)}: verify it, or sign for it"):
        w.session.position()
    (last,) = w.session.clearance.unsigned()
    assert last.startswith("stiffness of story_1")
    w.session.sign_for(last, "A. Nyone")
    assert f"{told}: signed for by A. Nyone" in w.record.deviations
    w.session.position()


def test_a_wrong_scale_of_the_displacement_is_named_beside_the_static_error(walk):
    found = checked(walk("axes.story_1.sensors.displacement_scale=0.5", rig=UNKNOWN))
    words = "it moves by 50% of its command: static error of the loop, or the scale of the displacement"
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
    assert any("compared with nothing" in words for words in found.remarks)


# -- false words ------------------------------------------------------------------------------------------------

ONE_AXIS = (
    *("chen_ricles_2010", "horiuchi_1996_energy_absorber", "horiuchi_1996_four_story", "horiuchi_1996_frp_column"),
    *("horiuchi_1996_verification", "predefined_sine", "rths_benchmark_2020", "tadc_el_centro", "tadc_sine"),
)
MORE_AXES = (
    "marths_2023",
    "phillips_spencer_2012",
    "three_independent_axes",
    "two_actuator_coupler",
    "tall_frame",
)


def session_of(name: str) -> RigSession:
    """On the shipped bench, or on a rig with the limits of the scenario."""
    if name in ONE_AXIS:
        scenario = files.load(name, rig="bench_simulated")
    else:
        plain = files.load(name)
        axes = {}
        for axis, limits in plain.limits.items():
            channel = {"unit": "m", "range": 1.2 * limits.stroke, "noise_rms": 2e-6}
            axes[axis] = {
                "displacement": channel,
                "force": {"unit": "N", "range": 1.2 * limits.force, "noise_rms": 1e-5 * limits.force},
                "command": channel,
                "limits": {key: getattr(limits, key) for key in ("stroke", "velocity", "force", "deceleration")},
                "small_move": {"displacement": 1e-3, "velocity": 4e-3, "force": 0.5 * limits.force},
            }
        port = {"type": "simulator", "transport_samples": 1}
        rig = build(RigFile, {"version": 1, "name": "any", "port": port, "axes": axes})
        scenario = build(Scenario, on_rig(plain.data(), rig))
    return RigSession(scenario, ProcedureRecord("test", name, ""), realtime=False)


@pytest.mark.long
@pytest.mark.parametrize("name", [*ONE_AXIS, *MORE_AXES])
def test_no_shipped_scenario_is_unlike_itself(name):
    session = session_of(name)
    session.connect()
    session.confirm_offsets(session.take_offsets(0.5).hash, True)
    for axis, found in session.check().items():
        assert found.unlike == [], axis
        for ratio in found.ratios.values():
            assert ratio == pytest.approx(1.0, abs=0.1), axis
    session.close()


def test_what_an_integrator_counts_on_is_compared_too(walk):
    client = "integrator={type: remote, experimental_stiffness: [[0.76e6]]}"
    w = walk(client, "structure=null", "ground_motion={type: none}", rig=UNKNOWN)
    found = checked(w)
    assert found.ratios[DECLARED] == pytest.approx(10.0, rel=0.02)
    assert found.unlike == [f"stiffness of story_1 is {found.ratios[DECLARED]:.2f} of {DECLARED}"]
