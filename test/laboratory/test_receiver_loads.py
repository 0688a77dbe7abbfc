# SPDX-License-Identifier: Apache-2.0
"""Tests of the receiver with force loops: limits in N and N/s, changes of mode, holds."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from c_compiler import require_compiler

from rths_nodes.control.force_controllers import ServoValve
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import EMPTY, MODE_DISPLACEMENT, MODE_FORCE, MODE_HELD
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head
from rths_nodes.laboratory.receiver import Receiver, ReceiverLimits, ReceiverLoad

require_compiler()

RATE = 1000.0
DT = 1.0 / RATE
STIFFNESS, LENGTH, LOAD = 1e9, 3.0, 500e3
"""Column of 3 m and 1000 kN/mm, shortened by u^2 / 2 l under a drift u of its head."""
NOISE_M, NOISE_N = 1e-6, 200.0
TRAVEL, FASTEST, PERSISTENCE = 20e-6, 0.02, 5
STATED = TRAVEL + FASTEST * (PERSISTENCE * DT + 2 * 0.003)
"""Travel of the receiver plus the motion of the piston with its valve fully open, m."""
BRIDGED, WATCHDOG, SWITCHING = 10, 60, 20
DRIFT = ReceiverLimits(0.1, 0.5, 5.0)
AXIAL = ReceiverLimits(0.01, 0.02, 0.3, force=700e3)
LOOP = ReceiverLoad(400e3, 50e3, TRAVEL, STIFFNESS, 1.0 / LENGTH, frozen=30)
NO_LOOP = ReceiverLoad()


class Column:
    """A receiver and a column with two actuators; the second has a valve and a force loop."""

    def __init__(self, noise: bool = True, flags: int = datagrams.NEWTONS, **changes: Any) -> None:
        options = {"persistence": PERSISTENCE, "loads": [NO_LOOP, LOOP], "switching": SWITCHING} | changes
        self.receiver = Receiver([DRIFT, AXIAL], DT, BRIDGED, WATCHDOG, groups=[0, 0], **options)
        self.flags, self.sample = flags, 0
        self.valve = ServoValve(from_data(ServoValve.Params, {"stiffness": STIFFNESS}, "law"), DT)
        self._noise = np.random.default_rng(1) if noise else None
        if not noise:
            self.receiver._target.config.load[1].frozen = 0
        self.crushed = False
        self.cell: Callable[[float], float] = lambda force: force
        self.switches = True
        self.mode = MODE_DISPLACEMENT
        self.positions: list[float] = []
        self.forces: list[float] = []
        self.states: list[datagrams.RigState] = []
        for kind in (datagrams.OPEN, datagrams.BEGIN):
            assert self.send(self.head(kind)) == "taken"
            self.receiver.reply()
        self.tick()

    def head(self, kind: int, counter: int = 0) -> Head:
        return Head(kind, 2, 7, counter, period=round(DT * 1e9), flags=self.flags, transport=1)

    def send(self, head: Head, rows: bytes = b"") -> str:
        return self.receiver.receive(datagrams.packed(head, rows))

    def command(self, drift: float, load: float, mode: int) -> str:
        """Send the Command of the next sample: drift in m, load in m or N."""
        self.sample += 1
        rows = datagrams.command_rows([drift, load], [0.0, 0.0], EMPTY, bytes([MODE_DISPLACEMENT, mode]))
        return self.send(self.head(datagrams.COMMAND, self.sample), rows)

    @property
    def true_force(self) -> float:
        drift, position = self.receiver.command[0], self.valve._state[0]
        return 0.0 if self.crushed else STIFFNESS * (position - 0.5 * drift**2 / LENGTH)

    def noise(self, rms: float) -> float:
        return rms * float(self._noise.standard_normal()) if self._noise is not None else 0.0

    def tick(self) -> datagrams.RigState:
        """Read the sensors, send the state, drive the command and step the controllers."""
        receiver, position = self.receiver, float(self.valve._state[0])
        force = self.cell(self.true_force + self.noise(NOISE_N))
        measured = position + self.noise(NOISE_M)
        sensors = receiver.sensors
        sensors.displacement[:2] = [receiver.command[0], measured]
        sensors.force[:2] = [0.0, force]
        sensors.mode[:2] = [MODE_DISPLACEMENT, self.mode]
        data = receiver.state()
        receiver.drive()
        if self.switches:
            self.mode = receiver.modes[1]
        command = receiver.command[1]
        if self.mode == MODE_FORCE:
            self.valve.step(command, force if math.isfinite(force) else command, 0.0)
        else:  # a controller in another mode than commanded holds its position
            self.valve.hold(command if receiver.modes[1] == self.mode else measured, measured)
        self.positions.append(position)
        self.forces.append(self.true_force)
        self.states.append(datagrams.state_of(data, datagrams.head_of(data)))
        return self.states[-1]

    def run(self, samples: int, load: float, mode: int = MODE_FORCE, drift: float = 0.0) -> None:
        for _ in range(samples):
            self.command(drift, load, mode)
            self.tick()

    def wait(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick()

    def pressed(self, load: float = LOAD) -> Column:
        """Apply the load at its rate and let it settle."""
        self.run(50, 0.0, MODE_DISPLACEMENT)
        self.run(round(load / LOOP.rate * RATE) + 200, load)
        assert self.receiver.reason == 0
        return self

    @property
    def ended(self) -> tuple[int, int]:
        return self.receiver.state_number, self.receiver.reason


def drift_at(time: float) -> float:
    """20 mm, 0.5 Hz, from rest."""
    return 0.010 * (1.0 - math.cos(2.0 * math.pi * 0.5 * time))


def test_load_is_held_at_rest_and_under_drift() -> None:
    column = Column().pressed()
    column.run(500, LOAD)
    rest = np.array(column.forces[-500:])
    assert np.abs(rest / LOAD - 1.0).max() < 0.01
    for k in range(4000):
        column.run(1, LOAD, drift=drift_at(k * DT))
    assert column.receiver.reason == 0
    drifting = np.array(column.forces[-4000:])
    assert 0.003 < np.abs(drifting / LOAD - 1.0).max() < 0.03
    uncorrected = STIFFNESS * 0.5 * 0.02**2 / LENGTH
    assert uncorrected > 0.13 * LOAD


def test_load_ramp_has_lag_of_closed_form() -> None:
    """A loop that reduces its error at the rate k_f follows a ramp of r N/s with the lag r / k_f."""
    column = Column(noise=False)
    column.run(50, 0.0, MODE_DISPLACEMENT)
    column.run(1000, LOAD)
    lag = column.receiver.command[1] - column.forces[-2]
    assert lag == pytest.approx(LOOP.rate / 60.0, rel=1e-6)
    assert column.receiver.command[1] < LOAD, "limited to the rate of the receiver"
    steps = np.diff([state.command[1] for state in column.states if state.in_newtons[1]])
    assert steps.max() <= LOOP.rate * DT * (1.0 + 2e-6)


@pytest.mark.parametrize("seed", range(3))
def test_changes_of_mode_move_less_than_sensor_noise(seed: int) -> None:
    """Modes under load: force, hold, force, hold. Commands of a hold are relative to its first one."""
    column = Column()
    column._noise = np.random.default_rng(seed)
    column.pressed()
    for mode in (MODE_DISPLACEMENT, MODE_FORCE, MODE_DISPLACEMENT):
        before = column.positions[-1]
        state = column.states[-1]
        command = float(state.displacement[1] + 3e-3 if mode == MODE_DISPLACEMENT else state.force[1])
        column.run(400, command, mode)
        assert column.receiver.modes[1] == mode
        moved = np.array(column.positions[-400:]) - before
        if mode == MODE_DISPLACEMENT:  # absolute position of the controller
            assert abs(float(moved[-200:].mean())) < NOISE_M
        assert np.abs(moved).max() < NOISE_M
        assert column.states[-1].modes[1] == (MODE_HELD if mode == MODE_DISPLACEMENT else MODE_FORCE)
        assert bool(column.states[-1].in_newtons[1]) == (mode == MODE_FORCE)
    moving = column.positions[-1]
    for k in range(100):
        column.run(1, command + 1e-7 * k, MODE_DISPLACEMENT)
    column.run(100, command + 1e-5, MODE_DISPLACEMENT)
    assert column.positions[-1] - moving == pytest.approx(1e-5, abs=NOISE_M)


def frozen_at(column: Column) -> Callable[[float], float]:
    reading = column.true_force
    return lambda force: reading


def drifting_cell() -> Callable[[float], float]:
    sample = itertools.count()
    return lambda force: force - 100e3 * DT * next(sample)


FAULTS: dict[str, tuple[Callable[[Column], None], set[int]]] = {
    "loss of stiffness": (lambda column: setattr(column, "crushed", True), {18, 19}),
    "wrong sign": (lambda column: setattr(column, "cell", lambda force: -force), {18, 19}),
    "frozen": (lambda column: setattr(column, "cell", frozen_at(column)), {19, 21}),
    "dead": (lambda column: setattr(column, "cell", lambda force: 0.0), {18, 19, 21}),
    "none": (lambda column: setattr(column, "cell", lambda force: math.nan), {14, 18, 19}),
    "drifting cell": (lambda column: setattr(column, "cell", drifting_cell()), {19}),
    "beyond its force": (lambda column: setattr(column, "cell", lambda force: force + 400e3), {14, 18, 19}),
    "another mode": (lambda column: vars(column).update(switches=False, mode=1), {18, 19, 20}),
}
"""Fault, and permitted reasons of the receiver to end the session."""


@pytest.mark.parametrize("phase", ["at rest", "rising", "drifting"])
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_ends_in_hold_within_stated_travel(fault: str, phase: str) -> None:
    column = Column().pressed(LOAD if phase != "rising" else 200e3)
    inject, reasons = FAULTS[fault]
    start, first = column.positions[-1], len(column.positions)
    inject(column)
    for k in range(2000):
        drift = drift_at(k * DT) if phase == "drifting" else 0.0
        column.run(1, LOAD, drift=drift)
        if column.receiver.state_number >= datagrams.BRAKING:
            break
    else:
        pytest.fail("the fault was not detected")
    assert column.ended[1] in reasons
    column.wait(400)
    assert column.receiver.at_rest
    assert column.receiver.modes[1] == MODE_DISPLACEMENT
    travel = np.abs(np.array(column.positions[first:]) - start).max()
    assert travel <= STATED
    assert travel <= 0.1e-3, "stated in doc/force_axes.md for this valve"
    assert np.ptp(column.positions[-100:]) < 3.0 * NOISE_M
    assert column.states[-1].modes[1] == MODE_DISPLACEMENT


def test_lost_commands_keep_force_until_other_axes_rest() -> None:
    column = Column().pressed()
    for k in range(500):
        column.run(1, LOAD, drift=drift_at(k * DT))
    first = len(column.forces)
    for _ in range(400):
        column.tick()
        moving = column.receiver._target.velocity[0] != 0.0
        assert column.receiver.modes[1] == MODE_FORCE or not moving
    assert column.ended == (datagrams.STOPPED, 1)
    assert column.receiver.modes[1] == MODE_DISPLACEMENT
    assert np.abs(np.array(column.forces[first:]) / LOAD - 1.0).max() < 0.03


def test_bridge_holds_force_and_stop_supervises_it() -> None:
    column = Column().pressed()
    column.command(0.0, LOAD + 300.0, MODE_FORCE)
    column.tick()
    column.wait(BRIDGED)
    assert (column.receiver.command[1], column.receiver.state_number) == (LOAD + 300.0, datagrams.RUNNING)
    column.sample += BRIDGED
    column.send(column.head(datagrams.CLOSE))
    column.crushed = True
    column.wait(100)
    assert column.receiver.at_rest
    assert np.abs(np.array(column.positions[-100:]) - LOAD / STIFFNESS).max() < STATED


def test_open_interlock_holds_loads_immediately() -> None:
    column = Column().pressed()
    column.receiver.sensors.interlock = 2
    column.command(0.0, LOAD, MODE_FORCE)
    column.tick()
    assert (column.receiver.modes[1], column.receiver.reason) == (MODE_DISPLACEMENT, 3)


def test_force_command_is_limited() -> None:
    column = Column(noise=False).pressed()
    column.run(3000, 2.0 * AXIAL.force)
    assert max(state.command[1] for state in column.states) <= AXIAL.force


def test_moving_axis_stops_before_force_mode() -> None:
    column = Column(noise=False)
    for k in range(100):
        column.run(1, 1e-5 * k, MODE_DISPLACEMENT)
    velocities = []
    for _ in range(200):
        column.run(1, 0.0)
        if column.receiver.modes[1] == MODE_DISPLACEMENT:
            velocities.append(column.receiver._target.velocity[1])
    assert np.abs(np.diff(velocities)).max() <= AXIAL.acceleration * DT * (1.0 + 1e-6)
    assert column.receiver.modes[1] == MODE_FORCE or column.receiver.reason


class Blind(Column):
    """Sensors that have never delivered a number."""

    def noise(self, rms: float) -> float:
        return math.nan


def test_axis_with_unknown_force_is_not_controlled_by_force() -> None:
    column = Blind()
    start = column.receiver.command[1]
    column.run(2 * PERSISTENCE, LOAD)
    assert {state.in_newtons[1] for state in column.states} == {0}
    assert {state.command[1] for state in column.states} == {start}
    assert column.receiver.reason == 14


def test_displacement_test_is_unchanged_by_force_loops() -> None:
    """Answers, states and commands of a test that does not request newtons are equal."""
    with_loops, without = Column(flags=0), Column(flags=0, loads=[], switching=1)
    for k in range(300):
        for column in (with_loops, without):
            column.run(1, 1e-6 * k, MODE_DISPLACEMENT, drift=drift_at(k * DT))
    for state, expected in zip(with_loops.states, without.states, strict=True):
        assert state.modes == expected.modes == bytes([1, 1])
        assert state.in_newtons == expected.in_newtons == bytes(2)
        np.testing.assert_array_equal(state.command, expected.command)
    for column in (with_loops, without):
        column.send(column.head(datagrams.OPEN))
    assert with_loops.receiver.reply() == without.receiver.reply()


def test_answer_has_limits_in_newtons_if_requested() -> None:
    column = Column()
    column.send(column.head(datagrams.OPEN))
    data = column.receiver.reply()
    answer = datagrams.answer_of(data, datagrams.head_of(data))
    assert answer.loads == [datagrams.FarLoad(0.0, math.inf, math.inf), datagrams.FarLoad(400e3, 50e3, TRAVEL)]


def test_force_command_without_loop_is_garbage() -> None:
    force, hold = MODE_FORCE, MODE_DISPLACEMENT
    column = Column()
    rows = datagrams.command_rows([0.0, 0.0], [0.0, 0.0], EMPTY, bytes([force, hold]))
    assert column.send(column.head(datagrams.COMMAND, 1), rows) == "garbage"
    assert Column(flags=0).command(0.0, 0.0, force) == "garbage"
    receiver = Receiver([DRIFT, AXIAL], DT, BRIDGED, WATCHDOG)
    assert receiver.receive(datagrams.packed(column.head(datagrams.OPEN))) == "refused"
    assert datagrams.head_of(receiver.reply()).reason == 17


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("rate", -1.0), ("rate", math.inf), ("rate", math.nan), ("error", 0.0), ("travel", math.nan)),
        *(("stiffness", 0.0), ("unit", 0.0), ("curvature", math.inf), ("coupled", 2)),
    ],
)
def test_invalid_limit_of_force_loop_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"receiver.load[1].{field} = {value:g}: must be ")):
        Column(loads=[NO_LOOP, LOOP._replace(**{field: value})])


def test_load_settings_without_loop_are_ignored() -> None:
    loads = [ReceiverLoad(0.0, -1.0, math.nan, 0.0, math.inf, 0.0, 1, 255), LOOP]
    column, reference = Column(loads=loads).pressed(10e3), Column().pressed(10e3)
    assert column.positions == reference.positions


def test_force_loop_needs_force_limit_and_switching_time() -> None:
    with pytest.raises(ConfigError):
        Column(switching=0)
    with pytest.raises(ConfigError):
        Receiver([AXIAL._replace(force=math.inf)], DT, BRIDGED, WATCHDOG, loads=[LOOP._replace(coupled=0)])
