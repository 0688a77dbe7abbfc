# SPDX-License-Identifier: Apache-2.0
"""Tests of components of other packages: errors name the component; kernels are compiled."""

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
from loop_parts import collected
from messages import mentions, naming

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.control.compensators.none import NoCompensation
from rths_nodes.control.compensators.per_axis import PerAxis
from rths_nodes.control.setups import Identity, ScaledSetup
from rths_nodes.core import registry
from rths_nodes.core.component_guard import guard_params, guarded
from rths_nodes.core.errors import ComponentError, ConfigError
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import params
from rths_nodes.core.samples import Motion
from rths_nodes.core.simulators import Rig, RigKernel, still
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.actuators.unloaded import FirstOrder
from rths_nodes.laboratory.specimens.viscous import KelvinVoigt
from rths_nodes.loop.embedded import Loop, Outcome, checked_loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.numerical.integrators.dynamics import ChenRicles

Register = Callable[..., None]
SHORT = "duration=0.1"
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "doc" / "components.md").read_text(encoding="utf-8")


@params
class NoParams:
    pass


def mine(**members: Any) -> type:
    """Compensator that passes its target on, with replaced ``members``; None deletes a member."""

    class Mine:
        Params = NoParams
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

    for name, member in members.items():
        if member is None:
            delattr(Mine, name)
        else:
            setattr(Mine, name, member)
    return Mine


def raises(*_: Any) -> Any:
    raise KeyError("gain table")


def fails_in_fifth_sample(self: Any, target: Any, measured: Any) -> Any:
    self.count += 1.0
    return target.displacement if self.count < 5.0 else float(target.displacement[0])


def leaves_in_fifth_sample(self: Any, target: Any, measured: Any) -> Any:
    self.count += 1.0
    return target.displacement if self.count < 5.0 else sys.exit(0)


def loop_with(*overrides: str) -> Loop:
    return checked_loop(files.load("chen_ricles_2010", [*overrides, SHORT]))


def run() -> Outcome:
    return loop_with("compensator.type=mine").run()


def returning(value: Any) -> dict[str, Any]:
    return {"step": lambda self, target, measured: value}


STEP, LACKS = r"step \(\S+\.py:\d+\) returns", r"\S*Mine \(\S+\.py:\d+\) lacks"
BUILD = "the component cannot be built:"
INVALID = {
    "a float": (returning(0.0), STEP + r" 0: must be an array \(1,\) of floats"),
    "nothing": (returning(None), STEP + " None: must be an array"),
    "another shape": (returning(np.zeros(3)), STEP + r" an array \(3,\) of float64: must be an array \(1,\)"),
    "a matrix": (returning(np.zeros((1, 1))), STEP + r" an array \(1, 1\) of float64"),
    "whole numbers": (returning(np.zeros(1, int)), STEP + r" an array \(1,\) of int64"),
    "an exception": ({"step": raises}, r"\S+\.py:\d+: in raises: KeyError: 'gain table'"),
    "no state_names": ({"state_names": None}, LACKS + " state_names. .*the family compensator"),
    "no step": ({"step": None}, LACKS + " step. .*the family compensator"),
    "names of nothing": ({"state_names": ("a", "b")}, r"state\(\) returns 1 numbers, but state_names has 2"),
    "no states": (
        {"state": lambda self: None},
        r"state\(\) and state_names must be sequences \(object of type 'NoneType'",
    ),
    "a broken constructor": ({"__init__": raises}, BUILD + r" \S+\.py:\d+: in raises: KeyError"),
    "a constructor of another family": ({"__init__": lambda self, params: None}, BUILD + " TypeError"),
}


@pytest.mark.parametrize("fault", INVALID)
def test_invalid_compensator_is_refused_by_name(register: Register, fault: str) -> None:
    members, reason = INVALID[fault]
    register("compensator", mine(**members))
    with pytest.raises(ConfigError, match=r"compensator\.type = 'mine': " + reason):
        run()


