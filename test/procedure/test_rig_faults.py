# SPDX-License-Identifier: Apache-2.0
"""Tests of sessions whose rig, controller or port fails: the specimen stays in place.

The simulated controller keeps its external command, and follows it at once when pressure and interlock allow.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.core.errors import ComponentError, ConfigError, PortError
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.scenario.rehearsal import slower
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import drive
from rths_nodes.procedure.drive import HoldLoop
from rths_nodes.procedure.machine import ActRefused

LIVELY = ("compensator.type=none", "ground_motion={type: sine, amplitude: 1.2, frequency: 2.0}")
SOFT = "axes.story_1.output.static_stiffness=5e8"
"""Static error of 0.4 mm at 0.2 MN, which a controller would correct at once on its return."""
SLOW_STOP = ("deceleration: 20.0", "deceleration: 2.0")
FAST_MOVES = ("velocity: 20.0e-3", "velocity: 200.0e-3")
JUMP = 1e-5
"""Largest motion of the specimen when the rig returns, m."""


def _step_by_step(port):
    port.set_hydraulics("low")
    port.set_hydraulics("high")


LOST = {
    "pressure": (lambda port: port.set_hydraulics("off"), lambda port: port.set_hydraulics("high")),
    "pressure, in two steps": (lambda port: port.set_hydraulics("off"), _step_by_step),
    "interlock": (lambda port: port.set_interlock(False), lambda port: port.set_interlock(True)),
}
each_loss = pytest.mark.parametrize("lost", LOST)


def moved(w, ticks=300):
    """Range of the specimen's displacement in the next ``ticks``, m."""
    positions = []
    for _ in range(ticks):
        positions.append(float(w.session.drive.port.truth().displacement[0]))
        w.tick(1)
    return float(np.ptp(positions))


def lose(w, lost, ticks=300):
    """Lose pressure or interlock for some ticks, and let it return."""
    off, on = LOST[lost]
    off(w.session.drive.port)
    moved(w, ticks)
    on(w.session.drive.port)


def stop_run(w, sample=300):
    """Run rung g and stop it at ``sample``."""
    w.progress = lambda now: w.session.stop("there") if now >= sample else None
    w.climb("g")


# -- Loss and return of pressure or interlock


@each_loss
@pytest.mark.parametrize("state", ["CONNECTED", "REFERENCED", "POSITIONED", "ARMED", "HELD", "TRIPPED"])
def test_command_follows_unpowered_rig_at_rest(walk, state, lost):
    off, on = LOST[lost]
    w = walk(*LIVELY)
    w.session.connect() if state == "CONNECTED" else w.refer() if state == "REFERENCED" else w.to_start()
    if state in ("ARMED", "HELD", "TRIPPED"):
        w.arm("g")
    if state == "HELD":
        w.session.stop("wait")
    port = w.session.drive.port
    if state == "TRIPPED":
        lose(w, "interlock", 1)
    assert w.session.state is State[state]
    off(port)
    port.read = lambda: replace(Simulator.read(port), displacement=np.full(1, 0.275))  # the end of its range
    w.tick(60)
    del port.read
    port._drive._led[0] -= 0.004  # without pressure the specimen pushes its actuator back
    w.tick(20)
    expected = {"POSITIONED": State.HELD, "ARMED": State.TRIPPED}.get(state, State[state])
    assert w.session.state is expected
    on(port)
    assert moved(w) < JUMP  # otherwise 4 mm, or 70 mm by the sensor
    assert w.session.state is expected
    if expected is State.HELD:
        w.session.position()
        assert w.session.state is State.POSITIONED


