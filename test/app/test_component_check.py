# SPDX-License-Identifier: Apache-2.0
"""``rths check COMPONENT``: each fault of a component in one sentence, with component, value and bound."""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from messages import mentions, naming
from minimal_components import MINIMAL

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.app.commands import component_check
from rths_nodes.control.compensators.per_axis import PerAxis
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import number, params
from rths_nodes.core.validation import from_data

Register = Callable[..., None]


class Good:
    """A law with a state, in methods: it leads by the last difference."""

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
    """Its memory belongs to the class."""

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
    """A state that gets longer."""

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
    """It fails next to its exclusive bound."""

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
def test_each_fault_is_one_sentence(fault: str, register: Register, capsys: pytest.CaptureFixture[str]) -> None:
    cls, words = FAULTS[fault]
    register("compensator", with_own_params(cls))
    assert main(["check", "compensator.mine"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert mentions(told[0], "compensator.type", "'mine'", *words), told
    assert not any("Traceback" in line for line in told)


def test_a_run_refuses_a_reset_that_does_not_begin_again(register: Register) -> None:
    register("compensator", with_own_params(NoReset))
    with pytest.raises(ConfigError, match=naming("compensator.type", "'mine'", "reset()", "initial state")):
        rths_nodes.run("chen_ricles_2010", ["duration=0.1", "compensator={type: mine}"])


def test_a_good_one_passes_by_its_name_alone(register: Register, capsys: pytest.CaptureFixture[str]) -> None:
    register("compensator", with_own_params(Good))
    assert main(["check", "mine", "--set", "gain=0.5"]) == 0
    told = capsys.readouterr().out
    assert mentions(told, "compensator.type", "'mine'", "reset", "inputs", "bounds")
    assert mentions(told, "compensator.type", "'mine'", "kernel"), "the reason why it is not compiled"


@pytest.mark.parametrize("name", ["maxwell_damper", "magnetorheological_damper", "kelvin_voigt"])
def test_a_specimen_of_this_package_passes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At the smallest exponent a damper needs more increments than a test allows, which is no fault."""
    assert main(["check", f"specimen.{name}"]) == 0
    assert mentions(capsys.readouterr().out, "specimen.type", f"'{name}'", "reset", "bounds")


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


def of_page(name: str) -> Any:
    """The class of the components page."""
    page = (Path(__file__).parents[2] / "doc" / "components.md").read_text(encoding="utf-8")
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.S) if f"class {name}" in code)
    file = f"<{name}>"
    linecache.cache[file] = len(code), None, code.splitlines(keepends=True), file
    space: dict[str, Any] = {"__name__": f"page_{name}"}
    exec(compile(code, file, "exec"), space)
    return space[name]


def test_the_example_with_a_recorded_state_is_right(
    register: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    register("compensator", of_page("FilteredLead"))
    assert main(["check", "compensator.mine"]) == 0
    assert mentions(capsys.readouterr().out, "compensator.type", "'mine'", "compiled", "bits")
    run = rths_nodes.run("chen_ricles_2010", ["duration=2", "compensator={type: mine}"])
    assert run.compensator_names == ("axes.story_1.velocity",)
    slope = np.gradient(run.target[:, 0], run.time)
    assert np.corrcoef(run.compensator[200:, 0], slope[200:])[0, 1] > 0.99


def test_a_kernel_has_the_same_bits_compiled(register: Register, capsys: pytest.CaptureFixture[str]) -> None:
    register("compensator", with_own_params(OfKernel))
    assert main(["check", "compensator.mine"]) == 0
    assert mentions(capsys.readouterr().out, "compensator.type", "'mine'", "compiled", "bits", "2050")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["compensator.none_such"], ("compensator", "none_such", "pi_lead")),
        (["compensator.pi_lead", "--set", "nothing=1"], ("compensator.nothing", "integral", "lead_time")),
        (["port.udp"], ("port.udp", "compensator")),
    ],
)
def test_a_component_that_cannot_be_checked_is_refused(
    words: list[str], told: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *words]) == 2
    assert mentions(capsys.readouterr().err, *told)


OF_TWO = {"linear", "identified_inverse", "model_based", "predefined", "matrix", "rigid_coupler"}
"""Those whose smallest data are of two axes or degrees of freedom."""
OWN = [
    (family, name)
    for family in component_check.DRIVES
    for name in registry.built_in(family)
    if name not in OF_TWO and not registry.load(family, name).external
]


@pytest.mark.parametrize(("family", "name"), OWN)
def test_components_of_this_package_begin_again_and_keep_their_inputs(family: str, name: str) -> None:
    cls, data = registry.load(family, name), MINIMAL.get((family, name), {})
    try:
        drive = component_check.DRIVES[family](from_data(cls.Params, data, family))
        drive.build()
    except ConfigError as error:
        pytest.skip(f"needs another test: {error}")
    component_check.check_driven(drive, f"{family}.{name}")
