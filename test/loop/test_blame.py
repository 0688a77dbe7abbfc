# SPDX-License-Identifier: Apache-2.0
"""Tests of the attribution of errors and NaN to components of other packages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.app import hosts
from rths_nodes.control.compensators.per_axis import PerAxis
from rths_nodes.control.ramps import QuadraticRamp
from rths_nodes.control.setups import Identity
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import number, params
from rths_nodes.core.simulators import Specimen, SpecimenKernel, no_rates
from rths_nodes.laboratory.actuators.unloaded import Unloaded
from rths_nodes.loop.embedded import Outcome, checked_loop
from rths_nodes.loop.faults import FaultyLoop, parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.states import State
from rths_nodes.numerical.ground_motions.waves import Sine
from rths_nodes.numerical.integrators.state_space import RungeKutta
from rths_nodes.numerical.structures.restoring_forces import OfComponent

Register = Callable[..., None]
SHORT = "duration=2"


def beyond(x: float) -> float:
    """Return nan beyond 5 mm, which the test reaches."""
    return math.nan if abs(x) > 0.005 else 1.0


def law_step(
    k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[Any, float]:
    return s, x * beyond(x)


def actuator_go(k: Any, s: Any, command: float) -> tuple[Any, float, float]:
    alpha, dt = k
    (before,) = s
    displacement = before + (command - before) / alpha
    return (displacement,), displacement * beyond(displacement), (displacement - before) / dt


def specimen_force(k: Any, s: Any, x: float, v: float) -> float:
    return 7.6e6 * x * beyond(x)


def law_force(k: Any, s: Any, x: float) -> tuple[Any, float]:
    return s, 1e6 * x * beyond(x)


class Law(PerAxis):
    KERNEL = Kernel(lambda params, dt: (), no_state, law_step)


class Actuated(Unloaded):
    MOTION = Kernel(lambda params, dt: (5.0, dt), lambda k: (0.0,), actuator_go)


class Sprung(Specimen):
    KERNEL = SpecimenKernel(lambda params: (), no_state, specimen_force, no_rates)


class Restored(OfComponent):
    NAME, yields = "mine", False
    KERNEL = Kernel(lambda params: (), no_state, law_force)


class Solved(RungeKutta):
    def step(self, experimental_force: Any) -> None:
        super().step(experimental_force)
        self.displacement = self.displacement * beyond(float(self.displacement[0]))


class Ramped(QuadraticRamp):
    def rows(self, substep: int, predicted: bool = False) -> Any:
        return tuple([value * beyond(row[0]) for value in row] for row in super().rows(substep, predicted))


class Weighed(Identity):
    def felt(self, axis_forces: Sequence[float], displacement: Sequence[float]) -> list[float]:
        return [force * beyond(x) for force, x in zip(axis_forces, displacement, strict=True)]


class Shaken(Sine):
    def sample(self, times: Any) -> Any:
        return super().sample(times) * np.where(times > 0.3, math.nan, 1.0)


def with_params(cls: Any) -> Any:
    """Return a subclass of ``cls`` with its own ``Params``."""
    base = (cls.Params,) if hasattr(cls, "Params") else ()

    class Params(*base):  # type: ignore[misc]
        if issubclass(cls, Restored):
            stiffness: float = number("stiffness", "N/m", 1e6)

    return type("Mine", (cls,), {"Params": params(Params), "__module__": __name__})


MINE = "={type: mine}"
TYPES: dict[str, tuple[Any, list[str]]] = {
    "compensator": (Law, ["compensator" + MINE]),
    "actuator": (Actuated, ["axes.story_1.actuator" + MINE]),
    "specimen": (Sprung, ["axes.story_1.specimen" + MINE]),
    "restoring_force": (Restored, ["structure.restoring_force" + MINE, "integrator={type: runge_kutta}"]),
    "integrator": (Solved, ["integrator" + MINE]),
    "ramp": (Ramped, ["ramp" + MINE]),
    "setup": (Weighed, ["setup" + MINE]),
}
FUNCTIONS = {"specimen": "specimen_force", "restoring_force": "law_force", "integrator": "step"}


def registered(register: Register, family: str) -> list[str]:
    """Register the class of ``family`` and return the overrides that select it."""
    cls, overrides = TYPES[family]
    register(family, with_params(cls))
    return overrides


def run(overrides: list[str]) -> Outcome:
    return checked_loop(files.load("chen_ricles_2010", [SHORT, *overrides])).run()


@pytest.mark.parametrize("family", TYPES)
def test_nan_is_attributed_to_first_component(family: str, register: Register) -> None:
    outcome = run(registered(register, family))
    function = [FUNCTIONS[family], __file__] if family in FUNCTIONS else []
    assert (outcome.state, outcome.failed) == (State.TRIPPED, True)
    assert mentions(outcome.reason, f"{family}.type", "'mine'", "nan", "finite", *function)
    assert not mentions(outcome.reason, "run away")


def test_ground_motion_with_nan_is_refused(register: Register) -> None:
    register("ground_motion", with_params(Shaken))
    with pytest.raises(ConfigError, match=naming("ground_motion.type", "'mine'", "sample", "finite", __file__)):
        run(["ground_motion={type: mine, amplitude: 1, frequency: 1}"])


@pytest.mark.parametrize("engine", ["python", "kernels", "compiled"])
@pytest.mark.parametrize("family", ["compensator", "actuator", "specimen"])
def test_engines_attribute_nan_to_same_component(family: str, engine: str, register: Register) -> None:
    result = hosts.run("chen_ricles_2010", [SHORT, *registered(register, family)], engine=engine)
    assert result.outcome == "failed"
    assert mentions(result.reason, f"{family}.type", "'mine'", "nan", "finite")


def test_nan_target_is_not_attributed_to_compensator() -> None:
    """A faulty message between components of this package is reported by the limits."""
    outcome = FaultyLoop(Assembly(files.load("chen_ricles_2010", [SHORT])), [parse("nan@0.3:target")]).run()
    assert outcome.state is State.TRIPPED
    assert not mentions(outcome.reason, "compensator.type")
    assert mentions(outcome.reason, "axes.story_1", "nan")


# Exceptions


def unnamed_law(
    k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[Any, float]:
    return s, x + tua * v  # type: ignore[name-defined] # noqa: F821


def unnamed_go(k: Any, s: Any, command: float) -> tuple[Any, float, float]:
    return s, tua * command, 0.0  # type: ignore[name-defined] # noqa: F821


def unnamed_force(k: Any, s: Any, x: float, v: float) -> float:
    return tua * x  # type: ignore[name-defined,no-any-return] # noqa: F821


def unnamed_restoring(k: Any, s: Any, x: float) -> tuple[Any, float]:
    return s, tua * x  # type: ignore[name-defined] # noqa: F821


BROKEN: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "compensator": (Law, "KERNEL", unnamed_law),
    "actuator": (Actuated, "MOTION", unnamed_go),
    "specimen": (Sprung, "KERNEL", unnamed_force),
    "restoring_force": (Restored, "KERNEL", unnamed_restoring),
}


@pytest.mark.parametrize("engine", ["python", "kernels", "compiled"])
@pytest.mark.parametrize("family", BROKEN)
def test_exception_names_component_file_and_line(family: str, engine: str, register: Register) -> None:
    cls, attribute, function = BROKEN[family]
    kernel = getattr(cls, attribute)._replace(**{"force" if cls is Sprung else "step": function})
    register(family, with_params(type("Broken", (cls,), {attribute: kernel})))
    try:
        reason = hosts.run("chen_ricles_2010", [SHORT, *TYPES[family][1]], engine=engine).reason
    except ConfigError as error:
        reason = str(error)
    line = function.__code__.co_firstlineno + (3 if function is unnamed_law else 1)
    assert mentions(reason, f"{family}.type", "'mine'", f"{__file__}:{line}", "NameError", "tua")


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("family", ["compensator", "specimen", "integrator"])
def test_nodes_attribute_nan_to_same_component(family: str, register: Register) -> None:
    result = hosts.run("chen_ricles_2010", [SHORT, *registered(register, family)], host="composed")
    assert result.outcome != "finished"
    assert mentions(result.reason, f"{family}.type", "'mine'", "nan", "finite")
