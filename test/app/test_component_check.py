# SPDX-License-Identifier: Apache-2.0
"""Messages about faulty components, of ``rths check COMPONENT`` and of runs."""

from __future__ import annotations

import inspect
import linecache
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from command_fixtures import RunCommand
from messages import mentions, naming
from minimal_components import MINIMAL, ConstantDelay

import rths_nodes
from rths_nodes.app.commands import component_check
from rths_nodes.control.compensators.per_axis import PerAxis
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import number, params
from rths_nodes.core.validation import from_data

Register = Callable[..., None]

CHEN = "chen_ricles_2010"


class Good:
    """Law with a state that extrapolates by the last difference."""

    @params
    class Params:
        gain: float = number("gain", "1", 1.0, at_least=0.0, at_most=2.0)

    state_names: tuple[str, ...] = ("before",)
    before: float

    def __init__(self, params: Any, dt: float, n_axes: int) -> None:
        self.gain = params.gain
        self.reset()

    def step(self, target: Any, measured: Any) -> Any:
        now = float(target.displacement[0])
        led, self.before = now + self.gain * (now - self.before), now
        return np.array([led])

    def state(self) -> list[float]:
        return [self.before]

    def reset(self) -> None:
        self.before = 0.0


class NoReset(Good):
    def __init__(self, params: Any, dt: float, n_axes: int) -> None:
        super().__init__(params, dt, n_axes)
        self.before = 0.0

    def reset(self) -> None:
        self.before = getattr(self, "before", 0.0)


class Shared(Good):
    memory: ClassVar[list[float]] = [0.0]

    def step(self, target: Any, measured: Any) -> Any:
        self.memory[0] += 1e-6
        return np.array([float(target.displacement[0]) + self.memory[0]])

    def state(self) -> list[float]:
        return [0.0]

    def reset(self) -> None:
        if hasattr(self, "begun"):
            self.memory[0] = 0.0
        self.begun = True


class Changes(Good):
    def step(self, target: Any, measured: Any) -> Any:
        target.displacement += 1e-3
        return target.displacement.copy()


class Grows(Good):
    """Law whose state grows longer."""

    def step(self, target: Any, measured: Any) -> Any:
        self.count = getattr(self, "count", 0) + 1
        return target.displacement.copy()

    def state(self) -> list[float]:
        return [0.0] * (1 if getattr(self, "count", 0) < 5 else 2)


class Nan(Good):
    def step(self, target: Any, measured: Any) -> Any:
        return target.displacement * (math.nan if abs(target.displacement[0]) > 5e-3 else 1.0)


class AtBound(Good):
    def step(self, target: Any, measured: Any) -> Any:
        return target.displacement / (2.0 - self.gain) if self.gain != 2.0 else target.displacement * math.nan


class NearBound(Good):
    """Law that fails next to an exclusive bound."""

    @params
    class Params:
        gain: float = number("gain", "1", 1.0, more_than=0.0, less_than=2.0)

    def step(self, target: Any, measured: Any) -> Any:
        return target.displacement * (1.0 if self.gain < 1.9 else math.nan)


FAULTS: dict[str, tuple[type, tuple[str, ...]]] = {
    "reset": (NoReset, ("reset()", "initial state")),
    "shared": (Shared, ("second object", "shares")),
    "input": (Changes, (__file__, "changes", "input")),
    "states": (Grows, ("state()", "2", "state_names", "1")),
    "nan": (Nan, ("nan", "finite")),
    "bound": (AtBound, ("gain", "2", "bounds", "finite")),
    "exclusive": (NearBound, ("gain", "1.98", "bounds", "finite")),
}


def with_own_params(cls: Any) -> Any:
    return type("Mine", (cls,), {"Params": params(type("Params", (cls.Params,), {})), "__module__": __name__})


@pytest.mark.parametrize("fault", FAULTS)
def test_check_reports_fault_in_one_line(fault: str, register: Register, refusal: RunCommand) -> None:
    cls, parts = FAULTS[fault]
    register("compensator", with_own_params(cls))
    report = refusal("check", "compensator.mine")
    assert mentions(report.splitlines()[0], "compensator.type", "'mine'", *parts), report


