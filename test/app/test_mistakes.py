# SPDX-License-Identifier: Apache-2.0
"""Eight typical mistakes of a component's author: the message names component, file and line, and what to do."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions

import rths_nodes
from rths_nodes.core import Array, Motion, number, params, registry
from rths_nodes.core.errors import ConfigError

CHEN = "chen_ricles_2010"


@pytest.fixture(autouse=True)
def nothing_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_added", {})


class Law:
    """Sends the target ahead by a delay."""

    state_names: tuple[str, ...] = ()

    @params
    class Params:
        delay: float = number("delay", "s", 0.02, at_least=0.0, at_most=0.1)

    def __init__(self, params: Any, dt: float, n_axes: int) -> None:
        self.delay, self.count = params.delay, 0

    def step(self, target: Motion, measured: Array) -> Any:
        return target.displacement + self.delay * target.velocity

    def state(self) -> tuple[float, ...]:
        return ()

    def reset(self) -> None:
        self.count = 0


class Typo(Law):
    def step(self, target: Motion, measured: Array) -> Any:
        return target.displacment  # type: ignore[attr-defined]


class Nothing(Law):
    def step(self, target: Motion, measured: Array) -> Any:
        target.displacement + 1.0


class Shape(Law):
    def step(self, target: Motion, measured: Array) -> Any:
        return np.array([target.displacement])


class Raises(Law):
    def step(self, target: Motion, measured: Array) -> Any:
        raise RuntimeError("no luck")


class NotFinite(Law):
    def step(self, target: Motion, measured: Array) -> Any:
        self.count += 1
        return target.displacement * (np.nan if self.count > 20 else 1.0)


class InPlace(Law):
    def step(self, target: Motion, measured: Array) -> Any:
        measured -= target.displacement
        return target.displacement - 0.1 * measured


def said(component: Any) -> str:
    """Return why a test with the component is refused, or how it ended."""
    try:
        run = rths_nodes.run(CHEN, duration=0.2, compensator=component)
    except ConfigError as error:
        return str(error)
    assert run.outcome == "failed"
    return run.information["reason"]


def line(component: Any, offset: int) -> str:
    return f"{__file__}:{inspect.getsourcelines(component.step)[1] + offset}"


@pytest.mark.parametrize(
    ("component", "offset", "parts"),
    [
        (Typo, 1, ("displacment", "Motion")),
        (Nothing, 0, ("None", "(1,)", "floats")),
        (Shape, 0, ("(1, 1)", "(1,)", "floats")),
        (Raises, 1, ("RuntimeError", "no luck")),
        (NotFinite, 0, ("command", "nan", "finite")),
        (InPlace, 0, ("measured", "copy")),
    ],
)
def test_a_mistake_in_a_step_is_named_with_file_and_line(component: Any, offset: int, parts: Any) -> None:
    assert mentions(said(component), "compensator.type", component.__name__, line(component, offset), *parts)


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


@pytest.mark.parametrize(
    ("kernel", "offset", "parts"),
    [
        (shape, 0, ("(1, 2)", "(1,)", "floats")),
        (not_finite, 0, ("command", "nan", "finite")),
        (raises, 1, ("ZeroDivisionError",)),
        (too_few, 0, ("TypeError", "arguments")),
    ],
)
def test_a_mistake_in_a_kernel_is_named_with_file_and_line(kernel: Any, offset: int, parts: Any) -> None:
    where = f"{__file__}:{inspect.getsourcelines(kernel)[1] + offset}"
    assert mentions(said(kernel), "compensator.type", kernel.__name__, where, *parts)


class Incomplete:
    @params
    class Params:
        pass

    def __init__(self, params: Any, dt: float, n_axes: int) -> None: ...


def test_missing_members_are_named_with_file_and_line() -> None:
    where = f"{__file__}:{inspect.getsourcelines(Incomplete)[1]}"
    assert mentions(said(Incomplete), "Incomplete", where, "step", "state", "compensator")


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"delay": 20.0}, ("compensator.delay", "20 s", "<= 0.1 s")),
        ({"dely": 0.02}, ("compensator.dely", "delay")),
    ],
)
def test_a_unit_or_a_name_of_a_parameter_is_refused_with_its_path(settings: Any, parts: Any) -> None:
    assert mentions(said({"type": Law} | settings), *parts)


def test_an_entry_point_to_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {**registry._table("compensator"), "mine": f"{Path(__file__).stem}_lost.component:Law"}
    tables = registry._table
    monkeypatch.setattr(registry, "_table", lambda family: table if family == "compensator" else tables(family))
    assert mentions(said({"type": "mine"}), "compensator", "'mine'", f"{Path(__file__).stem}_lost")


def test_a_right_one_finishes() -> None:
    assert rths_nodes.run(CHEN, duration=0.2, compensator=Law).outcome == "finished"
