# SPDX-License-Identifier: Apache-2.0
"""Force controllers, by themselves on a spring with a delay."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from rths_nodes.control.force_controllers.feed_forward_pi import FeedForwardPi
from rths_nodes.core.validation import from_data
from rths_nodes.mechanics.axial_load import ColumnGeometry, extension_at, lengths_of

DT, STIFFNESS = 1.0 / 1024.0, 1e9


def law(**params: Any) -> FeedForwardPi:
    return FeedForwardPi(from_data(FeedForwardPi.Params, {"stiffness": STIFFNESS} | params), DT)


def held(controller: FeedForwardPi, target: float, stiffness: float, late: int, seconds: float) -> list[float]:
    """Forces of a spring that follows its commands ``late`` samples late, from a displacement of zero."""
    line = deque([0.0] * late)
    controller.begin(0.0, 0.0, 0.0, 0.0)
    force, found = 0.0, []
    for _ in range(round(seconds / DT)):
        line.append(controller.step(target, force, 0.0))
        force = stiffness * line.popleft()
        found.append(force)
    return found


def test_the_compliance_is_fed_forward() -> None:
    assert held(law(integral_gain=1e-3), 100e3, STIFFNESS, 1, 0.1)[-1] == pytest.approx(100e3, rel=1e-4)


@pytest.mark.parametrize("stiffness", [0.5e9, 1.4e9])
def test_another_stiffness_than_was_declared_fades_with_the_integral_gain(stiffness: float) -> None:
    found = held(law(integral_gain=5.0), 100e3, stiffness, 1, 3.0)
    assert found[-1] == pytest.approx(100e3, rel=1e-3)
    rate = 5.0 * stiffness / STIFFNESS
    after = found[1 + round(1.0 / rate / DT)] - 100e3
    before = 100e3 * stiffness / STIFFNESS - 100e3
    assert after / before == pytest.approx(0.36, abs=0.03), "1 / e, but for the delay"


def test_the_loop_is_unstable_beyond_a_quarter_turn_and_stable_below() -> None:
    late = 20
    delay = (late + 0.5) * DT  # the integral of the sample itself counts, too
    gains = (0.9 * 1.5708 / delay, 1.1 * 1.5708 / delay)
    stable, unstable = (held(law(integral_gain=gain), 1e3, STIFFNESS * 1.01, late, 8.0) for gain in gains)
    assert max(map(abs, (each - 1e3 for each in stable[-200:]))) < 1.0
    assert max(map(abs, (each - 1e3 for each in unstable[-200:]))) > 10.0


def test_it_takes_over_where_the_axis_stands() -> None:
    column = {"column_length": 3.0, "actuator_length": 2.0}
    controller, geometry = law(lead=0.01, column=column), lengths_of(from_data(ColumnGeometry, column))
    drift, step, place, force = 0.012, 1e-5, 3.3e-4, 250e3
    controller.begin(place, force, drift, drift - step)
    ahead = 0.01 / DT
    first = controller.step(force, force, drift)
    assert controller.correction == 0.0
    # the slope has come to rest: what it had fed forward goes, and nothing else
    back = extension_at(geometry, force / STIFFNESS, drift) - extension_at(
        geometry, force / STIFFNESS, drift + ahead * step
    )
    assert first == pytest.approx(place + back, abs=1e-12)


def test_reset_brings_back_the_first_state() -> None:
    one, other = law(lead=0.01), law(lead=0.01)
    held(one, 1e5, 2e9, 3, 0.2)
    one.reset()
    assert held(one, 1e5, 2e9, 3, 0.2) == held(other, 1e5, 2e9, 3, 0.2)
