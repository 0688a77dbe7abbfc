# SPDX-License-Identifier: Apache-2.0
"""Which samples joint states are, by their stamps, and what they say of the axes; without ROS."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.ros.ports.ros2_control import JointReader, SampleCount, Unfit, states_per_sample


def message(stamp: float = 1.0, **columns: Any) -> Any:
    given = {"name": ["b", "a"], "position": [2.0, 1.0], "effort": [20.0, 10.0]} | columns
    whole = int(stamp)
    header = SimpleNamespace(stamp=SimpleNamespace(sec=whole, nanosec=round((stamp - whole) * 1e9)))
    return SimpleNamespace(header=header, **given)


def test_joints_are_taken_by_their_names() -> None:
    reader = JointReader(["a", "b"])
    for columns in ({}, {"name": ["a", "b"], "position": [1.0, 2.0], "effort": [10.0, 20.0]}):
        sample = reader.read(message(1.25, **columns))
        assert sample.displacement.tolist() == [1.0, 2.0]
        assert sample.force.tolist() == [10.0, 20.0]
        assert (sample.stamp, sample.echo) == (1.25, None)


def test_a_counter_comes_back_as_the_position_of_its_joint() -> None:
    assert JointReader(["a"], "b").read(message()).echo == 2


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"name": ["b", "c"]}, ("a", "missing", "b", "c")),
        ({"name": ["a", "a"]}, ("joint 'b': missing",)),
        (
            {"name": ["a", "b", "a"], "position": [0.0] * 3, "effort": [0.0] * 3},
            ("joint", "a", "once"),
        ),
        ({"effort": []}, ("0", "effort", "2", "hardware")),
        ({"position": [math.nan, 1.0]}, ("b", "position", "nan")),
        ({"effort": [1.0, math.inf]}, ("a", "effort", "inf")),
    ],
)
def test_what_a_joint_state_lacks_is_told(columns: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(Unfit, match=naming(*words)):
        JointReader(["a", "b"]).read(message(**columns))


def test_numbers_of_joints_that_are_no_axes_do_not_matter() -> None:
    columns = {"name": ["x", "a"], "position": [math.nan, 1.0], "effort": [math.nan, 2.0]}
    assert JointReader(["a"]).read(message(**columns)).force.tolist() == [2.0]


DT = 0.01


def samples(stamps: Any, per_sample: int = 1) -> list[int | None]:
    count = SampleCount(DT / per_sample, per_sample)
    return [count.number(stamp)[1] for stamp in stamps]


def test_states_are_numbered_by_their_stamps() -> None:
    assert samples(5.0 + DT * np.arange(5)) == [0, 1, 2, 3, 4]
    assert samples(5.0 + DT * np.array([0, 1, 4, 5])) == [0, 1, 4, 5]
    assert samples(5.0 + DT / 4 * np.arange(9), 4) == [0, None, None, None, 1, None, None, None, 2]


def test_stamps_may_be_off_by_less_than_four_tenths_of_a_period() -> None:
    jitter = 0.4 * DT * np.random.default_rng(3).uniform(-1.0, 1.0, 500)
    jitter[0] = 0.0
    assert samples(5.0 + DT * np.arange(500) + jitter) == list(range(500))


@pytest.mark.parametrize("rate", [0.97, 0.999, 1.001, 1.03])
def test_a_clock_that_is_a_little_off_is_followed(rate: float) -> None:
    assert samples(5.0 + rate * DT * np.arange(3000)) == list(range(3000))


def test_a_state_that_comes_again_is_none() -> None:
    count = SampleCount(DT, 1)
    assert [count.number(stamp) for stamp in (5.0, 5.0, 4.9, 5.01)] == [
        (True, 0),
        (False, None),
        (False, None),
        (True, 1),
    ]
    assert count.repeated == 2


def test_the_rate_of_the_states_is_that_of_the_samples_or_a_multiple() -> None:
    for factor in (1, 2, 10):
        assert states_per_sample((5.0 + DT / factor * np.arange(20)).tolist(), DT) == factor
    with pytest.raises(ConfigError, match=naming("62.5 Hz", "servo_rate", "100 Hz")):
        states_per_sample((0.016 * np.arange(20)).tolist(), DT)
    with pytest.raises(ConfigError, match=naming("stamps", "joint")):
        states_per_sample([5.0] * 20, DT)
