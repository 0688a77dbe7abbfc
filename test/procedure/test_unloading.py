# SPDX-License-Identifier: Apache-2.0
"""Tests of unloading: it ends within the tolerance of zero force, or in place, and within its bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from faulty_sensors import set_sensor
from messages import mentions, naming
from slow_rig import connected, coupled, independent

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Command
from rths_nodes.core.validation import from_data
from rths_nodes.loop.procedure_record import VERIFIED, AxisChecks, UnloadingRecord
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import unloading
from rths_nodes.procedure.machine import ActRefused
from rths_nodes.procedure.motions import GuidedMotion, QuasiStatic
from rths_nodes.procedure.unloading import places

Axis = dict[str, Any]
RANGE = 50e3
TRAVEL = 0.1
SMALL = 1e-3
RATE = 0.02
NOISE = {"displacement_noise_rms": 2e-6, "force_noise_rms": 25.0}
STEEL = {"type": "elastoplastic_absorber", "stiffness": 2e6, "yield_force": 20e3, "post_yield_ratio": 0.05}
SPRING = {"type": "kelvin_voigt", "stiffness": 1e6, "damping": 0.0}
SOFT = {"type": "softening_elastomeric", "stiffness": 2e5, "damping": 1e4, "friction_force": 20e3}
SPECIMENS: dict[str, tuple[Axis, float]] = {
    "spring": (SPRING | {"damping": 2e4}, 0.03),
    "yielded": (STEEL, 0.05),
    "sharply yielded": (STEEL | {"exponent": 20.0, "post_yield_ratio": 0.0}, 0.08),
    "yielded the other way": (STEEL, -0.05),
    "bouc_wen": (SOFT, 0.06),
    "with play": ({"type": "with_backlash", "width": 2e-3, "specimen": SPRING}, 0.03),
}
RIG_AXIS = {
    "displacement": {"unit": "m", "range": 0.2},
    "force": {"unit": "N", "range": RANGE},
    "command": {"unit": "m", "range": 0.2},
    "limits": {"stroke": 0.2, "velocity": 0.5, "force": 45e3},
    "slow_error": 5e-3,  # this actuator is 0.11 s late
    "small_move": {"displacement": SMALL, "velocity": RATE, "force": 10e3},
}


def scenario(axes: dict[str, Axis], **bounds: Axis) -> Scenario:
    """Return a scenario of ``axes``; ``bounds`` change the unloading of an axis in the rig file."""
    usual = {"travel": TRAVEL, "velocity": RATE}
    return independent(axes, {name: RIG_AXIS | {"unloading": usual | bounds.get(name, {})} for name in axes})


class Rig:
    """A held rig, and the commands and measurements since it was loaded."""

    def __init__(self, test: Scenario, unloaded: bool = True) -> None:
        self.test = test
        self.drive, self.offsets, self.measurements = connected(test, unloaded)
        self.sent: list[np.ndarray] = []

    def load(self, *positions: float) -> None:
        """Move the axes to ``positions`` and let them settle."""
        goal, velocity = np.array(positions), np.full(len(self.test.limits), 0.1)
        motion = GuidedMotion(lambda command: QuasiStatic(self.test, command).ramp(goal, velocity))
        assert self.drive.drive(motion).reason == ""
        for _ in range(256):
            self.drive.tick()
        self.measurements.clear()
        write = self.drive.port.write

        def watched(command: Command) -> None:
            self.sent.append(command.command.copy())
            write(command)

        self.drive.port.write = watched  # type: ignore[method-assign]

    def unload(self, **checks: AxisChecks) -> UnloadingRecord:
        start = self.drive.command.copy()
        record = unloading.unload(self.drive, self.test, self.offsets, checks)
        sent = np.array([start, *self.sent])
        for index, axis in enumerate(self.test.axes.values()):
            bounds = axis.rig_axis.unloading
            rate = np.abs(np.diff(sent[:, index])).max() * self.test.servo_rate
            assert rate <= bounds.velocity * (1.0 + 1e-6)
            assert np.abs(sent[:, index] - start[index]).max() <= bounds.travel * (1.0 + 1e-9)
        return record

    def true_force(self) -> np.ndarray:
        for _ in range(256):
            self.drive.tick()
        return self.drive.port.truth().force


def test_axis_without_position_stays_at_present_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command changes during the warning if the rig is lost and returns."""
    rig = Rig(scenario({"a": {"specimen": SPRING}, "b": {"specimen": SPRING}}))
    rig.load(0.01, 0.01)
    drive, checks = rig.drive, dict.fromkeys("ab", AxisChecks(displacement_sign=VERIFIED))
    moved, present = drive.drive, drive.command + 1e-4

    def warned(motion: GuidedMotion) -> Any:
        drive.command = present.copy()
        return moved(motion)

    monkeypatch.setattr(drive, "drive", warned)
    record = unloading.unload(drive, rig.test, rig.offsets, checks, {"a": 0.008}, "A. Nyone")
    assert record.given_up == ""
    assert {command[1] for command in rig.sent} == {present[1]}
    assert drive.command[0] == pytest.approx(rig.offsets.held[0] + 0.008)


