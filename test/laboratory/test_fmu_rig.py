# SPDX-License-Identifier: Apache-2.0
"""Tests of specimens in an FMU: equal to the same specimens of this package; failures end the test."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fmus import of_text
from messages import naming
from rehearsed_rig import STIFFNESS, apart, reference, scenario

import rths_nodes
from rths_nodes.analysis.stability.judgement import judge
from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.assembly import Assembly

pytestmark = pytest.mark.usefixtures("fmi")

SPECIMEN = """
#include <math.h>
#include <stdlib.h>

#include "model.h"

/* f = k x + c v + m a + preload, plus a bilinear spring whose state is its slip */
enum { X, V, A, K, C, M, PRELOAD, SOFT, YIELD, F, SLIP };

int model_start(double *v)
{
    v[F] = v[PRELOAD];
    return 0;
}

int model_step(double *v, double t, double h)
{
    double spring = v[SOFT] * (v[X] - v[SLIP]);
    if (fabs(spring) > v[YIELD]) {
        spring = copysign(v[YIELD], spring);
        v[SLIP] = v[X] - spring / v[SOFT];
    }
    v[F] = v[K] * v[X] + v[C] * v[V] + v[M] * v[A] + v[PRELOAD] + spring;
    WRONG;
    return 0;
}
"""
RIG = """
rig:
  type: fmu
  file: {file}
  axes: {{story_1: {{displacement: x, velocity: v, acceleration: a, force: f, stiffness: {stiffness}}}}}
  parameters: {{{parameters}}}
  actuators: {{story_1: {actuator}}}
  {more}
