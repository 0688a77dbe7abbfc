# SPDX-License-Identifier: Apache-2.0
"""Components of other packages that are not what their family is: told in their name, early where it can be."""

from __future__ import annotations

import json
import linecache
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driven_kernels import in_c
from messages import mentions, naming

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.control.compensators.none import NoCompensation
from rths_nodes.control.compensators.per_axis import PerAxis
from rths_nodes.control.setups.identity import ScaledSetup
from rths_nodes.core import registry
from rths_nodes.core.errors import ComponentError, ConfigError
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import params
from rths_nodes.core.samples import Motion
from rths_nodes.core.validation import from_data
from rths_nodes.loop.embedded import Outcome, checked_loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Collector

Register = Callable[..., None]
SHORT = "duration=0.1"


def mine(**members: Any) -> type:
    """A compensator that hands its target on, with other ``members``; None takes one away."""

    @params
    class Params:
        pass

    class Mine:
        state_names: tuple[str, ...] = ("count",)

        def __init__(self, params: Any, dt: float, n_axes: int) -> None:
            self.count = 0.0

        def step(self, target: Any, measured: Any) -> Any:
            self.count += 1.0
            return target.displacement

        def state(self) -> Any:
            return [self.count]

        def reset(self) -> None:
            self.count = 0.0

    Mine.Params = Params  # type: ignore[attr-defined]
    for name, member in members.items():
        if member is None:
            delattr(Mine, name)
        else:
            setattr(Mine, name, member)
    return Mine


def raises(*given: Any) -> Any:
    raise KeyError("gain table")


def later(self: Any, target: Any, measured: Any) -> Any:
    """Goes wrong in the fifth sample."""
    self.count += 1.0
    return target.displacement if self.count < 5.0 else float(target.displacement[0])


def recorded(scenario: Scenario) -> Collector:
    loop = checked_loop(scenario)
    collector = Collector(scenario, loop.assembly.names)
    loop.run([collector])
    return collector


def run() -> Outcome:
    return checked_loop(files.load("chen_ricles_2010", ["compensator.type=mine", SHORT])).run()


