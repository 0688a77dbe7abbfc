# SPDX-License-Identifier: Apache-2.0
"""Tests of specimens in OpenSees: equal to the same specimens of this package; failures end the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generic_client import models_left
from loop_parts import make
from messages import mentions, naming
from rehearsed_rig import SCENARIO, STIFFNESS, apart, reference, scenario

from rths_nodes.analysis.stability.judgement import judge
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files

pytestmark = pytest.mark.usefixtures("opensees")

REHEARSAL = Path(__file__).parents[2] / "doc" / "opensees" / "rehearsal.yaml"
RIG = "rig: {{type: opensees, model: {model}, interface: [[1, 1]], actuators: {{story_1: {actuator}}}}}\n"

HEAD = """
import openseespy.opensees as ops


def specimen(hold):
    ops.model("basic", "-ndm", 1, "-ndf", 1)
    ops.node(0, 0.0)
    ops.fix(0, 1)
    ops.node(1, {length})
"""
SPRING = (
    HEAD.format(length=0.0)
    + f"""
    ops.uniaxialMaterial("Elastic", 1, {STIFFNESS})
    ops.element("zeroLength", 1, 0, 1, "-mat", 1, "-dir", 1)
    hold()
"""
)
AREA, LENGTH, YIELDS, RATIO = 5.0e-5, 2.0, 4.0e8, 0.05
TRUSS = (
    HEAD.format(length=LENGTH)
    + f"""
    ops.uniaxialMaterial("Steel01", 1, {YIELDS}, 2.0e11, {RATIO})
    ops.element("Truss", 1, 0, 1, {AREA}, 1)
    hold()
"""
)
DASHPOT = (
    HEAD.format(length=0.0)
    + f"""
    ops.mass(1, 300.0)
    ops.uniaxialMaterial("Elastic", 1, {STIFFNESS}, 2.0e4)
    ops.element("zeroLength", 1, 0, 1, "-mat", 1, "-dir", 1)
    hold()
"""
)


def rehearsed(
    folder: Path, model: str, *overrides: str, actuator: str = "{type: pure_delay}", **options: Any
) -> Any:
    (folder / "specimen.py").write_text(model)
    return hosts.run(scenario(folder, RIG.format(model="specimen.py", actuator=actuator), *overrides), **options)


@pytest.mark.parametrize(
    ("actuator", "every"),
    [
        ("{type: pure_delay}", 1),
        ("{type: servo_hydraulic}", 4),
        pytest.param("{type: pure_delay}", 4, marks=pytest.mark.soak),
        pytest.param("{type: servo_hydraulic}", 1, marks=pytest.mark.soak),
    ],
)
def test_spring_in_opensees_equals_kelvin_voigt(actuator: str, every: int, tmp_path: Path) -> None:
    """Includes an actuator that is loaded by the force, and samples between steps of the model."""
    expected = reference(tmp_path, f"{{type: kelvin_voigt, stiffness: {STIFFNESS}, damping: 0.0}}", actuator)
    result = rehearsed(tmp_path, SPRING, f"rig.every={every}", actuator=actuator)
    assert result.outcome == "finished", result.reason
    run = result.read()
    assert np.ptp(expected.displacement) > 0.05, "m: the specimen moves"
    assert apart(run.displacement, expected.displacement) < 1e-10
    assert apart(run.force, expected.force) < 1e-10


def test_mass_and_dashpot_in_opensees_equal_with_mass(tmp_path: Path) -> None:
    """The node receives velocity and acceleration of the actuator."""
    inner = f"{{type: kelvin_voigt, stiffness: {STIFFNESS}, damping: 2.0e4}}"
    expected = reference(tmp_path, f"{{type: with_mass, mass: 300.0, specimen: {inner}}}")
    run = rehearsed(tmp_path, DASHPOT).read()
    assert apart(expected.force, STIFFNESS * expected.displacement) > 0.1, "mass and dashpot contribute"
    assert apart(run.force, expected.force) < 1e-10


def test_truss_of_steel01_follows_bilinear_law(tmp_path: Path) -> None:
    result = rehearsed(tmp_path, TRUSS)
    assert result.outcome == "finished", result.reason
    run = result.read()
    stiffness, yields = 2.0e11 * AREA / LENGTH, YIELDS * AREA
    law = make("restoring_force", "bilinear", 1, stiffness=stiffness, yield_force=yields, post_yield_ratio=RATIO)
    x = run.displacement[:, 0]
    assert np.abs(x).max() > 3.0 * yields / stiffness, "the truss yields"
    expected = np.concatenate([law.force(np.array([value])) for value in x])
    assert apart(run.force[:, 0], expected) < 1e-10


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    with ExitStack() as stack:

        def make(model: str, interface: Any, dt: float = 0.001, **data: Any) -> Any:
            (tmp_path / "specimen.py").write_text(model)
            n = len(interface)
            data |= {"model": str(tmp_path / "specimen.py"), "interface": interface}
            data |= {"actuators": {f"axis_{index}": {"type": "pure_delay"} for index in range(n)}}
            cls = registry.load("rig", "opensees")
            rig = stack.enter_context(closing(cls(from_data(cls.Params, data, "rig"), dt, n)))
            rig.open()
            return rig

        yield make


def driven(rig: Any, commands: Any) -> tuple[Any, Any]:
    """Displacement and force ``(samples, n)`` of the rig after each command."""
    samples = []
    for command in commands:
        rig.step(command, np.zeros(0))
        assert not rig.failure, rig.failure
        samples.append((rig.displacement.copy(), rig.force.copy()))
    displacement, force = zip(*samples, strict=True)
    return np.array(displacement), np.array(force)


M1, M2, K1, K2, C2 = 100.0, 50.0, 1.0e6, 5.0e5, 300.0
CHAIN = (
    HEAD.format(length=0.0)
    + f"""
    ops.mass(1, {M1})
    ops.node(2, 0.0)
    ops.mass(2, {M2})
    ops.uniaxialMaterial("Elastic", 1, {K1})
    ops.uniaxialMaterial("Elastic", 2, {K2}, {C2})
    ops.element("zeroLength", 1, 0, 1, "-mat", 1, "-dir", 1)
    ops.element("zeroLength", 2, 1, 2, "-mat", 2, "-dir", 1)
    hold()
