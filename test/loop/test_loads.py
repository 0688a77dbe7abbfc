# SPDX-License-Identifier: Apache-2.0
"""Tests of loads: targets, limits, bridges, scenarios, the wire format, scaled specimens, vertical loads."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from loop_parts import collected
from messages import mentions, naming
from scipy.integrate import trapezoid

import rths_nodes
from rths_nodes.analysis.histories import Evaluation, energies
from rths_nodes.analysis.stability.judgement import judge
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_TRIPPED,
    MODE_DISPLACEMENT,
    MODE_FORCE,
    MODE_HELD,
    Command,
    Measurement,
)
from rths_nodes.core.validation import from_data
from rths_nodes.core.wire import Codec, RunMark
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.embedded import Outcome
from rths_nodes.loop.faults import FaultyLoop, parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.scenario.force_axes import SHARE, Load, load_history
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.bridges import BridgeParams, CommandBridge, fading_of
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Run

NAME = "column_under_axial_load"
DT = 1e-3
CLOSED_BY_CONTROLLER = "axes.load.force_control.closed_by=controller"
BY_FORCE = bytes([MODE_DISPLACEMENT, MODE_FORCE])
LIMITS = {
    "drift": Limits(stroke=0.1, velocity=1.0, force=1e5),
    "load": Limits(stroke=0.01, velocity=0.02, force=6e5, force_rate=1e5, force_error=5e4),
}


def targets_of(force: float, count: int, **data: Any) -> np.ndarray:
    next_target = load_history(from_data(Load, data), 1e5, DT, force)
    return np.array([next_target(k * DT) for k in range(1, count)])


def command(sample: int, target: float, load: float, modes: bytes = BY_FORCE) -> Command:
    numbers = np.array([target, load])
    return Command(sample, numbers, numbers.copy(), control_mode=modes)


# Targets


def test_load_ramps_smoothly_from_current_force() -> None:
    targets = targets_of(1e3, 200, value=4e3, ramp_time=0.1)
    assert targets[0] == pytest.approx(1e3, abs=0.1)
    assert targets[49] == pytest.approx(2.5e3, rel=1e-9), "half of the ramp"
    assert targets[99:].tolist() == [4e3] * 100
    assert max(np.diff(targets)) == pytest.approx(1.875 * 3e3 / 100, rel=1e-3)


def test_load_table_is_joined_at_force_rate_and_held() -> None:
    targets = targets_of(0.0, 1200, table=[[0.0, 1e3], [0.5, 1e3], [1.0, 6e3]])
    assert np.abs(np.diff(targets)).max() <= SHARE * 1e5 * DT * 1.000001
    assert (targets[200], targets[749], targets[-1]) == (1e3, pytest.approx(3.5e3), 6e3)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, ("ramp_time", "table")),
        ({"value": 1.0, "ramp_time": 1.0, "table": [[0.0, 1.0]]}, ("either", "value")),
        ({"value": 1.0}, ("ramp_time", "must be set", "value")),
        ({"table": [[0.0, 1.0, 2.0]]}, ("rows", "3", "numbers", "2")),
        ({"table": [[0.0, 1.0], [0.0, 2.0]]}, ("load.table", "increase")),
        ({"table": [[0.0, 1.0]], "held_for": 2.0, "held_from": 1.0}, ("held_from", "1 s", "> held_for", "2 s")),
    ],
)
def test_invalid_load_is_refused(data: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        from_data(Load, data, "load")


# Limits


def test_command_limits_follow_control_mode() -> None:
    check = LimitCheck(LIMITS, DT)
    assert check.command(command(2, 0.0, 5e5), [0.0, 5e5 - 99.0], BY_FORCE) == ""
    reason = check.command(command(2, 0.0, 600001.0), [0.0, 6e5], BY_FORCE)
    assert "axes.load.limits.force: command = 600001 N" in reason
    assert "axes.load.limits.force_rate" in check.command(command(2, 0.0, 5e5), [0.0, 5e5 - 101.0], BY_FORCE)
    assert check.command(command(2, 0.0, 5e5), [0.0, 1e-3], b"") == "", "no previous force after a mode change"
    assert "limits.stroke: command = 0.02 m" in check.command(command(2, 0.0, 0.02, b""), [0.0, 0.02], b"")
    assert "limits.velocity" in check.command(command(2, 0.0, 1e-3, b""), [0.0, 0.0], b"")
    assert check.command(command(2, 0.0, 1e-3, b""), [0.0, 5e5], BY_FORCE) == "", "back in displacement control"
    assert mentions(check.command(command(2, 0.0, float("nan")), [0.0, 0.0], BY_FORCE), "must be finite")
    assert "axes.drift.limits.velocity" in check.command(command(2, 0.01, 5e5), [0.0, 5e5], BY_FORCE)


def test_first_violated_limit_of_force_command_is_reported() -> None:
    """Target before command, then the mode of the rig, then force before its rate; NaN violates each limit."""
    check, nan, inf = LimitCheck(LIMITS, DT), math.nan, math.inf

    def reason(target: float, load: float, before: float = 0.0) -> str:
        wanted = Command(2, np.array([0.0, target]), np.array([nan, load]), control_mode=BY_FORCE)
        return check.command(wanted, [0.0, before], BY_FORCE)

    assert mentions(reason(nan, inf), "axes.load: target = nan:", "finite")
    assert mentions(reason(0.0, inf), "axes.load: command = inf:", "finite")
    assert "axes.load.limits.force: command = 700000 N" in reason(0.0, 7e5)
    assert "axes.load.limits.force_rate: command = nan N/s" in reason(0.0, 6e5, nan)
    assert mentions(reason(0.0, 6e5, 6e5), "axes.drift: command = nan:", "finite")
    assert check.measurement(Measurement(1, *np.zeros((3, 2)), control_mode=bytes(2)), np.zeros(2)) == ""
    assert mentions(reason(0.0, 7e5), "axes.load: the rig", "control mode")
    assert mentions(reason(0.0, -inf), "axes.load: command = -inf:", "finite")


def test_force_error_limit() -> None:
    check = LimitCheck(LIMITS, DT)
    measured = Measurement(1, np.array([0.0, 1e-3]), np.array([0.0, 4e5]), np.zeros(2), control_mode=BY_FORCE)
    assert check.measurement(measured, np.array([0.0, 4.4e5]), BY_FORCE) == ""
    reason = check.measurement(measured, np.array([0.0, 4.6e5]), BY_FORCE)
    assert mentions(reason, "axes.load.limits.force_error", "60000 N")
    assert check.measurement(measured, np.array([0.0, 1e-3]), b"") == "", "no force target in displacement control"
    measured.displacement[1] = float("nan")
    assert "axes.load.limits.stroke" in check.measurement(measured, np.array([0.0, 4e5]), BY_FORCE)


@pytest.mark.parametrize("modes", [b"", bytes([MODE_DISPLACEMENT, MODE_DISPLACEMENT])])
def test_force_commands_require_reported_control_mode(modes: bytes) -> None:
    check = LimitCheck(LIMITS, DT)
    measured = Measurement(1, np.zeros(2), np.zeros(2), np.zeros(2), control_mode=modes)
    assert check.measurement(measured, np.zeros(2)) == ""
    assert mentions(check.command(command(2, 0.0, 1.0), [0.0, 0.0]), "commands in N", "none")
    measured.control_mode = bytes([MODE_DISPLACEMENT, MODE_HELD])
    assert check.measurement(measured, np.zeros(2)) == ""
    assert check.command(command(2, 0.0, 1.0), [0.0, 0.0]) == ""


# Bridges


def make_bridge() -> CommandBridge:
    bridge = CommandBridge(fading_of(BridgeParams(), LIMITS, DT), DT, np.zeros(2), np.zeros(0), [1e5])
    bridge.start(np.array([0.0, 2e-3]))
    return bridge


def test_bridge_holds_load_and_continues_motion() -> None:
    bridge = make_bridge()
    for k in (1, 2):
        bridge.rejoin(command(k, 1e-4 * k, 1e5 + 50.0 * k))
    bridged = bridge.command(3)
    assert bridged.command.tolist() == pytest.approx([3e-4, 1e5 + 100.0])
    assert bridged.control_mode == BY_FORCE
    assert bridged.flags & FLAG_BRIDGED
    assert bridge.command(4).command[1] == 1e5 + 100.0


def test_load_catches_up_within_force_rate_after_bridge() -> None:
    bridge = make_bridge()
    bridge.rejoin(command(1, 0.0, 1e5))
    for k in range(2, 12):
        bridge.command(k)
    loads = [bridge.rejoin(command(k, 0.0, 1e5 + 50.0 * (k - 1))).command[1] for k in range(12, 60)]
    assert np.diff([1e5, *loads]).max() <= 1e5 * DT
    assert loads[-1] == 1e5 + 50.0 * 58


def test_bridge_applies_change_of_mode() -> None:
    bridge = make_bridge()
    bridge.rejoin(command(1, 0.0, 2e-3, b""))
    assert bridge.command(2).command[1] == 2e-3
    assert bridge.rejoin(command(3, 0.0, 7e4)).command[1] == 7e4


def run_with_fault(fault: str, *sets: str) -> tuple[Outcome, Run]:
    """Run the shipped test for 2 s, the ground at rest for the first 0.1 s."""
    scenario = files.load(NAME, ["duration=2", "ground_motion.delay=0.1", *sets])
    outcome, run = collected(FaultyLoop(Assembly(scenario), [parse(fault)]))
    assert outcome.state is State.FINISHED, outcome.reason
    return outcome, run


def test_load_is_held_while_late_commands_are_bridged() -> None:
    """Some Commands are four samples late while the load and the drift change."""
    _, run = run_with_fault("delay@0.5:command,4,6", "axes.load.load={value: 50.0e3, ramp_time: 1.0}")
    assert (run.flags & FLAG_BRIDGED).sum() >= 4
    assert np.nanmax(np.abs(run.loads.error)) < 2e3


def test_pause_holds_load() -> None:
    sets = ["axes.load.load={value: 50.0e3, ramp_time: 0.4}", "bridge.when_late=pause"]
    outcome, run = run_with_fault("delay@1.0:target,60,1", *sets)
    assert outcome.timing["pauses"] >= 1
    assert np.nanmax(np.abs(run.loads.error[1024:])) < 2e3


# Scenarios


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["axes.load.load=null"], ("axes.load.load", "missing")),
        (["axes.load.force_control=null"], ("axes.load.force_control", "missing")),
        (["axes.load.limits.force_rate=null"], ("axes.load.limits.force_rate", "missing")),
        (["axes.load.limits.force_error=null"], ("axes.load.limits.force_error", "missing")),
        (["axes.load.limits.tracking_error=0.1"], ("tracking_error", "left")),
        (["axes.load.limits.levels={command_step: {maximum: 1.0}}"], ("levels.command_step", "left")),
        (["axes.load.mode=displacement"], ("axes.load.load", "mode")),
        (["axes.drift.limits.force_rate=1.0"], ("axes.drift.limits.force_rate", "axis")),
        (["axes.load.load.value=800.0e3"], ("800000 N", "< limits.force", "700000 N")),
        (["axes.load.load.ramp_time=1.0"], ("ramp_time", "1 s", ">= 2.604 s")),
        (["axes.load.load={table: [[0, 0], [1, 5.0e5]]}"], ("<= 360000 N/s",)),
        (["axes.load.force_control.closed_by=somebody"], ("known", "controller", "nodes")),
        (["port={type: ros2_control}", CLOSED_BY_CONTROLLER], ("ros2_control", "displacements")),
    ],
)
def test_incomplete_load_axis_is_refused(sets: list[str], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        override(files.load(NAME), sets)


def test_force_axes_must_come_last() -> None:
    data = files.load(NAME).data()
    data["axes"] = {name: data["axes"][name] for name in ("load", "drift")}
    with pytest.raises(ConfigError, match=naming("mode", "drift")):
        from_data(Scenario, data)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["axes.load.force_control.law.coupled_to=2"], ("coupled_to", "2", "<= 1")),
        (["axes.load.force_control.law.integral_gain=200"], ("force", "loop", "unstable")),
        (["setup.inclined_by=2"], ("inclined_by", "2", "<= 1")),
        (["setup.force_axis=2"], ("force_axis", "2", "<= 1")),
    ],
)
def test_incompatible_force_loop_and_setup_are_refused(sets: list[str], words: tuple[str, ...]) -> None:
    scenario = override(files.load(NAME), sets)

    def fits() -> None:
        for section in ("axes", "setup"):
            scenario.check_fit(section)

    with pytest.raises(ConfigError, match=naming(*words)):
        fits()


def test_recording_of_load_after_trip() -> None:
    sets = ["duration=3", "ground_motion.delay=0.1", "axes.drift.limits.force=9.0e3"]
    scenario = files.load(NAME, [*sets, "axes.load.load={value: 50.0e3, ramp_time: 0.4, held_for: 0.1}"])
    outcome, run = collected(FaultyLoop(Assembly(scenario), []))
    assert outcome.state is State.TRIPPED
    loads = run.loads
    tripped = np.flatnonzero(run.flags & FLAG_TRIPPED)[1:]  # the first one is under force control
    assert len(tripped)
    assert np.isnan(loads.target[tripped]).all()
    assert np.isnan(loads.held[tripped[:-1]]).all()
    assert np.isfinite(loads.held[tripped[-1]]).all()
    assert np.isnan(loads.held[600]).all()
    assert loads.command[900, 0] == pytest.approx(50e3)


def test_codec_packs_force_commands_with_their_mode() -> None:
    run = RunMark()
    loaded, plain = (Codec(1, 2, 0, run=run, n_force=n) for n in (1, 0))
    newtons, metres = command(3, 0.1, 5e5), command(3, 0.1, 0.2, b"")
    back, _ = loaded.unpack_command(loaded.pack_command(newtons, 7))
    assert (back.control_mode, back.command.tolist()) == (BY_FORCE, [0.1, 5e5])
    assert loaded.pack_command(metres, 7) == plain.pack_command(metres, 7)
    assert loaded.unpack_command(loaded.pack_command(metres, 7))[0].control_mode == b""
    with pytest.raises(ValueError, match=naming("displacement", "axes")):
        plain.unpack_command(plain.pack_command(newtons, 7))
    for modes in ([MODE_FORCE, MODE_FORCE], [MODE_DISPLACEMENT, MODE_HELD], [MODE_DISPLACEMENT, 0]):
        with pytest.raises(ValueError, match=naming("displacement", "1", "axes")):
            loaded.unpack_command(loaded.pack_command(command(3, 0.1, 5e5, bytes(modes)), 7))


# Scaled specimens

NOISELESS = [f"axes.{a}.sensors.{b}_noise_rms=0" for a in ("drift", "load") for b in ("displacement", "force")]
LENGTH, FORCE = 4.0, 16.0
LOAD, ACTUATOR = 500e3, 2.0

OnRig = Callable[..., Scenario]


@pytest.fixture
def on_rig(tmp_path: Path) -> OnRig:
    """Load the shipped test on the rig of a specimen scaled by ``length`` and ``force``."""

    def on_rig(length: float, force: float, *more: str, other: dict[str, float] | None = None) -> Scenario:
        scale = {"length": length, "force": force}
        axes: dict[str, Any] = {}
        for name, axis in files.load(NAME).data()["axes"].items():
            limits = {key: value for key, value in axis["limits"].items() if value is not None}
            for key, factor in (("stroke", length), ("velocity", length), ("force", force)):
                limits[key] /= factor
            for key in limits.keys() & {"force_rate", "force_error"}:
                limits[key] *= 5.0 / force  # for a short ramp
            axes[name] = {
                "displacement": {"unit": "m", "range": 2.0 * limits["stroke"]},
                "force": {"unit": "N", "range": 2.0 * limits["force"]},
                "command": {"unit": "m", "range": 2.0 * limits["stroke"]},
                "similitude": scale if name == "load" or other is None else other,
                "limits": limits,
            }
        lengths = {"column_length": 3.0 / length, "actuator_length": 2.0 / length}
        law = {"type": "feed_forward_pi", "stiffness": 1e9 * length / force, "lead": 0.0137, "column": lengths}
        axes["load"]["force_control"] = {"closed_by": "nodes", "largest_correction": 10e-6 / length, "law": law}
        data = {"version": 1, "name": "scaled", "port": {"type": "simulator"}, "axes": axes}
        file = tmp_path / f"scale_{length:g}.yaml"
        file.write_text(yaml.safe_dump(data))
        softer = length / force
        rig = [f"rig.{key}={value!r}" for key, value in lengths.items()]
        rig += [f"rig.axial_stiffness={1e9 * softer!r}", f"rig.lateral.stiffness={1e6 * softer!r}"]
        rig += [f"rig.lateral.damping={10e3 * softer!r}"]
        return files.load(NAME, [*NOISELESS, *rig, *more], rig=file)

    return on_rig


SOON = "{value: 500.0e3, ramp_time: 1.0, held_for: 0.1}"
BRIEF = ("duration=2.5", "ground_motion.delay=1.2", f"axes.load.load={SOON}")


def test_scaled_specimen_has_bits_of_full_scale(on_rig: OnRig) -> None:
    """A quarter of the length, a sixteenth of the force; the scenario states the load of the structure."""
    full = rths_nodes.run(on_rig(1.0, 1.0, *BRIEF))
    small = rths_nodes.run(on_rig(LENGTH, FORCE, *BRIEF))
    assert full.outcome == small.outcome == "finished"
    assert np.abs(full.dof_displacement).max() > 1e-3
    np.testing.assert_array_equal(small.dof_displacement, full.dof_displacement)
    np.testing.assert_array_equal(LENGTH * small.displacement, full.displacement)
    np.testing.assert_array_equal(FORCE * small.force, full.force)
    assert full.loads.force.max() == pytest.approx(LOAD, rel=1e-3)
    np.testing.assert_array_equal(FORCE * small.loads.force, full.loads.force)
    np.testing.assert_array_equal(FORCE * small.loads.target, full.loads.target)
    np.testing.assert_array_equal(LENGTH * small.loads.displacement, full.loads.displacement)
    assert small.metrics["hsem_percent"] == pytest.approx(full.metrics["hsem_percent"], rel=1e-12)


def test_scale_not_power_of_two_agrees_within_rounding(on_rig: OnRig) -> None:
    full, small = (rths_nodes.run(on_rig(*scale, *BRIEF)) for scale in ((1.0, 1.0), (3.0, 7.0)))
    np.testing.assert_allclose(small.dof_displacement, full.dof_displacement, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(7.0 * small.loads.force, full.loads.force, rtol=1e-6, atol=1.0)


def test_stability_is_independent_of_scale(on_rig: OnRig) -> None:
    full, small = (judge(on_rig(*scale)) for scale in ((1.0, 1.0), (LENGTH, FORCE)))
    assert small.critical_delay == pytest.approx(full.critical_delay, rel=1e-6)
    assert small.modes[0].frequency == pytest.approx(full.modes[0].frequency, rel=1e-6)
    (full_loop,), (small_loop,) = full.force_loops, small.force_loops
    assert small_loop.load == full_loop.load / FORCE
    assert small_loop.stiffness == pytest.approx(full_loop.stiffness * LENGTH / FORCE, rel=1e-6)
    assert small_loop.further_delay == pytest.approx(full_loop.further_delay, rel=1e-6)


def test_axes_of_one_specimen_must_have_one_scale(on_rig: OnRig) -> None:
    with pytest.raises(ConfigError, match=naming("axes.load", "drift")):
        on_rig(LENGTH, FORCE, other={"length": 1.0, "force": 1.0})


def test_load_beyond_scaled_limit_is_refused(on_rig: OnRig) -> None:
    with pytest.raises(ConfigError, match=naming("axes.load.load", "50000 N", "< limits.force", "43750 N")):
        on_rig(LENGTH, FORCE, "axes.load.load.value=800.0e3", "axes.load.load.ramp_time=10")


# Vertical loads

STRONG = ("axes.load.limits.force_rate=2.0e6",)
SLOWLY = (
    *("structure=null", "ground_motion={type: none}", f"axes.load.load={SOON}", "duration=5.5"),
    "integrator={type: prescribed, displacement: {type: delayed, delay: 1.3, "
    "motion: {type: harmonic, amplitude: 0.05, frequency: 0.25, periods: 1}}}",
    *("rig.actuator_length=0.5", "setup.actuator_length=0.5", "axes.load.limits.stroke=0.05"),
    *("axes.load.limits.velocity=0.1", "axes.load.limits.force_rate=2.0e6", "axes.drift.limits.velocity=0.4"),
    *(
        "axes.load.force_control.law.column.actuator_length=0.5",
        "axes.load.force_control.law.integral_gain=40",
        "axes.load.force_control.largest_correction=0.1e-3",
    ),
    *("axes.load.sensors.force_noise_rms=0", "axes.drift.sensors.displacement_noise_rms=0"),
)
"""Slow drift below an actuator of 0.5 m, whose inclination matters: 50 mm are 0.5 %."""


def test_vertical_load_is_kept_by_inclined_actuator() -> None:
    """The actuator pushes P / cos b; otherwise the column loses P (1 - cos b)."""
    lost = []
    for on in ("false", "true"):
        run = rths_nodes.run(NAME, [*SLOWLY, f"axes.load.load.vertical={on}"])
        assert run.outcome == "finished"
        moves = run.time > 2.0
        drift, push = run.true_displacement[moves, 0], run.loads.true_force[moves, 0]
        upright = np.sqrt(1.0 - (drift / (0.5 + run.loads.true_displacement[moves, 0])) ** 2)
        lost.append(1.0 - push * upright / LOAD)
    relieved = 1.0 - math.sqrt(1.0 - 0.1**2)
    assert (lost[0] - lost[1]).max() == pytest.approx(relieved, rel=0.03)  # both loops have the same delay
    assert np.abs(lost[1]).max() < 0.2 * relieved


def test_target_of_vertical_load_is_divided_by_cosine() -> None:
    run = rths_nodes.run(NAME, [*BRIEF, *STRONG, "axes.load.load.vertical=true"])
    late = run.time > 1.2
    expected = LOAD * np.hypot(1.0, run.target[late, 0] / ACTUATOR)
    np.testing.assert_allclose(run.loads.target[late, 0], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("axes.load.force_control.law.column.actuator_length=null", ("load.vertical", "column.actuator_length")),
        ("axes.load.force_control.law.column=null", ("load.vertical", "column.actuator_length")),
        ("axes.load.limits.force=500.1e3", ("load.vertical", "500625 N", "< limits.force", "500100 N")),
        ("axes.drift.limits.velocity=9.0", ("load.vertical", "112500 N/s")),
    ],
)
def test_invalid_vertical_load_is_refused(change: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        files.load(NAME, ["axes.load.load.vertical=true", change])


def test_rig_without_setup_cannot_be_scaled() -> None:
    assert (files.load("phillips_spencer_2012").rig.to_scale, files.load(NAME).rig.to_scale) == (False, True)


def test_energy_error_excludes_work_of_load() -> None:
    """Energy of the specimen minus energy of the structure; the setup subtracts the load at the target.

    The push P sin b does the same work along the measured path and the target path, so the energy error depends
    only on the measured force F, and the monitor computes it.
    """
    run = rths_nodes.run(NAME, [*BRIEF, *STRONG, "duration=4.0", "compensator={type: none}", *NOISELESS])
    moved, push = run.displacement[:, 0], run.loads.force[:, 0]
    restoring = run.force[:, 0] + push * moved / np.hypot(ACTUATOR, moved)
    of_specimen = trapezoid(restoring, moved)
    of_structure = energies(Evaluation(run))["experimental substructure"][-1]
    fed_in = run.metrics["hsem_percent"] / 100.0 * Evaluation(run).running.input_energy[-1]
    assert abs(fed_in) > 10.0
    assert of_specimen - of_structure == pytest.approx(fed_in, rel=0.05)  # steps against samples


def test_scenario_with_scaled_rig_file_round_trip(on_rig: OnRig) -> None:
    scenario = on_rig(LENGTH, FORCE)
    assert files.from_text(dump(scenario.data()), "again") == scenario
    axis = scenario.axes["load"]
    assert axis.load.largest == FORCE * axis.own_load.largest