@pytest.mark.parametrize("name", SPECIMENS)
@pytest.mark.parametrize("noisy", [False, True], ids=["", "noise"])
def test_unloading_ends_within_one_percent_of_range(name: str, noisy: bool) -> None:
    specimen, position = SPECIMENS[name]
    rig = Rig(scenario({"a": {"specimen": specimen, "sensors": NOISE if noisy else {}}}))
    rig.load(position)
    before = float(rig.true_force()[0])
    assert abs(before) > 0.2 * RANGE
    record = rig.unload()
    assert (record.given_up, record.before["a"]) == ("", pytest.approx(before, rel=0.02))
    assert abs(rig.true_force()[0]) <= 0.01 * RANGE
    assert abs(record.after["a"]) <= 0.01 * RANGE
    if not noisy:  # where the specimen follows, unloading continues to zero force
        assert abs(record.after["a"]) <= 0.001 * RANGE
    assert record.travel["a"] * position < 0.0
    force = np.array([measured.force[0] for measured in rig.measurements]) * np.sign(before)
    assert force.max() <= abs(before) + 6.0 * 25.0 + 1.0  # never rises
    assert force.min() >= -0.02 * RANGE


@pytest.mark.parametrize(
    "fault",
    [
        {"output": {"static_stiffness": 2e7}},
        {"output": {"lost_motion": 1e-3}},
        {"output": {"offset": 2e-3, "start": 1e-3}},
        {"sensors": {"force_offset": 400.0, "force_delay": 10}},
        {"actuator": {"type": "servo_hydraulic"}},
    ],
    ids=str,
)
def test_imperfect_rig_is_unloaded(fault: Axis) -> None:
    rig = Rig(scenario({"a": {"specimen": STEEL} | fault}))
    rig.load(0.05)
    output = fault.get("output", {})
    assert rig.unload(a=AxisChecks(lost_motion=output.get("lost_motion"))).given_up == ""
    tared = (output.get("start", 0.0) + output.get("offset", 0.0)) * 2e6  # force when the offsets were taken, N
    assert abs(rig.true_force()[0] - tared) <= 0.011 * RANGE + 0.2 * abs(tared)


@pytest.mark.parametrize(
    ("fault", "parts"),
    [
        ({"specimen": {"type": "kelvin_voigt", "stiffness": 0.0, "damping": 1e4}}, ("force", "fall")),
        ({"sensors": {"force_dead": 20e3}}, ("force", "fall")),
        ({"sensors": {"force_scale": -1.0}}, ("force", "rises")),
    ],
    ids=["weight alone", "dead load cell", "wrong sign"],
)
@pytest.mark.parametrize("noise", [0.0, 25.0], ids=["", "noise"])
def test_unloading_ends_in_place_if_force_does_not_fall(fault: Axis, parts: tuple[str, ...], noise: float) -> None:
    sensors = {"force_offset": 20e3, "force_noise_rms": noise} | fault.get("sensors", {})
    spring = {"type": "kelvin_voigt", "stiffness": 1e6}
    rig = Rig(scenario({"a": {"specimen": spring} | fault | {"sensors": sensors}}), unloaded=False)
    rig.load(0.0)
    record = rig.unload()
    assert mentions(record.given_up, "axes.a", *parts)
    assert mentions(record.given_up, "rig", "held")
    assert 0.0 < abs(float(rig.drive.command[0])) <= SMALL * (1.0 + 1e-9)
    sent = len(rig.sent)
    rig.true_force()
    np.testing.assert_array_equal(rig.sent[sent:], np.broadcast_to(rig.drive.command, (256, 1)))


