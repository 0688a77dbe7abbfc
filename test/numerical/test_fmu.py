# SPDX-License-Identifier: Apache-2.0
"""Tests of FMUs as integrators: equal structures of the package, units, hosts, FMUs of other tools."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fmus import EXAMPLE, changed, frame, of_text
from loop_parts import make
from messages import mentions

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.fmu import described
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

pytestmark = pytest.mark.usefixtures("fmi")

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


def matrices(stories: int) -> str:
    """Numerical part as a structure of this package, without the story of the rig."""
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


def as_fmu(file: Path, stories: int = 3, more: str = "") -> str:
    upper = range(2, stories + 1)
    observed = ", ".join(f"x_{i}: {{displacement: x{i}}}" for i in upper)
    return (
        (f"observed: [{', '.join(f'x_{i}' for i in upper)}]\n" if stories > 1 else "")
        + f"integrator: {{type: fmu, file: {file}, interface: {{x_1: {{displacement: x1, force: f1}}}}, "
        + (f"observed: {{{observed}}}, " if stories > 1 else "")
        + f"ground: {{acceleration: ground_acceleration}}, parameters: {{beta: {BETA}}}{more}}}"
    )


def scenario(folder: Path, numerical: str, overrides: Sequence[str] = ()) -> Any:
    text = SCENARIO.format(numerical=numerical, tested=TESTED)
    return files.load(files.from_text(text, "frame.yaml", folder), overrides)


def run(folder: Path, numerical: str, overrides: Sequence[str] = (), **options: Any) -> Any:
    result = hosts.run(scenario(folder, numerical, overrides), **options)
    assert result.outcome == "finished", result.reason
    return rths_nodes.read(result.recording) if "record" in options else result.read()


def difference(values: Any, reference: Any) -> float:
    return float(np.abs(values - reference).max() / np.abs(reference).max())


@pytest.mark.parametrize("stories", [1, 3])
@pytest.mark.parametrize("version", [2, 3])
def test_fmu_frame_matches_matrix_structure(stories: int, version: int, tmp_path: Path) -> None:
    """Same method and step; part of the first story is on the rig, the upper stories are observed."""
    expected = run(tmp_path, matrices(stories))
    result = run(tmp_path, as_fmu(frame(stories, version), stories))
    assert result.dof_names == expected.dof_names
    assert np.ptp(expected.dof_displacement[:, 0]) > 0.01
    for name in ("dof_displacement", "displacement", "force"):
        assert difference(getattr(result, name), getattr(expected, name)) < 1e-9, name


def test_fmu_units_are_converted_to_si(tmp_path: Path) -> None:
    """The same numbers in mm and kN describe another frame, 1e6 times as stiff as in m and N."""
    units = tuple((f"x{i}", "mm") for i in (1, 2, 3)) + (("f1", "kN"),)
    plain = run(tmp_path, as_fmu(frame(3)))
    stiff = [f"axes.x_1.specimen.stiffness={1e6 * TESTED}"]
    scaled = run(tmp_path, as_fmu(frame(3, units=units)), stiff)
    assert difference(1e3 * scaled.dof_displacement, plain.dof_displacement) < 1e-9
    undeclared = frame(3, units=(("x1", ""), ("x2", ""), ("x3", ""), ("f1", "")))
    stated = as_fmu(undeclared, 3, ", units: {x1: mm, x2: mm, x3: mm, f1: kN}")
    assert np.array_equal(run(tmp_path, stated, stiff).dof_displacement, scaled.dof_displacement)


def test_missing_velocities_follow_from_parabola(tmp_path: Path) -> None:
    numerical = as_fmu(frame(1), 1)
    outputs = numerical.replace("displacement: x1", "displacement: x1, velocity: v1, acceleration: a1")
    stated, parabola = run(tmp_path, outputs), run(tmp_path, numerical)
    assert np.array_equal(stated.dof_displacement, parabola.dof_displacement)
    x, dt = stated.dof_displacement, 0.005
    # the FMU outputs the predicted velocity, (x' - x) / dt, and the acceleration of the parabola
    np.testing.assert_allclose(stated.dof_velocity[1:], np.diff(x, axis=0) / dt, rtol=1e-9, atol=1e-12)
    curvature = np.diff(x, 2, axis=0) / dt**2
    np.testing.assert_allclose(stated.dof_acceleration[2:], curvature, rtol=0.0, atol=1e-8)
    slope = np.diff(x, axis=0)[1:] / dt + 0.5 * dt * curvature
    np.testing.assert_allclose(parabola.dof_velocity[2:], slope, rtol=0.0, atol=1e-10)


def test_ground_motion_inside_fmu(tmp_path: Path) -> None:
    outside = run(tmp_path, as_fmu(frame(3)), ["ground_motion={type: sine, amplitude: 2.0, frequency: 1.5}"])
    inside = as_fmu(frame(3)).replace("ground: {acceleration: ground_acceleration}, ", "")
    inside = inside.replace("parameters: {", "parameters: {ground_amplitude: 2.0, ground_frequency: 1.5, ")
    result = run(tmp_path, inside, ["ground_motion={type: none}"])
    assert difference(result.dof_displacement, outside.dof_displacement) < 1e-9


@pytest.mark.parametrize(("moment", "weights"), [("middle", (0.5, 0.5)), ("end", (0.0, 1.0))])
def test_ground_is_sampled_at_stated_moment(moment: str, weights: tuple[float, float], tmp_path: Path) -> None:
    assembly = Assembly(scenario(tmp_path, as_fmu(frame(1), 1), [f"integrator.ground.taken_at={moment}"]))
    integrator: Any = assembly.integrator
    a = assembly.ground_acceleration
    np.testing.assert_array_equal(integrator._ground[:-1], weights[0] * a[:-1] + weights[1] * a[1:])


def test_fmpy_reproduces_displacements(tmp_path: Path) -> None:
    """``simulate_fmu`` with the measured force as input gives the displacements of the test."""
    import fmpy

    file, dt = frame(3), 0.005
    displacement = run(tmp_path, as_fmu(file)).dof_displacement
    times = dt * np.arange(len(displacement))
    ground = Assembly(scenario(tmp_path, as_fmu(file))).ground_acceleration
    rows = list(zip(times, ground, TESTED * displacement[:, 0], strict=True))
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
    x = np.column_stack([played[name] for name in ("x1", "x2", "x3")])[: len(displacement)]
    assert difference(x, displacement) < 1e-9


HOLDING = """
#include "model.h"