def test_command_line_refuses_it_without_traceback(register: Register, capsys: pytest.CaptureFixture[str]) -> None:
    register("compensator", mine(state_names=None))
    for command in ("check", "run"):
        assert main([command, "chen_ricles_2010", "--set", "compensator.type=mine", "--set", SHORT]) == 2
        assert mentions(capsys.readouterr().err, "rths", "compensator.type", "mine", "state_names")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (fails_in_fifth_sample, ("step", "0", "(1,)")),
        (leaves_in_fifth_sample, ("leaves_in_fifth_sample", "SystemExit")),
    ],
)
def test_failing_compensator_trips_with_its_name(register: Register, step: Any, reason: tuple[str, ...]) -> None:
    register("compensator", mine(step=step))
    outcome = run()
    assert (outcome.state, outcome.failed) == (State.TRIPPED, True)
    assert mentions(outcome.reason, "sample 5", "compensator.type", "mine", *reason)


@pytest.mark.parametrize("method", ["validate", "spans", "fits", "cautions", "contents", "remarks"])
def test_failing_method_of_parameters_is_reported_by_name(
    method: str, register: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    register("compensator", mine(Params=params(type("Params", (), {method: raises}))))
    command, code = ("run", 1) if method == "remarks" else ("check", 2)
    assert main([command, "chen_ricles_2010", "--set", "compensator.type=mine", "--set", SHORT]) == code
    reported = re.compile(r"rths: compensator\.type = 'mine': \S+\.py:\d+: in raises: KeyError: 'gain table'")
    assert reported.fullmatch(capsys.readouterr().err.strip())


def test_inherited_and_static_methods_of_parameters_are_guarded(register: Register) -> None:
    base = mine(Params=params(type("Params", (), {"cautions": raises, "spans": staticmethod(dict)})))
    guard_params("compensator", "base", base)
    register("compensator", mine(Params=params(type("Params", (base.Params,), {}))))  # type: ignore[attr-defined]
    parameters: Any = registry.load("compensator", "mine").Params()
    assert parameters.spans() == {}
    with pytest.raises(ConfigError, match=r"^compensator\.type = 'mine': "):
        parameters.cautions(None)


def test_rig_of_another_package_may_pass_its_kernel() -> None:
    kernel = RigKernel(lambda params, dt: (dt,), no_state, raises, lambda k, s: still(1))
    assert Rig(None, 0.001, 1, kernel).bound() == (kernel, (0.001,))


def test_compensator_takes_arguments_by_name() -> None:
    zero = np.zeros(1)
    law = guarded("compensator", mine(), "mine")(None, 0.001, 1)
    assert law.step(target=Motion(zero, zero, zero), measured=zero) is zero


def test_valid_compensator_runs(register: Register) -> None:
    register("compensator", mine())
    outcome = run()
    assert (outcome.state, outcome.reason) == (State.FINISHED, "")
    assert outcome.compensator["count"] == outcome.samples + 1


def forms() -> list[type]:
    """The class and the kernel of the components page."""
    classes: list[type] = []
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        if "class Feedforward" in code:
            name = f"<form {len(classes)}>"
            linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name  # as a notebook does
            space: dict[str, Any] = {"__name__": f"form_{len(classes)}"}
            exec(compile(code, name, "exec"), space)
            classes.append(space["Feedforward"])
    return classes


def test_class_and_kernel_of_components_page_agree(register: Register) -> None:
    histories = []
    for form in forms():
        register("compensator", form)
        histories.append(collected(loop_with("compensator.type=mine"))[1].command)
    assert len(histories) == 2
    np.testing.assert_array_equal(*histories)


def test_kernel_of_components_page_compiles() -> None:
    params = from_data(forms()[1].Params, {"delay": 0.02})  # type: ignore[attr-defined]
    kernel = forms()[1].kernel_of(params)  # type: ignore[attr-defined]
    k = kernel.constants(params, 0.001)
    arguments = (k, kernel.rest(k), 1.0, 0.5, 0.0, 0.0, 0.0, False, False)
    assert in_c(kernel.step, *arguments)(*arguments) == kernel.step(*arguments) == ((), 1.01)


# Compiled


def law_of_closures(gain: float) -> type:
    """Compensator class defined in a function; its kernel is a closure over a number and a function."""

    def led(x: float, v: float) -> float:
        return x + gain * v

    def law(
        k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
    ) -> tuple[Any, float]:
        (before,) = s
        return (v,), led(x, 0.5 * (v + before))

    class Mine(PerAxis):
        Params = NoParams
        KERNEL = Kernel(lambda params, dt: (), lambda k: (0.0,), law)

    return Mine


def derived(family: str, name: str) -> type:
    """Subclass of a component of this package, as another package defines it."""
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
def test_kernel_of_another_package_runs_compiled(family: str, register: Register, different: Any) -> None:
    name, cls, overrides = OTHERS[family]
    register(name, cls())
    plain, compiled = (
        hosts.run("chen_ricles_2010", ["duration=2", *overrides], engine=engine)
        for engine in ("python", "compiled")
    )
    assert (compiled.engine, compiled.notes) == ("compiled", [])
    assert different(compiled.read(), plain.read()) == []


def test_decorated_method_has_no_inherited_kernel(register: Register, different: Any) -> None:
    """``functools.wraps`` makes it look like the method of its base class."""

    @wraps(PerAxis.commands)
    def halved(self: Any, *arguments: Any) -> list[float]:
        return [0.5 * command for command in PerAxis.commands(self, *arguments)]

    cls = derived("compensator", "pi_lead")
    cls.commands = halved  # type: ignore[attr-defined]
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


def test_line_that_cannot_be_compiled_is_reported(register: Register) -> None:
    class Mine(PerAxis):
        Params = NoParams
        KERNEL = Kernel(lambda params, dt: (), no_state, grown)

    register("compensator", Mine)
    line = grown.__code__.co_firstlineno + 5
    preferred = hosts.run("chen_ricles_2010", [SHORT, "compensator.type=mine"], preferred="compiled")
    assert [f"{__file__}:{line}: " in note and "plain Python" in note for note in preferred.notes] == [True]
    assert (preferred.engine, preferred.outcome) == ("kernels", "finished")
    with pytest.raises(ConfigError) as refused:
        hosts.run("chen_ricles_2010", [SHORT, "compensator.type=mine"], engine="compiled")
    assert mentions(str(refused.value), f"{__file__}:{line}", "kernels")


def test_installed_component_runs_compiled(tmp_path: Path) -> None:
    """The kernel of the components page, as a package."""
    feature = r"\"\"\"Derivative feedforward: the actuator(?:(?!```).)*KERNEL(?:(?!```).)*"
    module = re.search(rf"```python\n({feature})```", PAGE, re.S)
    assert module
    site, info = tmp_path / "site", tmp_path / "site" / "my_lab-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "my_lab.py").write_text(module[1], encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_lab\nVersion: 1.0\n", encoding="utf-8")
    points = "[rths_nodes.compensator]\nfeedforward = my_lab:Feedforward\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{site}:{ROOT}", "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "rths_nodes.app.cli", "run", "chen_ricles_2010", "--set", "duration=2"]
    command += ["--set", "compensator.type=feedforward", "--engine", "compiled", "--no-record", "--json"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["engine"] == "compiled"


def test_chain_has_kernel_only_if_both_stages_have(register: Register) -> None:
    register("compensator", mine())
    chain = registry.load("compensator", "chain")
    both = {"first": {"type": "none"}, "second": {"type": "mine"}}
    assert chain(from_data(chain.Params, both, "compensator"), 0.001, 1).bound() is None
    assert chain(from_data(chain.Params, both | {"second": {"type": "none"}}, "compensator"), 0.001, 1).bound()


def test_setup_of_another_package_gets_base_class_methods(register: Register) -> None:
    """Inside an upright load and a scale, and with the motions of all steps at once."""

    class Mine:
        Params = NoParams

        def __init__(self, params: Any, n_dof: int, n_axes: int) -> None:
            pass

        def axes(self, motion: Motion) -> Motion:
            return Motion(2.0 * motion.displacement, 2.0 * motion.velocity, 2.0 * motion.acceleration)

        def forces(self, axis_forces: Any, displacement: Any) -> Any:
            return 2.0 * axis_forces

        def degrees_of_freedom(self, displacement: Any) -> Any:
            return 0.5 * displacement

    register("setup", Mine)
    upright = registry.load("setup", "upright_load")
    parameters = from_data(upright.Params, {"actuator_length": 1.0, "setup": {"type": "mine"}}, "setup")
    setup = ScaledSetup(registry.build("setup", parameters, 1, 1), [4.0], [8.0])
    x = np.array([0.5])
    np.testing.assert_array_equal(setup.axes(Motion(x, x, x)).velocity, [0.25])
    np.testing.assert_array_equal(setup.forces(np.array([3.0]), x), [48.0])
    np.testing.assert_array_equal(setup.histories(x[None, :]), [[0.25]])
    np.testing.assert_array_equal(setup.degrees_of_freedom(np.array([0.25])), x)


def test_error_of_setup_inside_a_scale_is_named(register: Register) -> None:
    class Mine(Identity):
        Params = NoParams  # type: ignore[assignment]

        def __init__(self, *arguments: object) -> None:
            self._axes, self._forces, self._constants = self.KERNEL.axes, lambda *_: 1.0 / 0.0, ()

    register("setup", Mine)
    parameters = from_data(registry.load("setup", "mine").Params, {}, "setup")
    with pytest.raises(ComponentError, match=naming("setup.type = 'mine'", "ZeroDivisionError")):
        ScaledSetup(registry.build("setup", parameters, 1, 1), [4.0], [8.0]).felt((3.0,), (0.5,))


def test_integrator_with_scalar_displacement_trips(register: Register) -> None:
    class Mine(ChenRicles):
        Params = params(type("Params", (ChenRicles.Params,), {}))

        def step(self, experimental_force: Any) -> None:
            super().step(experimental_force)
            self.displacement = float(self.displacement[0])  # type: ignore[assignment]

    register("integrator", Mine)
    outcome = loop_with("integrator={type: mine, equivalent_stiffness: 7.6e6, equivalent_damping: 0.64e6}").run()
    assert outcome.state is State.TRIPPED
    assert mentions(outcome.reason, "sample 1", "integrator.type", "mine", "step")


def test_specimen_that_raises_is_named(register: Register) -> None:
    class Mine(KelvinVoigt):
        Params = params(type("Params", (KelvinVoigt.Params,), {}))

        def force(self, state: Any, displacement: float, velocity: float) -> float:
            raise ZeroDivisionError("no area")

    register("specimen", Mine)
    with pytest.raises((ConfigError, ComponentError), match=naming("specimen.type", "mine")):
        loop_with("axes.story_1.specimen.type=mine").run()


@pytest.mark.parametrize(
    ("name", "code", "parts"),
    [("half_a_law", "gain = numpyy.eye(2)", ("NameError", "numpyy")), ("script", "exit(0)", ("SystemExit",))],
)
def test_module_that_fails_to_import_is_reported(
    name: str,
    code: str,
    parts: tuple[str, ...],
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    register("compensator", mine(), f"{name}:Mine")
    with pytest.raises(ConfigError, match=naming(name, *parts)):
        run()


def test_own_components_are_not_wrapped() -> None:
    assert registry.load("actuator", "first_order") is FirstOrder
    assert registry.load("compensator", "none") is NoCompensation
    assert type(registry.build("compensator", NoCompensation.Params(), 0.001, 1)) is NoCompensation


@pytest.mark.nodes(ros=True)
def test_nodes_report_invalid_compensators(register: Register) -> None:
    register("compensator", mine(step=fails_in_fifth_sample))
    result = hosts.run("chen_ricles_2010", ["compensator.type=mine", SHORT], host="composed")
    assert result.outcome != "finished"
    assert mentions(result.reason, "compensator.type", "mine", "step", "0", "(1,)")
    register("compensator", mine(state_names=None))
    with pytest.raises(ConfigError, match="lacks state_names"):
        hosts.run("chen_ricles_2010", ["compensator.type=mine", SHORT], host="composed")
