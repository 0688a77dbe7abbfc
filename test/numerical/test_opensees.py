# SPDX-License-Identifier: Apache-2.0
"""OpenSees itself at the other end of the wire: the split frame moves as OpenSees moves the whole one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generic_client import beside, free_port, models_left, skip_without_opensees, wait_for_listener
from messages import naming

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

FOLDER = Path(__file__).parents[2] / "doc" / "opensees"
STARTED = FOLDER / "frame_started.yaml"
STEPS = 100


@pytest.fixture(scope="module", autouse=True)
def _opensees() -> None:
    skip_without_opensees()


def opensees(out: Path, *arguments: str, steps: int = STEPS) -> Any:
    """Displacements of the floors ``(steps, 3)`` m, from ``frame.py`` in a process of its own."""
    command = [sys.executable, FOLDER / "frame.py", "--steps", str(steps), "--out", out, *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=60.0)
    return np.load(out)


def split(folder: Path, words: list[str], overrides: list[str], steps: int = STEPS, **options: Any) -> Any:
    """How the hybrid test ended, and the displacements that OpenSees found in it."""
    port = free_port()

    def client() -> Any:
        wait_for_listener(port)
        return opensees(folder / "split.npy", "--rig", "--port", str(port), *words, steps=steps)

    given = [f"integrator.port={port}", f"duration={0.01 * STEPS}", "integrator.answer_within=60", *overrides]
    with beside(client) as found:
        result = hosts.run(FOLDER / "frame.yaml", given, **options)
    return result, found[0]


INTEGRATORS: dict[str, tuple[list[str], list[str], int]] = {
    "NewmarkExplicit": (["--integrator", "NewmarkExplicit", "0.5"], [], STEPS),
    "KRAlphaExplicit": (["--integrator", "KRAlphaExplicit", "1.0"], [], STEPS),
    "KRAlphaExplicit_TP": (["--integrator", "KRAlphaExplicit_TP", "0.8"], [], STEPS),
    "AlphaOS": (["--integrator", "AlphaOS", "0.9"], [], STEPS),
    # asks for the force at the beginning of a step, so that the last displacement wants one step more
    "CentralDifference": (["--integrator", "CentralDifference"], [], STEPS + 1),
    "HHTHSFixedNumIter": (
        ["--integrator", "HHTHSFixedNumIter", "0.9", "--iterations", "5"],
        ["integrator.iterations=5", "substeps=2"],
        STEPS,
    ),
}


@pytest.mark.parametrize("name", INTEGRATORS)
def test_the_split_frame_is_the_whole_one(name: str, tmp_path: Path) -> None:
    words, overrides, steps = INTEGRATORS[name]
    result, found = split(tmp_path, words, overrides, steps)
    assert result.outcome == "finished", result.reason
    whole = opensees(tmp_path / "whole.npy", *words, steps=steps)
    assert np.abs(found - whole).max() < 1e-8 * np.abs(whole).max()
    assert np.ptp(whole[:, 0]) > 0.01, "m: it has moved"


@pytest.mark.nodes
@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("composed", "NewmarkExplicit"),
        pytest.param("processes", "KRAlphaExplicit", marks=pytest.mark.soak),
        pytest.param("composed", "KRAlphaExplicit", marks=pytest.mark.soak),
        pytest.param("processes", "NewmarkExplicit", marks=pytest.mark.soak),
    ],
)
def test_so_it_is_on_every_host(host: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    words, overrides, steps = INTEGRATORS[name]
    result, found = split(tmp_path, words, overrides, steps, host=host)
    assert result.outcome == "finished", result.reason
    whole = opensees(tmp_path / "whole.npy", *words)
    assert np.abs(found - whole).max() < 1e-8 * np.abs(whole).max()


STARTED_WITH: dict[str, list[str]] = {
    "NewmarkExplicit": [],
    "KRAlphaExplicit": ["integrator.analysis.integrator=KRAlphaExplicit 1.0"],
    "CentralDifference": ["integrator.analysis.integrator=CentralDifference"],
    "HHTHSFixedNumIter": [
        "integrator.analysis={integrator: HHTHSFixedNumIter 0.9, algorithm: Newton, test: FixedNumIter 5}",
        *INTEGRATORS["HHTHSFixedNumIter"][1],
    ],
}


def started(name: str, overrides: Sequence[str] = (), **options: Any) -> Any:
    return hosts.run(STARTED, [f"duration={0.01 * STEPS}", *STARTED_WITH[name], *overrides], **options)


@pytest.mark.parametrize("name", STARTED_WITH)
def test_a_model_that_the_test_starts_moves_as_one_that_the_user_starts(name: str, tmp_path: Path) -> None:
    words, overrides, steps = INTEGRATORS[name]
    by_user, _ = split(tmp_path, words, overrides, steps, keep=True)
    by_test = started(name, keep=True)
    assert by_test.outcome == "finished", by_test.reason
    assert np.array_equal(by_test.read().dof_displacement, by_user.read().dof_displacement)
    assert by_test.read().integrator == by_user.read().integrator
    assert models_left() == []


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_so_it_is_on_every_host_with_the_same_bits(host: str, tmp_path: Path) -> None:
    """Also what is observed."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    here = started("NewmarkExplicit", UPPER, keep=True).read()
    result = started("NewmarkExplicit", UPPER, host=host, record=tmp_path / "run")
    assert result.outcome == "finished", result.reason
    there = result.read()
    assert np.array_equal(there.dof_displacement, here.dof_displacement)
    assert np.array_equal(there.command, here.command)
    assert models_left() == []