enum { F, AG, C, X, V };

int model_start(double *v) { return 0; }

int model_step(double *v, double t, double h)
{
    for (int i = 0; i < 50; i++) { /* nearly exact */
        double a = -v[AG] - (v[C] * v[V] + 5e5 * v[X] + v[F]) / 1000.0;
        v[X] += h / 50 * v[V] + 0.5 * h / 50 * h / 50 * a;
        v[V] += h / 50 * a;
    }
    return 0;
}
"""


def test_held_force_reduces_damping_by_half_a_step(tmp_path: Path) -> None:
    """The response is that with damping c - k h / 2, k under test; with ``force_lead`` that with c."""
    damping, h = 3.0e3, 0.005
    outputs = ("x", "output", "m"), ("v", "output", "m/s")
    inputs = ("f", "input", "N"), ("ag", "input", "m/s^2")
    file = of_text("holding", HOLDING, (*inputs, ("c", "parameter", "", damping), *outputs))
    fmu = f"{{type: fmu, file: {file}, interface: {{x_1: {{displacement: x, force: f}}}}, "
    fmu += "ground: {acceleration: ag, taken_at: middle}}"

    def reference(c: float) -> Any:
        structure = f"mass: [[1000.0]], stiffness: [[{5e5 + TESTED}]], experimental_stiffness: [[{TESTED}]]"
        return run(
            tmp_path,
            f"structure: {{type: matrices, {structure}, damping: {{type: matrix, matrix: [[{c}]]}}}}\n"
            "integrator: {type: runge_kutta}\ninterface: [x_1]",
            ["substeps=1"],
        ).displacement

    held = run(tmp_path, f"integrator: {fmu}").displacement
    led = run(tmp_path, f"integrator: {fmu}\nforce_lead: 0.0").displacement
    assert difference(held, reference(damping - 0.5 * h * TESTED)) < 0.05
    assert difference(led, reference(damping)) < 0.05
    assert difference(held, reference(damping)) > 0.2


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_hosts_agree_bit_for_bit(host: str, tmp_path: Path, different: Any) -> None:
    embedded = run(tmp_path, as_fmu(frame(3)), ["duration=1"])
    other = run(tmp_path, as_fmu(frame(3)), ["duration=1"], host=host, record=tmp_path / host, keep=False)
    assert different(embedded, other) == []


@pytest.mark.parametrize("state", [True, False])
def test_reset_restores_initial_state(state: bool, tmp_path: Path) -> None:
    """Reset by the saved state, or by a new initialisation if the FMU cannot save it."""
    file = frame(3)
    if not state:
        file = changed(file, tmp_path / "stateless.fmu", ('canGetAndSetFMUstate="true"', ""))
    integrator = Assembly(scenario(tmp_path, as_fmu(file))).integrator

    def motion() -> Any:
        while integrator.missing():
            pass
        history = []
        for _ in range(50):
            integrator.begin(np.array([3.0, 0.0, 0.0]))
            integrator.step(np.array([3.0, 0.0, 0.0]))
            history.append(integrator.displacement.copy())
        return np.array(history)

    with closing(integrator):
        integrator.open()
        first = motion()
        integrator.reset()
        assert np.array_equal(motion(), first)
        assert first.any()


def build_example(folder: Path) -> None:
    """Copy the example and build its FMUs with the documented command."""
    for name in ("frame.yaml", "rehearsal.yaml"):
        shutil.copy(EXAMPLE / name, folder)
    for model in ("frame", "controller", "brace"):
        subprocess.run([sys.executable, EXAMPLE / "build.py", model], cwd=folder, check=True, timeout=60.0)


def test_example_matches_components_of_package(tmp_path: Path) -> None:
    """The controller is a derivative feedforward, the brace an elastic-plastic law."""
    build_example(tmp_path)
    names = "target: target, velocity: velocity, measured: measured, command: command"
    late = "axes.story_1.actuator={type: first_order, alpha: 29}"
    fmu = f"{{type: fmu, file: {tmp_path / 'controller.fmu'}, "
    fmu += f"axes: {{story_1: {{{names}}}}}, parameters: {{delay: 0.028}}}}"
    commands = []
    for compensator in (fmu, "{type: derivative_feedforward, delay: 0.028}"):
        result = hosts.run(tmp_path / "frame.yaml", [late, f"compensator={compensator}"])
        assert result.outcome == "finished", result.reason
        commands.append(result.read().command)
    assert np.array_equal(*commands)
    result = hosts.run(tmp_path / "rehearsal.yaml")
    assert result.outcome == "finished", result.reason
    recording = result.read()
    law = make("restoring_force", "elastic_plastic", 1, stiffness=5.0e5, yield_force=5.0e3)
    expected = np.array([law.force(x)[0] for x in recording.displacement])
    assert np.abs(expected).max() == 5.0e3, "N: yield force"
    assert difference(recording.force[:, 0], expected) < 1e-9


def test_check_lists_variables_and_measures_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    build_example(tmp_path)
    assert main(["check", str(tmp_path / "frame.yaml"), "--set", "duration=1"]) == 0
    output = capsys.readouterr().out
    assert mentions(output, "integrator", "frame", "FMI", "2.0", "build.py")
    assert "integrator: inputs: ground_acceleration [m/s^2] = 0.0, f1 [N] = 0.0" in output
    assert "integrator: outputs: x1 [m], x2 [m], x3 [m], v1 [m/s]" in output
    assert "k1 [N/m] = 1000000.0" in output
    assert mentions(output, "integrator", "f2", "0.0")
    assert mentions(output, "integrator", "k1", "500000")
    assert mentions(output, "step", "takes")
    assert not mentions(output, "measured", "force"), "the FMU takes the force at the start of its step"
    assert main(["check", str(tmp_path / "frame.yaml"), "--set", "integrator.force_age=0.5"]) == 0
    assert mentions(capsys.readouterr().out, "caution", "integrator", "force_age", "0.5", "FMU", "2.5 ms")
    assert "excitation: elcentro_1940_ns, peak " in output


# FMUs of other tools

Shared = Callable[[str], Path]
UNIT = '<ScalarVariable name="{}" valueReference="29" causality="local"><Real unit="V"/></ScalarVariable>'


def inputs(shared_data: Shared, scenario: str, key: str, fmu: str) -> tuple[str, list[str]]:
    """Return a shared scenario, and the override that names its FMU."""
    return str(shared_data(f"../inputs/turn4/{scenario}")), [f"{key}={shared_data(f'../inputs/turn4/{fmu}')}"]


def test_longer_preferred_step_is_a_caution(
    shared_data: Shared, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    scenario, (override,) = inputs(shared_data, "frame.yaml", "integrator.file", "slow.fmu")
    assert described(str(shared_data("../inputs/turn4/slow.fmu"))).model.defaultExperiment.stepSize == "0.02"
    assert main(["check", scenario, "--set", override]) == 0
    assert mentions(capsys.readouterr().out, "caution", "integrator", "slow.fmu", "0.005 s", "stepSize", "0.02 s")
    assert main(["check", scenario, "--set", override, "--set", "substeps=20"]) == 0
    assert not mentions(capsys.readouterr().out, "stepSize")


def test_unchanged_outputs_are_counted_and_reported(shared_data: Shared, caplog: pytest.LogCaptureFixture) -> None:
    scenario, overrides = inputs(shared_data, "frame.yaml", "integrator.file", "slow.fmu")
    result = hosts.run(scenario, overrides)
    assert (result.integrator["fmu_steps"], result.integrator["fmu_steps_unchanged"]) == (520, 390)
    assert mentions(caplog.messages, "slow.fmu", "390", "520")
    caplog.clear()
    result = hosts.run(scenario, [f"integrator.file={frame()}", "duration=2"])
    assert result.outcome == "finished"
    assert result.integrator["fmu_steps_unchanged"] <= 1, "the first step starts at rest"
    assert caplog.messages == []


def test_unmoved_model_needs_no_reset(shared_data: Shared) -> None:
    scenario, overrides = inputs(shared_data, "rehearsal.yaml", "rig.file", "brace_noreset.fmu")
    result = hosts.run(scenario, [*overrides, "duration=2"])
    assert result.outcome == "finished"
    assert np.abs(result.read().displacement).max() > 1e-3


def test_failed_reset_after_steps_is_refused(shared_data: Shared) -> None:
    scenario, overrides = inputs(shared_data, "rehearsal.yaml", "rig.file", "brace_noreset.fmu")
    rig = Assembly(files.load(scenario, overrides)).port._rig  # type: ignore[attr-defined]
    with closing(rig):
        rig.open()
        for k in range(3):
            rig.step(np.array([1e-3 * k]), np.zeros(0))
        with pytest.raises(ConfigError) as refusal:
            rig.reset()
    assert mentions(str(refusal.value), "rig.file", "brace_noreset.fmu", "fmi2Reset", "status 3")


def test_archive_members_may_start_with_dot_slash(tmp_path: Path) -> None:
    """Some tools write such archives by ``zip -r model.fmu .``."""
    dotted = tmp_path / "dotted.fmu"
    with zipfile.ZipFile(frame()) as old, zipfile.ZipFile(dotted, "w") as new:
        for member in old.infolist():
            new.writestr(f"./{member.filename}", old.read(member))
    assert described(str(dotted)).lines([], {}) == described(str(frame())).lines([], {})


@pytest.mark.parametrize("fmu", ["dot.fmu", "undefined_local.fmu", "undefined_many.fmu"])
def test_fmus_of_other_tools_run(fmu: str, shared_data: Shared) -> None:
    scenario, overrides = inputs(shared_data, "frame.yaml", "integrator.file", fmu)
    expected = hosts.run(scenario, [f"integrator.file={frame()}", "duration=2"]).read()
    result = hosts.run(scenario, [*overrides, "duration=2"]).read()
    np.testing.assert_array_equal(result.target, expected.target)


def test_undefined_unit_of_unused_variable_is_accepted(tmp_path: Path) -> None:
    end = "</ModelVariables>"
    fmu = changed(frame(), tmp_path / "local.fmu", (end, UNIT.format("C1.v") + end))
    assert described(str(fmu)).variables["C1.v"].causality == "local"


def test_messages_on_description_are_short(tmp_path: Path) -> None:
    end = "</ModelVariables>"
    repeated = "".join(UNIT.format("n" * 500) for _ in range(300))
    fmu = changed(frame(), tmp_path / "repeated.fmu", (end, repeated + end))
    with pytest.raises(ConfigError) as refusal:
        described(str(fmu))
    assert mentions(str(refusal.value), "modelDescription.xml", "more")
    assert len(str(refusal.value)) < 1500
