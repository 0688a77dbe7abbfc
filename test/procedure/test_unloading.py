# SPDX-License-Identifier: Apache-2.0
"""Unloading ends within the tolerance of no force, or where it is; it goes no further than its bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from faulty_sensors import set_sensor
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.loop.procedure_record import AxisChecks, UnloadingRecord
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.rig_file import RigFile, on_rig
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure import unloading
from rths_nodes.procedure.clearance import Offsets
from rths_nodes.procedure.drive import RigDrive
from rths_nodes.procedure.motions import GuidedMotion, QuasiStatic

RANGE = 50e3
TRAVEL = 0.1
SMALL = 1e-3
RATE = 0.02
WAVE = {"type": "sine", "amplitude": 0.01, "frequency": 1.0}
NOISE = {"displacement_noise_rms": 2e-6, "force_noise_rms": 25.0}
STEEL = {"type": "elastoplastic_absorber", "stiffness": 2e6, "yield_force": 20e3, "post_yield_ratio": 0.05}
SPRING = {"type": "kelvin_voigt", "stiffness": 1e6, "damping": 0.0}
SOFT = {"type": "softening_elastomeric", "stiffness": 2e5, "damping": 1e4, "friction_force": 20e3}
SPECIMENS: dict[str, tuple[dict[str, Any], float]] = {
    "spring": ({"type": "kelvin_voigt", "stiffness": 1e6, "damping": 2e4}, 0.03),
    "yielded": (STEEL, 0.05),
    "sharply yielded": (STEEL | {"exponent": 20.0, "post_yield_ratio": 0.0}, 0.08),
    "yielded the other way": (STEEL, -0.05),
    "bouc_wen": (SOFT, 0.06),
    "with play": ({"type": "with_backlash", "width": 2e-3, "specimen": SPRING}, 0.03),
}


def scenario(
    axes: dict[str, dict[str, Any]], limits: dict[str, Any] | None = None, **bounds: dict[str, Any]
) -> Scenario:
    """Axes of the rig; ``bounds`` are what the rig file says of the unloading of an axis beside the usual."""
    what = {
        "version": 1,
        "name": "unloaded",
        "servo_rate": 256.0,
        "substeps": 1,
        "duration": 1.0,
        "integrator": {"type": "prescribed", "displacement": WAVE},
        "compensator": {"type": "none"},
        "axes": {name: {"actuator": {"type": "first_order", "alpha": 29.0}} | axis for name, axis in axes.items()},
    }
    known = {
        "displacement": {"unit": "m", "range": 0.2},
        "force": {"unit": "N", "range": RANGE},
        "command": {"unit": "m", "range": 0.2},
        "limits": {"stroke": 0.2, "velocity": 0.5, "force": 45e3} | (limits or {}),
        "slow_error": 5e-3,  # this actuator is 0.11 s late
        "small_move": {"displacement": SMALL, "velocity": RATE, "force": 10e3},
    }
    usual = {"travel": TRAVEL, "velocity": RATE}
    file = {
        "version": 1,
        "name": "bench",
        "port": {"type": "simulator", "transport_samples": 1},
        "axes": {name: known | {"unloading": usual | bounds.get(name, {})} for name in axes},
    }
    return from_data(Scenario, on_rig(what, from_data(RigFile, file)))


class Rig:
    """A rig that is held, and what was sent and measured of it since it was loaded."""

    def __init__(self, test: Scenario, unloaded: bool = True) -> None:
        heard: list[Measurement] = []
        self.test = test
        self.drive = RigDrive(Assembly(test).port, test, False, on_measurement=heard.append)
        self.drive.connect()
        for _ in range(128):
            self.drive.tick()
        command = self.drive.port.active_command
        offsets = Offsets.of(tuple(test.axes), heard, command, self.drive.command, "", 0.5)
        self.offsets = replace(offsets, unloaded=unloaded, confirmed=True)
        self.heard = heard
        self.sent: list[np.ndarray] = []

    def load(self, *places: float) -> None:
        """Lead the axes there, and back to none of it."""
        limits = self.test.limits
        velocity = np.full(len(limits), 0.1)
        walk = QuasiStatic.of(self.test, self.drive.command)
        ramp = walk.ramp(np.array(places), velocity, lambda measured: "")
        assert self.drive.drive(GuidedMotion(ramp, self.drive.command)).reason == ""
        for _ in range(256):
            self.drive.tick()
        self.heard.clear()
        write = self.drive.port.write

        def seen(command: Command) -> None:
            self.sent.append(command.command.copy())
            write(command)

        self.drive.port.write = seen  # type: ignore[method-assign]

    def unload(self, **checks: AxisChecks) -> UnloadingRecord:
        start = self.drive.command.copy()
        record = unloading.unload(self.drive, self.test, self.offsets, checks)
        sent = np.array([start, *self.sent])
        for index, axis in enumerate(self.test.axes.values()):
            assert axis.rig_axis is not None
            bounds = axis.rig_axis.unloading
            assert bounds is not None
            rate = np.abs(np.diff(sent[:, index])).max() * self.test.servo_rate
            assert rate <= bounds.velocity * (1.0 + 1e-6)
            assert np.abs(sent[:, index] - start[index]).max() <= bounds.travel * (1.0 + 1e-9)
        return record

    def true_force(self) -> np.ndarray:
        for _ in range(256):
            self.drive.tick()
        true = self.drive.port.truth()
        assert true is not None
        return true.force


@pytest.mark.parametrize("name", SPECIMENS)
@pytest.mark.parametrize("noisy", [False, True], ids=["", "noise"])
def test_it_ends_within_one_per_cent_and_goes_through_no_limit(name: str, noisy: bool) -> None:
    specimen, place = SPECIMENS[name]
    rig = Rig(scenario({"a": {"specimen": specimen, "sensors": NOISE if noisy else {}}}))
    rig.load(place)
    loaded = float(rig.true_force()[0])
    assert abs(loaded) > 0.2 * RANGE
    record = rig.unload()
    assert record.given_up == ""
    assert record.before["a"] == pytest.approx(loaded, rel=0.02)
    assert abs(rig.true_force()[0]) <= 0.01 * RANGE
    assert abs(record.after["a"]) <= 0.01 * RANGE
    if not noisy:  # where the specimen follows, it goes on to where nothing is left
        assert abs(record.after["a"]) <= 0.001 * RANGE
    assert record.travel["a"] * place < 0.0
    force = np.array([each.force[0] for each in rig.heard]) * np.sign(loaded)
    assert force.max() <= abs(loaded) + 6.0 * 25.0 + 1.0  # it never rises
    assert force.min() >= -0.02 * RANGE


@pytest.mark.parametrize(
    "wrong",
    [
        {"output": {"static_stiffness": 2e7}},
        {"output": {"lost_motion": 1e-3}},
        {"output": {"offset": 2e-3, "start": 1e-3}},
        {"sensors": {"force_offset": 400.0, "force_delay": 10}},
        {"actuator": {"type": "servo_hydraulic"}},
    ],
    ids=str,
)
def test_a_rig_that_is_wrong_is_unloaded_all_the_same(wrong: dict[str, Any]) -> None:
    rig = Rig(scenario({"a": {"specimen": STEEL} | wrong}))
    rig.load(0.05)
    lost = wrong.get("output", {}).get("lost_motion")
    assert rig.unload(a=AxisChecks(lost_motion=lost)).given_up == ""
    offset = wrong.get("output", {}).get("start", 0.0) + wrong.get("output", {}).get("offset", 0.0)
    tared = offset * 2e6  # what the rig stood under when its offsets were taken counts as none
    assert abs(rig.true_force()[0] - tared) <= 0.011 * RANGE + 0.2 * abs(tared)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"specimen": {"type": "kelvin_voigt", "stiffness": 0.0, "damping": 1e4}}, ("force", "fall")),
        ({"sensors": {"force_dead": 20e3}}, ("force", "fall")),
        ({"sensors": {"force_scale": -1.0}}, ("force", "rises")),
    ],
    ids=["weight alone", "dead load cell", "wrong sign"],
)
@pytest.mark.parametrize("noise", [0.0, 25.0], ids=["", "noise"])
def test_where_the_force_does_not_fall_it_ends_where_it_is(
    wrong: dict[str, Any], told: tuple[str, ...], noise: float
) -> None:
    sensors = {"force_offset": 20e3, "force_noise_rms": noise} | wrong.get("sensors", {})
    spring = {"type": "kelvin_voigt", "stiffness": 1e6}
    rig = Rig(scenario({"a": {"specimen": spring} | wrong | {"sensors": sensors}}), unloaded=False)
    rig.load(0.0)
    record = rig.unload()
    assert mentions(record.given_up, "axes.a", *told)
    assert mentions(record.given_up, "rig", "holds")
    gone = abs(float(rig.drive.command[0]))
    assert 0.0 < gone <= SMALL * (1.0 + 1e-9)
    after = len(rig.sent)
    rig.true_force()
    np.testing.assert_array_equal(rig.sent[after:], np.broadcast_to(rig.drive.command, (256, 1)))


def test_the_travel_ends_it_where_it_is() -> None:
    rig = Rig(scenario({"a": {"specimen": STEEL}}, a={"travel": 4e-3}))
    rig.load(0.05)
    record = rig.unload()
    assert mentions(record.given_up, "axes.a", "travel")
    assert abs(record.after["a"]) < abs(record.before["a"])


def test_an_unloaded_rig_does_not_move() -> None:
    rig = Rig(scenario({"a": {"specimen": STEEL}}))
    rig.load(0.0)
    record = rig.unload()
    assert (record.given_up, record.travel["a"]) == ("", 0.0)
    np.testing.assert_array_equal(np.array(rig.sent), np.zeros((len(rig.sent), 1)))


def test_axes_that_carry_weight_are_unloaded_last() -> None:
    axes = {"column": {"specimen": STEEL}, "floor": {"specimen": STEEL}}
    rig = Rig(scenario(axes, column={"carries_gravity": True}))
    rig.load(0.05, -0.05)
    assert rig.unload().given_up == ""
    sent = np.array(rig.sent)
    moved = [np.flatnonzero(np.diff(sent[:, index])) for index in (0, 1)]
    floor = np.array([each.force[1] for each in rig.heard])
    assert moved[0][0] > moved[1][0]
    assert abs(floor[moved[0][0]]) <= 0.01 * RANGE
    assert np.abs(rig.true_force()).max() <= 0.01 * RANGE


def test_nothing_moves_without_bounds() -> None:
    test = scenario({"a": {"specimen": STEEL}})
    axis = test.axes["a"]
    assert axis.rig_axis is not None
    data = test.data()
    data["axes"]["a"]["rig_axis"]["unloading"] = None
    rig = Rig(from_data(Scenario, data))
    with pytest.raises(ConfigError, match=naming("axes.a", "axes.a.unloading", "missing")):
        unloading.unload(rig.drive, rig.test, rig.offsets, {})


@pytest.mark.parametrize("how", ["frozen", "flickers", "flipped"])
@pytest.mark.parametrize("after", [0, 400, 1100])
@pytest.mark.parametrize("known", [2e6, None], ids=["stiffness known", "not known"])
def test_no_load_cell_that_dies_on_the_way_lets_the_axis_go_on(how: str, after: int, known: float | None) -> None:
    """A yielded bar, 11 mm from no force. Its cell goes wrong before, in the first steps, later."""
    rig = Rig(scenario({"a": {"specimen": STEEL, "sensors": NOISE}}, a={"velocity": 5e-3}))
    rig.load(0.05)
    loaded, write, begun = abs(float(rig.true_force()[0])), rig.drive.port.write, []
    rig.sent.clear()

    def then(command: Command) -> None:
        if len(rig.sent) == after:
            set_sensor(rig.drive.port, 0, "force", how)
        if len(rig.sent) >= after:
            true = rig.drive.port.truth()
            assert true is not None
            begun.append(float(true.displacement[0]))
        write(command)

    rig.drive.port.write = then  # type: ignore[method-assign]
    record = rig.unload(a=AxisChecks(stiffness=known))
    assert "axes.a: " in record.given_up
    if how != "flipped":
        assert mentions(record.given_up, "pressure", "controller")
    assert abs(begun[-1] - begun[0]) <= SMALL + 0.7e-3  # on the way it brakes first, and is 0.11 s late
    assert abs(rig.true_force()[0]) <= loaded + 100.0


def test_a_load_cell_that_drifts_is_found_before_anything_moves() -> None:
    rig = Rig(scenario({"a": {"specimen": STEEL, "sensors": NOISE}}))
    rig.load(0.05)
    set_sensor(rig.drive.port, 0, "force", "drifts", 1e3)
    record = rig.unload(a=AxisChecks(stiffness=2e6))
    assert mentions(record.given_up, "axes.a", "rests")
    assert record.travel["a"] == pytest.approx(0.0, abs=1e-5)
    np.testing.assert_array_equal(np.diff(np.array(rig.sent), axis=0), np.zeros((len(rig.sent) - 1, 1)))


def test_a_specimen_that_relaxes_is_unloaded() -> None:
    """Within 1 s by 63 %."""
    maxwell = {"type": "maxwell_damper", "damping": 1e6, "series_stiffness": 1e6, "parallel_stiffness": 5e5}
    rig = Rig(scenario({"a": {"specimen": maxwell}}))
    rig.load(0.03)
    assert rig.unload(a=AxisChecks(stiffness=1.5e6, late=0.12)).given_up == ""
    assert abs(rig.true_force()[0]) <= 0.011 * RANGE


@pytest.mark.parametrize("noise", [0.0, 150.0], ids=["", "noise"])
def test_axes_of_one_specimen_are_unloaded_together(noise: float) -> None:
    """The frame of marths_2023, pushed and turned."""
    sensors = [f"axes.actuator_{n}.sensors={{force_noise_rms: {noise}}}" for n in (1, 2)]
    plain = files.load("marths_2023", sensors).data()
    known = {
        "displacement": {"unit": "m", "range": 0.03},
        "force": {"unit": "N", "range": 60e3},
        "command": {"unit": "m", "range": 0.02847},
        "limits": {"stroke": 0.0281, "velocity": 10.0, "force": 60e3},
        "slow_error": 2e-3,
        "unloading": {"travel": 0.02, "velocity": 0.01},
    }
    file = {"version": 1, "name": "frame", "port": {"type": "simulator", "transport_samples": 1}}
    rig = Rig(
        from_data(
            Scenario, on_rig(plain, from_data(RigFile, file | {"axes": dict.fromkeys(plain["axes"], known)}))
        )
    )
    rig.load(6e-3, 4e-3)
    before = np.abs(rig.true_force())
    assert before.max() > 0.05 * 60e3
    record = rig.unload()
    assert record.given_up == ""
    assert np.abs(rig.true_force()).max() <= 0.01 * 60e3
    highest = np.abs([each.force for each in rig.heard]).max(axis=0)
    assert (highest <= before + 0.05 * 60e3 + 8.0 * noise + 1.0).all()
