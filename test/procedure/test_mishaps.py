# SPDX-License-Identifier: Apache-2.0
"""A rig after a mishap: nothing moves it but an act, whatever somebody does at its controller meanwhile."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.drive import HoldLoop
from rths_nodes.procedure.machine import ActRefused

LIVELY = ("compensator.type=none", "ground_motion={type: sine, amplitude: 1.2, frequency: 2.0}")


@pytest.mark.parametrize("closes_after", [3, 30, 10_000])
def test_an_interlock_that_is_closed_again_after_a_trip_moves_nothing(walk, closes_after):
    w = walk(*LIVELY, rig=("deceleration: 20.0", "deceleration: 2.0"))
    w.to_start()
    port, acting, places = w.session.drive.port, [], []
    write = port.write

    def watched(command):
        if len(acting) == 300:
            port.set_interlock(False)
        if len(acting) == 300 + closes_after:
            port.set_interlock(True)
        write(command)
        acting.append(float(port.active_command[0]))
        places.append(float(port.truth().displacement[0]))

    port.write = watched
    assert w.climb("g").outcome == "tripped"
    assert w.session.state is State.TRIPPED
    assert acting[299] != acting[298]  # it was on its way
    port.set_interlock(True)
    for _ in range(400):
        w.session.drive.tick()
    assert np.ptp(places[300:]) < 3e-3  # it comes to rest behind its last command, and stays
    assert np.ptp(places[-20:]) < 1e-5
    assert w.session.drive.command[0] == pytest.approx(places[-1], abs=1e-5)
    assert np.abs(np.diff(w.sent)).max() <= 1.2 / 1024.0
    w.session.acknowledge()
    w.session.position()
    assert w.session.state is State.POSITIONED


def test_who_interrupts_a_motion_finds_the_rig_at_rest(walk):
    w = walk(*LIVELY, rig=("velocity: 20.0e-3", "velocity: 200.0e-3"))
    w.to_start()
    w.progress = lambda sample: w.session.stop("there") if sample >= 300 else None
    w.climb("g")
    port, write = w.session.drive.port, w.session.drive.port.write
    last = len(w.sent) + 50

    def interrupted(command):
        write(command)
        if len(w.sent) == last:
            raise KeyboardInterrupt

    port.write = interrupted
    with pytest.raises(KeyboardInterrupt):
        w.session.position()
    assert w.session.state is State.TRIPPED
    assert w.sent[last - 1] != w.sent[last - 2]  # it was on its way
    held = w.sent[-1]
    for _ in range(50):
        w.session.drive.tick()
    assert set(w.sent[-50:]) == {held}


@pytest.mark.parametrize("later", [1, 10, 30, 60])
def test_who_interrupts_the_end_of_a_rung_finds_it_over(walk, later):
    w = walk(*LIVELY)
    w.to_start()
    w.arm("g")
    w.progress = lambda sample: w.session.stop("there") if sample >= 300 else None
    port, wait_tick, ticks = w.session.drive.port, w.session.drive.port.wait_tick, [0]

    def interrupted():
        ticks[0] += 1
        if ticks[0] in (300 + later, 302 + later):  # a second time, too
            raise KeyboardInterrupt
        return wait_tick()

    port.wait_tick = interrupted
    with pytest.raises(KeyboardInterrupt):
        w.session.run(w._embedded)
    assert ticks[0] > 302 + later
    assert w.session.state in (State.HELD, State.TRIPPED)
    assert w.record.rungs[-1].outcome in ("held", "failed")
    held = w.sent[-1]
    for _ in range(50):
        w.session.drive.tick()
    assert set(w.sent[-50:]) == {held}


def test_nobody_moves_a_rig_whose_port_was_given_back(walk):
    w = walk()
    w.to_start()
    w.session.close()
    sent = len(w.sent)
    with pytest.raises(ActRefused, match=naming("port", "returned")):
        w.arm("g")
    assert len(w.sent) == sent


def test_a_hold_loop_that_has_ended_can_be_started_again():
    ticked = threading.Event()
    hold_loop = HoldLoop(ticked.set, 0.001, lambda error: None)
    for _ in range(2):
        ticked.clear()
        hold_loop.start()
        assert ticked.wait(10.0)
        hold_loop.end()


@pytest.mark.parametrize(
    ("opened", "closed", "words"),
    [
        (lambda port: port.set_interlock(False), lambda port: port.set_interlock(True), ("interlock", "open")),
        (lambda port: port.set_hydraulics("off"), lambda port: port.set_hydraulics("high"), ("hydraulics", "off")),
    ],
    ids=["interlock", "hydraulics"],
)
def test_what_is_armed_is_so_no_more_once_the_rig_is_unfit(walk, opened, closed, words):
    w = walk()
    w.to_start()
    w.arm("g")
    port = w.session.drive.port
    opened(port)
    w.session.drive.tick()
    closed(port)
    w.session.drive.tick()
    assert w.session.state is State.TRIPPED
    assert mentions(w.session.reason, *words)
    with pytest.raises(ActRefused, match=naming("run", "acknowledge")):
        w.session.run(w._embedded)
    w.session.stop("nothing moves")
    w.session.acknowledge()
    w.session.position()
    assert w.climb("g").outcome == "finished"


def test_a_stop_in_the_last_tick_of_a_motion_counts(walk):
    w = walk()
    w.to_start()
    w.climb("g")
    drive = w.session.drive
    end = drive._end

    def late():
        drive.stop("wait")
        end()

    drive._end = late
    with pytest.raises(ActRefused, match="wait"):
        w.session.position()
    assert (w.session.state, w.session.reason) == (State.HELD, "wait")


def test_a_new_check_is_signed_for_anew(walk):
    w = walk(rig=("    stiffness_known_to: 0.03\n", ""))
    w.refer()
    for _ in range(2):
        w.session.check()
        with pytest.raises(ActRefused, match=naming("story_1", "verified")):
            w.session.position()
        for name in w.session.clearance.unsigned():
            w.session.sign_for(name, "A. Nyone")
    w.session.position()


def test_what_only_a_laboratory_watches_holds_the_rig_beside_tests_too(walk):
    """The small move of 1 mm would go beyond: an expression of the rig is watched whoever drives."""
    w = walk(
        *LIVELY,
        "levels.expressions={near: {of: abs(displacement.story_1), unit: mm, maximum: 0.4, action: hold}}",
    )
    w.refer()
    with pytest.raises(ActRefused, match=r"levels\.expressions\.near: .* must be <= 0\.4 mm"):
        w.session.check()
    assert np.abs(w.session.drive.measured.displacement).max() < 0.5e-3
