# SPDX-License-Identifier: Apache-2.0
"""A stop is a latch: at whatever line of an act it comes, nothing moves or is armed by that act any more.

No moment is left to luck: the act stands still at each of its lines outside of the lock in turn, while another
thread asks for the stop and has its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hours import Hours
from messages import each_mentions, mentions, naming
from stop_at import AtLine, elsewhere

from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import session
from rths_nodes.procedure.machine import ActRefused

BRAKES = 0.02**2 / (2.0 * 20.0) + 2.0 * 0.02 / 1024.0
"""The way of a stop from the velocity of positioning, m, with the ticks in which it is heard."""


class StopAt(AtLine):
    """Stops ``w`` at the line with this number among those that the act runs outside of the lock."""

    def __init__(self, w: Any, line: int) -> None:
        super().__init__(w.session, line, self._stop)
        self.w = w
        self.state: State | None = None
        self.sent = 0
        """Commands that had been sent by then."""

    def _stop(self) -> None:
        self.state, self.sent = self.w.session.state, len(self.w.sent)
        assert self.w.session.possible()["stop"] == ""
        assert elsewhere(lambda: self.w.session.stop("enough")) is None


def at_every_line(
    w: Any, act: Callable[[], object], before: Callable[[], object], ended: tuple[State, ...]
) -> int:
    """Do ``act`` as often as it has lines, each time after ``before``; how many there were."""
    line, states = 0, set()
    while True:
        line += 1
        before()
        with StopAt(w, line) as stop:
            try:
                act()
                refused = ""
            except ActRefused as error:
                refused = str(error)
        if stop.state is None:
            return line - 1
        states.add(stop.state)
        since = np.array(w.sent[max(stop.sent - 1, 0) :])
        way = float(np.ptp(since)) if len(since) else 0.0
        assert way <= (BRAKES if stop.state is State.POSITIONING else 0.0), f"line {line}, {stop.state}: {way} m"
        assert w.session.state in ended, f"line {line}, {stop.state}"
        assert "enough" in refused or w.session.state is stop.state or stop.state is State.ARMED, f"line {line}"


@pytest.fixture
def alternating(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Where a test starts, m, alternates: a position always has a way to go."""
    places = [0.001]

    def start(scenario: Any, port: Any) -> Any:
        return np.array([places[0]])

    monkeypatch.setattr(session, "start_of", start)
    return places


def held(w: Any) -> None:
    w.to_start()
    w.arm("g")
    w.session.stop("not yet")


def test_a_stop_at_any_line_of_position_is_the_end_of_it(walk, alternating):
    w = walk()
    held(w)

    def before() -> None:
        if w.session.state is State.POSITIONED:
            w.arm("g")
            w.session.stop("not yet")
        here = float(w.session.drive.command[0])
        alternating[0] = 0.001 if here <= 0.0005 else 0.0

    lines = at_every_line(w, w.session.position, before, (State.HELD, State.POSITIONED))
    assert lines > 20


def test_a_stop_at_any_line_of_arm_leaves_nothing_armed(walk, alternating):
    w = walk()
    w.to_start()

    def before() -> None:
        if w.session.state is State.HELD:  # it was armed, and stopped at one of the last lines
            w.session.position()

    lines = at_every_line(w, lambda: w.arm("g"), before, (State.POSITIONED, State.HELD))
    assert lines > 20


def test_a_stop_at_any_line_before_a_run_moves_nothing(walk):
    w = walk("duration=0.05")
    w.to_start()
    w.arm("g")
    line = 0
    while True:
        line += 1
        with StopAt(w, line) as stop, suppress(ActRefused):
            w.session.run(w._embedded)
        if stop.state is None or (w.record.rungs and w.record.rungs[-1].outcome == "finished"):
            break
        assert w.session.state is State.HELD
        assert len(set(w.sent[stop.sent - 1 :])) == 1, f"line {line}, {stop.state}"
        w.session.position()
        w.arm("g")
    assert line > 10


