# SPDX-License-Identifier: Apache-2.0
"""An FMU as integrator: it moves as our own structure of the same equations, on every host, in any units."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fmus import EXAMPLE, changed, frame, of_text, skip_without_fmi
from generic_client import models_left
from messages import mentions

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.fmu.process import PROGRAM
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

MASSES, STIFFNESSES = [1000.0, 900.0, 800.0], [1.0e6, 9.0e5, 8.0e5]
ALPHA, BETA, TESTED = 0.3, 1.0e-3, 4.0e5

SCENARIO = """
version: 1
name: frame
servo_rate: 1000.0
substeps: 5
duration: 5.0
ground_motion: {{type: record, record: elcentro_1940_ns, scale: 1.0}}
{numerical}
ramp: {{type: linear}}
compensator: {{type: none}}
axes:
  x_1:
    actuator: {{type: pure_delay}}
    specimen: {{type: kelvin_voigt, stiffness: {tested}, damping: 0.0}}
    limits: {{stroke: 0.5, velocity: 10.0, force: 1.0e8}}
"""


@pytest.fixture(scope="module", autouse=True)
def _fmi() -> Iterator[None]:
    skip_without_fmi()
    yield
    assert models_left(PROGRAM) == []


def own(stories: int) -> str:
    """The numerical part as a structure of this package, with the story of the rig taken out."""
    mass, stiffness = np.diag(MASSES[:stories]), np.zeros((stories, stories))
    for i, k in enumerate(STIFFNESSES[:stories]):
        stiffness[i, i] += k
        if i:
            stiffness[i - 1, i - 1] += k
            stiffness[i - 1, i] -= k
            stiffness[i, i - 1] -= k
    damping = ALPHA * mass + BETA * stiffness
    tested = np.zeros_like(mass)
    tested[0, 0] = TESTED
    return (
        f"structure: {{type: matrices, mass: {mass.tolist()}, stiffness: {(stiffness + tested).tolist()}, "
        f"experimental_stiffness: {tested.tolist()}, damping: {{type: matrix, matrix: {damping.tolist()}}}}}\n"
        "integrator: {type: explicit_newmark}\ninterface: [x_1]\n"
        + (f"observed: [{', '.join(f'x_{i + 1}' for i in range(1, stories))}]" if stories > 1 else "")
    )


def as_fmu(file: Path, stories: int, more: str = "") -> str:
    others = range(2, stories + 1)
    observed = ", ".join(f"x_{i}: {{displacement: x{i}}}" for i in others)
    return (
        (f"observed: [{', '.join(f'x_{i}' for i in others)}]\n" if stories > 1 else "")
        + f"integrator: {{type: fmu, file: {file}, interface: {{x_1: {{displacement: x1, force: f1}}}}, "
        + (f"observed: {{{observed}}}, " if stories > 1 else "")
        + f"ground: {{acceleration: ground_acceleration}}, parameters: {{beta: {BETA}}}{more}}}"
    )


def run(folder: Path, numerical: str, overrides: Sequence[str] = (), **options: Any) -> Any:
    text = SCENARIO.format(numerical=numerical, tested=TESTED)
    result = hosts.run(files.load(files.from_text(text, "frame.yaml", folder), overrides), **options)
    assert result.outcome == "finished", result.reason
    return rths_nodes.read(result.recording) if "record" in options else result.read()


def apart(one: Any, other: Any) -> float:
    """Largest difference, as a share of the peak."""
    return float(np.abs(one - other).max() / np.abs(other).max())


@pytest.mark.parametrize("stories", [1, 3])
@pytest.mark.parametrize("version", [2, 3])
def test_a_frame_as_fmu_moves_as_our_own(stories: int, version: int, tmp_path: Path) -> None:
    """By the same method and step, with a part of its first story on the rig, and what is observed as well."""
    expected = run(tmp_path, own(stories))
    found = run(tmp_path, as_fmu(frame(stories, version), stories))
    assert found.dof_names == expected.dof_names
    assert np.ptp(expected.dof_displacement[:, 0]) > 0.01, "m: it has moved"
    for name in ("dof_displacement", "displacement", "force"):
        assert apart(getattr(found, name), getattr(expected, name)) < 1e-9, name


def test_units_of_the_fmu_become_si(tmp_path: Path) -> None:
    """The same numbers in mm and kN are another frame: the one that they are to its own, it is to the rig."""
    units = tuple((f"x{i}", "mm") for i in (1, 2, 3)) + (("f1", "kN"),)
    plain = run(tmp_path, as_fmu(frame(3), 3))
    scaled = run(tmp_path, as_fmu(frame(3, units=units), 3), [f"axes.x_1.specimen.stiffness={1e6 * TESTED}"])
    assert apart(1e3 * scaled.dof_displacement, plain.dof_displacement) < 1e-9
    undeclared = frame(3, units=(("x1", ""), ("x2", ""), ("x3", ""), ("f1", "")))
    stated = as_fmu(undeclared, 3, ", units: {x1: mm, x2: mm, x3: mm, f1: kN}")
    again = run(tmp_path, stated, [f"axes.x_1.specimen.stiffness={1e6 * TESTED}"])
    assert np.array_equal(again.dof_displacement, scaled.dof_displacement)


def test_velocities_that_it_tells_are_taken_others_are_of_the_parabola(tmp_path: Path) -> None:
    told = as_fmu(frame(1), 1).replace("displacement: x1", "displacement: x1, velocity: v1, acceleration: a1")
    told, of_parabola = run(tmp_path, told), run(tmp_path, as_fmu(frame(1), 1))
    assert np.array_equal(told.dof_displacement, of_parabola.dof_displacement)
    x = told.dof_displacement
    dt = 0.005
    # the method of this FMU tells the predicted velocity, (x' - x) / dt, and the acceleration of the parabola
    np.testing.assert_allclose(told.dof_velocity[1:], np.diff(x, axis=0) / dt, rtol=1e-9, atol=1e-12)
    curvature = np.diff(x, 2, axis=0) / dt**2
    np.testing.assert_allclose(told.dof_acceleration[2:], curvature, rtol=0.0, atol=1e-8)
    slope = np.diff(x, axis=0)[1:] / dt + 0.5 * dt * curvature
    np.testing.assert_allclose(of_parabola.dof_velocity[2:], slope, rtol=0.0, atol=1e-10)


def test_the_ground_may_move_inside_the_fmu(tmp_path: Path) -> None:
    """As it does where the same acceleration comes from the scenario."""
    sine = "ground_motion={type: sine, amplitude: 2.0, frequency: 1.5}"
    outside = run(tmp_path, as_fmu(frame(3), 3), [sine])
    inside = as_fmu(frame(3), 3).replace("ground: {acceleration: ground_acceleration}, ", "")
    inside = inside.replace("parameters: {", "parameters: {ground_amplitude: 2.0, ground_frequency: 1.5, ")
    found = run(tmp_path, inside, ["ground_motion={type: none}"])
    assert apart(found.dof_displacement, outside.dof_displacement) < 1e-9


@pytest.mark.parametrize(("moment", "weights"), [("middle", (0.5, 0.5)), ("end", (0.0, 1.0))])
def test_the_ground_is_taken_at_the_moment_that_is_stated(
    moment: str, weights: tuple[float, float], tmp_path: Path
) -> None:
    text = SCENARIO.format(numerical=as_fmu(frame(1), 1), tested=TESTED)
    loaded = files.load(files.from_text(text, "frame.yaml", tmp_path), [f"integrator.ground.taken_at={moment}"])
    assembly = Assembly(loaded)
    integrator: Any = assembly.integrator
    given, a = integrator._ground, assembly.ground_acceleration
    np.testing.assert_array_equal(given[:-1], weights[0] * a[:-1] + weights[1] * a[1:])


def test_fmpy_simulates_the_same(tmp_path: Path) -> None:
    """The measured force, played to the FMU by ``simulate_fmu``, gives the displacements of the test."""
    import fmpy

    file, dt = frame(3), 0.005
    found = run(tmp_path, as_fmu(file, 3))
    steps = len(found.dof_displacement) - 1
    times = dt * np.arange(steps + 1)
    text = SCENARIO.format(numerical=as_fmu(file, 3), tested=TESTED)
    ground = Assembly(files.load(files.from_text(text, "frame.yaml", tmp_path))).ground_acceleration
    force = TESTED * found.dof_displacement[:, 0]
    rows = [(t, a, f) for t, a, f in zip(times, ground, force, strict=True)]
    kinds = [(name, float) for name in ("time", "ground_acceleration", "f1")]
    played = fmpy.simulate_fmu(
        str(file),
        fmi_type="CoSimulation",
        stop_time=times[-1],
        step_size=dt,
        output_interval=dt,
        start_values={"beta": BETA},
        input=np.array(rows, dtype=kinds),
        output=["x1", "x2", "x3"],
    )
    x = np.column_stack([played[name] for name in ("x1", "x2", "x3")])[: steps + 1]
    assert apart(x, found.dof_displacement) < 1e-9


HOLDING = """
#include "model.h"