@each_loss
@pytest.mark.parametrize("back", [1, 400], ids=lambda ticks: f"{ticks} ticks")
def test_return_after_loss_in_run_moves_nothing(walk, lost, back):
    """Without the correction: 1.7 mm after a loss of pressure, 0.2 mm after one of the interlock."""
    off, on = LOST[lost]
    w = walk(*LIVELY, rig=SLOW_STOP).to_start()
    port, positions = w.session.drive.port, []
    write = port.write

    def switched(command):
        if len(positions) == 300:
            off(port)
        if len(positions) == 300 + back:
            on(port)
        write(command)
        positions.append(float(port.truth().displacement[0]))

    port.write = switched
    assert w.climb("g").outcome == "tripped"
    w.tick(1000 - len(positions))
    assert w.session.state is State.TRIPPED
    # a rig that returns at once was never at rest, and comes to rest after its command
    assert np.ptp(positions[300 + back :]) < (3e-3 if back == 1 else JUMP)
    assert np.abs(np.diff(w.sent)).max() <= 1.2 / 1024.0 * (1.0 + 1e-9)


@pytest.fixture
def loaded(walk):
    """A rig that was stopped in a rung, and rests short of its command by the static error."""
    w = walk(*LIVELY, SOFT).to_start()
    stop_run(w)
    moved(w)
    return w


@each_loss
def test_loaded_rig_stays_in_place_on_return(loaded, lost):
    lose(loaded, lost)
    assert moved(loaded) < JUMP


@each_loss
@pytest.mark.parametrize("between", [1, 11, 90])
def test_static_error_survives_repeated_loss(loaded, lost, between):
    """A rig that returns for less than the settling time of its controller has not come to rest again."""
    lose(loaded, lost, 27)
    moved(loaded, between)
    lose(loaded, lost, 12)
    assert moved(loaded) < JUMP


@each_loss
@pytest.mark.parametrize("ticks", [0, 1, 12])
def test_lag_of_slow_actuator_is_not_static_error(walk, lost, ticks):
    """0.1 s after a stop a slow rig still moves, 0.4 to 0.7 mm behind its command."""
    w = walk(*LIVELY, "servo_rate=256", "substeps=4").to_start()
    stop_run(w, 57)
    w.tick(ticks)
    lose(w, lost, 400)
    assert moved(w) < JUMP


@each_loss
@pytest.mark.parametrize("act", ["check", "position", "unload"])
def test_return_after_loss_in_slow_motion_moves_nothing(walk, act, lost):
    off, on = LOST[lost]
    w = walk(*LIVELY, rig=FAST_MOVES).refer()
    if act != "check":
        w.session.check()
        w.session.position()
        stop_run(w)
    port = w.session.drive.port
    w.after_command(len(w.sent) + (550 if act == "check" else 60), lambda: off(port))
    with pytest.raises(ConfigError):
        getattr(w.session, act)()
    assert w.session.state is State.TRIPPED
    moved(w)
    on(port)
    assert moved(w) < JUMP


def test_pressure_drop_to_low_trips_run(walk):
    w = walk(*LIVELY, rig=SLOW_STOP).to_start()
    port = w.session.drive.port
    w.progress = lambda sample: port.set_hydraulics("low") if sample == 300 else None
    result = w.climb("g")
    assert result.outcome == "tripped"
    assert mentions(result.reason, "dropped", "low")
    moved(w)
    port.set_hydraulics("high")
    assert moved(w) < 5e-5


def test_first_report_of_low_pressure_trips_armed_session(walk):
    w = walk(*LIVELY, rig=(", hydraulics: high", "")).to_start()
    w.arm("g")
    w.session.drive.port.set_hydraulics("low")
    w.tick(1)
    assert w.session.state is State.TRIPPED
    assert "low" in w.session.reason


def test_loss_during_held_rung_trips_without_motion(walk):
    w = walk(*LIVELY).to_start()
    port = w.session.drive.port

    def on_state(state):
        if state is State.HELD and w.session.rung is not None:
            port.set_hydraulics("off")

    w.on_state = on_state
    w.progress = lambda sample: w.session.hold() if sample == 300 else None
    assert w.climb("e", slower(w.scenario, 2)).outcome == "tripped"
    port.set_hydraulics("high")
    assert moved(w) < JUMP