"""
)


def test_free_nodes_move_by_newmark(rig: Any) -> None:
    """Mass between two springs with a moved end; reference: Newmark's method written out."""
    dt = 0.001
    chain = rig(CHAIN, [[2, 1]], dt)
    command = 0.01 * np.sin(20.0 * dt * np.arange(1, 1001))[:, None]
    displacement, force = driven(chain, command)
    x = displacement[:, 0]
    velocity = np.diff(x, prepend=0.0) / dt
    acceleration = np.diff(velocity, prepend=0.0) / dt
    u = v = a = 0.0
    effective_mass = M1 + 0.5 * dt * C2 + 0.25 * dt**2 * (K1 + K2)
    expected = []
    for end, end_velocity, end_acceleration in zip(x, velocity, acceleration, strict=True):
        u, v = u + dt * v + 0.25 * dt**2 * a, v + 0.5 * dt * a
        a = -(C2 * (v - end_velocity) + K1 * u + K2 * (u - end)) / effective_mass
        u, v = u + 0.25 * dt**2 * a, v + 0.5 * dt * a
        expected.append(M2 * end_acceleration + C2 * (end_velocity - v) + K2 * (end - u))
    assert apart(force[:, 0], np.array(expected)) < 1e-12


TWO = (
    HEAD.format(length=0.0)
    + f"""
    ops.node(2, 0.0)
    for node, stiffness in ((1, {K1}), (2, {K2})):
        ops.uniaxialMaterial("Elastic", node, stiffness)
        ops.element("zeroLength", node, node - 1, node, "-mat", node, "-dir", 1)
    hold()
"""
)


@pytest.mark.parametrize("every", [1, 5])
def test_several_axes_move_one_model(rig: Any, every: int) -> None:
    two = rig(TWO, [[2, 1], [1, 1]], every=every)
    k = np.array([[K2, -K2], [-K2, K1 + K2]])
    t = np.arange(1, 101)[:, None]
    displacement, force = driven(two, 0.01 * np.sin(0.1 * t * [1.0, 1.7]))
    assert apart(force, displacement @ k) < 1e-10


def test_force_between_steps_follows_initial_stiffness(rig: Any) -> None:
    every, stiffness = 8, 2.0e11 * AREA / LENGTH
    command = 0.02 * np.sin(0.05 * np.arange(1, 257))[:, None]
    x, force = driven(rig(TRUSS, [[1, 1]], every=every), command)
    at_steps, exact = driven(rig(TRUSS, [[1, 1]], 0.001 * every), command[every - 1 :: every])
    np.testing.assert_array_equal(at_steps, x[every - 1 :: every])
    np.testing.assert_allclose(force[every - 1 :: every], exact, rtol=1e-12)
    for last in range(every - 1, 255, every):
        after = slice(last, min(last + every, 256))
        expected = stiffness * (x[after] - x[last])
        np.testing.assert_allclose(force[after] - force[last], expected, rtol=1e-6, atol=1e-3)


