# SPDX-License-Identifier: Apache-2.0
"""Results of earlier computations with equal inputs."""

from __future__ import annotations

import numpy as np
import pytest

from rths_nodes.core.samples import Array, Recent
from rths_nodes.numerical.ground_motions.record import Record


def test_equal_inputs_are_computed_once_and_the_oldest_result_is_dropped() -> None:
    recent, computed = Recent(2), []

    def square(*inputs: float) -> Array:
        def compute() -> Array:
            computed.append(inputs)
            return np.square(inputs)

        return recent.result((np.array(inputs),), compute)

    first = square(1.0, 2.0)
    assert square(1.0, 2.0) is first
    assert square(3.0).tolist() == [9.0]
    assert square(1.0, 2.0) is first
    assert square(4.0).tolist() == [16.0]
    assert square(1.0, 2.0).tolist() == first.tolist()
    assert computed == [(1.0, 2.0), (3.0,), (4.0,), (1.0, 2.0)]
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0.0


def test_samples_of_a_record_belong_to_the_caller() -> None:
    times = np.arange(0.0, 2.0, 0.001)
    record = Record(Record.Params(record="elcentro_1940_ns"), 1)
    first = record.sample(times)
    expected = first.tolist()
    first[:] = 0.0
    times_before, times[:] = times.copy(), 0.0
    assert Record(Record.Params(record="elcentro_1940_ns"), 1).sample(times_before).tolist() == expected
    twice = Record(Record.Params(record="elcentro_1940_ns", scale=2.0), 1)
    later = Record(Record.Params(record="elcentro_1940_ns", begin=0.5), 1)
    assert twice.sample(times_before).tolist() == [2.0 * value for value in expected]
    assert later.sample(times_before[:1500]).tolist() == pytest.approx(expected[500:], abs=1e-12)
