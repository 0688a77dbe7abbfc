# SPDX-License-Identifier: Apache-2.0
"""The simulator: its tick, its transport delay, its channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rths_nodes.core.samples import FLAG_SATURATED, FLAG_SLIPPED, Command
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.schema import Axis

DT = 1.0 / 1024.0


def axis(**data: Any) -> Axis:
    rig = {
        "actuator": {"type": "first_order", "alpha": 3.0},
        "specimen": {"type": "kelvin_voigt", "stiffness": 10.0, "damping": 0.0},
        "limits": {"stroke": 1.0, "velocity": 1.0, "force": 1.0},
    }
    return from_data(Axis, rig | data, "axes.a")


@pytest.fixture
def port(make: Callable[..., Any]) -> Callable[..., Any]:
    def port(axes: dict[str, Axis] | None = None, **data: Any) -> Any:
        return make("port", "simulator", axes or {"a": axis()}, DT, 1, **data)

    return port


def move(port: Any, position: np.ndarray) -> int:
    """One tick; its sample."""
    sample: int = port.wait_tick()
    port.write(Command(sample, position, position))
    return sample


def drive(port: Any, commands: np.ndarray) -> np.ndarray:
    """Measured displacement and force ``(n + 1, 2, n_axes)`` of samples 0 to n."""
    seen = [port.read()]
    for command in commands:
        move(port, np.full(len(seen[0].displacement), command))
        seen.append(port.read())
    return np.array([[measured.displacement, measured.force] for measured in seen])


COMMANDS = np.sin(np.arange(40.0))


def test_samples_count_from_zero_and_carry_the_applied_command(port: Callable[..., Any]) -> None:
    rig = port()
    assert rig.simulated
    first = rig.read()
    assert (first.sample, first.displacement[0], first.force[0], first.command[0]) == (0, 0.0, 0.0, 0.0)
    assert move(rig, np.array([0.3])) == 1
    measured = rig.read()
    assert (measured.sample, measured.command[0]) == (1, 0.3)
    assert measured.displacement[0] == pytest.approx(0.1)
    assert measured.force[0] == pytest.approx(1.0)


@pytest.mark.parametrize("samples", [1, 2, 7])
def test_commands_act_exactly_transport_samples_later(port: Callable[..., Any], samples: int) -> None:
    at_once, late = drive(port(), COMMANDS), drive(port(transport_samples=samples), COMMANDS)
    assert not late[: samples + 1].any()
    np.testing.assert_array_equal(late[samples:], at_once[:-samples])


def test_open_begins_again(port: Callable[..., Any]) -> None:
    rig = port({"a": axis(sensors={"displacement_noise_rms": 1e-3})}, transport_samples=2)
    first = drive(rig, COMMANDS)
    rig.open()
    np.testing.assert_array_equal(drive(rig, COMMANDS), first)


def test_the_truth_has_no_noise(port: Callable[..., Any]) -> None:
    noisy, clean = port({"a": axis(sensors={"force_noise_rms": 1.0})}), port()
    for rig in (noisy, clean):
        move(rig, np.array([0.3]))
    assert noisy.truth().force[0] == clean.read().force[0]
    assert noisy.read().force[0] != clean.read().force[0]


def test_the_noise_of_an_axis_does_not_depend_on_the_others(port: Callable[..., Any]) -> None:
    noisy = axis(sensors={"displacement_noise_rms": 1e-3, "force_noise_rms": 1.0})
    alone = drive(port({"a": noisy}), COMMANDS)
    for axes in ({"a": noisy, "b": noisy}, {"c": axis(), "b": noisy, "a": noisy}):
        index = list(axes).index("a")
        np.testing.assert_array_equal(drive(port(axes), COMMANDS)[:, :, index], alone[:, :, 0])


def test_a_saturated_sensor_flags_its_samples(port: Callable[..., Any]) -> None:
    rig = port({"a": axis(sensors={"displacement_range": 0.2})})
    flags = []
    for command in (0.3, 2.0, -1.5):
        move(rig, np.array([command]))
        flags.append(rig.read().flags)
    assert flags == [0, FLAG_SATURATED, 0]


def test_a_missed_tick_flags_its_sample(port: Callable[..., Any]) -> None:
    rig = port()
    missed = iter([0, 2, 0])
    rig.open(lambda: next(missed))
    flags = []
    for _ in range(3):
        move(rig, np.zeros(1))
        flags.append(rig.read().flags)
    assert flags == [0, FLAG_SLIPPED, 0]
    assert rig.sample == 3


@pytest.mark.parametrize("samples", [0, 3])
def test_a_trigger_acts_with_the_commands(port: Callable[..., Any], samples: int) -> None:
    rig = port(transport_samples=samples, trigger=True)
    assert rig.auxiliary_names == ("trigger [1]",)
    seen = [rig.read().auxiliary.tolist()]
    for k in range(1, 12):
        rig.trigger.set(4 <= k < 8)
        move(rig, np.zeros(1))
        seen.append(rig.read().auxiliary.tolist())
    assert seen == [[float(4 <= k - samples < 8)] for k in range(12)]


def test_without_a_trigger_nothing_shows_one(port: Callable[..., Any]) -> None:
    rig = port()
    rig.trigger.set(True)
    move(rig, np.zeros(1))
    assert (rig.auxiliary_names, rig.read().auxiliary.size) == ((), 0)
