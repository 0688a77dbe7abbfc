# SPDX-License-Identifier: Apache-2.0
"""Force axes with a specimen to scale, and loads that are vertical above an inclined actuator."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from messages import naming
from scipy.integrate import trapezoid

import rths_nodes
from rths_nodes.analysis.energy import energies
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.stability.judgement import judge
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

NAME = "column_under_axial_load"
LENGTH, FORCE = 4.0, 16.0
LOAD, ACTUATOR = 500e3, 2.0

OnRig = Callable[..., Scenario]


@pytest.fixture
def on_rig(tmp_path: Path) -> OnRig:
    """The shipped test on a rig file of a specimen to scale, of ``length`` and ``force``."""

    def on_rig(length: float, force: float, *more: str, other: dict[str, float] | None = None) -> Scenario:
        whole = files.load(NAME).data()
        scale = {"length": length, "force": force}
        axes: dict[str, Any] = {}
        for name, axis in whole["axes"].items():
            limits = dict(axis["limits"])
            for key, by in (("stroke", length), ("velocity", length), ("force", force)):
                limits[key] /= by
            for key in ("force_rate", "force_error"):
                if limits.get(key) is not None:
                    limits[key] *= 5.0 / force  # a load that is there soon
            axes[name] = {
                "displacement": {"unit": "m", "range": 2.0 * limits["stroke"]},
                "force": {"unit": "N", "range": 2.0 * limits["force"]},
                "command": {"unit": "m", "range": 2.0 * limits["stroke"]},
                "similitude": scale if name == "load" or other is None else other,
                "limits": {key: value for key, value in limits.items() if value is not None},
            }
        lengths = {"column_length": 3.0 / length, "actuator_length": 2.0 / length}
        law = {"type": "feed_forward_pi", "stiffness": 1e9 * length / force, "lead": 0.0137, "column": lengths}
        axes["load"]["force_control"] = {"closed_by": "nodes", "largest_correction": 10e-6 / length, "law": law}
        head = {"version": 1, "name": "scaled", "port": {"type": "simulator"}, "axes": axes}
        file = tmp_path / f"of_{length:g}.yaml"
        file.write_text(yaml.safe_dump(head))
        softer = length / force
        rig = [f"rig.{key}={value!r}" for key, value in lengths.items()]
        rig += [f"rig.axial_stiffness={1e9 * softer!r}", f"rig.lateral.stiffness={1e6 * softer!r}"]
        rig += [f"rig.lateral.damping={10e3 * softer!r}"]
        quiet = [f"axes.{a}.sensors.{b}_noise_rms=0" for a in ("drift", "load") for b in ("displacement", "force")]
        return files.load(NAME, [*quiet, *rig, *more], rig=file)

    return on_rig


SOON = "{value: 500.0e3, ramp_time: 1.0, held_for: 0.1}"
BRIEF = ("duration=2.5", "ground_motion.delay=1.2", f"axes.load.load={SOON}")


def test_a_specimen_to_scale_under_its_load_is_the_whole_one_to_the_bit(on_rig: OnRig) -> None:
    """A quarter of the length and a sixteenth of the force: the load of the scenario is the structure's."""
    full = rths_nodes.run(on_rig(1.0, 1.0, *BRIEF))
    small = rths_nodes.run(on_rig(LENGTH, FORCE, *BRIEF))
    assert full.outcome == small.outcome == "finished"
    assert np.abs(full.dof_displacement).max() > 1e-3
    np.testing.assert_array_equal(small.dof_displacement, full.dof_displacement)
    np.testing.assert_array_equal(LENGTH * small.displacement, full.displacement)
    np.testing.assert_array_equal(FORCE * small.force, full.force)
    assert full.loads is not None
    assert small.loads is not None
    assert full.loads.force.max() == pytest.approx(LOAD, rel=1e-3)
    np.testing.assert_array_equal(FORCE * small.loads.force, full.loads.force)
    np.testing.assert_array_equal(FORCE * small.loads.target, full.loads.target)
    np.testing.assert_array_equal(LENGTH * small.loads.displacement, full.loads.displacement)
    assert small.metrics["hsem_percent"] == pytest.approx(full.metrics["hsem_percent"], rel=1e-12)


def test_a_scale_that_is_no_power_of_two_is_the_whole_one_to_rounding(on_rig: OnRig) -> None:
    full, small = (rths_nodes.run(on_rig(*scale, *BRIEF)) for scale in ((1.0, 1.0), (3.0, 7.0)))
    np.testing.assert_allclose(small.dof_displacement, full.dof_displacement, rtol=1e-6, atol=1e-12)
    assert full.loads is not None
    assert small.loads is not None
    np.testing.assert_allclose(7.0 * small.loads.force, full.loads.force, rtol=1e-6, atol=1.0)


def test_a_specimen_to_scale_has_the_stability_of_the_whole_one(on_rig: OnRig) -> None:
    full, small = (judge(on_rig(*scale)) for scale in ((1.0, 1.0), (LENGTH, FORCE)))
    assert small.critical_delay == pytest.approx(full.critical_delay, rel=1e-6)
    assert small.modes[0].frequency == pytest.approx(full.modes[0].frequency, rel=1e-6)
    (of_full,), (of_small,) = full.force_loops, small.force_loops
    assert of_small.load == of_full.load / FORCE
    assert of_small.stiffness == pytest.approx(of_full.stiffness * LENGTH / FORCE, rel=1e-6)
    assert of_small.further_delay == pytest.approx(of_full.further_delay, rel=1e-6)