def test_unloading_ends_at_its_travel() -> None:
    rig = Rig(scenario({"a": {"specimen": STEEL}}, a={"travel": 4e-3}))
    rig.load(0.05)
    record = rig.unload()
    assert mentions(record.given_up, "axes.a", "travel")
    assert abs(record.after["a"]) < abs(record.before["a"])


def test_unloaded_rig_does_not_move() -> None:
    rig = Rig(scenario({"a": {"specimen": STEEL}}))
    rig.load(0.0)
    record = rig.unload()
    assert (record.given_up, record.travel["a"]) == ("", 0.0)
    np.testing.assert_array_equal(rig.sent, np.zeros((len(rig.sent), 1)))


def test_axes_that_carry_weight_are_unloaded_last() -> None:
    axes = {"column": {"specimen": STEEL}, "floor": {"specimen": STEEL}}
    rig = Rig(scenario(axes, column={"carries_gravity": True}))
    rig.load(0.05, -0.05)
    assert rig.unload().given_up == ""
    column, floor = (np.flatnonzero(np.diff(commands)) for commands in np.array(rig.sent).T)
    assert column[0] > floor[0]
    assert abs(rig.measurements[column[0]].force[1]) <= 0.01 * RANGE
    assert np.abs(rig.true_force()).max() <= 0.01 * RANGE


def test_unloading_needs_bounds() -> None:
    data = scenario({"a": {"specimen": STEEL}}).data()
    data["axes"]["a"]["rig_axis"]["unloading"] = None
    rig = Rig(from_data(Scenario, data))
    with pytest.raises(ConfigError, match=naming("axes.a", "axes.a.unloading", "missing")):
        unloading.unload(rig.drive, rig.test, rig.offsets, {})


@pytest.mark.parametrize("how", ["frozen", "flickers", "flipped"])
@pytest.mark.parametrize("after", [0, 400, 1100])
@pytest.mark.parametrize("stiffness", [2e6, None], ids=["stiffness known", "not known"])
def test_load_cell_that_fails_stops_unloading(how: str, after: int, stiffness: float | None) -> None:
    """The load cell of a yielded bar, 11 mm from zero force, fails before, in the first steps, or later."""
    rig = Rig(scenario({"a": {"specimen": STEEL, "sensors": NOISE}}, a={"velocity": 5e-3}))
    rig.load(0.05)
    before, write, positions = abs(float(rig.true_force()[0])), rig.drive.port.write, []
    rig.sent.clear()

    def failing(command: Command) -> None:
        if len(rig.sent) == after:
            set_sensor(rig.drive.port, 0, "force", how)
        if len(rig.sent) >= after:
            positions.append(float(rig.drive.port.truth().displacement[0]))
        write(command)

    rig.drive.port.write = failing  # type: ignore[method-assign]
    record = rig.unload(a=AxisChecks(stiffness=stiffness))
    assert "axes.a: " in record.given_up
    if how != "flipped":
        assert mentions(record.given_up, "pressure", "controller")
    assert abs(positions[-1] - positions[0]) <= SMALL + 0.7e-3  # the axis brakes first, and is 0.11 s late
    assert abs(rig.true_force()[0]) <= before + 100.0


def test_drifting_load_cell_is_found_before_motion() -> None:
    rig = Rig(scenario({"a": {"specimen": STEEL, "sensors": NOISE}}))
    rig.load(0.05)
    set_sensor(rig.drive.port, 0, "force", "drifts", 1e3)
    record = rig.unload(a=AxisChecks(stiffness=2e6))
    assert mentions(record.given_up, "axes.a", "rests")
    assert record.travel["a"] == pytest.approx(0.0, abs=1e-5)
    np.testing.assert_array_equal(np.diff(rig.sent, axis=0), np.zeros((len(rig.sent) - 1, 1)))


