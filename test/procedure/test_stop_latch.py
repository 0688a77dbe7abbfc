# SPDX-License-Identifier: Apache-2.0
"""Tests of the stop latch: after a stop at any line, an act moves and arms nothing.

No moment is left to chance: the act pauses at each of its lines outside of the lock in turn, while another thread
requests the stop and receives its answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from loop_parts import Hours
from messages import each_mentions, mentions, naming
from stop_at import AtLine, elsewhere

from rths_nodes.loop.scenario.rehearsal import slower
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import rungs
from rths_nodes.procedure.machine import ActRefused

BRAKING = 0.02**2 / (2.0 * 20.0) + 2.0 * 0.02 / 1024.0
"""Braking distance from the velocity of positioning, with the ticks until the stop takes effect, m."""


class StopAt(AtLine):
    """Stops ``w`` at the given line of an act, counting lines outside of the lock; ``sent``: commands before."""

    def __init__(self, w: Any, line: int) -> None:
        super().__init__(w.session, line, self._stop)
        self.w = w
        self.state: State | None = None
        self.sent = 0

    def _stop(self) -> None:
        self.state, self.sent = self.w.session.state, len(self.w.sent)
        assert self.w.session.possible()["stop"] == ""
        assert elsewhere(lambda: self.w.session.stop("enough")) is None


def at_every_line(
    w: Any, act: Callable[[], object], before: Callable[[], object], ended: tuple[State, ...]
) -> int:
    """Repeat ``before`` and ``act``, with a stop at each line of the act in turn; return the number of lines."""
    line = 0
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
        since = w.sent[max(stop.sent - 1, 0) :]
        distance = float(np.ptp(since)) if since else 0.0
        assert distance <= (BRAKING if stop.state is State.POSITIONING else 0.0), f"line {line}, {stop.state}"
        assert w.session.state in ended, f"line {line}, {stop.state}"
        assert "enough" in refused or w.session.state is stop.state or stop.state is State.ARMED, f"line {line}"


@pytest.fixture
def alternating(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Variable start of the test, m, so that the act position always moves."""
    start = [0.001]
    monkeypatch.setattr(rungs, "start_of", lambda scenario, port: np.array(start))
    return start


def held(w: Any) -> None:
    w.to_start()
    w.arm("g")
    w.session.stop("not yet")


def test_stop_at_any_line_of_position_ends_it(walk, alternating):
    w = walk()
    held(w)

    def before() -> None:
        if w.session.state is State.POSITIONED:
            w.arm("g")
            w.session.stop("not yet")
        alternating[0] = 0.001 if float(w.session.drive.command[0]) <= 0.0005 else 0.0

    assert at_every_line(w, w.session.position, before, (State.HELD, State.POSITIONED)) > 20


def test_stop_at_any_line_of_arm_leaves_nothing_armed(walk, alternating):
    w = walk().to_start()

    def before() -> None:
        if w.session.state is State.HELD:  # armed, and stopped at one of the last lines
            w.session.position()

    assert at_every_line(w, lambda: w.arm("g"), before, (State.POSITIONED, State.HELD)) > 20


def test_stop_at_any_line_before_run_prevents_motion(walk):
    w = walk("duration=0.05").to_start()
    w.arm("g")
    for line in itertools.count(1):
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
def test_stop_while_start_is_computed_prevents_motion(walk, monkeypatch, at):
    """Some starts take 150 ms to compute: a stop was once confirmed meanwhile, and the rig moved."""
    w = walk()
    held(w)
    compute = rungs.start_of

    def computed(scenario: Any, port: Any) -> Any:
        if at == "start":
            w.session.stop("wait")
        start = compute(scenario, port) + 0.004
        if at == "after":
            w.session.stop("wait")
        return start

    monkeypatch.setattr(rungs, "start_of", computed)
    sent = len(w.sent)
    with pytest.raises(ActRefused, match=naming("position", "wait")):
        w.session.position()
    assert (w.session.state, len(w.sent)) == (State.HELD, sent)


def test_stop_ends_taking_of_offsets(walk):
    w = walk()
    w.session.connect()
    w.after_command(10, lambda: w.session.stop("enough"))
    with pytest.raises(ActRefused, match="enough"):
        w.session.take_offsets(0.5)
    assert len(w.sent) == 11
    assert w.session.state is State.CONNECTED


def test_stopped_rung_cannot_be_resumed(walk):
    w = walk("ground_motion.scale=0.05").to_start()
    reasons: list[str] = []

    def on_state(state: State) -> None:
        if state is State.HELD and not reasons:
            w.session.stop("enough")
            reasons.append(w.session.possible()["resume"])
            with pytest.raises(ActRefused, match=naming("stopped", "operator", "enough")):
                w.session.resume()

    w.on_state = on_state
    w.progress = lambda sample: w.session.hold() if sample == 100 else None
    assert w.climb("e", slower(w.scenario, 2)).outcome == "held"
    assert each_mentions(reasons, ("rung", "stopped"))
    assert State.RESUMING not in w.states


@pytest.mark.parametrize("ticks", [True, False], ids=["by the hold loop's tick", "at the run"])  # who notices it
def test_armed_rung_expires(walk, ticks):
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


def test_stop_ends_motion_to_start_after_trip_of_armed_rung(walk, alternating):
    """The stop once went to the tripped rung, and the rig moved on to its start."""
    w = walk().to_start()
    w.arm("g")
    w.session.drive.port.set_interlock(False)
    w.session.drive.tick()
    assert w.session.state is State.TRIPPED
    w.session.drive.port.set_interlock(True)
    w.session.drive.tick()
    w.session.acknowledge()
    alternating[0] = 0.02
    sent = len(w.sent)

    def stop() -> None:
        assert elsewhere(lambda: w.session.stop("enough")) is None

    w.after_command(sent + 600, stop)
    with pytest.raises(ActRefused, match="enough"):
        w.session.position()
    assert w.session.state is State.HELD
    assert abs(w.sent[-1] - w.sent[sent + 599]) <= BRAKING


def test_stop_at_transition_to_armed_leaves_nothing_armed(walk):
    w = walk().to_start()
    w.on_state = lambda state: w.session.stop("enough") if state is State.ARMED else None
    w.arm("g")
    assert w.session.state is State.HELD
    assert w.session.rung is None
