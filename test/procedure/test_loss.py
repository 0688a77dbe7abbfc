# SPDX-License-Identifier: Apache-2.0
"""Pressure lost and back, interlock opened and closed, a controller restarted: the specimen stays where it is.

The controller of the simulator keeps its external command, and goes there at once when it may.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from messages import mentions

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE
from rths_nodes.loop.scenario.rehearsal import slower
from rths_nodes.loop.supervision.states import State

LIVELY = ("compensator.type=none", "ground_motion={type: sine, amplitude: 1.2, frequency: 2.0}")
SOFT = "axes.story_1.output.static_stiffness=5e8"
"""Short of its command by 0.4 mm at 0.2 MN: what a controller would make good at once, on its return."""
SLOWLY = ("deceleration: 20.0", "deceleration: 2.0")
LOST = {
    "pressure": (lambda port: port.set_hydraulics("off"), lambda port: port.set_hydraulics("high")),
    "pressure, in two steps": (lambda port: port.set_hydraulics("off"), lambda port: _step_by_step(port)),
    "interlock": (lambda port: port.set_interlock(False), lambda port: port.set_interlock(True)),
}
JUMP = 1e-5
"""m: what the specimen moves at most when the rig is back."""


def _step_by_step(port: Any) -> None:
    port.set_hydraulics("low")
    port.set_hydraulics("high")


def moved(w: Any, ticks: int = 300) -> float:
    """How far the specimen goes in the next ``ticks``, m."""
    port, places = w.session.drive.port, []
    for _ in range(ticks):
        places.append(float(port.truth().displacement[0]))
        w.session.drive.tick()
    return float(np.ptp(places))


def pushed(w: Any, metres: float) -> None:
    """Without pressure the specimen pushes its actuator back."""
    w.session.drive.port._drive._led[0] += metres


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("state", ["CONNECTED", "REFERENCED", "POSITIONED", "ARMED", "HELD", "TRIPPED"])
def test_at_rest_the_command_goes_to_where_the_rig_stands(walk, state, lost):
    off, on = LOST[lost]
    w = walk(*LIVELY)
    w.session.connect() if state == "CONNECTED" else w.refer() if state == "REFERENCED" else w.to_start()
    if state in ("ARMED", "HELD", "TRIPPED"):
        w.arm("g")
    if state == "HELD":
        w.session.stop("wait")
    port = w.session.drive.port
    if state == "TRIPPED":
        port.set_interlock(False)
        w.session.drive.tick()
        port.set_interlock(True)
    assert w.session.state is State[state]
    off(port)
    w.session.drive.tick()
    pushed(w, -0.004)
    for _ in range(20):
        w.session.drive.tick()
    then = {"POSITIONED": State.HELD, "ARMED": State.TRIPPED}.get(state, State[state])
    assert w.session.state is then
    on(port)
    assert moved(w) < JUMP  # 4 mm
    assert w.session.state is then
    if then is State.HELD:
        w.session.position()
        assert w.session.state is State.POSITIONED


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("back", [1, 400], ids=lambda ticks: f"{ticks} ticks")
def test_in_a_run_nothing_moves_when_it_is_back(walk, lost, back):
    """1.7 mm after a loss of pressure, 0.2 mm after one of the interlock."""
    off, on = LOST[lost]
    w = walk(*LIVELY, rig=SLOWLY)
    w.to_start()
    port, ticks, places = w.session.drive.port, [0], []
    write = port.write

    def switched(command: Any) -> None:
        if ticks[0] == 300:
            off(port)
        if ticks[0] == 300 + back:
            on(port)
        write(command)
        ticks[0] += 1
        places.append(float(port.truth().displacement[0]))

    port.write = switched
    assert w.climb("g").outcome == "tripped"
    while ticks[0] < 1000:
        w.session.drive.tick()
    assert w.session.state is State.TRIPPED
    # what is back at once has never stood, and comes to rest behind its command
    assert np.ptp(places[300 + back :]) < (3e-3 if back == 1 else JUMP)
    assert np.abs(np.diff(w.sent)).max() <= 1.2 / 1024.0 * (1.0 + 1e-9)


def under_its_force(walk: Any) -> Any:
    """A rig that has been stopped in a rung, and rests short of its command by the static error."""
    w = walk(*LIVELY, SOFT)
    w.to_start()
    w.progress = lambda sample: w.session.stop("there") if sample >= 300 else None
    w.climb("g")
    moved(w)
    return w


@pytest.mark.parametrize("lost", LOST)
def test_a_rig_that_rests_under_its_force_goes_on_doing_so(walk, lost):
    off, on = LOST[lost]
    w = under_its_force(walk)
    port = w.session.drive.port
    off(port)
    moved(w)
    on(port)
    assert moved(w) < JUMP


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("between", [1, 11, 90])
def test_what_it_missed_is_not_forgotten_while_it_is_lost_and_back_and_lost(walk, lost, between):
    """Back for less than a controller takes to settle, the rig has not rested again; it stands as it did."""
    off, on = LOST[lost]
    w = under_its_force(walk)
    port = w.session.drive.port
    off(port)
    moved(w, 27)
    on(port)
    moved(w, between)
    off(port)
    moved(w, 12)
    on(port)
    assert moved(w) < JUMP


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("ticks", [0, 1, 12])
def test_the_lag_of_a_slow_actuator_is_not_its_static_error(walk, lost, ticks):
    """0.1 s after a stop a slow rig still moves, 0.4 to 0.7 mm behind its command."""
    off, on = LOST[lost]
    w = walk(*LIVELY, "servo_rate=256", "substeps=4")
    w.to_start()
    w.progress = lambda sample: w.session.stop("there") if sample >= 57 else None
    w.climb("g")
    port = w.session.drive.port
    for _ in range(ticks):
        w.session.drive.tick()
    off(port)
    moved(w, 400)
    on(port)
    assert moved(w) < JUMP


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("act", ["check", "position", "unload"])
def test_in_a_slow_motion_nothing_moves_when_it_is_back(walk, act, lost):
    off, on = LOST[lost]
    w = walk(*LIVELY, rig=("velocity: 20.0e-3", "velocity: 200.0e-3"))
    w.refer()
    if act != "check":
        w.session.check()
        w.session.position()
        w.progress = lambda sample: w.session.stop("there") if sample >= 300 else None
        w.climb("g")
    port = w.session.drive.port
    write, last = port.write, len(w.sent) + (550 if act == "check" else 60)

    def switched(command: Any) -> None:
        write(command)
        if len(w.sent) == last:
            off(port)

    port.write = switched
    with pytest.raises(ConfigError):
        getattr(w.session, act)()
    assert w.session.state is State.TRIPPED
    moved(w)
    on(port)
    assert moved(w) < JUMP


def test_low_pressure_where_it_was_high_ends_a_run_and_its_return_moves_nothing(walk):
    w = walk(*LIVELY, rig=SLOWLY)
    w.to_start()
    port = w.session.drive.port
    w.progress = lambda sample: port.set_hydraulics("low") if sample == 300 else None
    written = w.climb("g")
    assert written.outcome == "tripped"
    assert mentions(written.reason, "dropped", "low")
    moved(w)
    port.set_hydraulics("high")
    assert moved(w) < 5e-5


def test_a_controller_that_was_restarted_finds_the_command_where_it_stands(walk):
    w = walk()
    w.to_start()
    w.arm("g")
    port = w.session.drive.port
    write, takes = port.write, [False]
    own = np.array([-0.003])

    def restarted(command: Any) -> None:  # it takes its own command until somebody gives it the external one again
        write(command if takes[0] else _with(command, own))

    port.write = restarted
    for _ in range(400):
        w.session.drive.tick()
    assert w.session.state is State.TRIPPED
    assert mentions(w.session.reason, "external", "command")
    takes[0] = True
    assert moved(w) < 1e-4 * 0.26  # what its converters may round


def _with(command: Any, place: np.ndarray) -> Any:
    from dataclasses import replace

    return replace(command, command=place, target=place)


def test_a_control_mode_that_somebody_changes_disarms_and_the_command_follows(walk):
    w = walk()
    w.to_start()
    w.arm("g")
    port = w.session.drive.port
    port._modes = bytes([MODE_FORCE])
    w.session.drive.tick()
    assert w.session.state is State.TRIPPED
    assert mentions(w.session.reason, "control", "mode")
    w.session.acknowledge()
    assert mentions(w.session.possible()["position"], "control", "mode")
    port._modes = bytes([MODE_DISPLACEMENT])
    w.session.drive.tick()
    assert w.session.possible()["position"] == ""
    assert moved(w) < JUMP


def test_a_rung_that_is_held_trips_and_stays(walk):
    w = walk(*LIVELY)
    w.to_start()
    port = w.session.drive.port

    def on_state(state: State) -> None:
        if state is State.HELD and w.session.rung is not None:
            port.set_hydraulics("off")

    w.on_state = on_state
    w.progress = lambda sample: w.session.hold() if sample == 300 else None
    assert w.climb("e", slower(w.scenario, 2)).outcome == "tripped"
    port.set_hydraulics("high")
    assert moved(w) < JUMP


def test_low_pressure_that_is_told_for_the_first_time_disarms(walk):
    w = walk(*LIVELY, rig=(", hydraulics: high", ""))
    w.to_start()
    w.arm("g")
    w.session.drive.port.set_hydraulics("low")
    w.session.drive.tick()
    assert w.session.state is State.TRIPPED
    assert "low" in w.session.reason


class _SignalOnly:
    """A port whose interlock opens at its ``at``-th command as a signal: the actuators follow all the same."""

    def __init__(self, port: Any, at: int) -> None:
        self._port, self._at, self._written = port, at, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    @property
    def interlock(self) -> str:
        return "rig: its interlock is open: a gate" if self._written >= self._at else str(self._port.interlock)

    def write(self, command: Any) -> None:
        self._written += 1
        self._port.write(command)


def test_a_rig_that_follows_behind_an_open_interlock_is_not_unloaded(walk):
    """Without the trial the command ran after the static error of the loop until no force was left: 17.8 kN."""
    w = walk(*LIVELY, SOFT, rig=SLOWLY)
    w.to_start()
    drive = w.session.drive
    drive.port = port = _SignalOnly(drive.port, at=300)
    assert w.climb("g").outcome == "tripped"
    for _ in range(400):
        drive.tick()
    begun = port.truth()
    assert abs(begun.force[0]) > 10e3
    for _ in range(5 * 1024):
        drive.tick()
    left = port.truth()
    assert abs(left.force[0] - begun.force[0]) < 0.02 * abs(begun.force[0])
    assert abs(left.displacement[0] - begun.displacement[0]) < 1e-5
