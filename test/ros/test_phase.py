# SPDX-License-Identifier: Apache-2.0
"""How far a node has come, and why it ends."""

from __future__ import annotations

import pytest
from messages import naming

from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.nodes.phase import Cause, Phase, PhaseMachine, StateOfTest


def reached(*phases: Phase) -> PhaseMachine:
    machine = PhaseMachine()
    for phase in phases:
        machine.to(phase)
    return machine


TO_MATCHING = (Phase.CONFIGURED, Phase.MATCHING)


def test_a_node_goes_through_all_phases_in_their_order() -> None:
    assert reached(*list(Phase)[1:]).gone


@pytest.mark.parametrize(
    ("before", "wrong"),
    [
        ((), Phase.MATCHING),
        (TO_MATCHING, Phase.CONFIGURED),
        ((*TO_MATCHING, Phase.ENDED), Phase.IN_TEST),
        ((*TO_MATCHING, Phase.GONE), Phase.UNCONFIGURED),
    ],
)
def test_a_transition_that_is_not_in_the_diagram_is_refused(before: tuple[Phase, ...], wrong: Phase) -> None:
    with pytest.raises(RuntimeError, match=naming(wrong.name, "transition")):
        reached(*before).to(wrong)


@pytest.mark.parametrize(
    ("state", "phase", "ended"),
    [
        (State.IDLE, Phase.MATCHING, False),
        (State.ARMED, Phase.IN_TEST, False),
        (State.STOPPING, Phase.IN_TEST, False),
        (State.HELD, Phase.ENDED, True),
    ],
)
def test_an_active_node_follows_the_test(state: State, phase: Phase, ended: bool) -> None:
    machine = reached(*TO_MATCHING)
    machine.follow(StateOfTest(state))
    assert (machine.now, machine.ended, machine.under_way) == (phase, ended, phase is Phase.IN_TEST)


def test_a_finished_test_that_becomes_a_tripped_one_changes_no_phase() -> None:
    machine = reached(*TO_MATCHING, Phase.ENDED, Phase.REPORTED)
    machine.follow(StateOfTest(State.TRIPPED, 7, "energy"))
    assert (machine.now, machine.ended, machine.test.reason) == (Phase.REPORTED, True, "energy")


def test_a_node_that_is_gone_still_knows_how_the_test_ended() -> None:
    machine = reached(*TO_MATCHING)
    machine.follow(StateOfTest(State.FINISHED, 9))
    machine.to(Phase.GONE)
    assert (machine.gone, machine.ended, machine.test.sample) == (True, True, 9)


def test_a_deactivated_node_goes_on_where_it_was() -> None:
    machine = reached(Phase.CONFIGURED)
    machine.activate(True)
    machine.to(Phase.READY)
    for active in (False, True):
        machine.activate(active)
        assert (machine.active, machine.now) == (active, Phase.READY)


def test_after_a_cleanup_nothing_is_known_of_the_test_and_after_configure_nothing_is_wrong() -> None:
    machine = reached(*TO_MATCHING)
    machine.follow(StateOfTest(State.TRIPPED, 3, "too far"))
    machine.blame(3, "too far")
    machine.clean_up()
    machine.configure()
    assert (machine.now, machine.ended, machine.cause) == (Phase.UNCONFIGURED, False, Cause())