enum { F, AG, C, X, V };

int model_start(double *v) { return 0; }

int model_step(double *v, double t, double h)
{
    for (int i = 0; i < 50; i++) { /* as close to exact as the test needs it */
        double a = -v[AG] - (v[C] * v[V] + 5e5 * v[X] + v[F]) / 1000.0;
        v[X] += h / 50 * v[V] + 0.5 * h / 50 * h / 50 * a;
        v[V] += h / 50 * a;
    }
    return 0;
}
"""


def test_a_force_that_is_held_takes_the_damping_of_half_a_step_away(tmp_path: Path) -> None:
    """It is that of our structure with c - k h / 2, k under test; read ahead by ``force_lead`` that with c."""
    damping, h = 3.0e3, 0.005
    outputs = ("x", "output", "m"), ("v", "output", "m/s")
    inputs = ("f", "input", "N"), ("ag", "input", "m/s^2")
    file = of_text("holding", HOLDING, (*inputs, ("c", "parameter", "", damping), *outputs))
    words = f"{{type: fmu, file: {file}, interface: {{x_1: {{displacement: x, force: f}}}}, "
    words += "ground: {acceleration: ag, taken_at: middle}}"

    def ours(c: float) -> Any:
        structure = f"mass: [[1000.0]], stiffness: [[{5e5 + TESTED}]], experimental_stiffness: [[{TESTED}]]"
        return run(
            tmp_path,
            f"structure: {{type: matrices, {structure}, damping: {{type: matrix, matrix: [[{c}]]}}}}\n"
            "integrator: {type: runge_kutta}\ninterface: [x_1]",
            ["substeps=1"],
        ).displacement

    held = run(tmp_path, f"integrator: {words}").displacement
    led = run(tmp_path, f"integrator: {words}\nforce_lead: 0.0").displacement
    assert apart(held, ours(damping - 0.5 * h * TESTED)) < 0.05
    assert apart(led, ours(damping)) < 0.05
    assert apart(held, ours(damping)) > 0.2


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_hosts_are_equal_to_the_bit(host: str, tmp_path: Path, different: Any) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    embedded = run(tmp_path, as_fmu(frame(3), 3), ["duration=1"])
    other = run(tmp_path, as_fmu(frame(3), 3), ["duration=1"], host=host, record=tmp_path / host, keep=False)
    assert different(embedded, other) == []


@pytest.mark.parametrize("state", [True, False])
def test_it_is_set_back_to_its_start(state: bool, tmp_path: Path) -> None:
    """By the state that it saves, or by a new initialisation where it saves none: the same motion again."""
    file = frame(3)
    if not state:
        file = changed(file, tmp_path / "stateless.fmu", ('canGetAndSetFMUstate="true"', ""))
    text = SCENARIO.format(numerical=as_fmu(file, 3), tested=TESTED)
    integrator = Assembly(files.load(files.from_text(text, "frame.yaml", tmp_path))).integrator

    def motion() -> Any:
        while integrator.missing():
            pass
        found = []
        for _ in range(50):
            integrator.begin(np.array([3.0, 0.0, 0.0]))
            integrator.step(np.array([3.0, 0.0, 0.0]))
            found.append(integrator.displacement.copy())
        return np.array(found)

    integrator.open()
    try:
        first = motion()
        integrator.reset()
        assert np.array_equal(motion(), first)
        assert first.any()
    finally:
        integrator.close()


def built(folder: Path) -> None:
    """The files of the example, with their FMUs built as its user builds them."""
    for name in ("frame.yaml", "rehearsal.yaml"):
        shutil.copy(EXAMPLE / name, folder)
    for model in ("frame", "controller", "brace"):
        subprocess.run([sys.executable, EXAMPLE / "build.py", model], cwd=folder, check=True, timeout=60.0)


def test_the_example_runs_and_its_parts_are_those_of_this_package(tmp_path: Path) -> None:
    """Its controller leads as derivative feedforward does, its brace yields as the elastic-plastic law."""
    built(tmp_path)
    names = "target: target, velocity: velocity, measured: measured, command: command"
    late = "axes.story_1.actuator={type: first_order, alpha: 29}"
    words = f"{{type: fmu, file: {tmp_path / 'controller.fmu'}, "
    words += "axes: {story_1: {NAMES}}, parameters: {delay: 0.028}}"
    commands = []
    for compensator in (words.replace("NAMES", names), "{type: derivative_feedforward, delay: 0.028}"):
        result = hosts.run(tmp_path / "frame.yaml", [late, f"compensator={compensator}"])
        assert result.outcome == "finished", result.reason
        commands.append(result.read().command)
    assert np.array_equal(*commands)
    result = hosts.run(tmp_path / "rehearsal.yaml")
    assert result.outcome == "finished", result.reason
    found = result.read()
    law = registry.load("restoring_force", "elastic_plastic")
    own = law(from_data(law.Params, {"stiffness": 5.0e5, "yield_force": 5.0e3}), 1)
    expected = np.array([own.force(x)[0] for x in found.displacement])
    assert np.abs(expected).max() == 5.0e3, "N: it yields"
    assert apart(found.force[:, 0], expected) < 1e-9


def test_check_lists_its_variables_and_measures_its_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    built(tmp_path)
    assert main(["check", str(tmp_path / "frame.yaml"), "--set", "duration=1"]) == 0
    told = capsys.readouterr().out
    assert mentions(told, "integrator", "frame", "FMI", "2.0", "build.py")
    assert "integrator: inputs: ground_acceleration [m/s^2] = 0.0, f1 [N] = 0.0" in told
    assert "integrator: outputs: x1 [m], x2 [m], x3 [m], v1 [m/s]" in told
    assert "k1 [N/m] = 1000000.0" in told
    assert mentions(told, "integrator", "f2", "0.0")
    assert mentions(told, "integrator", "k1", "500000")
    assert mentions(told, "step", "takes")
    assert not mentions(told, "measured", "force"), "this one takes it at the start of its step"
    assert main(["check", str(tmp_path / "frame.yaml"), "--set", "integrator.force_age=0.5"]) == 0
    assert mentions(capsys.readouterr().out, "caution", "integrator", "force_age", "0.5", "FMU", "2.5 ms")
    assert "excitation: elcentro_1940_ns, peak " in told
