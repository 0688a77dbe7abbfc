# SPDX-License-Identifier: Apache-2.0
"""A specimen that is an FMU: its force is that of the same specimen here, and its end is the end of the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fmus import of_text, skip_without_fmi
from generic_client import models_left
from messages import naming
from rehearsed_rig import OWN, SCENARIO, STIFFNESS

import rths_nodes
from rths_nodes.analysis.stability.judgement import judge
from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.fmu.process import PROGRAM
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

SPECIMEN = """
#include <math.h>
#include <stdlib.h>

#include "model.h"

/* f = k x + c v + m a + preload; and a bilinear spring beside it, which remembers where it has yielded */
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


def specimen(wrong: str = "", version: int = 2, unit: str = "N") -> Path:
    inputs = [("x", "input", "m"), ("v", "input", "m/s"), ("a", "input", "m/s^2")]
    parameters = [(name, "parameter", "", start) for name, start in zip("kcm", (0.0, 0.0, 0.0), strict=True)]
    more = [("preload", "parameter"), ("soft", "parameter", "", 0.0), ("yield", "parameter", "", 1.0)]
    return of_text(
        "specimen",
        SPECIMEN,
        (*inputs, *parameters, *more, ("f", "output", unit), ("slip", "local")),
        version,
        (f"-DWRONG={wrong}",),
    )


@pytest.fixture(scope="module", autouse=True)
def _fmi() -> Iterator[None]:
    skip_without_fmi()
    yield
    assert models_left(PROGRAM) == []


def scenario(folder: Path, text: str, *overrides: str, duration: float = 2.0) -> Any:
    return files.load(files.from_text(SCENARIO.format(duration=duration) + text, "it.yaml", folder), overrides)


def rehearsed(
    folder: Path, parameters: str, *overrides: str, actuator: str = "{type: pure_delay}", **of: Any
) -> Any:
    file = of.pop("file", None) or specimen()
    stiffness, more = of.pop("stiffness", 0.0), of.pop("more", "")
    given = {"file": file, "parameters": parameters, "actuator": actuator, "stiffness": stiffness, "more": more}
    return hosts.run(scenario(folder, RIG.format(**given), *overrides), **of)


def apart(one: Any, other: Any) -> float:
    return float(np.abs(one - other).max() / np.abs(other).max())


@pytest.mark.parametrize(
    ("actuator", "every", "version"),
    [("{type: pure_delay}", 1, 2), ("{type: servo_hydraulic}", 4, 3)],
)
def test_a_spring_as_fmu_is_kelvin_voigt_without_damping(
    actuator: str, every: int, version: int, tmp_path: Path
) -> None:
    """Also under an actuator that feels it, and in the samples between two steps of the FMU."""
    spring = f"{{type: kelvin_voigt, stiffness: {STIFFNESS}, damping: 0.0}}"
    own = hosts.run(scenario(tmp_path, OWN.format(actuator=actuator, specimen=spring))).read()
    k, file, every_ = f"k: {STIFFNESS}", specimen(version=version), f"rig.every={every}"
    result = rehearsed(tmp_path, k, every_, actuator=actuator, file=file, stiffness=STIFFNESS)
    assert result.outcome == "finished", result.reason
    found = result.read()
    assert np.ptp(own.displacement) > 0.05, "m: it has moved"
    assert apart(found.displacement, own.displacement) < 1e-9
    assert apart(found.force, own.force) < 1e-9


def test_mass_and_dashpot_resist_as_those_of_this_package(tmp_path: Path) -> None:
    """Velocity and acceleration of the actuator arrive at the FMU."""
    inner = f"{{type: kelvin_voigt, stiffness: {STIFFNESS}, damping: 2.0e4}}"
    own = f"{{type: with_mass, mass: 300.0, specimen: {inner}}}"
    expected = hosts.run(scenario(tmp_path, OWN.format(actuator="{type: pure_delay}", specimen=own))).read()
    found = rehearsed(tmp_path, f"k: {STIFFNESS}, c: 2.0e4, m: 300.0").read()
    assert apart(expected.force, STIFFNESS * expected.displacement) > 0.1, "more than the spring"
    assert apart(found.force, expected.force) < 1e-9


