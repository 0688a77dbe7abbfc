# SPDX-License-Identifier: Apache-2.0
"""Tests of OpenSees models that drive the rig: split frames match whole frames, observed nodes, refusals."""

from __future__ import annotations

import json
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
from generic_client import beside, free_port, models_left, wait_for_listener
from messages import mentions, naming

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

pytestmark = pytest.mark.usefixtures("opensees")

FOLDER = Path(__file__).parents[2] / "doc" / "opensees"
STARTED = FOLDER / "frame_started.yaml"
STEPS = 100
DURATION = f"duration={0.01 * STEPS}"


def opensees(out: Path, *arguments: str, steps: int = STEPS) -> Any:
    """Displacements of the floors ``(steps, 3)`` m, from ``frame.py`` in a separate process."""
    command = [sys.executable, FOLDER / "frame.py", "--steps", str(steps), "--out", out, *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=60.0)
    return np.load(out)


def split(folder: Path, name: str, **options: Any) -> Any:
    """Result of the hybrid test, and the displacements computed by OpenSees."""
    arguments, overrides, steps = INTEGRATORS[name]
    port = free_port()

    def client() -> Any:
        wait_for_listener(port)
        return opensees(folder / "split.npy", "--rig", "--port", str(port), *arguments, steps=steps)

    overrides = [f"integrator.port={port}", DURATION, "integrator.answer_within=60", *overrides]
    with beside(client) as displacements:
        result = hosts.run(FOLDER / "frame.yaml", overrides, **options)
    assert result.outcome == "finished", result.reason
    return result, displacements[0]


INTEGRATORS: dict[str, tuple[list[str], list[str], int]] = {
    "NewmarkExplicit": (["--integrator", "NewmarkExplicit", "0.5"], [], STEPS),
    "KRAlphaExplicit": (["--integrator", "KRAlphaExplicit", "1.0"], [], STEPS),
    "KRAlphaExplicit_TP": (["--integrator", "KRAlphaExplicit_TP", "0.8"], [], STEPS),
    "AlphaOS": (["--integrator", "AlphaOS", "0.9"], [], STEPS),
    # requests the force at the beginning of a step, so that the last displacement needs one more step
    "CentralDifference": (["--integrator", "CentralDifference"], [], STEPS + 1),
    "HHTHSFixedNumIter": (
        ["--integrator", "HHTHSFixedNumIter", "0.9", "--iterations", "5"],
        ["integrator.iterations=5", "substeps=2"],
        STEPS,
    ),
}


