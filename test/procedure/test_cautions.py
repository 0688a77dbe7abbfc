# SPDX-License-Identifier: Apache-2.0
"""Cautions about the numbers of a real rig bar the way to the start until somebody has signed for each."""

from __future__ import annotations

import pytest
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import ActRefused

BOUNDED = ("deceleration: 20.0}", "deceleration: 20.0, tracking_error: 0.02}")
NOISE = [
    f"axes.story_1.sensors.{name}_noise_rms={value}" for name, value in (("displacement", 2e-6), ("force", 50.0))
]
NAMES = [
    "never_calibrated: axes.story_1.rig_axis.displacement.calibrated",
    "never_calibrated: axes.story_1.rig_axis.force.calibrated",
    "no_servo_rate: servo_rate of the rig file bench",
]


@pytest.fixture
def real(walk, monkeypatch):
    """A walk to the offsets behind the port of a rig that is no simulator."""

    def make(*sets):
        monkeypatch.setattr("rths_nodes.laboratory.ports.simulator.Simulator.simulated", False)
        found = walk(*NOISE, *sets, rig=BOUNDED)
        found.refer()
        return found

    return make


def test_a_simulator_needs_no_signature(walk):
    w = walk(*NOISE)
    w.refer()
    assert w.session.clearance.unsigned() == []


def test_each_caution_is_signed_for_by_its_whole_name(real):
    w = real()
    session = w.session
    assert session.clearance.unsigned() == NAMES
    session.check()
    with pytest.raises(ActRefused, match=naming("displacement.calibrated", "date")):
        session.position()
    assert session.state is State.REFERENCED
    with pytest.raises(ConfigError, match=naming("sign_for", "never_calibrated")):
        session.sign_for("never_calibrated")
    for name in NAMES:
        session.sign_for(name, "A. Tester")
    assert session.clearance.unsigned() == []
    assert len([words for words in w.record.deviations if mentions(words, "A. Tester")]) == len(NAMES)
    session.position()
    assert session.state is State.POSITIONED


def test_new_offsets_ask_for_no_second_signature(real):
    w = real()
    for name in NAMES:
        w.session.sign_for(name)
    w.session.confirm_offsets(w.session.take_offsets(0.05).hash, True)
    w.session.check()
    assert w.session.clearance.unsigned() == []


def test_what_was_signed_for_in_an_earlier_test_stands_in_the_record(real):
    first = real()
    for name in NAMES[:2]:
        first.session.sign_for(name)
    signed = first.session.clearance.signed_cautions
    assert len(signed) == 2
    w = real()
    w.session.clearance.signed_before(dict.fromkeys(signed, "by A. Tester on 2026-06-01"))
    assert w.session.clearance.unsigned() == NAMES[2:]
    assert [words for words in w.record.deviations if mentions(words, "A. Tester", "2026-06-01")]


def test_a_number_that_a_real_rig_must_have_is_refused(walk, monkeypatch):
    monkeypatch.setattr("rths_nodes.laboratory.ports.simulator.Simulator.simulated", False)
    with pytest.raises(ConfigError, match=naming("tracking_error", "bench", "missing")):
        walk(*NOISE)