"""


def specimen(fault: str = "", version: int = 2, unit: str = "N") -> Path:
    variables = (
        *(("x", "input", "m"), ("v", "input", "m/s"), ("a", "input", "m/s^2")),
        *((name, "parameter", "", 0.0) for name in "kcm"),
        *(("preload", "parameter"), ("soft", "parameter", "", 0.0), ("yield", "parameter", "", 1.0)),
        *(("f", "output", unit), ("slip", "local")),
    )
    return of_text("specimen", SPECIMEN, variables, version, (f"-DWRONG={fault}",))


def rig(parameters: str = "", **changes: Any) -> str:
    """Return the section of a rig."""
    defaults = {"file": specimen(), "actuator": "{type: pure_delay}", "stiffness": 0.0, "more": ""}
    return RIG.format(**defaults | {"parameters": parameters} | changes)


def rehearsed(folder: Path, section: str, *overrides: str, **options: Any) -> Any:
    return hosts.run(scenario(folder, section, *overrides), **options)


@pytest.mark.parametrize(
    ("actuator", "every", "version"), [("{type: pure_delay}", 1, 2), ("{type: servo_hydraulic}", 4, 3)]
)
def test_spring_in_fmu_equals_kelvin_voigt(actuator: str, every: int, version: int, tmp_path: Path) -> None:
    """Includes an actuator that is loaded by the force, and samples between steps of the FMU."""
    spring = f"{{type: kelvin_voigt, stiffness: {STIFFNESS}, damping: 0.0}}"
    expected = reference(tmp_path, spring, actuator)
    file = specimen(version=version)
    section = rig(f"k: {STIFFNESS}", actuator=actuator, file=file, stiffness=STIFFNESS)
    result = rehearsed(tmp_path, section, f"rig.every={every}")
    assert result.outcome == "finished", result.reason
    run = result.read()
    assert np.ptp(expected.displacement) > 0.05, "m: the specimen moves"
    assert apart(run.displacement, expected.displacement) < 1e-9
    assert apart(run.force, expected.force) < 1e-9


def test_mass_and_dashpot_in_fmu_equal_with_mass(tmp_path: Path) -> None:
    """The FMU receives velocity and acceleration of the actuator."""
    inner = f"{{type: kelvin_voigt, stiffness: {STIFFNESS}, damping: 2.0e4}}"
    expected = reference(tmp_path, f"{{type: with_mass, mass: 300.0, specimen: {inner}}}")
    run = rehearsed(tmp_path, rig(f"k: {STIFFNESS}, c: 2.0e4, m: 300.0")).read()
    assert apart(expected.force, STIFFNESS * expected.displacement) > 0.1, "mass and dashpot contribute"
    assert apart(run.force, expected.force) < 1e-9


def test_yielding_spring_in_fmu_keeps_its_slip(tmp_path: Path) -> None:
    soft, limit = 8.0e5, 1.0e4
    run = rehearsed(tmp_path, rig(f"k: 2.0e5, soft: {soft}, yield: {limit}")).read()
    slip, forces = 0.0, []
    for x in run.displacement[:, 0]:
        spring = soft * (x - slip)
        if abs(spring) > limit:
            spring = np.copysign(limit, spring)
            slip = x - spring / soft
        forces.append(2.0e5 * x + spring)
    assert np.abs(run.displacement).max() > 3.0 * limit / soft, "the spring yields"
    assert apart(run.force[:, 0], np.array(forces)) < 1e-9


def test_initial_force_is_subtracted_and_converted(tmp_path: Path) -> None:
    expected = rehearsed(tmp_path, rig(f"k: {STIFFNESS}")).read()
    run = rehearsed(tmp_path, rig(f"k: {1e-3 * STIFFNESS}, preload: 7.0", file=specimen(unit="kN"))).read()
    assert apart(run.force, expected.force) < 1e-9


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_hosts_agree_exactly(host: str, tmp_path: Path, different: Any) -> None:
    section = rig(f"k: {STIFFNESS}, c: 2.0e4")
    embedded = rehearsed(tmp_path, section, "duration=1").read()
    result = rehearsed(tmp_path, section, "duration=1", host=host, record=tmp_path / host, keep=False)
    assert different(embedded, rths_nodes.read(result.recording)) == []


FAULTS = {
    "crash": ("if (t > 0.1) *(volatile int *)0 = 1", "the FMU was ended by SIGSEGV"),
    "discard": ("if (t > 0.1) return 2", "fmi2DoStep has returned fmi2Discard at 0.100586 s"),
    "nan": ("if (t > 0.1) v[F] = NAN", "f is nan at 0.101562 s: must be a number"),
    "loop": ("if (t > 0.1) for (;;)", "the FMU has not answered in 0.5 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_failure_of_fmu_ends_test(fault: str, tmp_path: Path) -> None:
    statement, reason = FAULTS[fault]
    section = rig(f"k: {STIFFNESS}", file=specimen(statement), more="answer_within: 0.5")
    result = rehearsed(tmp_path, section)
    assert (result.outcome, result.exit_code) == ("failed", 1)
    assert "specimen_" in result.reason
    assert reason in result.reason


def test_fmu_is_reset(tmp_path: Path) -> None:
    section = rig(f"k: {STIFFNESS}, soft: 8.0e5, yield: 1.0e3")
    rig_of_port: Any = Assembly(scenario(tmp_path, section)).port._rig

    def forces() -> list[float]:
        values = []
        for x in (0.01, -0.02, 0.03):
            rig_of_port.step(np.array([x]), np.zeros(0))
            assert rig_of_port.failure == ""
            values.append(float(rig_of_port.force[0]))
        return values

    with closing(rig_of_port):
        rig_of_port.open()
        first = forces()
        rig_of_port.reset()
        assert rig_of_port.force[0] == 0.0
        assert forces() == first
        assert all(first)


def test_incompatible_fmu_is_refused(tmp_path: Path) -> None:
    other_axes = "is for the axes other, but must be for the axes of the test"
    causality = "the variable has the causality input in the FMU, but must have the causality output"
    for before, after, reason in (
        ("axes: {story_1", "axes: {other", f"rig.axes: {other_axes} in their order"),
        ("actuators: {story_1", "actuators: {other", f"rig.actuators: {other_axes}"),
        ("force: f", "force: x", f"force = 'x': {causality}"),
        ("velocity: v", "velocity: a", "axes.story_1.velocity = 'a': the unit in the FMU is 'm/s^2'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as refusal:
            hosts.run(scenario(tmp_path, rig().replace(before, after)))
        assert reason in str(refusal.value)
    with pytest.raises(ConfigError, match=naming("rig.type", "fmu")):
        judge(scenario(tmp_path, rig()))
