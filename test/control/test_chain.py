# SPDX-License-Identifier: Apache-2.0
"""Tests of compensators in series."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from loop_parts import make
from messages import naming

from rths_nodes.control.compensators.chain import Chain
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.control import Compensator
from rths_nodes.core.data import flatten, unflatten
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import params
from rths_nodes.core.samples import Motion
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

DT, DELAY = 1.0 / 1024.0, 0.01
NONE = {"type": "none"}
INVERSE = {"type": "inverse", "alpha": 9.0}
POLYNOMIAL = {"type": "polynomial", "delay": DELAY, "order": 2}
ADAPTIVE = {"type": "adaptive_inverse", "alpha_es": 15.0}
SERIES = {"type": "adaptive_time_series", "delay": DELAY}
SINGLE = pytest.mark.parametrize("single", [INVERSE, POLYNOMIAL, ADAPTIVE], ids=lambda single: single["type"])


def motions(count: int = 200, n_axes: int = 2) -> list[tuple[Motion, np.ndarray]]:
    """Targets with derivatives, and measurements."""
    x, m = 1e-3 * np.random.default_rng(5).normal(size=(2, count, n_axes)).cumsum(axis=1)
    v = np.gradient(x, DT, axis=0)
    a = np.gradient(v, DT, axis=0)
    return [(Motion(x[k], v[k], a[k]), m[k]) for k in range(count)]


def commands(compensator: Any, count: int = 200) -> np.ndarray:
    return np.array([compensator.step(target, measured).copy() for target, measured in motions(count)])


@SINGLE
def test_chain_with_none_equals_single_compensator(single: dict[str, Any]) -> None:
    data = {key: value for key, value in single.items() if key != "type"}
    alone = commands(make("compensator", single["type"], DT, 2, **data))
    np.testing.assert_array_equal(commands(make("compensator", "chain", DT, 2, first=NONE, second=single)), alone)
    np.testing.assert_array_equal(commands(make("compensator", "chain", DT, 2, first=single, second=NONE)), alone)


def test_second_compensator_receives_output_of_first() -> None:
    """Two linear filters: the commands are the target filtered by both."""
    inverse, polynomial = np.array([9.0, -8.0]), np.zeros(21)
    a = make("compensator", "chain", DT, 2, first=INVERSE, second=POLYNOMIAL)
    eta = DELAY / (10 * DT)
    polynomial[[0, 10, 20]] = [1 + 1.5 * eta + 0.5 * eta**2, -(2 * eta + eta**2), 0.5 * (eta + eta**2)]
    both = np.convolve(inverse, polynomial)
    x = np.array([target.displacement for target, _ in motions()])
    expected = np.column_stack([np.convolve(both, column)[: len(x)] for column in x.T])
    np.testing.assert_allclose(commands(a), expected, atol=1e-15)
    swapped = make("compensator", "chain", DT, 2, first=POLYNOMIAL, second=INVERSE)
    np.testing.assert_allclose(commands(swapped), expected, atol=1e-15)


class Spy(Compensator):
    """Records its input and doubles the target."""

    @params
    class Params:
        pass

    state_names = ("seen[0]", "all")
    made: ClassVar[list[Spy]] = []

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.made.append(self)

    def step(self, target: Motion, measured: np.ndarray) -> np.ndarray:
        arrays = (target.displacement, target.velocity, target.acceleration, target.force, measured)
        self.seen.append((*(array.copy() for array in arrays), target.flagged, target.preparing))
        return 2.0 * target.displacement

    def state(self) -> tuple[float, float]:
        return float(len(self.seen)), -1.0

    def reset(self) -> None:
        self.seen.clear()


@pytest.fixture
def spies(monkeypatch: pytest.MonkeyPatch) -> tuple[Chain, Spy, Spy]:
    monkeypatch.setattr(registry, "build", lambda family, params, *args: Spy(params, *args))
    monkeypatch.setattr(Spy, "made", [])
    chain = Chain(Chain.Params(first=Spy.Params(), second=Spy.Params()), DT, 1)
    return chain, *Spy.made


def test_second_compensator_receives_backward_differences(spies: tuple[Chain, Spy, Spy]) -> None:
    chain, _, second = spies
    targets = np.random.default_rng(6).normal(size=20)
    for x in targets:
        chain.step(Motion(np.array([x]), np.array([7.0]), np.array([9.0])), np.zeros(1))
    output = 2.0 * targets
    velocity = np.diff(output, prepend=0.0) / DT
    acceleration = np.diff(velocity, prepend=0.0) / DT
    for column, expected in enumerate((output, velocity, acceleration)):
        np.testing.assert_allclose([row[column][0] for row in second.seen], expected, rtol=1e-9, atol=1e-9)


def test_both_compensators_receive_measurement_force_and_flags(spies: tuple[Chain, Spy, Spy]) -> None:
    chain, first, second = spies
    x, force, measured = np.array([0.1]), np.array([5.0]), np.array([0.09])
    chain.step(Motion(x, x, x, flagged=True, preparing=False, force=force), measured)
    chain.step(Motion(x, x, x, flagged=False, preparing=True, force=2.0 * force), 2.0 * measured)
    for spy in (first, second):
        assert [tuple(float(array[0]) for array in row[3:5]) + row[5:] for row in spy.seen] == [
            (5.0, 0.09, True, False),
            (10.0, 0.18, False, True),
        ]


def test_flagged_samples_pause_adaptation_in_chain() -> None:
    chain = make("compensator", "chain", DT, 2, first=INVERSE, second=ADAPTIVE)
    for target, measured in motions():
        target.flagged = True
        chain.step(target, measured)
    assert set(chain.state()[0::3]) == {15.0}


def test_state_names_have_position_prefix(spies: tuple[Chain, Spy, Spy]) -> None:
    chain, _, _ = spies
    assert chain.state_names == ("first.seen[0]", "first.all", "second.seen[0]", "second.all")
    assert chain.state() == [0.0, -1.0, 0.0, -1.0]
    assert chain.state_units == {}


def test_chains_can_be_nested() -> None:
    inner = {"type": "chain", "first": ADAPTIVE, "second": SERIES}
    chain = make("compensator", "chain", DT, 2, first=inner, second=POLYNOMIAL)
    assert len(set(chain.state_names)) == len(chain.state_names) == len(chain.state())
    assert chain.state_names[0] == "first.first.alpha[0]"
    assert chain.state_units["first.second.a1"] == "s"
    by_hand = make("compensator", "chain", DT, 2, first=ADAPTIVE, second=SERIES)
    outer = make("compensator", "chain", DT, 2, first=NONE, second=POLYNOMIAL)
    expected = [outer.step(Motion(by_hand.step(t, m), m, m), m).copy() for t, m in motions()]
    np.testing.assert_array_equal(commands(chain), expected)


def test_nested_state_names_form_tree_in_recording() -> None:
    """Names of compensator states, flattened for the wire and restored to a tree."""
    inner = {"type": "chain", "first": ADAPTIVE, "second": SERIES}
    overrides = [
        "compensator.type=chain",
        f"compensator.first={yaml_text.dump(inner)}",
        f"compensator.second={yaml_text.dump(POLYNOMIAL)}",
    ]
    names = Assembly(files.load("predefined_sine", overrides)).names.state
    axis = names[0].split(".")[1]
    assert names[0] == f"axes.{axis}.first.first.alpha"
    tree = unflatten(flatten(dict.fromkeys(names, 1.0), "compensator"), "compensator")
    assert set(tree["axes"][axis]["first"]) == {"first", "second"}
    assert tree["axes"][axis]["first"]["second"] == {"a0": 1.0, "a1": 1.0, "a2": 1.0}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"first": NONE}, ("compensator.second", "missing")),
        ({"first": NONE, "second": {"type": "nobody"}}, ("compensator.second.type", "unknown", "nobody")),
        ({"first": {"type": "inverse", "alpha": 0.0}, "second": NONE}, ("compensator.first.alpha", "0")),
    ],
)
def test_invalid_inner_parameters_are_refused_with_path(data: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        make("compensator", "chain", DT, 1, **data)