def test_run_refuses_faulty_reset(register: Register) -> None:
    register("compensator", with_own_params(NoReset))
    with pytest.raises(ConfigError, match=naming("compensator.type", "'mine'", "reset()", "initial state")):
        rths_nodes.run(CHEN, ["duration=0.1", "compensator={type: mine}"])


def test_check_finds_component_by_its_name_alone(register: Register, output: RunCommand) -> None:
    register("compensator", with_own_params(Good))
    report = output("check", "mine", "--set", "gain=0.5")
    assert mentions(report, "compensator.type", "'mine'", "reset", "inputs", "bounds")
    assert mentions(report, "compensator.type", "'mine'", "kernel"), "the reason why it is not compiled"


@pytest.mark.parametrize("name", ["maxwell_damper", "magnetorheological_damper", "kelvin_voigt"])
def test_check_passes_built_in_specimens(name: str, output: RunCommand) -> None:
    """At the smallest exponent a damper requires more increments than a test allows; this is no fault."""
    assert mentions(output("check", f"specimen.{name}"), "specimen.type", f"'{name}'", "reset", "bounds")


def lagging(
    k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[Any, float]:
    (gain,) = k
    (before,) = s
    return (x,), x + gain * (x - before)


class OfKernel(PerAxis):
    @params
    class Params:
        gain: float = number("gain", "1", 1.0, at_least=0.0, at_most=2.0)

    KERNEL = Kernel(lambda params, dt: (params.gain,), lambda k: (0.0,), lagging)


def class_of_page(name: str) -> Any:
    """Return a class from doc/components.md."""
    page = (Path(__file__).parents[2] / "doc" / "components.md").read_text(encoding="utf-8")
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.S) if f"class {name}" in code)
    file = f"<{name}>"
    linecache.cache[file] = len(code), None, code.splitlines(keepends=True), file
    namespace: dict[str, Any] = {"__name__": f"page_{name}"}
    exec(compile(code, file, "exec"), namespace)
    return namespace[name]


def test_documented_component_passes_and_records_its_state(register: Register, output: RunCommand) -> None:
    register("compensator", class_of_page("FilteredLead"))
    assert mentions(output("check", "compensator.mine"), "compensator.type", "'mine'", "compiled", "identical")
    run = rths_nodes.run(CHEN, ["duration=2", "compensator={type: mine}"])
    assert run.compensator_names == ("axes.story_1.velocity",)
    slope = np.gradient(run.target[:, 0], run.time)
    assert np.corrcoef(run.compensator[200:, 0], slope[200:])[0, 1] > 0.99


def test_check_compares_compiled_and_plain_kernel(register: Register, output: RunCommand) -> None:
    register("compensator", with_own_params(OfKernel))
    assert mentions(output("check", "compensator.mine"), "'mine'", "compiled", "identical", "2050")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["compensator.none_such"], ("compensator", "none_such", "pi_lead")),
        (["compensator.pi_lead", "--set", "nothing=1"], ("compensator.nothing", "integral", "lead_time")),
        (["port.udp"], ("port.udp", "compensator")),
        (["compensator.pi_lead", "--rig", "bench_udp"], ("--rig", "bench_udp", "scenario")),
    ],
)
def test_check_refuses_unknown_components_and_parameters(
    words: list[str], parts: tuple[str, ...], refusal: RunCommand
) -> None:
    assert mentions(refusal("check", *words), *parts)


OF_TWO = {"linear", "identified_inverse", "model_based", "predefined", "matrix", "rigid_coupler"}
"""Components whose minimal data have two axes or degrees of freedom."""
BUILT_IN = [
    (family, name)
    for family in component_check.DRIVES
    for name in registry.built_in(family)
    if name not in OF_TWO and not registry.load(family, name).external
]


@pytest.mark.parametrize(("family", "name"), BUILT_IN)
def test_built_in_components_reset_and_keep_their_inputs(family: str, name: str) -> None:
    drive, cls = component_check.DRIVES[family], registry.load(family, name)
    try:
        params = from_data(cls.Params, MINIMAL.get((family, name), {}), family)
        drive.build(params)
    except ConfigError as error:
        pytest.skip(f"needs another test: {error}")
    component_check.check_driven(drive, params, f"{family}.{name}")