def test_relaxing_specimen_is_unloaded() -> None:
    """Its force relaxes by 63 % in 1 s."""
    maxwell = {"type": "maxwell_damper", "damping": 1e6, "series_stiffness": 1e6, "parallel_stiffness": 5e5}
    rig = Rig(scenario({"a": {"specimen": maxwell}}))
    rig.load(0.03)
    assert rig.unload(a=AxisChecks(stiffness=1.5e6, late=0.12)).given_up == ""
    assert abs(rig.true_force()[0]) <= 0.011 * RANGE


@pytest.mark.parametrize("noise", [0.0, 150.0], ids=["", "noise"])
def test_coupled_axes_are_unloaded_together(noise: float) -> None:
    """The frame of marths_2023 is displaced and rotated."""
    changes = [f"axes.actuator_{n}.sensors={{force_noise_rms: {noise}}}" for n in (1, 2)]
    rig = Rig(coupled(changes, slow_error=2e-3, unloading={"travel": 0.02, "velocity": 0.01}))
    rig.load(6e-3, 4e-3)
    before = np.abs(rig.true_force())
    assert before.max() > 0.05 * 60e3
    assert rig.unload().given_up == ""
    assert np.abs(rig.true_force()).max() <= 0.01 * 60e3
    highest = np.abs([measured.force for measured in rig.measurements]).max(axis=0)
    assert (highest <= before + 0.05 * 60e3 + 8.0 * noise + 1.0).all()


# -- Unloading by displacement, to a typed and signed position


@pytest.fixture
def held(walk):
    """A rig with a dead load cell that is held away from its zero after a run."""
    w = walk(
        "ground_motion={type: sine, amplitude: 0.5, frequency: 1.0}",
        "duration=1",
        "compensator.type=none",
        "axes.story_1.specimen={type: kelvin_voigt, stiffness: 7.6e6, damping: 0}",
    ).to_start()
    w.climb("g")
    w.tick(512)
    set_sensor(w.session.drive.port, 0, "force", "frozen")
    assert abs(w.sent[-1]) > 5e-3
    return w


def test_rig_with_dead_load_cell_is_unloaded_by_displacement(held):
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
    ("to", "signed", "parts"),
    [
        ({"story_1": 0.0}, "", ("unload.signed", "empty")),
        ({"story_1": 0.2}, "A", ("unload.to.story_1", "0.2 m", "<= 0.05 m", "unloading.travel")),
        ({"story_1": 0.3}, "A", ("unload.to.story_1", "0.3 m", "+- 0.25 m", "limits.stroke")),
        ({"story_1": float("nan")}, "A", ("unload.to.story_1", "nan m", "finite")),
        ({"north": 0.0}, "A", ("unknown", "axis", "north")),
    ],
)
def test_wrong_position_is_refused_before_motion(held, to, signed, parts):
    sent = len(held.sent)
    with pytest.raises(ConfigError, match=naming(*parts)):
        held.session.unload(to, signed)
    assert len(held.sent) == sent
    assert (held.session.state, held.record.unloading) == (State.HELD, [])
    assert not any("unloaded" in deviation for deviation in held.record.deviations)


def test_stop_before_unloading_records_no_deviation(held, monkeypatch):
    monkeypatch.setattr(held.session, "_warn", lambda act: held.session.stop("entered"))
    with pytest.raises(ActRefused, match="entered"):
        held.session.unload({"story_1": 0.0}, "A. Nyone")
    assert (held.session.state, held.record.deviations) == (State.HELD, [])


def test_frozen_displacement_stops_unloading_by_displacement(held):
    set_sensor(held.session.drive.port, 0, "displacement", "frozen")
    before = held.sent[-1]
    with pytest.raises(ActRefused, match=r"displacement|slow_error"):
        held.session.unload({"story_1": 0.0}, "A. Nyone")
    assert held.session.state is State.TRIPPED
    assert abs(held.sent[-1] - before) < 1.5e-3


def test_positions_are_typed_by_axis():
    assert places("0.001", ("a",)) == {"a": 0.001}
    assert places("a: 0.001, b: -0.002", ("a", "b")) == {"a": 0.001, "b": -0.002}
    for text, names in (("left", ("a",)), ("a: left", ("a", "b")), ("0,02", ("a",)), ("a: 0, a: 1", ("a", "b"))):
        with pytest.raises(ConfigError, match=naming("unload.to", "number")):
            places(text, names)