def test_one_specimen_has_one_scale(on_rig: OnRig) -> None:
    with pytest.raises(ConfigError, match=naming("axes.load", "drift")):
        on_rig(LENGTH, FORCE, other={"length": 1.0, "force": 1.0})


def test_a_load_beyond_the_limit_of_its_specimen_is_refused_in_its_scale(on_rig: OnRig) -> None:
    with pytest.raises(ConfigError, match=naming("axes.load.load", "50000 N", "< limits.force", "43750 N")):
        on_rig(LENGTH, FORCE, "axes.load.load.value=800.0e3", "axes.load.load.ramp_time=10")


# Vertical loads

STRONG = ("axes.load.limits.force_rate=2.0e6",)
SLOWLY = (
    *("structure=null", "ground_motion={type: none}", f"axes.load.load={SOON}", "duration=5.5"),
    "integrator={type: prescribed, displacement: {type: delayed, delay: 1.3, "
    "motion: {type: harmonic, amplitude: 0.05, frequency: 0.25, periods: 1}}}",
    *("rig.actuator_length=0.5", "setup.actuator_length=0.5", "axes.load.limits.stroke=0.05"),
    *("axes.load.limits.velocity=0.1", "axes.load.limits.force_rate=2.0e6", "axes.drift.limits.velocity=0.4"),
    *(
        "axes.load.force_control.law.column.actuator_length=0.5",
        "axes.load.force_control.law.integral_gain=40",
        "axes.load.force_control.largest_correction=0.1e-3",
    ),
    *("axes.load.sensors.force_noise_rms=0", "axes.drift.sensors.displacement_noise_rms=0"),
)
"""A slow drift below an actuator of 0.5 m, so that its inclination counts: 50 mm are 0.5 %."""


def test_a_vertical_load_is_kept_by_an_inclined_actuator() -> None:
    """P / cos b along the actuator: without it the column is relieved of P (1 - cos b)."""
    lost = []
    for on in ("false", "true"):
        run = rths_nodes.run(NAME, [*SLOWLY, f"axes.load.load.vertical={on}"])
        assert run.outcome == "finished"
        assert run.loads is not None
        moves = run.time > 2.0
        drift, push = run.true_displacement[moves, 0], run.loads.true_force[moves, 0]
        upright = np.sqrt(1.0 - (drift / (0.5 + run.loads.true_displacement[moves, 0])) ** 2)
        lost.append(1.0 - push * upright / LOAD)
    relieved = 1.0 - math.sqrt(1.0 - 0.1**2)
    assert (lost[0] - lost[1]).max() == pytest.approx(relieved, rel=0.03)  # as late are both loops
    assert np.abs(lost[1]).max() < 0.2 * relieved


def test_the_target_of_a_vertical_load_is_over_the_cosine_of_the_drift() -> None:
    run = rths_nodes.run(NAME, [*BRIEF, *STRONG, "axes.load.load.vertical=true"])
    assert run.loads is not None
    late = run.time > 1.2
    wanted = LOAD * np.hypot(1.0, run.target[late, 0] / ACTUATOR)
    np.testing.assert_allclose(run.loads.target[late, 0], wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("axes.load.force_control.law.column.actuator_length=null", ("load.vertical", "column.actuator_length")),
        ("axes.load.force_control.law.column=null", ("load.vertical", "column.actuator_length")),
        ("axes.load.limits.force=500.1e3", ("load.vertical", "500625 N", "< limits.force", "500100 N")),
        ("axes.drift.limits.velocity=9.0", ("load.vertical", "112500 N/s")),
    ],
)
def test_what_a_vertical_load_needs_is_refused_in_words(change: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        files.load(NAME, ["axes.load.load.vertical=true", change])


def test_a_rig_whose_numbers_pass_no_setup_is_not_to_scale() -> None:
    scenario = files.load("phillips_spencer_2012")
    assert (scenario.rig.to_scale, files.load(NAME).rig.to_scale) == (False, True)


# What loads push


def test_the_energy_error_has_no_work_of_the_load_in_it() -> None:
    """What the specimen got, less what the structure gave, of a load that the setup takes out at the target.

    The push P sin b does the same work along the measured path and the wanted one, so the error that is fed in is
    that of the measured force F, which the monitor has.
    """
    late = [*BRIEF, *STRONG, "duration=4.0", "compensator={type: none}"]
    late += [f"axes.{a}.sensors.{b}_noise_rms=0" for a in ("drift", "load") for b in ("displacement", "force")]
    run = rths_nodes.run(NAME, late)
    assert run.loads is not None
    moved, push = run.displacement[:, 0], run.loads.force[:, 0]
    restoring = run.force[:, 0] + push * moved / np.hypot(ACTUATOR, moved)
    of_specimen = trapezoid(restoring, moved)
    of_structure = energies(Evaluation(run))["experimental substructure"][-1]
    fed_in = run.metrics["hsem_percent"] / 100.0 * Evaluation(run).running.input_energy[-1]
    assert abs(fed_in) > 10.0
    assert of_specimen - of_structure == pytest.approx(fed_in, rel=0.05)  # by steps, and by samples


def test_a_scenario_with_a_rig_file_is_written_and_read_again(on_rig: OnRig) -> None:
    scenario = on_rig(LENGTH, FORCE)
    assert files.from_text(dump(scenario.data()), "again") == scenario
    assert scenario.axes["load"].load is not None
    assert scenario.axes["load"].own_load is not None
    assert scenario.axes["load"].load.largest == FORCE * scenario.axes["load"].own_load.largest
