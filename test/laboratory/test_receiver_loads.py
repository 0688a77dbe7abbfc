# SPDX-License-Identifier: Apache-2.0
"""The receiver before a controller with a force loop: limits in N and N/s, changes of mode, and when it holds."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rths_nodes.control.force_controllers.servo_valve import ServoValve
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import EMPTY, MODE_DISPLACEMENT, MODE_FORCE, MODE_HELD
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head
from rths_nodes.laboratory.receiver import Receiver, ReceiverLimits, ReceiverLoad

if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)

RATE = 1000.0
DT = 1.0 / RATE
STIFFNESS, LENGTH, LOAD = 1e9, 3.0, 500e3
"""A column of 3 m and 1000 kN/mm: a drift u of its head lowers it by u^2 / 2 l."""
NOISE_M, NOISE_N = 1e-6, 200.0
TRAVEL, FASTEST, PERSISTENCE = 20e-6, 0.02, 5
STATED = TRAVEL + FASTEST * (PERSISTENCE * DT + 2 * 0.003)
"""Travel of the receiver, and what the piston goes meanwhile with its valve wide open."""
BRIDGED, WATCHDOG, SWITCHING = 10, 60, 20
DRIFT = ReceiverLimits(0.1, 0.5, 5.0)
AXIAL = ReceiverLimits(0.01, 0.02, 0.3, force=700e3)
LOOP = ReceiverLoad(400e3, 50e3, TRAVEL, STIFFNESS, 1.0 / LENGTH, frozen=30)
NO_LOOP = ReceiverLoad()


class Column:
    """A receiver, two controllers of which the second has a valve and a force loop, and a column below them."""

    def __init__(self, noise: bool = True, flags: int = datagrams.NEWTONS, **changes: Any) -> None:
        given = {"persistence": PERSISTENCE, "loads": [NO_LOOP, LOOP], "switching": SWITCHING} | changes
        self.receiver = Receiver([DRIFT, AXIAL], DT, BRIDGED, WATCHDOG, groups=[0, 0], **given)
        self.flags, self.sample = flags, 0
        self.valve = ServoValve(from_data(ServoValve.Params, {"stiffness": STIFFNESS}, "law"), DT)
        self._noise = np.random.default_rng(1) if noise else None
        if not noise:
            self.receiver._target.config.load[1].frozen = 0
        self.crushed = False
        self.cell: Callable[[float], float] = lambda force: force
        self.switches = True
        self.mode = MODE_DISPLACEMENT
        self.places: list[float] = []
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
        """The Command of the coming sample: m of the drift, m or N of the load."""
        self.sample += 1
        rows = datagrams.command_rows([drift, load], [0.0, 0.0], EMPTY, bytes([MODE_DISPLACEMENT, mode]))
        return self.send(self.head(datagrams.COMMAND, self.sample), rows)

    @property
    def true_force(self) -> float:
        drift, place = self.receiver.command[0], self.valve._state[0]
        return 0.0 if self.crushed else STIFFNESS * (place - 0.5 * drift**2 / LENGTH)

    def noise(self, rms: float) -> float:
        return rms * float(self._noise.standard_normal()) if self._noise is not None else 0.0

    def tick(self) -> datagrams.RigState:
        """A tick: sensors, state, command, and what the controllers do with it."""
        receiver, place = self.receiver, float(self.valve._state[0])
        force = self.cell(self.true_force + self.noise(NOISE_N))
        shown = place + self.noise(NOISE_M)
        sensors = receiver.sensors
        sensors.displacement[:2] = [receiver.command[0], shown]
        sensors.force[:2] = [0.0, force]
        sensors.mode[:2] = [MODE_DISPLACEMENT, self.mode]
        data = receiver.state()
        receiver.drive()
        if self.switches:
            self.mode = receiver.modes[1]
        command = receiver.command[1]
        if self.mode == MODE_FORCE:
            self.valve.step(command, force if math.isfinite(force) else command, 0.0)
        else:  # one that has fallen out of its mode stays where it is
            self.valve.hold(command if receiver.modes[1] == self.mode else shown, shown)
        self.places.append(place)
        self.forces.append(self.true_force)
        self.states.append(datagrams.state_of(data, datagrams.head_of(data)))
        return self.states[-1]

    def run(self, samples: int, load: float, mode: int = MODE_FORCE, drift: float = 0.0) -> None:
        for _ in range(samples):
            self.command(drift, load, mode)
            self.tick()

    def pressed(self, load: float = LOAD) -> Column:
        """The load put on at its rate, and settled."""
        self.run(50, 0.0, MODE_DISPLACEMENT)
        self.run(round(load / LOOP.rate * RATE) + 200, load)
        assert self.receiver.reason == 0
        return self

    @property
    def ended(self) -> tuple[int, int]:
        return self.receiver.state_number, self.receiver.reason


def drift_at(time: float) -> float:
    """20 mm, 0.5 Hz, with an even beginning."""
    return 0.010 * (1.0 - math.cos(2.0 * math.pi * 0.5 * time))


def test_500_kn_are_kept_within_1_percent_at_rest_and_3_percent_drifting() -> None:
    column = Column().pressed()
    column.run(500, LOAD)
    rest = np.array(column.forces[-500:])
    assert np.abs(rest / LOAD - 1.0).max() < 0.01
    for k in range(4000):
        column.run(1, LOAD, drift=drift_at(k * DT))
    assert column.receiver.reason == 0
    drifting = np.array(column.forces[-4000:])
    assert 0.003 < np.abs(drifting / LOAD - 1.0).max() < 0.03
    unanswered = STIFFNESS * 0.5 * 0.02**2 / LENGTH
    assert unanswered > 0.13 * LOAD


def test_a_ramp_is_as_late_as_the_closed_form_of_the_loop_says() -> None:
    """Where an error fades at the rate k_f, a ramp of r N/s is late by r / k_f."""
    column = Column(noise=False)
    column.run(50, 0.0, MODE_DISPLACEMENT)
    column.run(1000, LOAD)
    late = column.receiver.command[1] - column.forces[-2]
    assert late == pytest.approx(LOOP.rate / 60.0, rel=1e-6)
    assert column.receiver.command[1] < LOAD, "the command goes at the rate of the receiver"
    steps = np.diff([state.command[1] for state in column.states if state.in_newtons[1]])
    assert steps.max() <= LOOP.rate * DT * (1.0 + 2e-6)


@pytest.mark.parametrize("seed", range(3))
def test_changes_of_mode_move_less_than_the_noise_of_the_sensor(seed: int) -> None:
    """Under load: by force, held, by force again. Held commands count from what the test computer says first."""
    column = Column()
    column._noise = np.random.default_rng(seed)
    column.pressed()
    for mode in (MODE_DISPLACEMENT, MODE_FORCE, MODE_DISPLACEMENT):
        before = column.places[-1]
        given = (
            column.states[-1].displacement[1] + 3e-3 if mode == MODE_DISPLACEMENT else column.states[-1].force[1]
        )
        column.run(400, float(given), mode)
        assert column.receiver.modes[1] == mode
        moved = np.array(column.places[-400:]) - before
        if mode == MODE_DISPLACEMENT:  # absolute: the controller goes where the receiver says that the axis is
            assert abs(float(moved[-200:].mean())) < NOISE_M
        assert np.abs(moved).max() < NOISE_M
        assert column.states[-1].modes[1] == (MODE_HELD if mode == MODE_DISPLACEMENT else MODE_FORCE)
        assert bool(column.states[-1].in_newtons[1]) == (mode == MODE_FORCE)
    moving = column.places[-1]
    for k in range(100):
        column.run(1, float(given) + 1e-7 * k, MODE_DISPLACEMENT)
    column.run(100, float(given) + 1e-5, MODE_DISPLACEMENT)
    assert column.places[-1] - moving == pytest.approx(1e-5, abs=NOISE_M)


def frozen_at(column: Column) -> Callable[[float], float]:
    shown = column.true_force
    return lambda force: shown


FAULTS: dict[str, tuple[Callable[[Column], None], set[int]]] = {
    "loss of stiffness": (lambda column: setattr(column, "crushed", True), {18, 19}),
    "wrong sign": (lambda column: setattr(column, "cell", lambda force: -force), {18, 19}),
    "frozen": (lambda column: setattr(column, "cell", frozen_at(column)), {19, 21}),
    "dead": (lambda column: setattr(column, "cell", lambda force: 0.0), {18, 19, 21}),
    "none": (lambda column: setattr(column, "cell", lambda force: math.nan), {14, 18, 19}),
    "drifting cell": (lambda column: setattr(column, "cell", drifting_cell()), {19}),
    "beyond its force": (lambda column: setattr(column, "cell", lambda force: force + 400e3), {14, 18, 19}),
    "another mode": (
        lambda column: (setattr(column, "switches", False), setattr(column, "mode", 1))[0],
        {18, 19, 20},
    ),
}
"""What goes wrong, and reasons of the receiver to end the session."""


def drifting_cell() -> Callable[[float], float]:
    sample = iter(range(10**6))
    return lambda force: force - 100e3 * DT * next(sample)


@pytest.mark.parametrize("phase", ["at rest", "rising", "drifting"])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_ends_held_within_the_stated_travel(fault: str, phase: str) -> None:
    column = Column().pressed(LOAD if phase != "rising" else 200e3)
    happens, reasons = FAULTS[fault]
    start, first = column.places[-1], len(column.places)
    happens(column)
    for k in range(2000):
        drift = drift_at(k * DT) if phase == "drifting" else 0.0
        column.run(1, LOAD, drift=drift)
        if column.receiver.state_number >= datagrams.BRAKING:
            break
    else:
        pytest.fail("nobody has noticed")
    assert column.ended[1] in reasons
    for _ in range(400):
        column.tick()
    assert column.receiver.at_rest
    assert column.receiver.modes[1] == MODE_DISPLACEMENT
    went = np.array(column.places[first:]) - start
    assert np.abs(went).max() <= STATED
    assert np.abs(went).max() <= 0.1e-3, "what doc/force_axes.md says of this valve"
    assert np.ptp(column.places[-100:]) < 3.0 * NOISE_M
    assert column.states[-1].modes[1] == MODE_DISPLACEMENT


def test_silence_keeps_the_force_until_the_others_rest_and_then_holds() -> None:
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


def test_a_bridge_holds_the_last_force_and_a_stop_goes_on_watching_it() -> None:
    column = Column().pressed()
    column.command(0.0, LOAD + 300.0, MODE_FORCE)
    column.tick()
    for _ in range(BRIDGED):
        column.tick()
    assert column.receiver.command[1] == LOAD + 300.0
    assert column.receiver.state_number == datagrams.RUNNING
    column.sample += BRIDGED
    column.send(column.head(datagrams.CLOSE))
    column.crushed = True
    for _ in range(100):
        column.tick()
    assert column.receiver.at_rest
    assert np.abs(np.array(column.places[-100:]) - LOAD / STIFFNESS).max() < STATED


def test_an_open_interlock_holds_every_load_at_once() -> None:
    column = Column().pressed()
    column.receiver.sensors.interlock = 2
    column.command(0.0, LOAD, MODE_FORCE)
    column.tick()
    assert (column.receiver.modes[1], column.receiver.reason) == (MODE_DISPLACEMENT, 3)


def test_a_command_beyond_the_force_limit_stays_at_it() -> None:
    column = Column(noise=False).pressed()
    column.run(3000, 2.0 * AXIAL.force)
    assert max(state.command[1] for state in column.states) <= AXIAL.force


def test_an_axis_that_moves_comes_to_rest_before_a_force_loop_takes_over() -> None:
    column = Column(noise=False)
    for k in range(100):
        column.run(1, 1e-5 * k, MODE_DISPLACEMENT)
    speeds = []
    for _ in range(200):
        column.run(1, 0.0)
        if column.receiver.modes[1] == MODE_DISPLACEMENT:
            speeds.append(column.receiver._target.velocity[1])
    assert np.abs(np.diff(speeds)).max() <= AXIAL.acceleration * DT * (1.0 + 1e-6)
    assert column.receiver.modes[1] == MODE_FORCE or column.receiver.reason


# -- what is told, and what is taken


def test_a_receiver_with_force_loops_gives_displacement_tests_the_same_bytes() -> None:
    """Answers and states to a test that does not ask for newtons, and what is driven."""
    with_loops, without = Column(flags=0), Column(flags=0, loads=[], switching=1)
    for k in range(300):
        for column in (with_loops, without):
            column.run(1, 1e-6 * k, MODE_DISPLACEMENT, drift=drift_at(k * DT))
    for one, other in zip(with_loops.states, without.states, strict=True):
        assert (one.modes, one.in_newtons) == (other.modes, bytes(2)) == (bytes([1, 1]), other.in_newtons)
        np.testing.assert_array_equal(one.command, other.command)
    for column in (with_loops, without):
        column.send(column.head(datagrams.OPEN))
    assert with_loops.receiver.reply() == without.receiver.reply()


def test_it_tells_its_limits_in_newtons_to_who_asks() -> None:
    column = Column()
    column.send(column.head(datagrams.OPEN))
    data = column.receiver.reply()
    answer = datagrams.answer_of(data, datagrams.head_of(data))
    assert answer.loads == [datagrams.FarLoad(0.0, math.inf, math.inf), datagrams.FarLoad(400e3, 50e3, TRAVEL)]


def test_commands_in_newtons_are_garbage_to_who_has_no_loop_or_was_not_asked() -> None:
    force, hold = MODE_FORCE, MODE_DISPLACEMENT
    column = Column()
    rows = datagrams.command_rows([0.0, 0.0], [0.0, 0.0], EMPTY, bytes([force, hold]))
    assert column.send(column.head(datagrams.COMMAND, 1), rows) == "garbage"
    assert Column(flags=0).command(0.0, 0.0, force) == "garbage"
    receiver = Receiver([DRIFT, AXIAL], DT, BRIDGED, WATCHDOG)
    assert receiver.receive(datagrams.packed(column.head(datagrams.OPEN))) == "refused"
    assert datagrams.head_of(receiver.reply()).reason == 17


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": -1.0},
        {"rate": math.inf},
        {"rate": math.nan},
        {"error": 0.0},
        {"travel": math.nan},
        {"stiffness": 0.0},
        {"unit": 0.0},
        {"curvature": math.inf},
        {"coupled": 2},
    ],
)
def test_limits_of_a_loop_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    ((field, value),) = wrong.items()
    with pytest.raises(ConfigError, match=re.escape(f"receiver.load[1].{field} = {value:g}: must be ")):
        Column(loads=[NO_LOOP, LOOP._replace(**wrong)])


def test_nothing_is_looked_at_where_there_is_no_loop() -> None:
    loads = [ReceiverLoad(0.0, -1.0, math.nan, 0.0, math.inf, 0.0, 1, 255), LOOP]
    one, other = Column(loads=loads), Column()
    for column in (one, other):
        column.pressed(10e3)
    assert one.places == other.places


def test_a_loop_needs_a_limit_of_force_and_a_time_to_change_its_mode() -> None:
    with pytest.raises(ConfigError):
        Column(switching=0)
    with pytest.raises(ConfigError):
        Receiver([AXIAL._replace(force=math.inf)], DT, BRIDGED, WATCHDOG, loads=[LOOP._replace(coupled=0)])
