# SPDX-License-Identifier: Apache-2.0
"""Sensors that do not follow in a run: frozen, flickering, dead; and no false word about healthy ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.loop.stages.frozen import FrozenSensors, frozen_notes
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW

NAME = "chen_ricles_2010"
CALM = ("ground_motion.scale=0.1", "duration=8")
FROZEN_AT = 2048
"""Sample of 2 s."""
DETECTED = 1024
"""Samples within which a displacement that stands still is found; in lockstep the trip acts 512 samples later."""
HEALTHY, FOUND = 6144, 1024
"""Samples of a healthy sensor, and then of a frozen one, within which it is found."""
SEEDS = 1000
BRIEF = 40
PLATEAUS = 74
"""A specimen that slips at a force of few steps of its sensor, in both directions."""


def ran(*faults: str, more: Sequence[str] = (), **options: Any) -> hosts.RunResult:
    return hosts.run(NAME, (*CALM, *more), faults=list(faults), **options)


def test_a_displacement_that_freezes_trips() -> None:
    done = ran("sensor_stuck@2:story_1,displacement")
    assert done.outcome == "tripped"
    assert "axes.story_1" in done.reason
    assert "does not follow" in done.reason
    assert FROZEN_AT < done.samples <= FROZEN_AT + DETECTED + LOCKSTEP_WINDOW + 100


@pytest.mark.parametrize("engine", ["python", "kernels"])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_a_displacement_with_the_wrong_sign_trips(scale: float, engine: str) -> None:
    """No limit of the tracking error is declared."""
    wrong = [f"ground_motion.scale={scale}", "axes.story_1.sensors.displacement_scale=-1"]
    done = ran(more=wrong, engine=engine)
    assert done.outcome == "tripped"
    assert "axes.story_1" in done.reason
    assert "does not follow" in done.reason
    assert done.samples < FROZEN_AT


@pytest.mark.parametrize("engine", ["python", "kernels"])
def test_a_loop_over_kernels_leaves_an_actuator_that_does_not_follow_to_the_rules(engine: str) -> None:
    """The same trip by both engines."""
    slow = ["axes.story_1.actuator={type: first_order, alpha: 20000}", "compensator={type: none}"]
    done = ran(more=slow, engine=engine)
    assert (done.outcome, done.samples) == ("tripped", ran(more=slow, engine="python").samples)
    assert "does not follow" in done.reason


def test_a_force_that_freezes_is_reported_and_the_test_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", NAME, "--fault", "sensor_stuck@2:story_1,force", "--record", str(tmp_path / "run")]
    words += [word for each in CALM for word in ("--set", each)]
    assert main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "axes.story_1" in shown
    assert "not changed with" in shown
    run = rths_nodes.read(tmp_path / "run")
    at = run.metrics["frozen_forces"]["story_1"]["reported_at_sample"]
    assert FROZEN_AT < at <= FROZEN_AT + 2 * DETECTED
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0
    assert "not changed with" in (tmp_path / "page.html").read_text()
    capsys.readouterr()
    assert main([*words[:4], "--json", *words[6:]]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["frozen_forces"] == run.metrics["frozen_forces"]


def fed(displacement: Any, force: Any, more: Sequence[str] = (), cycles: int = 6) -> FrozenSensors:
    """The watch of the axis with a sine of 10 mm as its target, and what its sensors show of it."""
    scenario = files.load(NAME, more)
    watch = FrozenSensors(scenario.axes, scenario.dt, 1, None, None)
    for sample in range(cycles * 1024):
        aim = 0.01 * np.sin(2.0 * np.pi * sample * scenario.dt)
        shown = [float(displacement(aim))], [float(force(aim))]
        if sample % watch.stride == 0:
            watch.add(sample, [aim], *shown)
    return watch


NOISY = ("axes.story_1.sensors.displacement_noise_rms=2e-5", "axes.story_1.sensors.force_noise_rms=500")


def test_a_channel_that_flickers_or_is_dead_does_not_follow_either() -> None:
    drawn = np.random.default_rng(3)
    for shown in (lambda aim: 0.0, lambda aim: 0.004 + 2e-5 * drawn.standard_normal()):
        watch = fed(shown, lambda aim: 8e6 * aim, NOISY)
        assert watch.breach.startswith("axes.story_1: ")
        assert watch.forces == {}
    for force in (lambda aim: 0.0, lambda aim: 1e4 + 500.0 * drawn.standard_normal()):
        watch = fed(lambda aim: aim, force, NOISY)
        assert watch.breach == ""
        assert list(watch.forces) == ["story_1"]
        assert frozen_notes(watch.metrics())
    healthy = fed(lambda aim: aim, lambda aim: 8e6 * aim, NOISY)
    assert (healthy.breach, healthy.metrics()) == ("", {})


@pytest.mark.parametrize("lead_s", [-0.1, -0.05, 0.0, 0.015, 0.05, 0.1])
@pytest.mark.parametrize("frequency", [0.5, 2.0, 5.0])
def test_an_axis_that_moves_early_or_late_is_not_stuck(frequency: float, lead_s: float) -> None:
    """A compensator that leads too far moves an axis against its target for a part of each cycle."""
    scenario = files.load(NAME, NOISY)
    moved = {name: scenario.axes[name] for name in scenario.moved_axes}
    watch, omega = FrozenSensors(moved, scenario.dt, 0, None, None), 2.0 * np.pi * frequency
    for sample in range(0, 8192, watch.stride):
        time = sample * scenario.dt
        aim, shown = 0.004 * np.sin(omega * time), 0.004 * np.sin(omega * (time + lead_s))
        watch.add(sample, [aim], [shown], [8e6 * shown])
    assert (watch.breach, watch.metrics()) == ("", {})


SLOW = (
    "first_order, alpha: 116",
    "pure_delay, delay: 0.15",
    "second_order, natural_frequency: 2.5, damping_ratio: 1.0",
)


@pytest.mark.parametrize("actuator", SLOW)
def test_a_slow_actuator_follows_its_target_and_a_frozen_sensor_does_not(actuator: str) -> None:
    """The sensor freezes after six cycles of 1 Hz."""
    scenario = files.load(NAME, [f"axes.story_1.actuator={{type: {actuator}}}"])
    axis = scenario.axes["story_1"]
    moved = registry.build("actuator", axis.actuator, scenario.dt, registry.build("specimen", axis.specimen))
    watch = FrozenSensors(scenario.axes, scenario.dt, 1, None, None)
    for sample in range(HEALTHY + FOUND):
        aim = 0.02 * np.sin(2.0 * np.pi * sample * scenario.dt)
        if sample < HEALTHY:
            moved.step(float(aim))
        if sample % watch.stride == 0:
            watch.add(sample, [float(aim)], [moved.displacement], [moved.force])
        if sample == HEALTHY - 1:
            assert watch.breach == ""
    assert watch.breach.startswith("axes.story_1: ")


def test_a_plateau_one_way_is_no_frozen_force() -> None:
    """Of an elastoplastic specimen and of friction alone: the force changes where the motion turns."""
    state = [0.0, 0.0]

    def plastic(aim: float) -> float:
        state[1] = min(max(state[1] + 8e6 * (aim - state[0]), -2e4), 2e4)
        state[0] = aim
        return state[1]

    assert fed(lambda aim: aim, plastic, NOISY).forces == {}


def test_noise_at_rest_leaves_no_doubt_in_a_force_that_does_not_change() -> None:
    """Else a run over kernels is repeated stage by stage, in a hundred times its time."""
    scenario = files.load("rths_benchmark_2020")
    watch = FrozenSensors(scenario.axes, scenario.dt, 1, None, None)
    (axis,) = watch._axes
    time = scenario.dt * np.arange(8192)
    noise = np.random.default_rng(2).normal(scale=0.2 * axis.travel, size=(8192, 1))
    none = np.zeros((8192, 1))
    assert np.ptp(noise) > axis.travel
    assert not watch.in_doubt(none, noise, none)
    moved = axis.travel * np.sin(2.0 * np.pi * 1.5 * time)[:, None]
    assert watch.in_doubt(none, moved + noise, none)
    assert not watch.in_doubt(none, moved, axis.stiffness * moved)


def test_the_travels_may_be_declared() -> None:
    far = ["monitor.stuck_displacement=0.2", "monitor.stuck_force=1e9"]
    done = ran("sensor_stuck@2:story_1,force", more=far)
    assert "frozen_forces" not in done.metrics
    with pytest.raises(ConfigError, match=r"stuck_displacement = -1"):
        files.load(NAME, ["monitor.stuck_displacement=-1"])


@pytest.mark.parametrize("name", files.shipped())
def test_no_false_word_in_a_shipped_scenario(name: str) -> None:
    found = hosts.run(name, ["duration=10"], keep=False, engine="python")
    assert "sensor" not in found.reason
    assert "frozen_forces" not in found.metrics


@pytest.mark.parametrize(
    "seed",
    [*range(BRIEF), PLATEAUS, *(pytest.param(s, marks=pytest.mark.soak) for s in range(BRIEF, SEEDS))],
)
def test_no_false_word_with_noise_resolution_friction_and_backlash(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    sensors, output = "axes.story_1.sensors.", "axes.story_1.output."
    sets = [
        f"seed={seed + 1}",
        "duration=5",
        f"ground_motion.scale={drawn.uniform(0.02, 0.5)}",
        f"{sensors}displacement_noise_rms={10.0 ** drawn.uniform(-7, -4.7)}",
        f"{sensors}displacement_resolution={drawn.choice([0.0, 1e-6, 1e-5, 5e-5])}",
        f"{sensors}force_noise_rms={10.0 ** drawn.uniform(0, 3)}",
        f"{sensors}force_resolution={drawn.choice([0.0, 10.0, 300.0])}",
        f"{output}lost_motion={drawn.choice([0.0, 1e-5, 1e-4])}",
        f"{output}resolution={drawn.choice([0.0, 1e-6, 1e-5])}",
    ]
    if drawn.random() < 0.5:
        sets.append("axes.story_1.actuator.type=servo_hydraulic")
    force, width = drawn.uniform(1e4, 2e5), drawn.uniform(1e-5, 2e-3)
    specimens = (
        "",
        f"{{type: slipping_elastomeric, stiffness: 7.6e6, slip_force: {force}}}",
        f"{{type: elastoplastic_absorber, stiffness: 7.6e6, yield_force: {force}}}",
        f"{{type: with_backlash, width: {width}, specimen: {{type: kelvin_voigt, stiffness: 7.6e6}}}}",
    )
    if chosen := specimens[drawn.integers(4)]:
        sets.append(f"axes.story_1.specimen={chosen}")
    found = hosts.run(NAME, sets, keep=False, engine="python")
    assert "does not follow" not in found.reason
    assert "frozen_forces" not in found.metrics
