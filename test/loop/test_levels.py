# SPDX-License-Identifier: Apache-2.0
"""Tests of the levels of an axis: quantities, persistence, actions, reports."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from messages import doubts, each_mentions, mentions, naming

import rths_nodes
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report.document import render
from rths_nodes.analysis.report.tables import limits as limits_of
from rths_nodes.analysis.units import rounded
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import ACTIONS, QUANTITIES, Level, Limits
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.ports.wrappers import PortBefore
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.faults import FaultyLoop, parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.levels import LevelWatch
from rths_nodes.loop.supervision.monitor import SPAN, Monitor, MonitorParams
from rths_nodes.loop.supervision.states import State

DT = 1e-3
NONE = ("", "")
BASE = {"stroke": 0.25, "velocity": 10.0, "force": 1.7e6}
NAME = "predefined_sine"
BRIEF = "duration=0.3"
LEVELS = "axes.axis_1.limits.levels"


def watch(**levels: Any) -> LevelWatch:
    """Levels of the second of two axes."""
    return LevelWatch(limits_of_axes(levels), DT)


def limits_of_axes(levels: dict[str, Any]) -> dict[str, Limits]:
    return {"a": from_data(Limits, BASE), "b": from_data(Limits, BASE | {"levels": levels})}


def sample(k: int, x: float = 0.0, f: float = 0.0, u: float = 0.0, d: float = 0.0) -> tuple[Command, Measurement]:
    second = (np.array([0.0, value]) for value in (d, u))
    return Command(k, *second), Measurement(k, np.array([0.0, x]), np.array([0.0, f]), np.zeros(2))


EXPECTED = {
    "displacement": 0.003,
    "force": 500.0,
    "force_rate": 400.0 / DT,
    "command_step": 0.004,
    "piston_velocity": 0.002 / DT,
    "command_error": 0.006 - 0.0045,
    "tracking_error": 0.0045 - 0.003,
}


def test_every_single_sensor_quantity_has_expected_value() -> None:
    assert list(EXPECTED) == [name for name, row in QUANTITIES.items() if row.level is Level]


@pytest.mark.parametrize("quantity", EXPECTED)
def test_value_of_quantity(quantity: str) -> None:
    """A level 1 % below the value of two given samples acts, a level 1 % above does not."""
    value = EXPECTED[quantity]
    for factor, acts in ((0.99, True), (1.01, False)):
        levels = watch(**{quantity: {"maximum": factor * value}})
        assert levels.judge(*sample(1, x=0.001, f=100.0, u=0.002, d=0.001)) == NONE
        breach, action = levels.judge(*sample(2, x=0.003, f=500.0, u=0.006, d=0.0045))
        assert bool(breach) == acts
        if breach:
            reason = f"axes.b.limits.levels.{quantity}: {value:.6g} {QUANTITIES[quantity].unit}: must be <= "
            assert breach.startswith(reason)
            assert action == "stop"


@pytest.mark.parametrize(("quantity", "unit"), [("displacement_disagreement", "m"), ("force_disagreement", "N")])
def test_disagreement_of_second_sensor(quantity: str, unit: str) -> None:
    limits = limits_of_axes({quantity: {"channel": "second", "minimum": -1e-3, "maximum": 1e-3}})
    levels = LevelWatch(limits, DT, ("first [V]", f"second [{unit}]"))
    for difference, agrees in ((0.9e-3, True), (-0.9e-3, True), (1.1e-3, False), (-1.1e-3, False)):
        measured = Measurement(1, np.array([0.0, 0.01]), np.array([0.0, 0.01]), np.zeros(2))
        measured.auxiliary = np.array([99.0, 0.01 - difference])
        assert (levels.judge(None, measured) == NONE) == agrees
    for channels, reason in (
        (("first [V]",), rf"levels.{quantity}.channel: unknown channel 'second'; known: first"),
        (("second [mm]",), rf"levels.{quantity}.channel = 'second': its unit is mm, but must be {unit}"),
    ):
        with pytest.raises(ConfigError, match=reason):
            LevelWatch(limits, DT, channels)


def test_disagreement_of_damper_sensor_and_floor() -> None:
    """The damper connects the ground and the first floor, so it moves with that axis."""
    name, brief = "phillips_spencer_2012", ["duration=0.6", "compensator.feedback={}"]
    level = (
        "axes.floor_1.limits.levels={{displacement_disagreement: {{channel: {}, minimum: -5e-5, maximum: 5e-5}}}}"
    )
    run = rths_nodes.run(name, [*brief, level.format("damper_displacement")])
    assert run.outcome == "finished"
    row = run.timing["levels"]["floor_1"]["displacement_disagreement"]
    assert row["highest"] - row["lowest"] < 0.1 * np.abs(run.displacement[:, 0]).max()
    with pytest.raises(ConfigError, match=naming("acceleration_1", "m/s^2")):
        rths_nodes.run(name, [*brief, level.format("acceleration_1")])


def test_one_sided_level_and_nan() -> None:
    levels = watch(force={"minimum": -10.0})
    assert levels.judge(*sample(1, f=1e6)) == NONE
    breach, _ = levels.judge(*sample(2, f=-11.0))
    assert mentions(breach, "axes.b.limits.levels.force", "-11 N", ">= -10 N")
    assert watch(force={"minimum": -10.0}).judge(*sample(1, f=math.nan)) != NONE


def test_level_acts_after_persistence() -> None:
    levels = watch(force={"maximum": 10.0, "persistence": 3})
    acted = [levels.judge(*sample(k, f=f)) for k, f in enumerate([11, 11, 9, 11, 12, 13.0], 1)]
    assert [breach != NONE for breach in acted] == [False] * 5 + [True]
    assert mentions(acted[-1][0], "13 N", "3", "<= 10 N")


def test_severest_action_acts_if_several_levels_are_exceeded() -> None:
    """A sensor that jumps exceeds several levels at the same sample."""
    held, tripped = {"maximum": 0.1, "action": "hold"}, {"maximum": 10.0}
    levels = watch(displacement=held, force=tripped, piston_velocity={"maximum": 1.0, "action": "interlock"})
    levels.judge(*sample(1))
    reason, action = levels.judge(*sample(2, x=0.2, f=20.0))
    assert (mentions(reason, "levels.piston_velocity", "200 m/s"), action) == (True, "interlock")
    assert levels.judge(*sample(3, x=0.2, f=20.0))[1] == "stop"


def test_warnings_are_counted_and_reported_once() -> None:
    levels = watch(force={"warn_maximum": 10.0, "maximum": 20.0})
    for k, f in enumerate([5.0, 11.0, 12.0, 4.0, 15.0], 1):
        assert levels.judge(*sample(k, f=f)) == NONE
    assert each_mentions(levels.take_warnings(), ("sample 2", "axes.b.limits.levels.force", "11 N", "<= 10 N"))
    assert levels.take_warnings() == []
    assert levels.numbers() == {"b": {"force": {"lowest": 4.0, "highest": 15.0, "samples": 3.0, "first": 2.0}}}


def test_without_levels_there_is_no_watch() -> None:
    assert checked_loop(files.load(NAME)).rig.levels is None


@pytest.mark.parametrize("action", ACTIONS)
def test_action_of_level(action: str, different: Any) -> None:
    level = f"{LEVELS}={{displacement: {{maximum: 0.015, persistence: 2, action: {action}}}}}"
    gentle = [BRIEF, "axes.axis_1.limits.deceleration=10"]
    run = rths_nodes.run(NAME, [*gentle, level])
    row = run.timing["levels"]["axis_1"]["displacement"]
    first = int(np.argmax(run.displacement[:, 0] > 0.015))
    assert row["first"] == first > 0
    if action == "indicate":
        assert run.outcome == "finished"
        assert different(run, rths_nodes.run(NAME, gentle)) == []
        assert row["highest"] == run.displacement.max()
        return
    assert run.outcome == {"hold": "held"}.get(action, "tripped")
    assert run.information["reason"].startswith(f"sample {first + 1}: {LEVELS}.displacement: ")
    velocity = np.diff(run.command[first + 1 :, 0])
    assert velocity[0] > 0.0
    assert velocity[-1] == 0.0
    assert (np.diff(velocity) <= 1e-15).all()  # deceleration, for each action


@pytest.mark.parametrize(("limit", "dropped"), [("levels.force", True), ("force", False)])
def test_limit_acts_during_a_stop(limit: str, dropped: bool) -> None:
    """A mild level begins the stop, in which the force jumps."""
    levels = "displacement: {maximum: 0.015, action: hold}"
    levels += ", force: {maximum: 1.2e6, action: interlock}" * dropped
    force = [] if dropped else ["axes.axis_1.limits.force=1.2e6"]
    scenario = files.load(NAME, [BRIEF, "axes.axis_1.limits.deceleration=10", f"{LEVELS}={{{levels}}}", *force])
    loop = FaultyLoop(Assembly(scenario), [])
    held = loop.run()
    assert held.state is State.HELD
    first = int(held.reason.split()[1].rstrip(":"))
    loop = FaultyLoop(Assembly(scenario), [parse(f"sensor_spike@{(first + 2) * scenario.dt}:axis_1,force,1.5e6")])
    loop.rig.port = watched = Watched(loop.rig.port)
    tripped = loop.run()
    assert watched.dropped == [first + 2] * dropped
    assert tripped.state is State.TRIPPED
    assert tripped.reason.startswith(f"sample {first + 2}: axes.axis_1.limits.{limit}: ")


class Watched(PortBefore):
    def __init__(self, port: Any) -> None:
        super().__init__(port)
        self.dropped: list[int] = []

    def drop_heartbeat(self) -> None:  # type: ignore[override]
        self.dropped.append(self._port.read().sample)


REFUSED = [
    ({"force": {}}, ("levels.force", "minimum", "warn_minimum")),
    ({"force": {"maximum": 1.8e6}}, ("levels.force.maximum", "1.8e+06", "1.7e+06")),
    ({"displacement": {"minimum": -0.3}}, ("levels.displacement.minimum", "-0.3", "0.25")),
    ({"force": {"warn_maximum": 2.0, "maximum": 1.0}}, ("force.warn_maximum", "2", "< maximum", "1")),
    ({"force": {"minimum": 2.0, "maximum": 1.0}}, ("force.minimum", "2", "< maximum", "1")),
    ({"force": {"maximum": 1.0, "action": "unload"}}, ("unknown", "unload", "hold", "indicate", "interlock")),
    ({"force": {"maximum": 1.0, "persistence": 0}}, ("persistence", "0", ">= 1")),
    ({"power": {"maximum": 1.0}}, ("levels.power", "power", "unknown", "command_error", "command_step")),
]


@pytest.mark.parametrize(("levels", "words"), REFUSED)
def test_invalid_levels_are_refused(levels: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        from_data(Limits, BASE | {"levels": levels}, "limits")


def test_interlock_without_heartbeat_is_reported() -> None:
    level = f"{LEVELS}={{force: {{maximum: 1e6, action: interlock}}}}"
    assert mentions(doubts(files.load(NAME, [level])), "simulator", "heartbeat")
    port = "port={type: udp, emulator: true}"
    assert not any("heartbeat" in caution for caution in doubts(files.load(NAME, [level, port])))


def test_warnings_are_in_output_and_report(capsys: pytest.CaptureFixture[str]) -> None:
    level = f"{LEVELS}={{force: {{warn_maximum: 1e3, maximum: 1.6e6}}}}"
    assert main(["run", NAME, "--set", BRIEF, "--set", level]) == 0
    assert mentions(capsys.readouterr().out, "note", f"{LEVELS}.force")
    run = rths_nodes.run(NAME, [BRIEF, level])
    assert "<h2>Limits</h2>" in render(run)
    rows = {row.title: row.values for row in limits_of(Evaluation(run)).rows}
    assert each_mentions(rows, *(("axis_1", kind) for kind in ("stroke", "velocity", "force", "level")))
    largest = np.abs(run.force).max()
    extremes = [rounded(force, 1e-3) for force in (run.force.min(), run.force.max())]
    assert rows["axis_1: force"][1:5] == [*extremes, rounded(1700.0), rounded(largest / 1.7e6, 100.0)]
    assert rows["axis_1: level of force"][2] == rounded(run.timing["levels"]["axis_1"]["force"]["highest"], 1e-3)


@pytest.mark.nodes
def test_nodes_hold_at_same_sample_and_record_same_numbers(tmp_path: Any, different: Any) -> None:
    levels = "{force: {warn_maximum: 1e3, maximum: 1.6e6}, displacement: {maximum: 0.015, action: hold}}"
    sets = [BRIEF, f"{LEVELS}={levels}"]
    expected = rths_nodes.run(NAME, sets)
    done = hosts.run(NAME, sets, host="composed", record=tmp_path / "run", keep=False)
    recorded = rths_nodes.read(tmp_path / "run")
    assert (done.outcome, done.exit_code) == ("held", 130)
    assert done.reason == expected.information["reason"]
    assert different(recorded, expected) == []
    assert done.timing["levels"] == recorded.timing["levels"] == expected.timing["levels"]


@pytest.mark.parametrize("amplitude", [0.001, 0.1])
def test_indicator_rate_over_amplitude_depends_on_phase(amplitude: float) -> None:
    """TI of a sine with phase lag phi grows by pi A^2 sin(phi) per period."""
    f, phi, dt = 2.0, 0.2, 1.0 / (64 * SPAN)
    rate = math.pi * f * math.sin(phi)
    for factor, breaks in ((0.97, True), (1.03, False)):
        limits = from_data(
            MonitorParams,
            {"tracking_indicator_rate_over_amplitude": factor * rate, "smallest_amplitude": amplitude},
        )
        monitor = Monitor(limits, ["a"], 1, dt, 0.0)
        for k in range(10 * SPAN):
            target, late = (amplitude * math.sin(2 * math.pi * f * k * dt - angle) for angle in (0.0, phi))
            monitor.step(k, [target], [late], [0.0])
        assert (monitor.breach is not None) == breaks
    assert monitor.tracking.indicator[0] > 0.0


def test_limit_over_amplitude_requires_smallest_amplitude() -> None:
    with pytest.raises(ConfigError, match=r"monitor.smallest_amplitude: missing"):
        from_data(MonitorParams, {"tracking_indicator_rate_over_amplitude": 1.0}, "monitor")
