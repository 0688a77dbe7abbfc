# SPDX-License-Identifier: Apache-2.0
"""Force targets, their limits and bridges, what a scenario must say of them, and newtons on the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

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
from rths_nodes.core.wire.codec import Codec
from rths_nodes.core.wire.layout import RunMark
from rths_nodes.loop.faults.embedded import FaultyLoop
from rths_nodes.loop.faults.kinds import parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.loads import SHARE, Load, LoadHistory
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.bridges import BridgeParams, CommandBridge
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.loads import LoadBridge, fading_of
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Collector

NAME = "column_under_axial_load"
DT = 1e-3
BY_FORCE = bytes([MODE_DISPLACEMENT, MODE_FORCE])
LIMITS = {
    "drift": Limits(stroke=0.1, velocity=1.0, force=1e5),
    "load": Limits(stroke=0.01, velocity=0.02, force=6e5, force_rate=1e5, force_error=5e4),
}


def history(rate: float = 1e5, **data: Any) -> LoadHistory:
    return LoadHistory(from_data(Load, data), rate, DT)


def command(sample: int, target: float, load: float, modes: bytes = BY_FORCE) -> Command:
    numbers = np.array([target, load])
    return Command(sample, numbers, numbers.copy(), control_mode=modes)


# -- targets


def test_a_value_is_reached_smoothly_from_the_force_that_is_there() -> None:
    load = history(value=4e3, ramp_time=0.1)
    load.begin(1e3)
    found = [load.step(k * DT) for k in range(1, 200)]
    assert found[0] == pytest.approx(1e3, abs=0.1)
    assert found[49] == pytest.approx(2.5e3, rel=1e-9), "half way"
    assert found[99:] == [4e3] * 100
    assert max(np.diff(found)) == pytest.approx(1.875 * 3e3 / 100, rel=1e-3)


def test_a_table_is_joined_at_the_force_rate_and_kept_beyond_its_end() -> None:
    load = history(table=[[0.0, 1e3], [0.5, 1e3], [1.0, 6e3]])
    load.begin(0.0)
    found = np.array([load.step(k * DT) for k in range(1, 1200)])
    assert np.abs(np.diff(found)).max() <= SHARE * 1e5 * DT * 1.000001
    assert found[200] == 1e3
    assert found[749] == pytest.approx(3.5e3)
    assert found[-1] == 6e3


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
def test_a_target_that_is_none_is_refused(data: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        from_data(Load, data, "load")


# -- limits


def checked() -> LimitCheck:
    return LimitCheck(LIMITS, DT)


def test_commands_are_judged_in_the_unit_of_their_mode() -> None:
    check = checked()
    assert check.command(command(2, 0.0, 5e5), [0.0, 5e5 - 99.0], BY_FORCE) == ""
    assert "axes.load.limits.force: command = 600001 N" in check.command(
        command(2, 0.0, 600001.0), [0.0, 6e5], BY_FORCE
    )
    assert "axes.load.limits.force_rate" in check.command(command(2, 0.0, 5e5), [0.0, 5e5 - 101.0], BY_FORCE)
    assert check.command(command(2, 0.0, 5e5), [0.0, 1e-3], b"") == "", (
        "the mode changes: there was no force before"
    )
    assert "limits.stroke: command = 0.02 m" in check.command(command(2, 0.0, 0.02, b""), [0.0, 0.02], b"")
    assert "limits.velocity" in check.command(command(2, 0.0, 1e-3, b""), [0.0, 0.0], b"")
    assert check.command(command(2, 0.0, 1e-3, b""), [0.0, 5e5], BY_FORCE) == "", "held again"
    assert mentions(check.command(command(2, 0.0, float("nan")), [0.0, 0.0], BY_FORCE), "must be finite")
    assert "axes.drift.limits.velocity" in check.command(command(2, 0.01, 5e5), [0.0, 5e5], BY_FORCE)


def test_a_measured_force_is_held_against_its_target_in_newtons() -> None:
    check = checked()
    measured = Measurement(1, np.array([0.0, 1e-3]), np.array([0.0, 4e5]), np.zeros(2), control_mode=BY_FORCE)
    assert check.measurement(measured, np.array([0.0, 4.4e5]), BY_FORCE) == ""
    assert mentions(
        check.measurement(measured, np.array([0.0, 4.6e5]), BY_FORCE), "axes.load.limits.force_error", "60000 N"
    )
    assert check.measurement(measured, np.array([0.0, 1e-3]), b"") == "", "held: there is no target"
    measured.displacement[1] = float("nan")
    assert "axes.load.limits.stroke" in check.measurement(measured, np.array([0.0, 4e5]), BY_FORCE)


@pytest.mark.parametrize("told", [b"", bytes([MODE_DISPLACEMENT, MODE_DISPLACEMENT])])
def test_a_rig_that_does_not_say_that_it_takes_newtons_gets_none(told: bytes) -> None:
    check = checked()
    measured = Measurement(1, np.zeros(2), np.zeros(2), np.zeros(2), control_mode=told)
    assert check.measurement(measured, np.zeros(2)) == ""
    assert mentions(check.command(command(2, 0.0, 1.0), [0.0, 0.0]), "commands in N", "none")
    measured.control_mode = bytes([MODE_DISPLACEMENT, MODE_HELD])
    assert check.measurement(measured, np.zeros(2)) == ""
    assert check.command(command(2, 0.0, 1.0), [0.0, 0.0]) == ""


# -- bridges


def bridge() -> LoadBridge:
    fading = fading_of(BridgeParams(), LIMITS, DT)
    found = LoadBridge(CommandBridge(fading, DT, np.zeros(1), np.zeros(0)), 1, [1e5], DT)
    found.start(np.array([0.0, 2e-3]))
    return found


def sent(through: LoadBridge, given: Command) -> Command:
    return through.rejoin(given)


def test_a_bridge_holds_the_load_and_continues_the_motion() -> None:
    through = bridge()
    for k in (1, 2):
        sent(through, command(k, 1e-4 * k, 1e5 + 50.0 * k))
    found = through.command(3)
    assert found.command.tolist() == pytest.approx([3e-4, 1e5 + 100.0])
    assert found.control_mode == BY_FORCE
    assert found.flags & FLAG_BRIDGED
    assert through.command(4).command[1] == 1e5 + 100.0


def test_after_a_bridge_the_load_catches_up_within_its_rate() -> None:
    through = bridge()
    sent(through, command(1, 0.0, 1e5))
    for k in range(2, 12):
        through.command(k)
    found = [sent(through, command(k, 0.0, 1e5 + 50.0 * (k - 1))).command[1] for k in range(12, 60)]
    assert np.diff([1e5, *found]).max() <= 1e5 * DT
    assert found[-1] == 1e5 + 50.0 * 58


def test_a_mode_that_changes_over_a_bridge_is_taken_as_it_is() -> None:
    through = bridge()
    sent(through, command(1, 0.0, 2e-3, b""))
    assert through.command(2).command[1] == 2e-3
    assert sent(through, command(3, 0.0, 7e4)).command[1] == 7e4


def test_late_commands_are_bridged_with_the_load_held() -> None:
    """Some come four samples late, while the load rises and the head drifts."""
    sets = ["duration=2", "ground_motion.delay=0.1", "axes.load.load={value: 50.0e3, ramp_time: 1.0}"]
    loop = FaultyLoop(Assembly(files.load(NAME, sets)), [parse("delay@0.5:command,4,6")])
    collector = Collector(loop.scenario, loop.assembly.names)
    outcome = loop.run([collector])
    found = collector.run()
    assert outcome.state is State.FINISHED, outcome.reason
    assert (found.flags & FLAG_BRIDGED).sum() >= 4
    assert found.loads is not None
    assert np.nanmax(np.abs(found.loads.error)) < 2e3


def test_a_pause_holds_the_load() -> None:
    sets = [
        "duration=2",
        "ground_motion.delay=0.1",
        "axes.load.load={value: 50.0e3, ramp_time: 0.4}",
        "bridge.when_late=pause",
    ]
    loop = FaultyLoop(Assembly(files.load(NAME, sets)), [parse("delay@1.0:target,60,1")])
    collector = Collector(loop.scenario, loop.assembly.names)
    outcome = loop.run([collector])
    found = collector.run()
    assert outcome.state is State.FINISHED, outcome.reason
    assert outcome.timing["pauses"] >= 1
    assert found.loads is not None
    assert np.nanmax(np.abs(found.loads.error[1024:])) < 2e3


# -- scenarios


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
        (
            ["port={type: ros2_control}", "axes.load.force_control.closed_by=controller"],
            ("ros2_control", "displacements"),
        ),
    ],
)
def test_what_a_load_needs_is_asked_for(sets: list[str], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        override(files.load(NAME), sets)


def test_force_axes_stand_behind_the_others() -> None:
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
def test_what_does_not_fit_together_is_refused(sets: list[str], words: tuple[str, ...]) -> None:
    scenario = override(files.load(NAME), sets)

    def fits() -> None:
        for section in ("axes", "setup"):
            scenario.check_fit(section)

    with pytest.raises(ConfigError, match=naming(*words)):
        fits()


def test_a_trip_is_recorded_in_metres_once_the_others_rest() -> None:
    sets = ["duration=3", "ground_motion.delay=0.1", "axes.drift.limits.force=9.0e3"]
    scenario = files.load(NAME, [*sets, "axes.load.load={value: 50.0e3, ramp_time: 0.4, held_for: 0.1}"])
    loop = FaultyLoop(Assembly(scenario), [])
    collector = Collector(loop.scenario, loop.assembly.names)
    assert loop.run([collector]).state is State.TRIPPED
    loads = collector.run().loads
    assert loads is not None
    tripped = np.flatnonzero(collector.run().flags & FLAG_TRIPPED)[1:]  # the first was driven by force
    assert len(tripped)
    assert np.isnan(loads.target[tripped]).all()
    assert np.isnan(loads.held[tripped[:-1]]).all()
    assert np.isfinite(loads.held[tripped[-1]]).all()
    assert np.isnan(loads.held[600]).all()
    assert loads.command[900, 0] == pytest.approx(50e3)


# -- the wire


def test_newtons_travel_with_their_mode_and_metres_keep_their_bytes() -> None:
    run = RunMark()
    loaded, plain = (Codec(1, 2, 0, run=run, n_force=n) for n in (1, 0))
    newtons, metres = command(3, 0.1, 5e5), command(3, 0.1, 0.2, b"")
    back, _ = loaded.unpack_command(loaded.pack_command(newtons, 7))
    assert (back.control_mode, back.command.tolist()) == (BY_FORCE, [0.1, 5e5])
    assert loaded.pack_command(metres, 7) == plain.pack_command(metres, 7)
    assert loaded.unpack_command(loaded.pack_command(metres, 7))[0].control_mode == b""
    with pytest.raises(ValueError, match=naming("displacement", "axes")):
        plain.unpack_command(plain.pack_command(newtons, 7))
    held = bytes([MODE_DISPLACEMENT, MODE_HELD])
    for modes in (bytes([MODE_FORCE, MODE_FORCE]), held, bytes([MODE_DISPLACEMENT, 0])):
        wrong = command(3, 0.1, 5e5, modes)
        with pytest.raises(ValueError, match=naming("displacement", "1", "axes")):
            loaded.unpack_command(loaded.pack_command(wrong, 7))
