# SPDX-License-Identifier: Apache-2.0
"""Levels of an axis: what they judge, how long, what they do, and what is told of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from doubts import doubts
from messages import each_mentions, mentions, naming

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
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.levels import LevelWatch
from rths_nodes.loop.supervision.monitor import SPAN, Monitor, MonitorParams

DT = 1e-3
BASE = {"stroke": 0.25, "velocity": 10.0, "force": 1.7e6}
NAME = "predefined_sine"
BRIEF = "duration=0.3"
LEVELS = "axes.axis_1.limits.levels"


def watch(**levels: Any) -> LevelWatch:
    """Of two axes, of which the second has the levels."""
    limits = {"a": from_data(Limits, BASE), "b": from_data(Limits, BASE | {"levels": levels})}
    found = LevelWatch.of(limits, DT)
    assert found is not None
    return found


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


def test_each_quantity_of_one_sensor_has_an_expected_value() -> None:
    assert list(EXPECTED) == [name for name, row in QUANTITIES.items() if row.level is Level]


@pytest.mark.parametrize("quantity", EXPECTED)
def test_each_quantity_is_what_its_name_says(quantity: str) -> None:
    """Two samples by hand; a level a hundredth below the value acts, one above does not."""
    value = EXPECTED[quantity]
    for factor, acts in ((0.99, True), (1.01, False)):
        levels = watch(**{quantity: {"maximum": factor * value}})
        assert levels.judge(*sample(1, x=0.001, f=100.0, u=0.002, d=0.001)) is None
        breach = levels.judge(*sample(2, x=0.003, f=500.0, u=0.006, d=0.0045))
        assert (breach is not None) == acts
        if breach is not None:
            words = f"axes.b.limits.levels.{quantity}: {value:.6g} {QUANTITIES[quantity].unit}: must be <= "
            assert breach.reason.startswith(words)
            assert breach.action == "stop"


@pytest.mark.parametrize(("quantity", "unit"), [("displacement_disagreement", "m"), ("force_disagreement", "N")])
def test_a_second_sensor_may_not_disagree(quantity: str, unit: str) -> None:
    level = {"channel": "second", "minimum": -1e-3, "maximum": 1e-3}
    limits = {"a": from_data(Limits, BASE), "b": from_data(Limits, BASE | {"levels": {quantity: level}})}
    levels = LevelWatch.of(limits, DT, ("first [V]", f"second [{unit}]"))
    assert levels is not None
    for difference, agrees in ((0.9e-3, True), (-0.9e-3, True), (1.1e-3, False), (-1.1e-3, False)):
        measured = Measurement(1, np.array([0.0, 0.01]), np.array([0.0, 0.01]), np.zeros(2))
        measured.auxiliary = np.array([99.0, 0.01 - difference])
        assert (levels.judge(None, measured) is None) == agrees
    for channels, words in (
        (("first [V]",), rf"levels.{quantity}.channel: unknown channel 'second'; known: first"),
        (("second [mm]",), rf"levels.{quantity}.channel = 'second': its unit is mm, but must be {unit}"),
    ):
        with pytest.raises(ConfigError, match=words):
            LevelWatch.of(limits, DT, channels)


def test_a_sensor_on_the_damper_shows_what_the_floor_does() -> None:
    """The damper stands between the ground and the first floor: it moves as that axis does."""
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


def test_one_side_may_have_a_level_alone_and_nan_is_beyond_any() -> None:
    levels = watch(force={"minimum": -10.0})
    assert levels.judge(*sample(1, f=1e6)) is None
    breach = levels.judge(*sample(2, f=-11.0))
    assert breach is not None
    assert mentions(breach.reason, "axes.b.limits.levels.force", "-11 N", ">= -10 N")
    assert watch(force={"minimum": -10.0}).judge(*sample(1, f=math.nan)) is not None


def test_it_acts_when_it_has_lasted_and_not_before() -> None:
    levels = watch(force={"maximum": 10.0, "persistence": 3})
    acted = [levels.judge(*sample(k, f=f)) for k, f in enumerate([11, 11, 9, 11, 12, 13.0], 1)]
    assert [each is not None for each in acted] == [False] * 5 + [True]
    assert acted[-1] is not None
    assert mentions(acted[-1].reason, "13 N", "3", "<= 10 N")


def test_what_is_told_is_counted_and_told_once() -> None:
    levels = watch(force={"warn_maximum": 10.0, "maximum": 20.0})
    for k, f in enumerate([5.0, 11.0, 12.0, 4.0, 15.0], 1):
        assert levels.judge(*sample(k, f=f)) is None
    assert each_mentions(levels.take_warnings(), ("sample 2", "axes.b.limits.levels.force", "11 N", "<= 10 N"))
    assert levels.take_warnings() == []
    assert levels.numbers() == {"b": {"force": {"lowest": 4.0, "highest": 15.0, "samples": 3.0, "first": 2.0}}}


def test_without_levels_nothing_is_watched() -> None:
    assert checked_loop(files.load(NAME)).rig.levels is None


@pytest.mark.parametrize("action", ACTIONS)
def test_what_it_does(action: str, different: Any) -> None:
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
    reason = run.information["reason"]
    assert reason.startswith(f"sample {first + 1}: {LEVELS}.displacement: ")
    velocity = np.diff(run.command[first + 1 :, 0])
    assert velocity[0] > 0.0
    assert velocity[-1] == 0.0
    assert (np.diff(velocity) <= 1e-15).all()  # it decelerates, whatever the action


REFUSED = [
    ({"force": {}}, ("levels.force", "minimum", "warn_minimum")),
    (
        {"force": {"maximum": 1.8e6}},
        ("levels.force.maximum", "1.8e+06", "1.7e+06"),
    ),
    ({"displacement": {"minimum": -0.3}}, ("levels.displacement.minimum", "-0.3", "0.25")),
    ({"force": {"warn_maximum": 2.0, "maximum": 1.0}}, ("force.warn_maximum", "2", "< maximum", "1")),
    ({"force": {"minimum": 2.0, "maximum": 1.0}}, ("force.minimum", "2", "< maximum", "1")),
    ({"force": {"maximum": 1.0, "action": "unload"}}, ("unknown", "unload", "hold", "indicate", "interlock")),
    ({"force": {"maximum": 1.0, "persistence": 0}}, ("persistence", "0", ">= 1")),
    ({"power": {"maximum": 1.0}}, ("levels.power", "power", "unknown", "command_error", "command_step")),
]


@pytest.mark.parametrize(("levels", "words"), REFUSED)
def test_levels_that_make_no_sense_are_refused(levels: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        from_data(Limits, BASE | {"levels": levels}, "limits")


def test_a_port_without_a_heartbeat_is_told() -> None:
    level = f"{LEVELS}={{force: {{maximum: 1e6, action: interlock}}}}"
    assert any(mentions(words, "simulator", "heartbeat") for words in doubts(files.load(NAME, [level])))
    port = "port={type: udp, emulator: true}"
    assert not any("heartbeat" in words for words in doubts(files.load(NAME, [level, port])))


def test_what_was_told_stands_in_the_output_and_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    level = f"{LEVELS}={{force: {{warn_maximum: 1e3, maximum: 1.6e6}}}}"
    assert main(["run", NAME, "--set", BRIEF, "--set", level]) == 0
    assert mentions(capsys.readouterr().out, "note", f"{LEVELS}.force")
    run = rths_nodes.run(NAME, [BRIEF, level])
    assert "<h2>Limits</h2>" in render(run)
    rows = {row.title: row.values for row in limits_of(Evaluation(run)).rows}
    assert each_mentions(
        list(rows), ("axis_1", "stroke"), ("axis_1", "velocity"), ("axis_1", "force"), ("axis_1", "level")
    )
    largest = np.abs(run.force).max()
    assert rows["axis_1: force"][1:4] == [
        rounded(run.force.min(), 1e-3),
        rounded(run.force.max(), 1e-3),
        rounded(1700.0),
    ]
    assert rows["axis_1: force"][4] == rounded(largest / 1.7e6, 100.0)
    assert rows["axis_1: level of force"][2] == rounded(run.timing["levels"]["axis_1"]["force"]["highest"], 1e-3)


@pytest.mark.nodes
def test_nodes_hold_at_the_same_sample_and_record_the_same_numbers(tmp_path: Any, different: Any) -> None:
    levels = "{force: {warn_maximum: 1e3, maximum: 1.6e6}, displacement: {maximum: 0.015, action: hold}}"
    sets = [BRIEF, f"{LEVELS}={levels}"]
    expected = rths_nodes.run(NAME, sets)
    done = hosts.run(NAME, sets, host="composed", record=tmp_path / "run", keep=False)
    found = rths_nodes.read(tmp_path / "run")
    assert (done.outcome, done.exit_code) == ("held", 130)
    assert done.reason == expected.information["reason"]
    assert different(found, expected) == []
    assert done.timing["levels"] == found.timing["levels"] == expected.timing["levels"]


@pytest.mark.parametrize("amplitude", [0.001, 0.1])
def test_the_rate_of_the_indicator_over_the_amplitude_knows_the_phase_alone(amplitude: float) -> None:
    """A sine that is late by phi: TI grows by pi A^2 sin(phi) a period."""
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


def test_a_limit_over_the_amplitude_says_from_which_on() -> None:
    with pytest.raises(ConfigError, match=r"monitor.smallest_amplitude: missing"):
        from_data(MonitorParams, {"tracking_indicator_rate_over_amplitude": 1.0}, "monitor")