def test_a_spring_that_yields_remembers_where(tmp_path: Path) -> None:
    soft, limit = 8.0e5, 1.0e4
    result = rehearsed(tmp_path, f"k: 2.0e5, soft: {soft}, yield: {limit}")
    found, slip, forces = result.read(), 0.0, []
    for x in found.displacement[:, 0]:
        spring = soft * (x - slip)
        if abs(spring) > limit:
            spring = np.copysign(limit, spring)
            slip = x - spring / soft
        forces.append(2.0e5 * x + spring)
    assert np.abs(found.displacement).max() > 3.0 * limit / soft, "it yields"
    assert apart(found.force[:, 0], np.array(forces)) < 1e-9


def test_the_force_at_its_start_counts_as_zero_and_has_the_unit_of_the_fmu(tmp_path: Path) -> None:
    plain = rehearsed(tmp_path, f"k: {STIFFNESS}").read()
    parameters = f"k: {1e-3 * STIFFNESS}, preload: 7.0"
    found = rehearsed(tmp_path, parameters, file=specimen(unit="kN")).read()
    assert apart(found.force, plain.force) < 1e-9


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_hosts_are_equal_to_the_bit(host: str, tmp_path: Path, different: Any) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    parameters = f"k: {STIFFNESS}, c: 2.0e4"
    embedded = rehearsed(tmp_path, parameters, "duration=1").read()
    other = rehearsed(tmp_path, parameters, "duration=1", host=host, record=tmp_path / host, keep=False)
    assert different(embedded, rths_nodes.read(other.recording)) == []


WRONG = {
    "crash": ("if (t > 0.1) *(volatile int *)0 = 1", "the FMU was ended by SIGSEGV"),
    "discard": ("if (t > 0.1) return 2", "fmi2DoStep has returned fmi2Discard at 0.100586 s"),
    "nan": ("if (t > 0.1) v[F] = NAN", "f is nan at 0.101562 s: must be a number"),
    "loop": ("if (t > 0.1) for (;;)", "the FMU has not answered in 0.5 s"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_it_does_wrong_ends_the_test_in_words(wrong: str, tmp_path: Path) -> None:
    statement, says = WRONG[wrong]
    more = "answer_within: 0.5"
    result = rehearsed(tmp_path, f"k: {STIFFNESS}", file=specimen(statement), more=more)
    assert (result.outcome, result.exit_code) == ("failed", 1)
    assert "specimen_" in result.reason
    assert says in result.reason


def test_it_is_set_back_to_its_start(tmp_path: Path) -> None:
    parameters = f"k: {STIFFNESS}, soft: 8.0e5, yield: 1.0e3"
    given = {"file": specimen(), "parameters": parameters, "actuator": "{type: pure_delay}", "stiffness": 0.0}
    rig: Any = Assembly(scenario(tmp_path, RIG.format(**given, more=""))).port._rig
    rig.open()

    def forces() -> list[float]:
        found = []
        for x in (0.01, -0.02, 0.03):
            rig.step(np.array([x]), np.zeros(0))
            assert rig.failure == ""
            found.append(float(rig.force[0]))
        return found

    try:
        first = forces()
        rig.reset()
        assert rig.force[0] == 0.0
        assert forces() == first
        assert all(first)
    finally:
        rig.close()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    given = {"file": specimen(), "parameters": "", "actuator": "{type: pure_delay}", "stiffness": 0.0, "more": ""}
    text = RIG.format(**given)
    other_axes = "is for the axes other, but must be for the axes of the test"
    causality = "the variable has the causality input in the FMU, but must be one with causality output"
    for before, after, says in (
        ("axes: {story_1", "axes: {other", f"rig.axes: {other_axes} in their order"),
        ("actuators: {story_1", "actuators: {other", f"rig.actuators: {other_axes}"),
        ("force: f", "force: x", f"force = 'x': {causality}"),
        ("velocity: v", "velocity: a", "axes.story_1.velocity = 'a': the unit in the FMU is 'm/s^2'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as refusal:
            hosts.run(scenario(tmp_path, text.replace(before, after)))
        assert says in str(refusal.value)
    with pytest.raises(ConfigError, match=naming("rig.type", "fmu")):
        judge(scenario(tmp_path, text))
