# SPDX-License-Identifier: Apache-2.0
"""Tests of the detection of frozen, noisy and dead sensors, without false alarms for healthy ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Command, Measurement, Target
from rths_nodes.loop.scenario import files
from rths_nodes.loop.stages.frozen import FrozenSensors, frozen_notes
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW

NAME = "chen_ricles_2010"
CALM = ("ground_motion.scale=0.1", "duration=8")
FROZEN_AT = 2048  # sample at 2 s
DETECTED = 1024
"""Samples within which a frozen displacement is detected; in lockstep the trip acts 512 samples later."""
HEALTHY = 6144  # samples before the sensor freezes


def run(*faults: str, overrides: Sequence[str] = (), **options: Any) -> hosts.RunResult:
    return hosts.run(NAME, (*CALM, *overrides), faults=list(faults), **options)


def check_trip(result: hosts.RunResult) -> None:
    assert result.outcome == "tripped"
    assert mentions(result.reason, "axes.story_1", "does not follow")


def test_frozen_displacement_trips() -> None:
    result = run("sensor_stuck@2:story_1,displacement")
    check_trip(result)
    assert FROZEN_AT < result.samples <= FROZEN_AT + DETECTED + LOCKSTEP_WINDOW + 100


@pytest.mark.parametrize("engine", ["python", "kernels"])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_displacement_of_wrong_sign_trips(scale: float, engine: str) -> None:
    """No limit of the tracking error is declared."""
    overrides = [f"ground_motion.scale={scale}", "axes.story_1.sensors.displacement_scale=-1"]
    result = run(overrides=overrides, engine=engine)
    check_trip(result)
    assert result.samples < FROZEN_AT


def test_slow_actuator_trips_at_same_sample_by_both_engines() -> None:
    overrides = ["axes.story_1.actuator={type: first_order, alpha: 20000}", "compensator={type: none}"]
    python, kernels = (run(overrides=overrides, engine=engine) for engine in ("python", "kernels"))
    check_trip(python)
    check_trip(kernels)
    assert kernels.samples == python.samples


def test_frozen_force_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", NAME, "--fault", "sensor_stuck@2:story_1,force", "--record", str(tmp_path / "run")]
    command += [argument for override in CALM for argument in ("--set", override)]
    assert main(command) == 0
    assert mentions(" ".join(capsys.readouterr().out.split()), "axes.story_1", "not changed with")
    forces = rths_nodes.read(tmp_path / "run").metrics["frozen_forces"]
    assert FROZEN_AT < forces["story_1"]["reported_at_sample"] <= FROZEN_AT + 2 * DETECTED
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0
    assert "not changed with" in (tmp_path / "page.html").read_text()
    capsys.readouterr()
    assert main([*command[:4], "--json", *command[6:]]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["frozen_forces"] == forces


NOISY = ("axes.story_1.sensors.displacement_noise_rms=2e-5", "axes.story_1.sensors.force_noise_rms=500")


def fed(displacement: Any, force: Any) -> FrozenSensors:
    """Watch after 6 s with a sine of 10 mm as the target, and sensor values as functions of the target."""
    scenario = files.load(NAME, NOISY)
    watch = FrozenSensors(scenario.axes, scenario.dt, 1, None, None)
    for sample in range(6 * 1024):
        target = 0.01 * np.sin(2.0 * np.pi * sample * scenario.dt)
        measured = [float(displacement(target))], [float(force(target))]
        if sample % watch.stride == 0:
            watch.add(sample, [target], *measured)
    return watch


def test_noise_only_and_dead_channels_are_detected() -> None:
    rng = np.random.default_rng(3)
    for displacement in (lambda target: 0.0, lambda target: 0.004 + 2e-5 * rng.standard_normal()):
        watch = fed(displacement, lambda target: 8e6 * target)
        assert watch.breach.startswith("axes.story_1: ")
        assert watch.forces == {}
    for force in (lambda target: 0.0, lambda target: 1e4 + 500.0 * rng.standard_normal()):
        watch = fed(lambda target: target, force)
        assert watch.breach == ""
        assert list(watch.forces) == ["story_1"]
        assert frozen_notes(watch.metrics())
    healthy = fed(lambda target: target, lambda target: 8e6 * target)
    assert (healthy.breach, healthy.metrics()) == ("", {})


@pytest.mark.parametrize("lead_s", [-0.1, -0.05, 0.0, 0.015, 0.05, 0.1])
@pytest.mark.parametrize("frequency", [0.5, 2.0, 5.0])
def test_early_or_late_axis_is_not_frozen(frequency: float, lead_s: float) -> None:
    """Too much lead moves an axis against its target during part of each cycle."""
    scenario = files.load(NAME, NOISY)
    axes = {name: scenario.axes[name] for name in scenario.moved_axes}
    watch, omega = FrozenSensors(axes, scenario.dt, 0, None, None), 2.0 * np.pi * frequency
    for sample in range(0, 8192, watch.stride):
        time = sample * scenario.dt
        measured = 0.004 * np.sin(omega * (time + lead_s))
        watch.add(sample, [0.004 * np.sin(omega * time)], [measured], [8e6 * measured])
    assert (watch.breach, watch.metrics()) == ("", {})


SECOND_ORDER = "second_order, natural_frequency: 2.5, damping_ratio: 1.0"


@pytest.mark.parametrize("actuator", ["first_order, alpha: 116", "pure_delay, delay: 0.15", SECOND_ORDER])
def test_slow_actuator_follows_frozen_sensor_does_not(actuator: str) -> None:
    """The sensor freezes after 6 cycles of 1 Hz."""
    scenario = files.load(NAME, [f"axes.story_1.actuator={{type: {actuator}}}"])
    axis = scenario.axes["story_1"]
    plant = registry.build("actuator", axis.actuator, scenario.dt, registry.build("specimen", axis.specimen))
    watch = FrozenSensors(scenario.axes, scenario.dt, 1, None, None)
    for sample in range(HEALTHY + DETECTED):
        target = 0.02 * float(np.sin(2.0 * np.pi * sample * scenario.dt))
        if sample < HEALTHY:
            plant.step(target)
        if sample % watch.stride == 0:
            watch.add(sample, [target], [plant.displacement], [plant.force])
        if sample == HEALTHY - 1:
            assert watch.breach == ""
    assert watch.breach.startswith("axes.story_1: ")


def test_force_plateau_is_not_frozen() -> None:
    """The force of an elastoplastic or friction specimen changes where the motion reverses."""
    state = [0.0, 0.0]

    def plastic(target: float) -> float:
        state[1] = min(max(state[1] + 8e6 * (target - state[0]), -2e4), 2e4)
        state[0] = target
        return state[1]

    assert fed(lambda target: target, plastic).forces == {}


@pytest.mark.parametrize(("hops", "transport"), [(63, 0), (0, 63)])
def test_transport_delay_is_not_frozen(hops: int, transport: int) -> None:
    """The displacement follows a ramp of 4 mm later than an actuator alone may be."""
    scenario = files.load("predefined_sine", [f"hops.depth={hops}", f"port.transport_samples={transport}"])
    stage, late = MonitorStage(scenario, 1, 1.0), 160
    path = np.concatenate([np.zeros(1024 + late), np.linspace(0.0, 4e-3, 30), np.full(900, 4e-3)])
    for k in range(1, len(path) - late):
        x, y = path[k + late : k + late + 1], path[k : k + 1]
        stage.target(Target(k, *np.zeros((6, 1))))
        stage.command(Command(k, x, x))
        stage.measurement(Measurement(k, y, 8e6 * y, x))
    assert stage.sample == len(path) - late - 1
    assert stage.sensors.breach == ""


def test_noise_at_rest_causes_no_doubt() -> None:
    """A doubt makes a run over kernels repeat by stages, which takes 100 times as long."""
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


def test_travels_can_be_declared() -> None:
    travels = ["monitor.stuck_displacement=0.2", "monitor.stuck_force=1e9"]
    assert "frozen_forces" not in run("sensor_stuck@2:story_1,force", overrides=travels).metrics
    with pytest.raises(ConfigError, match=r"stuck_displacement = -1"):
        files.load(NAME, ["monitor.stuck_displacement=-1"])


@pytest.mark.parametrize("name", files.shipped())
def test_shipped_scenario_has_no_false_alarm(name: str) -> None:
    result = hosts.run(name, ["duration=10"], keep=False, engine="python")
    assert "sensor" not in result.reason
    assert "frozen_forces" not in result.metrics


SEEDS = [*range(40), 74]  # 74: a specimen that slips at few steps of its force sensor, in both directions


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(s, marks=pytest.mark.soak) for s in range(40, 1000))])
def test_imperfect_sensors_cause_no_false_alarm(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sensors, output = "axes.story_1.sensors.", "axes.story_1.output."
    overrides = [
        f"seed={seed + 1}",
        "duration=5",
        f"ground_motion.scale={rng.uniform(0.02, 0.5)}",
        f"{sensors}displacement_noise_rms={10.0 ** rng.uniform(-7, -4.7)}",
        f"{sensors}displacement_resolution={rng.choice([0.0, 1e-6, 1e-5, 5e-5])}",
        f"{sensors}force_noise_rms={10.0 ** rng.uniform(0, 3)}",
        f"{sensors}force_resolution={rng.choice([0.0, 10.0, 300.0])}",
        f"{output}lost_motion={rng.choice([0.0, 1e-5, 1e-4])}",
        f"{output}resolution={rng.choice([0.0, 1e-6, 1e-5])}",
    ]
    if rng.random() < 0.5:
        overrides.append("axes.story_1.actuator.type=servo_hydraulic")
    force, width = rng.uniform(1e4, 2e5), rng.uniform(1e-5, 2e-3)
    specimens = (
        "",
        f"{{type: slipping_elastomeric, stiffness: 7.6e6, slip_force: {force}}}",
        f"{{type: elastoplastic_absorber, stiffness: 7.6e6, yield_force: {force}}}",
        f"{{type: with_backlash, width: {width}, specimen: {{type: kelvin_voigt, stiffness: 7.6e6}}}}",
    )
    if specimen := specimens[rng.integers(4)]:
        overrides.append(f"axes.story_1.specimen={specimen}")
    result = hosts.run(NAME, overrides, keep=False, engine="python")
    assert "does not follow" not in result.reason
    assert "frozen_forces" not in result.metrics