def on_host(host: str, name: str, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(name, host, id=f"{host}-{name}", marks=[pytest.mark.nodes(ros=True), *marks])


@pytest.mark.parametrize(
    ("name", "host"),
    [
        *(pytest.param(name, "embedded", id=name) for name in INTEGRATORS),
        on_host("composed", "NewmarkExplicit"),
        on_host("processes", "KRAlphaExplicit", pytest.mark.soak),
        on_host("composed", "KRAlphaExplicit", pytest.mark.soak),
        on_host("processes", "NewmarkExplicit", pytest.mark.soak),
    ],
)
def test_split_frame_matches_whole_frame(name: str, host: str, tmp_path: Path) -> None:
    _, displacements = split(tmp_path, name, host=host)
    arguments, _, steps = INTEGRATORS[name]
    reference = opensees(tmp_path / "whole.npy", *arguments, steps=steps)
    assert np.abs(displacements - reference).max() < 1e-8 * np.abs(reference).max()
    assert np.ptp(reference[:, 0]) > 0.01


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
    return hosts.run(STARTED, [DURATION, *STARTED_WITH[name], *overrides], **options)


@pytest.mark.parametrize("name", STARTED_WITH)
def test_started_model_matches_user_started_model(name: str, tmp_path: Path) -> None:
    by_user, _ = split(tmp_path, name)
    by_test = started(name)
    assert by_test.outcome == "finished", by_test.reason
    assert np.array_equal(by_test.read().dof_displacement, by_user.read().dof_displacement)
    assert by_test.read().integrator == by_user.read().integrator
    assert models_left() == []


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_started_model_agrees_on_hosts_bit_for_bit(host: str, tmp_path: Path) -> None:
    embedded = started("NewmarkExplicit", UPPER).read()
    result = started("NewmarkExplicit", UPPER, host=host, record=tmp_path / "run")
    assert result.outcome == "finished", result.reason
    run = result.read()
    assert np.array_equal(run.dof_displacement, embedded.dof_displacement)
    assert np.array_equal(run.command, embedded.command)
    assert models_left() == []


MODELS = {
    "no function": ("x = 1", "has no function model(rig)"),
    "a mistake": ("def model(rig):\n    nonsense()\n", "line 2: NameError"),
    "no node": ("def model(rig):\n    rig()\n", "line 2: ValueError: rig() needs node 1 of interface"),
    "no Python": ("def model(rig:\n", "SyntaxError"),
    "without the rig": ("def model(rig):\n    pass\n", "called rig() 0 times, but must call rig() once"),
}


@pytest.mark.parametrize("case", MODELS)
def test_invalid_model_files_are_refused_with_reason(case: str, tmp_path: Path) -> None:
    text, reason = MODELS[case]
    (tmp_path / "frame.py").write_text(text)
    with pytest.raises(ConfigError) as refused:
        hosts.run(STARTED, [f"integrator.model={tmp_path / 'frame.py'}"])
    assert mentions(str(refused.value), "integrator.model = 'frame.py'", reason)
    assert models_left() == []


AT_STEP_20 = """

_analyze = ops.analyze
_done = []


def analyze(*given):
    _done.append(given)
    return {statement} if len(_done) == 21 else _analyze(*given)  # gravity is one call


ops.analyze = analyze
"""
FAILS = "-3", "OpenSees has ended with code 1: the analysis has failed in step 20 of 300"
IS_KILLED = "__import__('os').kill(__import__('os').getpid(), 9)", "OpenSees was ended by SIGKILL"


def ends_early(folder: Path, statement: str, **options: Any) -> Any:
    path = folder / "frame.py"
    path.write_text((FOLDER / "frame.py").read_text() + AT_STEP_20.format(statement=statement))
    return hosts.run(STARTED, [f"integrator.model={path}"], **options)


@pytest.mark.parametrize(("statement", "reason"), [FAILS, IS_KILLED], ids=["fails", "is killed"])
def test_model_that_ends_early_stops_rig(statement: str, reason: str, tmp_path: Path) -> None:
    result = ends_early(tmp_path, statement)
    assert result.exit_code == 1
    assert f"frame.py: {reason}" in result.reason
    assert np.ptp(result.read().displacement[-2:]) == 0.0, "m: at rest"
    assert models_left() == []


@pytest.mark.nodes(ros=True)
def test_model_killed_under_nodes_stops_rig(tmp_path: Path) -> None:
    statement, reason = IS_KILLED
    result = ends_early(tmp_path, statement, host="processes", record=tmp_path / "run")
    assert result.exit_code == 1
    assert re.fullmatch(rf"(sample \d+: )?integrator: frame.py: {reason} \(.*\)", result.reason), result.reason
    assert np.ptp(result.read().displacement[-2:]) == 0.0, "m: at rest"
    assert models_left() == []


@pytest.mark.parametrize(
    ("overrides", "parts"),
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
def test_inconsistent_scenarios_are_refused(overrides: list[str], parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        hosts.run(STARTED, overrides)


MOVES = """
import openseespy.opensees as ops
from frame import model as frame


def model(rig):
    frame(rig)
    ops.recorder("Node", "-file", {out!r}, "-precision", 17, "-node", 1, 2, 3, "-dof", 1, "disp")
"""
UPPER = ["observed=[roof, floor_2]", "integrator.observed=[[3, 1], [2, 1]]"]


@pytest.mark.parametrize("name", ["NewmarkExplicit", "CentralDifference"])
def test_observed_displacements_match_opensees_nodes(name: str, tmp_path: Path) -> None:
    path, out = tmp_path / "with_recorder.py", tmp_path / "moves.txt"
    path.write_text(f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n" + MOVES.format(out=str(out)))
    result = started(name, [*UPPER, f"integrator.model={path}"])
    assert result.outcome == "finished", result.reason
    run = result.read()
    assert run.dof_names == ("story_1", "roof", "floor_2")
    static = run.integrator["static_stage"]
    expected = np.loadtxt(out)[:STEPS, [0, 2, 1]] - np.array(static["displacement"])
    displacements = run.dof_displacement[1 : 1 + len(expected)]
    assert len(expected) >= STEPS - 1
    assert np.abs(displacements - expected).max() < 1e-12 * np.abs(expected).max()
    assert static["force"][1:] == [0.0, 0.0]


def test_observing_does_not_change_the_rig() -> None:
    plain, observed = (started("NewmarkExplicit", sets).read().dof_displacement for sets in ([], UPPER))
    assert np.abs(observed[:, 0] - plain[:, 0]).max() < 1e-12 * np.abs(plain).max()
    assert observed.shape[1] == 3


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


def test_interface_nodes_are_observed_in_other_directions(tmp_path: Path) -> None:
    """The element orders degrees of freedom by node, the scenario by name."""
    path, out = tmp_path / "plane.py", tmp_path / "moves.txt"
    path.write_text(PLANE.format(out=str(out)))
    overrides = [
        f"integrator.model={path}",
        "integrator.static_steps=0",
        "observed=[top, top_up, up]",
        "integrator.observed=[[2, 1], [2, 2], [1, 2]]",
    ]
    displacements = started("NewmarkExplicit", overrides).read().dof_displacement[1:]
    moves = np.loadtxt(out)[:, [0, 2, 3, 1]]
    assert (np.ptp(moves, axis=0) > 1e-3).all(), "m: every degree of freedom moves"
    assert np.abs(displacements[: len(moves)] - moves[: len(displacements)]).max() < 1e-12 * np.abs(moves).max()


# Element genericClient in a model of the user

BETA_K = 0.01
"""s, of ops.rayleigh."""

USER_MODEL = f"""
import json
import sys

import openseespy.opensees as ops

sys.path.insert(0, {str(FOLDER)!r})
import frame


def spring(floor, stiffness):
    ops.uniaxialMaterial("Elastic", floor, stiffness)
    ops.element("zeroLength", floor, floor - 1, floor, "-mat", floor, "-dir", 1, "-doRayleigh", 1)


def model(rig):
    frame.spring = spring
    frame.model(rig)
    ops.rayleigh(0.3, 0.0, BETA_K, 0.0)
    ops.recorder("Node", "-file", OUT, "-precision", 17, "-node", 1, 2, 3, "-dof", 1, "disp")


if __name__ == "__main__":
    client = json.loads(sys.argv[1])
    model((lambda: ops.element("genericClient", 1, *client)) if client else (lambda: spring(1, frame.STORIES[0])))
    frame.earthquake({STEPS}, ["NewmarkExplicit", 0.5], 0)
    ops.wipe()
"""


class UserModel:
    """A model file of the user; ``moves`` reads the displacements of its last run."""

    def __init__(self, folder: Path, beta_k: float = 0.0) -> None:
        self.path, self._out = folder / "user_model.py", folder / "moves.txt"
        self.path.write_text(f"BETA_K, OUT = {beta_k}, {str(self._out)!r}\n" + USER_MODEL)

    def moves(self) -> Any:
        """Displacements of the floors ``(steps, 3)`` m."""
        return np.loadtxt(self._out)

    def alone(self, *element: Any) -> Any:
        """Run it in OpenSees alone, or as a client with the arguments ``element``; return the displacements."""
        command = [sys.executable, str(self.path), json.dumps(element)]
        subprocess.run(command, check=True, capture_output=True, timeout=60.0)
        return self.moves()

    def against_remote(self, *element: Any, overrides: tuple[str, ...] = ()) -> Any:
        """Run it as the client of a test; return the result."""
        port = free_port()

        def client() -> None:
            wait_for_listener(port)
            self.alone(*element, "-server", port, "127.0.0.1", "-noRayleigh")

        with beside(client):
            result = hosts.run(FOLDER / "frame.yaml", [f"integrator.port={port}", DURATION, *overrides])
        assert result.outcome == "finished", result.reason
        return result


def test_further_nodes_of_client_element_are_observed(tmp_path: Path) -> None:
    model = UserModel(tmp_path)
    element = ("-node", 1, 3, 2, "-dof", 1, "-dof", 1, "-dof", 1)
    run = model.against_remote(*element, overrides=("observed=[roof, floor_2]",)).read()
    static = run.integrator["static_stage"]["displacement"]
    x, moves = (static + run.dof_displacement)[1:], model.moves()[:, [0, 2, 1]]
    assert np.abs(x[: len(moves)] - moves[: len(x)]).max() < 1e-12 * np.abs(moves).max()
    reference = model.alone()[:, [0, 2, 1]]
    assert np.abs(x - reference).max() < 1e-8 * np.abs(reference).max()


@pytest.mark.parametrize("integrator", ["opensees", "remote"])
def test_declared_damping_replaces_rayleigh_damping(integrator: str, tmp_path: Path) -> None:
    model = UserModel(tmp_path, BETA_K)
    reference, errors = model.alone(), []
    for damping in (0.0, BETA_K * 1.0e6):
        declared = f"integrator.experimental_damping=[[{damping}]]"
        if integrator == "remote":
            model.against_remote("-node", 1, "-dof", 1, overrides=(declared,))
            x = model.moves()
        else:
            run = hosts.run(STARTED, [f"integrator.model={model.path}", DURATION, declared]).read()
            x = run.integrator["static_stage"]["displacement"] + run.dof_displacement[1:]
        expected = reference[:, : x.shape[1]]
        errors.append(np.abs(x - expected).max() / np.abs(expected).max())
    assert errors[0] > 0.02, "undeclared damping is lost"
    assert errors[1] < 1e-8


# Yielding frame with a damper on the rig

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
    """Displacements of the floors ``(steps, 4)`` m, damper included, after the statement ``change``."""
    arguments = ["--step", str(step), "--duration", str(SECONDS), "--out", str(folder / "whole.npy")]
    command = [sys.executable, "-c", f"import steel_frame; {change}; steel_frame.main()", *arguments]
    subprocess.run(command, check=True, capture_output=True, cwd=FOLDER, timeout=100)
    return np.load(folder / "whole.npy")


def split_steel(folder: Path, step: float, overrides: Sequence[str] = ()) -> tuple[Any, Any]:
    """Displacements of first floor and roof ``(steps,)`` m, with the damper on the rig."""
    out, path = folder / "roof.txt", folder / "with_roof.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n" + WITH_ROOF.format(out=str(out)))
    rate = 2000.0 if step < 0.005 else 1000.0
    rates = [f"servo_rate={rate}", f"substeps={round(rate * step)}", f"duration={SECONDS}"]
    model = [f"integrator.model={path}", "integrator.files=[]"]
    result = hosts.run(STEEL, [*rates, *model, *overrides])
    assert result.outcome == "finished", result.reason
    return result.read().dof_displacement[1:, 0], np.loadtxt(out)


@pytest.mark.parametrize(("step", "bound"), [(0.004, 3e-3), pytest.param(0.001, 1e-3, marks=pytest.mark.soak)])
def test_yielding_frame_with_damper_on_rig_converges(step: float, bound: float, tmp_path: Path) -> None:
    """First order, because the rig has the velocity of the ramp."""
    errors = []
    for dt in (step, 0.5 * step):
        reference = whole_steel(tmp_path, dt)
        first, roof = split_steel(tmp_path, dt)
        errors.append(np.abs(first - reference[:, 0]).max() / np.abs(reference[:, 0]).max())
        assert np.abs(roof - reference[:, -1]).max() < 1e-3 * np.abs(reference[:, -1]).max()
    assert errors[0] > 1.7 * errors[1]
    assert errors[1] < bound


def test_steel_frame_yields(tmp_path: Path) -> None:
    reference, elastic = whole_steel(tmp_path, 0.005), whole_steel(tmp_path, 0.005, "steel_frame.HARDENING = 1.0")
    assert np.std(elastic[:, -1] - reference[:, -1]) > 0.1 * np.std(elastic[:, -1])


def test_adaptive_compensation_keeps_roof_close(tmp_path: Path) -> None:
    rig = ["axes.damper.actuator={type: servo_hydraulic}", "compensator={type: adaptive_inverse, alpha_es: 15}"]
    reference = whole_steel(tmp_path, 0.005)[:, -1]
    _, roof = split_steel(tmp_path, 0.005, rig)
    assert np.std(roof - reference) < 0.03 * np.std(reference)


def test_model_process_inherits_real_time_priority() -> None:
    """Its priority is one below that of the waiting node."""
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


# Refusals before the test

FRAME = (FOLDER / "frame.py").read_text()


def refused(*overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        hosts.run(STARTED, ["duration=0.1", *overrides])
    assert models_left() == []
    return str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "output"),
    [
        ("integrator", "NewmarkExplicit", "WARNING - incorrect number of args want NewmarkExplicit $gamma"),
        ("system", "Foo", "WARNING unknown system type Foo"),
        ("algorithm", "Foo", "WARNING unknown algorithm type Foo"),
        ("test", "FixedNumIter", "insufficient number of arguments"),
    ],
)
def test_invalid_analysis_commands_are_refused(key: str, value: str, output: str) -> None:
    """OpenSees itself would continue with a default."""
    message = refused(f"integrator.analysis.{key}={value}")
    assert mentions(message, f"analysis.{key}", value, "OpenSees", output)
    assert message.count(output) == 1
    assert "Error" not in message


def mine(folder: Path, text: str) -> str:
    """Override for the documented model with ``text`` appended."""
    (folder / "mine.py").write_text(FRAME + text)
    return f"integrator.model={folder / 'mine.py'}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("import sys\nassert sys.argv == [__file__], sys.argv\nsys.exit('seen')\n", ("code", "1", "seen")),
        ("import sys\nsys.exit()\n", ("mine.py", "sys.exit")),
    ],
)
def test_model_has_no_arguments_and_may_not_exit(text: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    assert mentions(refused(mine(tmp_path, text)), *parts)


FIXED = "node 1, degree of freedom 1 is fixed in the model, but the rig must move it"


@pytest.mark.parametrize("when", ["\n    rig()", "\n    gravity()"])
def test_fixed_interface_node_is_refused(when: str, tmp_path: Path) -> None:
    """Its displacement would always be zero. The model may fix the node before or after rig()."""
    (tmp_path / "mine.py").write_text(FRAME.replace(when, "\n    ops.fix(1, 1)" + when, 1))
    assert FIXED in refused(f"integrator.model={tmp_path / 'mine.py'}")


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["integrator.analysis.integrator=AlphaSO 0.9"], ("unknown", "AlphaSO", "AlphaOS")),
        (
            ["integrator.analysis.integrator=Newmark 0.5 0.25"],
            ("integrator.analysis.integrator", "Newmark", "0.5", "0.25", "unknown"),
        ),
        (["integrator.static_steps=0"], ("0 s", "0.5 s", "0.01 s")),
        (["integrator.static_steps=0"], ("static_steps", "0", "analysis")),
        (["integrator.interface=[[1, 1], [1, 1]]"], ("[1, 1]", "twice")),
        (["integrator.interface=[2, 1]"], ("integrator.interface", "[2, 1]")),
        (
            ["observed=[roof]", "integrator.observed=[[1, 1]]"],
            ("integrator.observed", "[1, 1]", "integrator.interface"),
        ),
        (["integrator.interface=[[2, 5]]"], ("ValueError", "[2, 5]", "2", "1")),
        (["observed=[roof]", "integrator.observed=[[3, 2]]"], ("ValueError", "[3, 2]", "3", "1")),
        (["observed=[roof]", "integrator.observed=[[4, 1]]"], ("ValueError", "4", "observed")),
    ],
)
def test_invalid_section_of_integrator_is_refused(overrides: list[str], parts: tuple[str, ...]) -> None:
    assert mentions(refused(*overrides), *parts)


def test_refusal_includes_output_of_opensees(tmp_path: Path) -> None:
    """The message has the reason and the line of the user, and at most three lines of output."""
    text = """

def gravity():
    print("one")
    print("two")
    ops.numberer("Plain")
    ops.analysis("Static")
    if ops.analyze(0) or ops.integrator("Foo") is None:
        raise RuntimeError("the static analysis has failed")
"""
    message = refused(mine(tmp_path, text))
    line = len((FRAME + text).splitlines())
    assert mentions(message, line, "RuntimeError", "WARNING", "unknown", "integrator")
    assert "one" not in message


def test_error_in_imported_file_has_line_of_model(tmp_path: Path) -> None:
    (tmp_path / "parts_of_mine.py").write_text("\n" * 500 + "def broken():\n    return {}['x']\n")
    text = "\n\nimport parts_of_mine\n\n\ndef gravity():\n    parts_of_mine.broken()\n"
    line = len((FRAME + text).splitlines())
    assert f"line {line}: KeyError: 'x'" in refused(mine(tmp_path, text))
