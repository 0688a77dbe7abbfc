# SPDX-License-Identifier: Apache-2.0
"""Where a load cell is dead the operator unloads by displacement: to a typed place, signed, within its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from faulty_sensors import set_sensor
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import ActRefused
from rths_nodes.procedure.unloading import places

SETS = (
    "ground_motion={type: sine, amplitude: 0.5, frequency: 1.0}",
    "duration=1",
    "compensator.type=none",
    "axes.story_1.specimen={type: kelvin_voigt, stiffness: 7.6e6, damping: 0}",
)


@pytest.fixture
def held(walk):
    """A rig that is held away from its zero after a run; its load cell is dead."""
    w = walk(*SETS)
    w.to_start()
    w.climb("g")
    for _ in range(512):
        w.session.drive.tick()
    set_sensor(w.session.drive.port, 0, "force", "frozen")
    assert abs(w.sent[-1]) > 5e-3
    return w


def test_a_dead_load_cell_leaves_two_ways_out_in_words(held):
    before = held.sent[-1]
    record = held.session.unload()
    assert mentions(record.given_up, "unknown", "pressure", "controller")
    assert mentions(record.given_up, "unload", "displacement")
    assert abs(held.sent[-1] - before) <= 1e-3 * (1.0 + 1e-4)
    assert held.session.state is State.HELD
    record = held.session.unload({"story_1": 0.0}, "A. Nyone")
    assert (record.given_up, record.to, record.signed) == ("", {"story_1": 0.0}, "A. Nyone")
    assert held.sent[-1] == 0.0
    assert mentions(held.record.deviations, "axes.story_1", "0 mm")
    rates = np.abs(np.diff(held.sent[-4000:])) * held.scenario.servo_rate
    assert rates.max() <= 5e-3 * (1.0 + 1e-6)


@pytest.mark.parametrize(
    ("to", "signed", "words"),
    [
        ({"story_1": 0.0}, "", ("unload.signed", "empty")),
        ({"story_1": 0.2}, "A", ("unload.to.story_1", "0.2 m", "<= 0.05 m", "unloading.travel")),
        ({"story_1": float("nan")}, "A", ("unload.to.story_1", "nan m", "finite")),
        ({"north": 0.0}, "A", ("unknown", "axis", "north")),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_moves(held, to, signed, words):
    before = len(held.sent)
    with pytest.raises(ConfigError, match=naming(*words)):
        held.session.unload(to, signed)
    assert len(held.sent) == before
    assert (held.session.state, held.record.unloading) == (State.HELD, [])
    assert not any("unloaded" in each for each in held.record.deviations)


def test_a_motion_that_is_stopped_before_it_begins_is_no_deviation(held, monkeypatch):
    monkeypatch.setattr(held.session, "_warn", lambda act: held.session.stop("entered"))
    with pytest.raises(ActRefused, match="entered"):
        held.session.unload({"story_1": 0.0}, "A. Nyone")
    assert (held.session.state, held.record.deviations) == (State.HELD, [])


def test_it_goes_only_where_the_displacement_follows(held):
    set_sensor(held.session.drive.port, 0, "displacement", "frozen")
    before = held.sent[-1]
    with pytest.raises(ActRefused, match=r"displacement|slow_error"):
        held.session.unload({"story_1": 0.0}, "A. Nyone")
    assert held.session.state is State.TRIPPED
    assert abs(held.sent[-1] - before) < 1.5e-3


def test_places_are_typed_by_axis():
    assert places("0.001", ("a",)) == {"a": 0.001}
    assert places("a: 0.001, b: -0.002", ("a", "b")) == {"a": 0.001, "b": -0.002}
    for wrong, names in (("left", ("a",)), ("a: left", ("a", "b"))):
        with pytest.raises(ConfigError, match=naming("unload.to", "number")):
            places(wrong, names)