@pytest.mark.parametrize(
    ("lost", "parts"),
    [("interlock", ("interlock", "open")), ("pressure", ("hydraulics", "off"))],
    ids=["interlock", "hydraulics"],
)
def test_loss_trips_armed_session(walk, lost, parts):
    off, on = LOST[lost]
    w = walk().to_start()
    w.arm("g")
    off(w.session.drive.port)
    w.tick(1)
    on(w.session.drive.port)
    w.tick(1)
    assert w.session.state is State.TRIPPED
    assert mentions(w.session.reason, *parts)
    with pytest.raises(ActRefused, match=naming("run", "acknowledge")):
        w.session.run(w._embedded)
    w.session.stop("nothing moves")
    w.session.acknowledge()
    w.session.position()
    assert w.climb("g").outcome == "finished"


@pytest.mark.parametrize("closes_after", [3, 30, 10_000])
def test_closing_interlock_after_trip_moves_nothing(walk, closes_after):
    w = walk(*LIVELY, rig=SLOW_STOP).to_start()
    port, active, positions = w.session.drive.port, [], []
    write = port.write

    def watched(command):
        if len(active) == 300:
            port.set_interlock(False)
        if len(active) == 300 + closes_after:
            port.set_interlock(True)
        write(command)
        active.append(float(port.active_command[0]))
        positions.append(float(port.truth().displacement[0]))

    port.write = watched
    assert w.climb("g").outcome == "tripped"
    assert w.session.state is State.TRIPPED
    assert active[299] != active[298]  # in motion
    port.set_interlock(True)
    w.tick(400)
    assert np.ptp(positions[300:]) < 3e-3  # comes to rest at its last command
    assert np.ptp(positions[-20:]) < 1e-5
    assert w.session.drive.command[0] == pytest.approx(positions[-1], abs=1e-5)
    assert np.abs(np.diff(w.sent)).max() <= 1.2 / 1024.0
    w.session.acknowledge()
    w.session.position()
    assert w.session.state is State.POSITIONED


class SignalOnly:
    """A port whose interlock opens at command ``at`` as a signal only: the actuators still follow."""

    def __init__(self, port, at):
        self._port, self._at, self._written = port, at, 0

    def __getattr__(self, name):
        return getattr(self._port, name)

    @property
    def interlock(self):
        return "rig: its interlock is open: a gate" if self._written >= self._at else str(self._port.interlock)

    def write(self, command):
        self._written += 1
        self._port.write(command)


def test_rig_that_follows_despite_open_interlock_keeps_its_load(walk):
    """Without the trial the command followed the static error of the loop until the force was gone: 17.8 kN."""
    w = walk(*LIVELY, SOFT, rig=SLOW_STOP).to_start()
    w.session.drive.port = port = SignalOnly(w.session.drive.port, at=300)
    assert w.climb("g").outcome == "tripped"
    w.tick(400)
    before = port.truth()
    assert abs(before.force[0]) > 10e3
    w.tick(5 * 1024)
    after = port.truth()
    assert abs(after.force[0] - before.force[0]) < 0.02 * abs(before.force[0])
    assert abs(after.displacement[0] - before.displacement[0]) < 1e-5


# -- Controller and port


def test_restarted_controller_trips_until_it_takes_external_command(walk):
    w = walk().to_start()
    w.arm("g")
    port = w.session.drive.port
    write, internal, external = port.write, np.array([-0.003]), []
    port.write = lambda command: write(
        command if external else replace(command, command=internal, target=internal)
    )
    w.tick(400)
    assert w.session.state is State.TRIPPED
    assert mentions(w.session.reason, "external", "command")
    external.append(True)
    assert moved(w) < 1e-4 * 0.26  # rounding of its converters


