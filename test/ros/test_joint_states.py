# SPDX-License-Identifier: Apache-2.0
"""Joint states as samples: axes by names of joints, numbers of samples by stamps; without ROS."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.ros.ports.ros2_control import SampleStream, Unfit, joint_sample, states_per_sample


def message(stamp: float = 1.0, **columns: Any) -> Any:
    columns = {"name": ["b", "a"], "position": [2.0, 1.0], "effort": [20.0, 10.0]} | columns
    fraction, seconds = math.modf(stamp)
    time = SimpleNamespace(sec=int(seconds), nanosec=round(fraction * 1e9))
    return SimpleNamespace(header=SimpleNamespace(stamp=time), **columns)


def test_joints_are_read_by_name() -> None:
    for columns in ({}, {"name": ["a", "b"], "position": [1.0, 2.0], "effort": [10.0, 20.0]}):
        sample = joint_sample(["a", "b"], "", message(1.25, **columns))
        assert sample.displacement.tolist() == [1.0, 2.0]
        assert sample.force.tolist() == [10.0, 20.0]
        assert (sample.stamp, sample.echo) == (1.25, None)


def test_echo_is_the_position_of_its_joint() -> None:
    assert joint_sample(["a"], "b", message()).echo == 2


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ({"name": ["b", "c"]}, ("a", "missing", "b", "c")),
        ({"name": ["a", "a"]}, ("joint 'b': missing",)),
        ({"name": ["a", "b", "a"], "position": [0.0] * 3, "effort": [0.0] * 3}, ("joint", "a", "once")),
        ({"effort": []}, ("0", "effort", "2", "hardware")),
        ({"position": [math.nan, 1.0]}, ("b", "position", "nan")),
        ({"effort": [1.0, math.inf]}, ("a", "effort", "inf")),
    ],
)
def test_invalid_joint_states_are_refused(columns: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(Unfit, match=naming(*parts)):
        joint_sample(["a", "b"], "", message(**columns))


def test_joints_without_axis_are_ignored() -> None:
    columns = {"name": ["x", "a"], "position": [math.nan, 1.0], "effort": [math.nan, 2.0]}
    assert joint_sample(["a"], "", message(**columns)).force.tolist() == [2.0]


DT = 0.01
READ = partial(joint_sample, ["a"], "")


def numbers_of(stamps: Any, per_sample: int = 1) -> list[int | None]:
    count = SampleStream(READ, DT / per_sample, per_sample)
    return [count.number(stamp)[1] for stamp in stamps]


def test_samples_are_numbered_by_stamps() -> None:
    assert numbers_of(5.0 + DT * np.arange(5)) == [0, 1, 2, 3, 4]
    assert numbers_of(5.0 + DT * np.array([0, 1, 4, 5])) == [0, 1, 4, 5]
    assert numbers_of(5.0 + DT / 4 * np.arange(9), 4) == [0, None, None, None, 1, None, None, None, 2]


def test_numbers_tolerate_jitter_of_0_4_periods() -> None:
    jitter = 0.4 * DT * np.random.default_rng(3).uniform(-1.0, 1.0, 500)
    jitter[0] = 0.0
    assert numbers_of(5.0 + DT * np.arange(500) + jitter) == list(range(500))


@pytest.mark.parametrize("rate", [0.97, 0.999, 1.001, 1.03])
def test_numbers_follow_a_drifting_clock(rate: float) -> None:
    assert numbers_of(5.0 + rate * DT * np.arange(3000)) == list(range(3000))


def test_repeated_state_has_no_number() -> None:
    count = SampleStream(READ, DT, 1)
    numbers = [count.number(stamp) for stamp in (5.0, 5.0, 4.9, 5.01)]
    assert numbers == [(True, 0), (False, None), (False, None), (True, 1)]
    assert count.repeated == 2


def test_rate_of_states_must_be_a_multiple_of_servo_rate() -> None:
    for factor in (1, 2, 10):
        assert states_per_sample((5.0 + DT / factor * np.arange(20)).tolist(), DT) == factor
    for rate in (62.5, 97.7):  # 1000 Hz instead of 1024 Hz would shift all times by 2.3 %
        with pytest.raises(ConfigError, match=naming(f"{rate:g} Hz", "servo_rate", "100 Hz")):
            states_per_sample((np.arange(20) / rate).tolist(), DT)
    jitter = np.random.default_rng(1).uniform(-0.2, 0.2, 64)
    states = np.delete(5.0 + DT * (np.arange(64) + jitter), 40)
    assert states_per_sample(states.tolist(), DT) == 1, "jitter and a lost state are tolerated"
    with pytest.raises(ConfigError, match=naming("stamps", "joint")):
        states_per_sample([5.0] * 20, DT)