LEANS = """
import openseespy.opensees as ops

PULL = {pull}


def specimen(hold):
    ops.model("basic", "-ndm", 2, "-ndf", 2)
    ops.node(0, 0.0, 0.0)
    ops.fix(0, 1, 1)
    ops.node(1, 0.0, 3.0)
    ops.uniaxialMaterial("Elastic", 1, 1.0e6)
    ops.uniaxialMaterial("Elastic", 2, 1.0e12)
    ops.node(2, 0.0, 3.0)
    ops.fix(2, 1, 1)
    ops.element("zeroLength", 1, 2, 1, "-mat", 1, "-dir", 1)
    ops.element("corotTruss", 2, 0, 1, 1.0, 2)
    hold()
    ops.timeSeries("Linear", 1)
    ops.pattern("Plain", 1, 1)
    ops.load(1, PULL, -6.0e5)
    ops.constraints("Plain")
    ops.numberer("Plain")
    ops.system("BandGeneral")
    ops.test("NormDispIncr", 1e-12, 20)
    ops.algorithm("Newton")
    ops.integrator("LoadControl", 1.0)
    ops.analysis("Static")
    if ops.analyze(1):
        raise RuntimeError("the static analysis has failed")
"""


@pytest.mark.parametrize("pull", [0.0, 5.0e3])
def test_gravity_on_specimen_includes_p_delta(rig: Any, pull: float) -> None:
    """k - P / h = 1e6 - 6e5 / 3 N/m; the initial force is subtracted and the loads remain."""
    column = rig(LEANS.format(pull=pull), [[1, 1]], gravity=True)
    x, force = driven(column, np.linspace(0.0, 0.01, 101)[:, None])
    assert apart(force, 0.8e6 * x) < 1e-4