WRONG = {
    "a float": (
        {"step": lambda self, target, measured: 0.0},
        r"step \(\S+\.py:\d+\) returns 0: must be an array \(1,\) of floats",
    ),
    "nothing": (
        {"step": lambda self, target, measured: None},
        r"step \(\S+\.py:\d+\) returns None: must be an array",
    ),
    "another shape": (
        {"step": lambda self, target, measured: np.zeros(3)},
        r"step \(\S+\.py:\d+\) returns an array \(3,\) of float64: must be an array \(1,\)",
    ),
    "a matrix": (
        {"step": lambda self, target, measured: np.zeros((1, 1))},
        r"step \(\S+\.py:\d+\) returns an array \(1, 1\) of float64",
    ),
    "whole numbers": (
        {"step": lambda self, target, measured: np.zeros(1, int)},
        r"step \(\S+\.py:\d+\) returns an array \(1,\) of int64",
    ),
    "an exception": ({"step": raises}, r"\S+\.py:\d+: in raises: KeyError: 'gain table'"),
    "no state_names": (
        {"state_names": None},
        r"\S*Mine \(\S+\.py:\d+\) lacks state_names. .*the family compensator",
    ),
    "no step": ({"step": None}, r"\S*Mine \(\S+\.py:\d+\) lacks step. .*the family compensator"),
    "names of nothing": ({"state_names": ("a", "b")}, r"state\(\) returns 1 numbers, but state_names has 2"),
    "no states": (
        {"state": lambda self: None},
        r"state\(\) and state_names must be sequences \(object of type 'NoneType'",
    ),
    "a broken constructor": (
        {"__init__": raises},
        r"the component cannot be built: \S+\.py:\d+: in raises: KeyError",
    ),
    "a constructor of another family": (
        {"__init__": lambda self, params: None},
        r"the component cannot be built: TypeError",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_compensator_that_is_none_is_refused_in_its_name(register: Register, wrong: str) -> None:
    members, words = WRONG[wrong]
    register("compensator", mine(**members))
    with pytest.raises(ConfigError, match=r"compensator\.type = 'mine': " + words):
        run()


def test_the_command_line_refuses_it_without_a_traceback(
    register: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    register("compensator", mine(state_names=None))
    for command in ("check", "run"):
        assert main([command, "chen_ricles_2010", "--set", "compensator.type=mine", "--set", SHORT]) == 2
        told = capsys.readouterr().err
        assert mentions(told, "rths", "compensator.type", "mine", "state_names")


def test_one_that_fails_in_a_test_stops_the_rig_with_its_name(register: Register) -> None:
    register("compensator", mine(step=later))
    outcome = run()
    assert outcome.state is State.TRIPPED
    assert outcome.failed
    assert mentions(outcome.reason, "sample 5", "compensator.type", "mine", "step", "0", "(1,)")


def test_a_good_one_is_not_in_the_way(register: Register) -> None:
    register("compensator", mine())
    outcome = run()
    assert (outcome.state, outcome.reason, outcome.compensator["count"]) == (
        State.FINISHED,
        "",
        outcome.samples + 1,
    )


def forms() -> list[type]:
    """The class and the kernel of the components page."""
    page = (Path(__file__).parents[2] / "doc" / "components.md").read_text(encoding="utf-8")
    found: list[type] = []
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        if "class Feedforward" in code:
            name = f"<form {len(found)}>"
            linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name  # as a notebook does
            space: dict[str, Any] = {"__name__": f"form_{len(found)}"}
            exec(compile(code, name, "exec"), space)
            found.append(space["Feedforward"])
    return found


def test_both_forms_of_the_components_page_are_one_law(register: Register) -> None:
    histories = []
    for form in forms():
        register("compensator", form)
        collector = recorded(files.load("chen_ricles_2010", ["compensator.type=mine", SHORT]))
        histories.append(collector.run().command)
    assert len(histories) == 2
    np.testing.assert_array_equal(*histories)


def test_a_kernel_of_another_package_can_be_compiled() -> None:
    params = from_data(forms()[1].Params, {"delay": 0.02})  # type: ignore[attr-defined]
    kernel = forms()[1].kernel_of(params)  # type: ignore[attr-defined]
    k = kernel.constants(params, 0.001)
    given = (1.0, 0.5, 0.0, 0.0, 0.0, False, False)
    assert (
        in_c(kernel.step, k, kernel.rest(k), *given)(k, kernel.rest(k), *given)
        == kernel.step(k, kernel.rest(k), *given)
        == ((), 1.01)
    )


# Compiled


def law_of_closures(gain: float) -> type:
    """A compensator that is defined in a function, with a kernel that holds a number and another function."""

    def led(x: float, v: float) -> float:
        return x + gain * v

    def law(
        k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
    ) -> tuple[Any, float]:
        (before,) = s
        return (v,), led(x, 0.5 * (v + before))

    class Mine(PerAxis):
        @params
        class Params:
            pass

        KERNEL = Kernel(lambda params, dt: (), lambda k: (0.0,), law)

    return Mine


def derived(family: str, name: str) -> type:
    """A class of another package that inherits from a component of this one."""
    cls = registry.load(family, name)

    @params
    class Params(cls.Params):  # type: ignore[misc]
        pass

    return type("Mine", (cls,), {"Params": Params})


OTHERS: dict[str, tuple[str, Callable[[], type], list[str]]] = {
    "closures": ("compensator", lambda: law_of_closures(0.027), ["compensator.type=mine"]),
    "compensator": ("compensator", lambda: derived("compensator", "pi_lead"), ["compensator.type=mine"]),
    "integrator": ("integrator", lambda: derived("integrator", "runge_kutta"), ["integrator.type=mine"]),
    "specimen": (
        "specimen",
        lambda: derived("specimen", "maxwell_damper"),
        ["axes.story_1.specimen={type: mine}"],
    ),
    "ramp": ("ramp", lambda: derived("ramp", "hermite"), ["ramp.type=mine"]),
}


@pytest.mark.parametrize("family", OTHERS)
def test_a_kernel_of_another_package_runs_compiled(family: str, register: Register, different: Any) -> None:
    name, cls, overrides = OTHERS[family]
    register(name, cls())
    plain, compiled = (
        hosts.run("chen_ricles_2010", ["duration=2", *overrides], engine=engine)
        for engine in ("python", "compiled")
    )
    assert (compiled.engine, compiled.notes) == ("compiled", [])
    assert different(compiled.read(), plain.read()) == []


def halved(commands: Callable[..., list[float]]) -> Callable[..., list[float]]:
    @wraps(commands)
    def halves(self: object, *arguments: Any) -> list[float]:
        return [0.5 * command for command in commands(self, *arguments)]

    return halves


def test_a_decorated_method_is_not_the_inherited_one(register: Register, different: Any) -> None:
    """``functools.wraps`` makes it look like the method of its base class."""
    cls = derived("compensator", "pi_lead")
    cls.commands = halved(PerAxis.commands)  # type: ignore[attr-defined]
    register("compensator", cls)
    changes = ["duration=1", "compensator.type=mine"]
    plain, chosen = hosts.run("chen_ricles_2010", changes, engine="python"), hosts.run("chen_ricles_2010", changes)
    assert different(chosen.read(), plain.read()) == []
    with pytest.raises(ConfigError, match="has no kernel"):
        hosts.run("chen_ricles_2010", changes, engine="compiled")


def grown(
    k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[Any, float]:
    values: list[float] = []
    for part in (x, v):
        values.append(part)
    return s, values[0]


def test_the_line_that_cannot_be_compiled_is_named(register: Register) -> None:
    class Mine(PerAxis):
        @params
        class Params:
            pass

        KERNEL = Kernel(lambda params, dt: (), no_state, grown)

    register("compensator", Mine)
    line = grown.__code__.co_firstlineno + 5
    preferred = hosts.run("chen_ricles_2010", [SHORT, "compensator.type=mine"], preferred="compiled")
    assert [f"{__file__}:{line}: " in note and "plain Python" in note for note in preferred.notes] == [True]
    assert (preferred.engine, preferred.outcome) == ("kernels", "finished")
    with pytest.raises(ConfigError) as refused:
        hosts.run("chen_ricles_2010", [SHORT, "compensator.type=mine"], engine="compiled")
    assert mentions(str(refused.value), f"{__file__}:{line}", "kernels")


PACKAGE = re.search(
    r"```python\n(\"\"\"Derivative feedforward: the actuator(?:(?!```).)*KERNEL(?:(?!```).)*)```",
    (Path(__file__).parents[2] / "doc" / "components.md").read_text(encoding="utf-8"),
    re.S,
)


def test_an_installed_component_runs_compiled(tmp_path: Path) -> None:
    """The kernel of the components page, as a package."""
    assert PACKAGE
    site, facts = tmp_path / "site", tmp_path / "site" / "my_lab-1.0.dist-info"
    facts.mkdir(parents=True)
    (site / "my_lab.py").write_text(PACKAGE[1], encoding="utf-8")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: my_lab\nVersion: 1.0\n", encoding="utf-8")
    points = "[rths_nodes.compensator]\nfeedforward = my_lab:Feedforward\n"
    (facts / "entry_points.txt").write_text(points, encoding="utf-8")
    environment = os.environ | {
        "PYTHONPATH": f"{site}:{Path(__file__).parents[2]}",
        "XDG_CACHE_HOME": str(tmp_path),
    }
    words = [sys.executable, "-m", "rths_nodes.app.cli", "run", "chen_ricles_2010", "--set", "duration=2"]
    words += ["--set", "compensator.type=feedforward", "--engine", "compiled", "--no-record", "--json"]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["engine"] == "compiled"


def test_a_chain_with_a_stage_that_has_no_kernel_has_none(register: Register) -> None:
    register("compensator", mine())
    chain = registry.load("compensator", "chain")
    both = {"first": {"type": "none"}, "second": {"type": "mine"}}
    assert chain.kernel_of(from_data(chain.Params, both, "compensator")) is None
    assert chain.kernel_of(from_data(chain.Params, both | {"second": {"type": "none"}}, "compensator")) is not None


def test_a_setup_of_another_package_gets_what_its_base_class_has(register: Register) -> None:
    """Upright load around it, behind a scale, and its motions of all steps."""

    class Mine:
        @params
        class Params:
            pass

        def __init__(self, params: Any, n_dof: int, n_axes: int) -> None:
            pass

        def axes(self, motion: Motion) -> Motion:
            return Motion(2.0 * motion.displacement, 2.0 * motion.velocity, 2.0 * motion.acceleration)

        def forces(self, axis_forces: Any, displacement: Any) -> Any:
            return 2.0 * axis_forces

        def degrees_of_freedom(self, displacement: Any) -> Any:
            return 0.5 * displacement

    register("setup", Mine)
    kind = registry.load("setup", "upright_load")
    given = from_data(kind.Params, {"actuator_length": 1.0, "setup": {"type": "mine"}}, "setup")
    assert kind.kernel_of(given) is None
    setup = ScaledSetup(registry.build("setup", given, 1, 1), [4.0], [8.0])
    x = np.array([0.5])
    np.testing.assert_array_equal(setup.axes(Motion(x, x, x)).velocity, [0.25])
    np.testing.assert_array_equal(setup.forces(np.array([3.0]), x), [48.0])
    np.testing.assert_array_equal(setup.histories(x[None, :]), [[0.25]])
    np.testing.assert_array_equal(setup.degrees_of_freedom(np.array([0.25])), x)


def test_an_integrator_whose_displacement_is_no_array_is_refused(register: Register) -> None:
    from rths_nodes.numerical.integrators.cr import ChenRicles

    class Mine(ChenRicles):
        Params = params(type("Params", (ChenRicles.Params,), {}))

        def step(self, experimental_force: Any) -> None:
            super().step(experimental_force)
            self.displacement = float(self.displacement[0])  # type: ignore[assignment]

    register("integrator", Mine)
    sets = ["integrator={type: mine, equivalent_stiffness: 7.6e6, equivalent_damping: 0.64e6}", SHORT]
    loop = checked_loop(files.load("chen_ricles_2010", sets))
    outcome = loop.run()
    assert outcome.state is State.TRIPPED
    assert mentions(outcome.reason, "sample 1", "integrator.type", "mine", "step")


def test_a_simulated_specimen_that_raises_is_named(register: Register) -> None:
    from rths_nodes.laboratory.specimens.viscous import KelvinVoigt

    class Mine(KelvinVoigt):
        Params = params(type("Params", (KelvinVoigt.Params,), {}))

        def force(self, state: Any, displacement: float, velocity: float) -> float:
            raise ZeroDivisionError("no area")

    register("specimen", Mine)
    with pytest.raises((ConfigError, ComponentError), match=naming("specimen.type", "mine")):
        checked_loop(files.load("chen_ricles_2010", ["axes.story_1.specimen.type=mine", SHORT])).run()


def test_a_module_that_cannot_be_imported_is_told(
    register: Register, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "half_a_law.py").write_text("gain = numpyy.eye(2)\n")
    monkeypatch.syspath_prepend(tmp_path)
    register("compensator", mine(), "half_a_law:Mine")
    with pytest.raises(ConfigError, match=naming("half_a_law", "NameError", "numpyy")):
        run()


def test_components_of_this_package_are_as_they_are() -> None:
    kind = registry.load("compensator", "none")
    assert kind is NoCompensation
    assert type(registry.build("compensator", kind.Params(), 0.001, 1)) is kind


@pytest.mark.nodes
def test_nodes_tell_the_same_as_one_process(register: Register) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    register("compensator", mine(step=later))
    found = hosts.run("chen_ricles_2010", ["compensator.type=mine", SHORT], host="composed")
    assert found.outcome != "finished"
    assert mentions(found.reason, "compensator.type", "mine", "step", "0", "(1,)")
    register("compensator", mine(state_names=None))
    with pytest.raises(ConfigError, match="lacks state_names"):
        hosts.run("chen_ricles_2010", ["compensator.type=mine", SHORT], host="composed")