def test_changed_control_mode_trips_armed_session(walk):
    w = walk().to_start()
    w.arm("g")
    port = w.session.drive.port
    port.control_mode = bytes([MODE_FORCE])
    w.tick(1)
    assert w.session.state is State.TRIPPED
    assert mentions(w.session.reason, "control", "mode")
    w.session.acknowledge()
    assert mentions(w.session.possible()["position"], "control", "mode")
    port.control_mode = bytes([MODE_DISPLACEMENT])
    w.tick(1)
    assert w.session.possible()["position"] == ""
    assert moved(w) < JUMP


@pytest.mark.parametrize("fails_in", ["disarm_watchdog", "safe"])
def test_closing_session_releases_failed_port(walk, monkeypatch, fails_in):
    w, reason, close = walk(), "port 'bench' at 10.0.0.2:8000: the connection was reset", Simulator.close
    w.refer()
    closed = []

    def cut(self):
        raise PortError(reason)

    monkeypatch.setattr(Simulator, fails_in, cut)
    monkeypatch.setattr(Simulator, "close", lambda self: closed.append(self) or close(self))
    w.session.close()
    assert closed
    assert w.session.drive.alarm == reason


def cut(monkeypatch, name, error=PortError):
    """Make the reading ``name`` of the port fail."""

    def reading(self):
        raise error(f"port 'bench': reading {name}: the connection was reset")

    monkeypatch.setattr(Simulator, name, property(reading, lambda self, value: None), raising=False)


def test_procedure_ends_although_no_reading_is_possible(walk, monkeypatch):
    w = walk().refer()
    cut(monkeypatch, "active_command")
    w.session.finish()
    assert w.session.state is State.FINISHED


def test_rig_that_fails_while_it_connects_is_released(walk, monkeypatch):
    """The session had ended with a KeyError, in state CONNECTED."""
    w = walk()
    monkeypatch.setattr(w.session.drive, "_judge", lambda command: cut(monkeypatch, "active_command"))
    with pytest.raises(PortError, match="reset"):
        w.session.connect()
    assert (w.session.state, w.session.drive._open) == (State.IDLE, False)


@pytest.mark.parametrize(
    ("name", "error"), [("interlock", PortError), ("truth", PortError), ("truth", ComponentError)]
)
def test_rig_whose_readings_fail_in_a_rung_is_lost(walk, name, error):
    """The port had never been given back to the procedure, whose next act then waited without end."""
    w = walk().to_start()
    with pytest.MonkeyPatch.context() as patch:
        w.progress = lambda sample: cut(patch, name, error) if sample == 100 else None
        with suppress(PortError, ComponentError):
            w.climb("g")
    assert w.session.state is State.TRIPPED
    assert (w.session.drive.hold_loop._borrowed, "reset" in w.session.drive.broken) == (0, name == "interlock")
    w.session.finish()
    assert w.session.state is State.FINISHED


def test_rig_that_does_not_tick_refuses_motions(walk, monkeypatch):
    """The test had ended with a traceback."""
    w = walk().refer()
    monkeypatch.setattr(drive, "PATIENCE_S", 0.01)
    w.session.drive.hold_loop._busy = True
    with pytest.raises(PortError, match=naming("tick", "0.01 s")):
        w.session.check()
    w.session.drive.hold_loop._busy = False
    assert w.session.state is State.TRIPPED


def test_rig_lost_before_the_run_begins_is_not_moved(walk):
    w = walk().to_start()
    w.arm("g")

    def runner(scenario, port):
        w.session.drive._fail(PortError("the connection was reset"))
        return w._embedded(scenario, port)

    sent = len(w.sent)
    with pytest.raises(PortError, match="reset"):
        w.session.run(runner)
    assert len(w.sent) == sent
    assert (w.session.state, w.session.drive.hold_loop._borrowed) == (State.TRIPPED, 0)


def test_closed_session_arms_nothing(walk):
    w = walk().to_start()
    w.session.close()
    sent = len(w.sent)
    with pytest.raises(ActRefused, match=naming("port", "returned")):
        w.arm("g")
    assert len(w.sent) == sent


# -- Interrupts and stops