# Typical mistakes of authors, in runs


class Typo(ConstantDelay):
    def step(self, target: Any, measured: Any) -> Any:
        return target.displacment


class Nothing(ConstantDelay):
    def step(self, target: Any, measured: Any) -> Any:
        target.displacement + 1.0


class Shape(ConstantDelay):
    def step(self, target: Any, measured: Any) -> Any:
        return np.array([target.displacement])


class Raises(ConstantDelay):
    def step(self, target: Any, measured: Any) -> Any:
        raise RuntimeError("no luck")


class NotFinite(ConstantDelay):
    count = 0

    def reset(self) -> None:
        self.count = 0

    def step(self, target: Any, measured: Any) -> Any:
        self.count += 1
        return target.displacement * (np.nan if self.count > 20 else 1.0)


class InPlace(ConstantDelay):
    def step(self, target: Any, measured: Any) -> Any:
        measured -= target.displacement
        return target.displacement - 0.1 * measured


class Incomplete:
    @params
    class Params:
        pass

    def __init__(self, params: Any, dt: float, n_axes: int) -> None: ...


def shape(k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool) -> Any:
    return s, [x, v]


def not_finite(
    k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> Any:
    return s, x * math.nan


def raises(k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool) -> Any:
    return s, x / 0.0


def too_few(k: Any, s: Any, x: float, v: float) -> Any:
    return s, x


def reason_of(component: Any) -> str:
    """Return why a test with the component is refused, or how it ended."""
    try:
        run = rths_nodes.run(CHEN, duration=0.2, compensator=component)
    except ConfigError as error:
        return str(error)
    assert run.outcome == "failed"
    return run.information["reason"]


@pytest.mark.usefixtures("empty_registry")
@pytest.mark.parametrize(
    ("component", "offset", "parts"),
    [
        (Typo, 1, ("displacment", "Motion")),
        (Nothing, 0, ("None", "(1,)", "floats")),
        (Shape, 0, ("(1, 1)", "(1,)", "floats")),
        (Raises, 1, ("RuntimeError", "no luck")),
        (NotFinite, 0, ("command", "nan", "finite")),
        (InPlace, 0, ("measured", "copy")),
        (Incomplete, 0, ("step", "state", "compensator")),
        (shape, 0, ("(1, 2)", "(1,)", "floats")),
        (not_finite, 0, ("command", "nan", "finite")),
        (raises, 1, ("ZeroDivisionError",)),
        (too_few, 0, ("TypeError", "arguments")),
    ],
)
def test_run_reports_fault_with_file_and_line(component: Any, offset: int, parts: Any) -> None:
    line = inspect.getsourcelines(getattr(component, "step", component))[1] + offset
    path = () if component is Incomplete else ("compensator.type",)
    assert mentions(reason_of(component), *path, component.__name__, f"{__file__}:{line}", *parts)


@pytest.mark.usefixtures("empty_registry")
@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"delay": 20.0}, ("compensator.delay", "20 s", "<= 0.1 s")),
        ({"dely": 0.02}, ("compensator.dely", "delay")),
    ],
)
def test_run_refuses_parameter_with_its_path(settings: Any, parts: Any) -> None:
    assert mentions(reason_of({"type": ConstantDelay} | settings), *parts)


@pytest.mark.usefixtures("empty_registry")
def test_entry_point_without_module_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {**registry._table("compensator"), "mine": f"{Path(__file__).stem}_lost.component:Law"}
    tables = registry._table
    monkeypatch.setattr(registry, "_table", lambda family: table if family == "compensator" else tables(family))
    assert mentions(reason_of({"type": "mine"}), "compensator", "'mine'", f"{Path(__file__).stem}_lost")


@pytest.mark.usefixtures("empty_registry")
def test_valid_class_runs_as_compensator() -> None:
    assert rths_nodes.run(CHEN, duration=0.2, compensator=ConstantDelay).outcome == "finished"
