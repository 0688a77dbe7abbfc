# SPDX-License-Identifier: Apache-2.0
"""Tests of the soft start: its motion, and its use in the loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from loop_parts import simulate
from messages import naming

from rths_nodes.core import yaml_text
from rths_nodes.core.control import Compensator
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_RESTING, FLAG_SOFT_START, Measurement, Motion
from rths_nodes.core.validation import from_data
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import SoftStart
from rths_nodes.loop.stages.command import CommandStage
from rths_nodes.loop.stages.numerical import NumericalStage

STEP = 1.0 / 1024.0
SOFT = ("soft_start.amplitude=0.002", "soft_start.rise_time=0.2", "soft_start.duration=0.5")


def soft_start(**data: Any) -> SoftStart:
    return from_data(SoftStart, {"amplitude": 0.001} | data, "soft_start")


def test_motion_is_sine_with_rise_and_fall() -> None:
    x, _, _, flags = soft_start().motion(STEP)
    times = STEP * np.arange(len(x))
    sine = 0.001 * np.sin(2.0 * math.pi * 3.0 * times)
    rising, full = times < 2.0, (times >= 2.0) & (times <= 5.0)
    np.testing.assert_allclose(x[rising], (sine * times / 2.0)[rising], atol=1e-15)
    np.testing.assert_allclose(x[full], sine[full], atol=1e-15)
    assert not x[times >= 6.0].any()
    assert times[-1] == 6.5
    learns = np.array(flags) == FLAG_SOFT_START
    np.testing.assert_array_equal(learns, times <= 5.0)
    assert set(np.array(flags)[~learns]) == {FLAG_SOFT_START | FLAG_RESTING}


def test_velocity_and_acceleration_are_derivatives() -> None:
    x, v, a, _ = soft_start(frequency=2.0).motion(1e-4)
    np.testing.assert_allclose(np.diff(x) / 1e-4, 0.5 * (v[1:] + v[:-1]), atol=2e-6)
    kinks = [round(corner / 1e-4) for corner in (2.0, 5.0, 6.0)]
    smooth = np.ones(len(x) - 1, dtype=bool)
    smooth[[kink + offset for kink in kinks for offset in (-1, 0)]] = False
    np.testing.assert_allclose((np.diff(v) / 1e-4)[smooth], (0.5 * (a[1:] + a[:-1]))[smooth], atol=1e-4)


def test_zero_rise_and_fall_times_are_accepted() -> None:
    x, v, a, _ = soft_start(rise_time=0.0, fall_time=0.0, rest_time=0.0).motion(STEP)
    assert np.isfinite([x, v, a]).all()
    assert x[-1] == v[-1] == a[-1] == 0.0


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ({"rise_time": 6.0}, ("soft_start.rise_time", "6 s", "<= soft_start.duration", "5 s")),
        ({"rest_time": 4000.0}, ("3600 s",)),
        ({"amplitude": 0.0}, ("soft_start.amplitude", "0 m", "> 0")),
    ],
)
def test_invalid_parameters_are_refused(data: dict[str, float], parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        soft_start(**data)


def test_soft_start_does_not_change_the_test() -> None:
    overrides = ("duration=2", "axes.story_1.actuator.alpha=1", "compensator.type=none")
    _, plain = simulate("chen_ricles_2010", *overrides)
    _, soft = simulate("chen_ricles_2010", *overrides, *SOFT)
    before = soft.scenario.soft_start_steps
    assert before == 205  # (0.5 + 1 + 0.5) s of 10 samples
    np.testing.assert_array_equal(soft.dof_displacement[before:], plain.dof_displacement)
    assert np.abs(soft.dof_displacement[:before]).max() == pytest.approx(0.002, rel=1e-2)
    assert not soft.external_force[:before].any()


def test_compensator_receives_soft_start_flags() -> None:
    loaded = files.load("chen_ricles_2010", ["duration=0.1", *SOFT])
    seen: list[tuple[bool, bool]] = []

    class Observer(Compensator):
        state_names = ()

        def step(self, target: Motion, measured: Any) -> Any:
            seen.append((target.preparing, target.flagged))
            assert target.force[0] == 7.0
            return target.displacement

        def state(self) -> tuple[float, ...]:
            return ()

        def reset(self) -> None:
            seen.clear()

    assembly = Assembly(loaded)
    vars(assembly)["compensator"] = Observer()
    substructure, commands = NumericalStage(Assembly(loaded)), CommandStage(assembly)
    commands.target(substructure.first())
    flags = []
    for sample in range(loaded.samples + 1):
        measured = Measurement(sample, np.zeros(1), np.full(1, 7.0), np.zeros(1))
        if (target := substructure.next(measured)) is not None:
            commands.target(target)
        if (command := commands.next(measured)) is not None:
            flags.append(command.flags)
    assert seen[0] == (True, False)
    first = seen.index((False, False))
    assert first == loaded.soft_start_steps * loaded.samples_per_step
    assert seen[first - 1] == (True, True)
    assert set(seen[first:]) == {(False, False)}
    assert flags[first - 1] == FLAG_SOFT_START | FLAG_RESTING
    assert not any(flags[first:])


def test_all_axes_move_alike() -> None:
    data = files.load("predefined_sine", ["duration=0.1", *SOFT]).data()
    data["axes"]["axis_2"] = data["axes"]["axis_1"]
    data["setup"] = {"type": "matrix", "matrix": [[1.0, 0.0], [-1.0, 1.0]]}
    stage = Loop(Assembly(files.from_text(yaml_text.dump(data), "two axes"))).substructure
    displacement = stage._soft_start[300].displacement
    np.testing.assert_allclose(displacement, displacement[0] * np.array([1.0, 2.0]))