def test_interrupted_motion_leaves_rig_at_rest(walk):
    w = walk(*LIVELY, rig=FAST_MOVES).to_start()
    stop_run(w)
    last = len(w.sent) + 50

    def interrupt():
        raise KeyboardInterrupt

    w.after_command(last, interrupt)
    with pytest.raises(KeyboardInterrupt):
        w.session.position()
    assert w.session.state is State.TRIPPED
    assert w.sent[last - 1] != w.sent[last - 2]  # in motion
    held = w.sent[-1]
    w.tick(50)
    assert set(w.sent[-50:]) == {held}


def test_first_of_several_interrupts_is_raised():
    interrupts, stops = [SystemExit("first"), KeyboardInterrupt("second")], []

    def wait():
        if interrupts:
            raise interrupts.pop(0)

    with pytest.raises(SystemExit, match="first"):
        drive.to_its_end(wait, lambda: stops.append("stop"))
    assert len(stops) == 2


@pytest.mark.parametrize("later", [1, 10, 30, 60])
def test_interrupted_end_of_rung_leaves_rig_at_rest(walk, later):
    w = walk(*LIVELY).to_start()
    w.arm("g")
    w.progress = lambda sample: w.session.stop("there") if sample >= 300 else None
    port, wait_tick, ticks = w.session.drive.port, w.session.drive.port.wait_tick, [0]

    def interrupted():
        ticks[0] += 1
        if ticks[0] in (300 + later, 302 + later):  # a second interrupt during the stop
            raise KeyboardInterrupt
        return wait_tick()

    port.wait_tick = interrupted
    with pytest.raises(KeyboardInterrupt):
        w.session.run(w._embedded)
    assert ticks[0] > 302 + later
    assert w.session.state in (State.HELD, State.TRIPPED)
    assert w.record.rungs[-1].outcome in ("held", "failed")
    held = w.sent[-1]
    w.tick(50)
    assert set(w.sent[-50:]) == {held}


def test_stop_in_last_tick_of_motion_counts(walk):
    w = walk().to_start()
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


def test_hold_loop_can_be_restarted():
    ticked = threading.Event()
    hold_loop = HoldLoop(ticked.set, 0.001, lambda error: None)
    for _ in range(2):
        ticked.clear()
        hold_loop.start()
        assert ticked.wait(10.0)
        hold_loop.end()


def test_new_check_needs_new_signatures(walk):
    w = walk(rig=("    stiffness_known_to: 0.03\n", "")).refer()
    for _ in range(2):
        w.session.check()
        with pytest.raises(ActRefused, match=naming("story_1", "verified")):
            w.session.position()
        w.sign_all("A. Nyone")
    w.session.position()


def test_expression_of_rig_stops_small_move(walk):
    """Expressions of a rig are monitored during every act; the small move of 1 mm would exceed this one."""
    w = walk(
        *LIVELY,
        "levels.expressions={near: {of: abs(displacement.story_1), unit: mm, maximum: 0.4, action: hold}}",
    ).refer()
    with pytest.raises(ActRefused, match=r"levels\.expressions\.near: .* must be <= 0\.4 mm"):
        w.session.check()
    assert np.abs(w.session.drive.measured.displacement).max() < 0.5e-3


def test_interlock_level_acts_during_the_stop_of_a_motion(walk, monkeypatch):
    """The mild level stops the small move; while it brakes, the axis exceeds the severe level."""
    w = walk(
        *LIVELY,
        "axes.story_1.limits.deceleration=0.2",
        "levels.expressions={near: {of: abs(displacement.story_1), unit: mm, maximum: 0.1, action: hold}, "
        "far: {of: abs(displacement.story_1), unit: mm, maximum: 0.101, action: interlock}}",
    ).refer()
    dropped = []
    monkeypatch.setattr(Simulator, "drop_heartbeat", lambda port: dropped.append(port.sample), raising=False)
    with pytest.raises(ActRefused, match=r"levels\.expressions\.far: "):
        w.session.check()
    assert dropped
    assert w.session.state is State.TRIPPED