@pytest.mark.parametrize("at", ["start", "after"])
def test_a_stop_while_the_start_is_computed_moves_nothing(walk, monkeypatch, at):
    """In HELD the start of some tests takes 150 ms to compute: a stop was answered as done, and the rig moved."""
    w = walk()
    held(w)
    compute = session.start_of

    def computed(scenario: Any, port: Any) -> Any:
        if at == "start":
            w.session.stop("wait")
        found = compute(scenario, port) + 0.004
        if at == "after":
            w.session.stop("wait")
        return found

    monkeypatch.setattr(session, "start_of", computed)
    sent = len(w.sent)
    with pytest.raises(ActRefused, match=naming("position", "wait")):
        w.session.position()
    assert (w.session.state, len(w.sent)) == (State.HELD, sent)


def test_a_stop_ends_the_taking_of_offsets(walk):
    w = walk()
    w.session.connect()
    port = w.session.drive.port
    write = port.write

    def stopped(command: Any) -> None:
        write(command)
        if len(w.sent) == 10:
            w.session.stop("enough")

    port.write = stopped
    with pytest.raises(ActRefused, match="enough"):
        w.session.take_offsets(0.5)
    assert len(w.sent) == 11
    assert w.session.state is State.CONNECTED


def test_what_is_being_stopped_is_neither_held_nor_resumed(walk):
    from rths_nodes.loop.scenario.rehearsal import slower

    w = walk("ground_motion.scale=0.05")
    w.to_start()
    told: list[str] = []

    def on_state(state: State) -> None:
        if state is State.HELD and not told:
            w.session.stop("enough")
            told.append(w.session.possible()["resume"])
            with pytest.raises(ActRefused, match=naming("stopped", "operator", "enough")):
                w.session.resume()

    w.on_state = on_state
    w.progress = lambda sample: w.session.hold() if sample == 100 else None
    assert w.climb("e", slower(w.scenario, 2)).outcome == "held"
    assert each_mentions(told, ("rung", "stopped"))
    assert State.RESUMING not in w.states


@pytest.mark.parametrize("ticks", [True, False], ids=["by the hold loop's tick", "at the run"])
def test_what_was_armed_too_long_ago_does_not_run(walk, ticks):
    w = walk()
    clock = w.session._clock = Hours()
    w.to_start()
    w.arm("g")
    clock.now += 60_000_000_000
    w.session.drive.tick()
    assert w.session.state is State.ARMED
    clock.now += 1
    if ticks:
        w.session.drive.tick()
        assert w.session.state is State.HELD
    sent = len(w.sent)
    with pytest.raises(ActRefused, match=naming("run", "rig")):
        w.session.run(w._embedded)
    assert (w.session.state, len(w.sent)) == (State.HELD, sent)
    assert mentions(w.session.reason, "60 s", "position")
    w.session.position()
    assert w.climb("g").outcome == "finished"


def test_a_stop_ends_the_way_to_the_start_after_what_was_armed_has_tripped(walk, alternating):
    """It went to the rung that had been armed once, and the rig on to the end of its way."""
    w = walk()
    w.to_start()
    w.arm("g")
    w.session.drive.port.set_interlock(False)
    w.session.drive.tick()
    assert w.session.state is State.TRIPPED
    w.session.drive.port.set_interlock(True)
    w.session.drive.tick()
    w.session.acknowledge()
    alternating[0] = 0.02
    begun, port = len(w.sent), w.session.drive.port
    write = port.write

    def stopped(command: Any) -> None:
        write(command)
        if len(w.sent) == begun + 600:
            assert elsewhere(lambda: w.session.stop("enough")) is None

    port.write = stopped
    with pytest.raises(ActRefused, match="enough"):
        w.session.position()
    assert w.session.state is State.HELD
    assert abs(w.sent[-1] - w.sent[begun + 599]) <= BRAKES


def test_a_stop_that_is_asked_for_as_the_rung_is_armed_leaves_nothing_armed(walk):
    w = walk()
    w.to_start()
    w.on_state = lambda state: w.session.stop("enough") if state is State.ARMED else None
    w.arm("g")
    assert w.session.state is State.HELD
    assert w.session.rung is None