MODELS = {
    "no function": ("x = 1", "has no function model(rig)"),
    "a mistake": ("def model(rig):\n    nonsense()\n", "line 2: NameError"),
    "no node": ("def model(rig):\n    rig()\n", "line 2: ValueError: rig() needs node 1 of interface"),
    "no Python": ("def model(rig:\n", "SyntaxError"),
    "without the rig": ("def model(rig):\n    pass\n", "called rig() 0 times, but must call rig() once"),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_model_that_cannot_be_is_refused_in_its_words(case: str, tmp_path: Path) -> None:
    text, words = MODELS[case]
    (tmp_path / "frame.py").write_text(text)
    with pytest.raises(ConfigError) as refused:
        hosts.run(STARTED, [f"integrator.model={tmp_path / 'frame.py'}"])
    assert "integrator.model = 'frame.py'" in str(refused.value)
    assert words in str(refused.value)
    assert models_left() == []


AT_STEP_20 = """

_analyze = ops.analyze
_done = []


def analyze(*given):
    _done.append(given)
    return {what} if len(_done) == 21 else _analyze(*given)  # gravity is one call


ops.analyze = analyze
"""
FAILS = "-3", "OpenSees has ended with code 1: the analysis has failed in step 20 of 300"
IS_KILLED = "__import__('os').kill(__import__('os').getpid(), 9)", "OpenSees was ended by SIGKILL"


def ends_early(folder: Path, what: str, **options: Any) -> Any:
    path = folder / "frame.py"
    path.write_text((FOLDER / "frame.py").read_text() + AT_STEP_20.format(what=what))
    return hosts.run(STARTED, [f"integrator.model={path}"], **options)


@pytest.mark.parametrize(("what", "words"), [FAILS, IS_KILLED], ids=["fails", "is killed"])
def test_a_model_that_ends_early_stops_the_rig_and_is_named(what: str, words: str, tmp_path: Path) -> None:
    result = ends_early(tmp_path, what, keep=True)
    assert result.exit_code == 1
    assert f"frame.py: {words}" in result.reason
    assert np.ptp(result.read().displacement[-2:]) == 0.0, "m: at rest"
    assert models_left() == []


@pytest.mark.nodes
def test_killed_under_the_nodes_it_stops_the_rig_too(tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    what, words = IS_KILLED
    result = ends_early(tmp_path, what, host="processes", record=tmp_path / "run")
    assert result.exit_code == 1
    assert re.fullmatch(rf"(sample \d+: )?integrator: frame.py: {words} \(.*\)", result.reason), result.reason
    assert np.ptp(result.read().displacement[-2:]) == 0.0, "m: at rest"
    assert models_left() == []


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["integrator.model=nowhere.py"], ("integrator.model",)),
        (["integrator.interface=[[1, 1], [2, 1]]"], ("integrator.interface", "1", "row")),
        (["integrator.interface=[[1, 0]]"], ("rows", "degree")),
        (["integrator.observed=[[3, 1]]"], ("integrator.observed", "0", "rows")),
        (["observed=[roof]"], ("integrator.observed", "observed", "1")),
        (["observed=[story_1]"], ("observed", "story_1")),
        (["integrator.analysis.integrators=x"], ("integrator.analysis.integrators",)),
        (["structure={type: sdof, mass: 1.0, frequency: 1.0}"], ("structure", "left")),
    ],
)
def test_a_scenario_that_does_not_fit_is_refused_before_anything_starts(
    overrides: list[str], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        hosts.run(STARTED, overrides)


# -- what is only observed -------------------------------------------------------------------------------------

MOVES = """
import openseespy.opensees as ops
from frame import model as frame


def model(rig):
    frame(rig)
    ops.recorder("Node", "-file", {out!r}, "-precision", 17, "-node", 1, 2, 3, "-dof", 1, "disp")
"""
UPPER = ["observed=[roof, floor_2]", "integrator.observed=[[3, 1], [2, 1]]"]


def with_recorder(folder: Path) -> tuple[Path, Path]:
    """A file with the model of ``frame.py``, and the file in which it keeps the displacements of its nodes."""
    path, out = folder / "with_recorder.py", folder / "moves.txt"
    path.write_text(f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n" + MOVES.format(out=str(out)))
    return path, out


@pytest.mark.parametrize("name", ["NewmarkExplicit", "CentralDifference"])
def test_what_is_observed_moves_as_its_node_in_opensees(name: str, tmp_path: Path) -> None:
    path, out = with_recorder(tmp_path)
    result = started(name, [*UPPER, f"integrator.model={path}"], keep=True)
    assert result.outcome == "finished", result.reason
    run = result.read()
    assert run.dof_names == ("story_1", "roof", "floor_2")
    static = run.integrator["static_stage"]
    expected = np.loadtxt(out)[:STEPS, [0, 2, 1]] - np.array(static["displacement"])
    found = run.dof_displacement[1 : 1 + len(expected)]
    assert len(expected) >= STEPS - 1
    assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()
    assert static["force"][1:] == [0.0, 0.0]


def test_to_observe_changes_nothing_at_the_rig() -> None:
    plain = started("NewmarkExplicit", keep=True).read()
    watched = started("NewmarkExplicit", UPPER, keep=True).read()
    scale = np.abs(plain.dof_displacement).max()
    assert np.abs(watched.dof_displacement[:, 0] - plain.dof_displacement[:, 0]).max() < 1e-12 * scale
    assert watched.dof_displacement.shape[1] == 3


PLANE = """
import openseespy.opensees as ops


def model(rig):
    ops.wipe()
    ops.model("basic", "-ndm", 2, "-ndf", 2)
    ops.node(0, 0.0, 0.0)
    ops.fix(0, 1, 1)
    for node in (1, 2):
        ops.node(node, 0.0, 0.0)
        ops.mass(node, 1000.0, 700.0)
        ops.uniaxialMaterial("Elastic", node, 4e5 * node)
        ops.element("zeroLength", node, node - 1, node, "-mat", node, node, "-dir", 1, 2)
    rig()
    ops.timeSeries("Trig", 1, 0.0, 9.0, 1.0)
    ops.pattern("UniformExcitation", 1, 1, "-accel", 1)
    ops.pattern("UniformExcitation", 2, 2, "-accel", 1, "-fact", 0.5)
    ops.recorder("Node", "-file", {out!r}, "-precision", 17, "-node", 1, 2, "-dof", 1, 2, "disp")
"""


def test_nodes_of_the_interface_may_be_observed_in_their_other_directions(tmp_path: Path) -> None:
    """The element has its degrees of freedom node by node; the scenario has them in the order of its names."""
    path, out = tmp_path / "plane.py", tmp_path / "moves.txt"
    path.write_text(PLANE.format(out=str(out)))
    given = [
        f"integrator.model={path}",
        "integrator.static_steps=0",
        "observed=[top, top_up, up]",
        "integrator.observed=[[2, 1], [2, 2], [1, 2]]",
    ]
    run = started("NewmarkExplicit", given, keep=True).read()
    moves = np.loadtxt(out)[:, [0, 2, 3, 1]]
    assert (np.ptp(moves, axis=0) > 1e-3).all(), "m: all of them move, each another way"
    found = run.dof_displacement[1:]
    assert np.abs(found[: len(moves)] - moves[: len(found)]).max() < 1e-12 * np.abs(moves).max()


# -- a frame that yields, and a damper ------------------------------------------------------------------------

STEEL = FOLDER / "steel_frame.yaml"
WITH_ROOF = """
import openseespy.opensees as ops
from steel_frame import ROOF, model as frame


def model(rig):
    frame(rig)
    ops.recorder("Node", "-file", {out!r}, "-precision", 15, "-node", ROOF, "-dof", 1, "disp")
"""
SECONDS = 8.0


def whole_steel(folder: Path, step: float, change: str = "pass") -> Any:
    """Displacements of the floors ``(steps, 4)`` m, with the damper in the model, which may be changed."""
    words = ["--step", str(step), "--duration", str(SECONDS), "--out", str(folder / "whole.npy")]
    program = f"import steel_frame; {change}; steel_frame.main()"
    subprocess.run(
        [sys.executable, "-c", program, *words], check=True, capture_output=True, cwd=FOLDER, timeout=100
    )
    return np.load(folder / "whole.npy")


def split_steel(folder: Path, step: float, overrides: Sequence[str] = ()) -> tuple[Any, Any]:
    """Displacements of first floor and roof ``(steps,)`` m, with the damper on the rig."""
    out, path = folder / "roof.txt", folder / "with_roof.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n" + WITH_ROOF.format(out=str(out)))
    rate = 2000.0 if step < 0.005 else 1000.0
    given = [
        f"servo_rate={rate}",
        f"substeps={round(rate * step)}",
        f"duration={SECONDS}",
        f"integrator.model={path}",
        "integrator.files=[]",
    ]
    result = hosts.run(STEEL, [*given, *overrides], keep=True)
    assert result.outcome == "finished", result.reason
    return result.read().dof_displacement[1:, 0], np.loadtxt(out)


@pytest.mark.parametrize(
    ("step", "bound"),
    [(0.004, 3e-3), pytest.param(0.001, 1e-3, marks=pytest.mark.soak)],
)
def test_with_its_damper_on_the_rig_the_yielding_frame_converges_to_the_whole_one(
    step: float, bound: float, tmp_path: Path
) -> None:
    """First order: the velocity of the rig is that of the ramp."""
    found = []
    for each in (step, 0.5 * step):
        whole = whole_steel(tmp_path, each)
        first, roof = split_steel(tmp_path, each)
        found.append(np.abs(first - whole[:, 0]).max() / np.abs(whole[:, 0]).max())
        assert np.abs(roof - whole[:, -1]).max() < 1e-3 * np.abs(whole[:, -1]).max()
    assert found[0] > 1.7 * found[1]
    assert found[1] < bound


def test_the_frame_yields(tmp_path: Path) -> None:
    whole, elastic = whole_steel(tmp_path, 0.005), whole_steel(tmp_path, 0.005, "steel_frame.HARDENING = 1.0")
    assert np.std(elastic[:, -1] - whole[:, -1]) > 0.1 * np.std(elastic[:, -1])


def test_with_a_servo_hydraulic_actuator_and_adaptation_the_roof_stays_close(tmp_path: Path) -> None:
    rig = ["axes.damper.actuator={type: servo_hydraulic}", "compensator={type: adaptive_inverse, alpha_es: 15}"]
    whole = whole_steel(tmp_path, 0.005)[:, -1]
    _, roof = split_steel(tmp_path, 0.005, rig)
    assert np.std(roof - whole) < 0.03 * np.std(whole)


def test_a_model_runs_as_the_node_that_waits_for_it() -> None:
    """Where that has real time, just below it."""
    integrator, before = Assembly(files.load(STARTED)).integrator, os.sched_getscheduler(0)
    try:
        integrator.open()
        while integrator.missing():
            time.sleep(0.01)
        _, model = sorted(map(int, models_left()))  # after its guard
        assert os.sched_getscheduler(model) == os.SCHED_OTHER
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        integrator.begin(np.zeros(1))
        assert os.sched_getscheduler(model) == os.sched_getscheduler(0)
        assert os.sched_getparam(model).sched_priority == max(0, os.sched_getparam(0).sched_priority - 1)
    finally:
        os.sched_setscheduler(0, before, os.sched_param(0))
        integrator.close()