REFUSED = {
    "no function": ("x = 1", "specimen.py has no function specimen(hold)"),
    "a mistake": (HEAD.format(length=0.0) + "    nonsense()\n", "line 10: NameError"),
    "no Python": ("def specimen(hold:\n", "SyntaxError"),
    "not held": (HEAD.format(length=0.0), "has called hold() 0 times; must call it exactly once"),
    "no node": (
        SPRING.replace("ops.node(1, 0.0)", "pass"),
        "line 12: OpenSeesError: ERROR could not add element to domain.",
    ),
    "held too soon": ("def specimen(hold):\n    hold()\n", "line 2: ValueError: hold() needs node 1 of interface"),
    "fixed": (
        SPRING.replace("hold()", "ops.fix(1, 1)\n    hold()"),
        "is fixed in the model, but the rig must move it",
    ),
    "tied": (
        SPRING.replace("    hold()", "    ops.node(2, 0.0)\n    ops.equalDOF(1, 2, 1)\n    hold()"),
        "is tied to another node, but the rig can move only free nodes",
    ),
    "fails at once": (
        SPRING + "    ops.analyze = lambda *arguments: -3\n",
        "the analysis has failed while computing the initial stiffness, at 1e-06 m",
    ),
    "loads": (
        SPRING + '    ops.timeSeries("Constant", 1)\n    ops.pattern("Plain", 1, 1)\n    ops.load(1, 1.0)\n',
        "rig.gravity must be true, because the model has loads",
    ),
    "linked": (
        LEANS.format(pull=0.0).replace("    hold()", "    more()\n    hold()").replace(", -6.0e5)", ", 0.0)")
        + """

def more():
    ops.wipe()
    ops.model("basic", "-ndm", 2, "-ndf", 3)
    ops.uniaxialMaterial("Elastic", 1, 1.0e6)
    for node, y in ((0, 0.0), (1, 0.0), (3, 0.0), (4, 1.0)):
        ops.node(node, 0.0, y)
        ops.mass(node, 1.0, 1.0, 1.0)
    ops.fix(0, 1, 1, 1)
    for node in (1, 3, 4):
        ops.element("zeroLength", node, 0, node, "-mat", 1, 1, 1, "-dir", 1, 2, 6)
    ops.rigidLink("beam", 3, 4)
""",
        "has constraints between nodes other than equalDOF",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_specimen_is_refused(case: str, tmp_path: Path) -> None:
    text, reason = REFUSED[case]
    overrides = ["rig.gravity=true"] if case == "linked" else []
    with pytest.raises(ConfigError) as refused:
        rehearsed(tmp_path, text, *overrides)
    assert "rig.model = 'specimen.py': " in str(refused.value)
    assert reason in str(refused.value)
    assert models_left() == []


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("rig.model=nowhere.py", ("rig.model",)),
        ("rig.interface=[[1, 1], [2, 1]]", ("rig.interface", "1", "row")),
        ("rig.interface=[[1, 0]]", ("rows", "degree")),
        ("rig.actuators={other: {type: pure_delay}}", ("rig.actuators", "test")),
        ("rig.actuators={}", ("rig.actuators", "story_1")),
        ("rig.analysis.integrator=HHT 0.9", ("gamma", "beta")),
        ("axes.story_1.actuator={type: pure_delay}", ("axes.story_1.actuator", "left")),
    ],
)
def test_incompatible_scenario_is_refused(override: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        rehearsed(tmp_path, SPRING, override)


FRAME = (
    "structure={type: shear_frame, masses: [40.0e3], stiffnesses: [3.0e6], experimental_stiffnesses: [1.0e6], "
    "gravity_loads: [4.0e5], story_heights: [3.0]%s}"
)


@pytest.mark.parametrize(
    ("gravity", "loads", "parts"),
    [
        ("true", "", ("rig.gravity", "gravity_loads")),
        ("false", ", experimental_gravity_loads: [1.0e5]", ("rig.gravity", "False", "True")),
    ],
)
def test_inconsistent_gravity_is_refused(gravity: str, loads: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        rehearsed(tmp_path, SPRING, f"rig.gravity={gravity}", FRAME % loads)


AT_STEP_200 = """

_analyze = ops.analyze
_done = []


def analyze(*arguments):
    _done.append(arguments)
    return {failure} if len(_done) == 201 else _analyze(*arguments)  # the first is for the initial stiffness


ops.analyze = analyze
"""
FAILS = "-3", "OpenSees has ended with code 1: the analysis has failed in step 200, at "
IS_KILLED = "__import__('os').kill(__import__('os').getpid(), 9)", "OpenSees was ended by SIGKILL"
HANGS = "__import__('time').sleep(60)", "OpenSees has not answered in 0.2 s"


def ends_early(folder: Path, failure: str, **options: Any) -> Any:
    overrides = ("rig.answer_within=0.2",) if failure == HANGS[0] else ()
    return rehearsed(folder, SPRING + AT_STEP_200.format(failure=failure), *overrides, **options)


def check_end(result: Any, reason: str) -> None:
    assert (result.outcome, result.exit_code) == ("failed", 1)
    assert result.reason.startswith("sample 200: rig: specimen.py: ")
    assert reason in result.reason
    assert np.ptp(result.read().displacement[-2:]) == 0.0, "m: at rest"
    assert models_left() == []


@pytest.mark.parametrize(("failure", "reason"), [FAILS, IS_KILLED, HANGS], ids=["fails", "is killed", "hangs"])
def test_failure_of_specimen_stops_rig(failure: str, reason: str, tmp_path: Path) -> None:
    check_end(ends_early(tmp_path, failure), reason)


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_killed_specimen_stops_rig_of_nodes(host: str, tmp_path: Path) -> None:
    failure, reason = IS_KILLED
    check_end(ends_early(tmp_path, failure, host=host, record=tmp_path / "run"), reason)


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("host", ["embedded", "composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_invalid_specimen_is_refused_by_hosts(
    host: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text, reason = REFUSED["fixed"]
    (tmp_path / "specimen.py").write_text(text)
    rig = RIG.format(model="specimen.py", actuator="{type: pure_delay}")
    (tmp_path / "mine.yaml").write_text(SCENARIO.format(duration=1.0) + rig)
    assert main(["run", str(tmp_path / "mine.yaml"), "--host", host, "--no-record"]) == 2
    errors = capfd.readouterr().err
    assert errors.count(reason) == 1
    assert mentions(errors, "rig.model", "specimen.py", "OpenSees", "1", "14", "ValueError")
    assert "Traceback" not in errors
    assert models_left() == []


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_hosts_agree_exactly(times: int, tmp_path: Path) -> None:
    run = partial(rehearsed, tmp_path, TRUSS, "duration=0.5", actuator="{type: servo_hydraulic}")
    expected = run().read()
    assert np.ptp(expected.force) > 1e3
    for host in ("embedded", *["composed", "processes"] * times):
        result = run(host=host, record=tmp_path / f"{host}_{len(list(tmp_path.iterdir()))}")
        assert result.outcome == "finished", result.reason
        np.testing.assert_array_equal(result.read().displacement, expected.displacement)
        np.testing.assert_array_equal(result.read().force, expected.force)
    assert models_left() == []


def test_documented_rehearsal_yields() -> None:
    result = hosts.run(REHEARSAL, ["duration=3"])
    assert result.outcome == "finished", result.reason
    run = result.read()
    assert np.abs(run.force - 13.4e6 * run.displacement).max() > 0.1 * np.abs(run.force).max()


def test_stability_of_opensees_rig_is_not_judged() -> None:
    with pytest.raises(ConfigError, match=naming("rig.type", "opensees")):
        judge(files.load(REHEARSAL))


def test_gravity_of_documented_rehearsal_is_checked() -> None:
    with pytest.raises(ConfigError, match=naming("rig.gravity", "Delta")):
        hosts.run(REHEARSAL, ["structure.experimental_gravity_loads=null"])
