# SPDX-License-Identifier: Apache-2.0
"""Tests of the complete loop: reference numbers of the notes (part A), trips, repeatability."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from loop_parts import History, simulate

from rths_nodes.app import hosts
from rths_nodes.core.errors import PortError
from rths_nodes.core.samples import FLAG_SATURATED, FLAG_TRIPPED
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.embedded import Loop, Outcome
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW, State
from rths_nodes.recording.run import Collector, Run

# Set-up CR-1 with plant 1 and specimen L on the record of Canoga Park


@pytest.fixture(scope="module")
def reference(canoga_park: list[str]) -> Callable[[int, float], tuple[Outcome, Run]]:
    """The test of the notes for ``alpha_es`` and ``k_p`` of the compensator."""

    @cache
    def reference(alpha_es: int, k_p: float) -> tuple[Outcome, Run]:
        gains = [f"compensator.alpha_es={alpha_es}", f"compensator.k_p_per_mm2={k_p}"]
        return simulate("chen_ricles_2010", *canoga_park, *gains)

    return reference


def test_displacements_with_perfect_actuator(reference: Callable[..., tuple[Outcome, Run]]) -> None:
    outcome, run = reference(29, 0.0)
    assert outcome.state is State.FINISHED
    assert run.time[-1] == pytest.approx(30.0, abs=run.scenario.step)
    displacements = [1e3 * outcome.metrics[f"{name}_displacement_m"] for name in ("max", "min", "end")]
    np.testing.assert_allclose(displacements, [30.7945, -23.7794, -0.4811], rtol=1e-3)


@pytest.mark.parametrize(
    ("alpha_es", "k_p", "error_mm", "hsem_percent"),
    [
        (29, 0.0, 0.0, 0.0),
        pytest.param(29, 0.2, 0.0, None, marks=pytest.mark.soak),
        (29, 0.4, 0.0, None),
        (15, 0.0, 2.476, 8.57),
        pytest.param(15, 0.2, 1.071, None, marks=pytest.mark.soak),
        (15, 0.4, 0.901, None),
        (45, 0.0, 2.680, -6.77),
        pytest.param(45, 0.2, 1.186, None, marks=pytest.mark.soak),
        (45, 0.4, 1.014, None),
    ],
)
def test_control_errors_of_reference_set_up(
    reference: Callable[..., tuple[Outcome, Run]],
    alpha_es: int,
    k_p: float,
    error_mm: float,
    hsem_percent: float | None,
) -> None:
    outcome, run = reference(alpha_es, k_p)
    metrics = outcome.metrics
    story = metrics["axes"]["story_1"]
    assert 1e3 * story["max_error_m"] == pytest.approx(error_mm, rel=1e-3, abs=1e-6)
    if hsem_percent is not None:
        assert metrics["hsem_percent"] == pytest.approx(hsem_percent, rel=1e-3, abs=1e-9)
    # the indices equal those of the histories
    error = run.target - run.displacement
    assert story["max_error_m"] == np.abs(error).max()
    norm = 100.0 * np.sqrt(np.square(error).sum() / np.square(run.target).sum())
    assert story["error_norm_percent"] == pytest.approx(norm, rel=1e-9)
    assert math.copysign(1.0, story["delay_s"]) == math.copysign(1.0, 29 - alpha_es) or alpha_es == 29


@pytest.mark.parametrize("ramp", ["linear", "quadratic"])
def test_true_alpha_compensates_perfectly(ramp: str) -> None:
    outcome, run = simulate("chen_ricles_2010", "duration=8", "compensator.alpha_es=29", f"ramp.type={ramp}")
    assert outcome.state is State.FINISHED
    assert np.abs(run.target).max() > 0.02
    assert outcome.metrics["axes"]["story_1"]["max_error_m"] < 1e-15
    np.testing.assert_allclose(run.compensator[:, 0], 29.0, atol=1e-9)


def test_quadratic_ramp_smooths_command() -> None:
    """A linear ramp with an inverse compensator gives a sawtooth at the step rate."""
    fastest = {}
    for ramp in ("linear", "quadratic"):
        _, run = simulate("chen_ricles_2010", "duration=5", "compensator.alpha_es=29", f"ramp.type={ramp}")
        fastest[ramp] = np.abs(np.diff(run.command[:, 0])).max() / np.abs(np.diff(run.target[:, 0])).max()
    assert fastest["linear"] > 1.5 * fastest["quadratic"]


def test_actuator_and_specimen_types_are_exchangeable() -> None:
    types = ["axes.story_1.actuator.type=servo_hydraulic", "axes.story_1.specimen.type=softening_elastomeric"]
    outcome, run = simulate("chen_ricles_2010", "duration=5", "compensator.alpha_es=29", *types)
    assert outcome.state is State.FINISHED
    assert 0.0 < outcome.metrics["axes"]["story_1"]["max_error_percent"] < 10.0
    assert np.isfinite(run.force).all()


def test_predefined_sine() -> None:
    outcome, run = simulate("predefined_sine")
    error = 1e3 * np.abs(run.target - run.displacement)[:, 0]
    rate = 1024
    assert error[: 2 * rate + 1].max() == pytest.approx(1.43938, abs=1e-5)
    assert error[18 * rate :].max() == pytest.approx(0.00970, abs=1e-5)
    delta = run.compensator[:, run.compensator_names.index("axes.axis_1.delta_alpha")]
    # row k: the state after Measurement k
    np.testing.assert_allclose(delta[[rate, 5 * rate, 20 * rate]], [13.90764, 14.30856, 14.06526], atol=1e-5)
    assert outcome.compensator["axes.axis_1.delta_alpha"] == delta[-1]


# Repeatability, transport delay


NOISE = ["axes.story_1.sensors.displacement_noise_rms=2e-5", "axes.story_1.sensors.force_noise_rms=500"]


@pytest.mark.parametrize("overrides", [[], NOISE], ids=["clean", "noisy"])
def test_runs_are_repeatable_to_the_bit(overrides: list[str]) -> None:
    outcomes, runs = zip(*(simulate("chen_ricles_2010", "duration=2", *overrides) for _ in range(2)), strict=True)
    for name in ("target", "command", "displacement", "force", "dof_displacement", "compensator", "flags"):
        np.testing.assert_array_equal(*(getattr(run, name) for run in runs), err_msg=name)
    assert outcomes[0].metrics == outcomes[1].metrics


def test_noise_depends_on_seed() -> None:
    runs = [simulate("chen_ricles_2010", "duration=1", f"seed={seed}", *NOISE)[1] for seed in (1, 2)]
    assert not np.array_equal(runs[0].displacement, runs[1].displacement)
    assert np.std(runs[0].displacement - runs[0].true_displacement) == pytest.approx(2e-5, rel=0.1)
    assert np.std(runs[0].force - runs[0].true_force) == pytest.approx(500.0, rel=0.1)


@pytest.mark.parametrize("samples", [1, 5])
def test_transport_samples_delay_the_rig(samples: int) -> None:
    """In open loop only the rig changes."""
    open_loop = ["duration=2", "compensator.type=inverse"]
    _, at_once = simulate("predefined_sine", *open_loop)
    _, late = simulate("predefined_sine", *open_loop, f"port.transport_samples={samples}")
    np.testing.assert_array_equal(late.command, at_once.command)
    assert not late.displacement[: samples + 1].any()
    np.testing.assert_array_equal(late.displacement[samples:], at_once.displacement[:-samples])
    np.testing.assert_array_equal(late.force[samples:], at_once.force[:-samples])


# Trips


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("axes.story_1.limits.stroke=0.01", "axes.story_1.limits.stroke: command = "),
        ("axes.story_1.limits.velocity=0.1", "axes.story_1.limits.velocity: command = "),
        ("axes.story_1.limits.force=1e5", "axes.story_1.limits.force: measured = "),
        ("axes.story_1.limits.tracking_error=5e-4", "axes.story_1.limits.tracking_error: "),
    ],
)
def test_limit_trips(override: str, reason: str) -> None:
    loop, history = Loop(Assembly(files.load("chen_ricles_2010", ["duration=8", override]))), History()
    collector = Collector(loop.scenario, loop.assembly.names)
    outcome = loop.run([collector, history])
    run = collector.run()
    assert outcome.state is State.TRIPPED
    tripped = np.flatnonzero(run.flags & FLAG_TRIPPED)
    first = tripped[0]
    np.testing.assert_array_equal(tripped, np.arange(first, outcome.samples + 1))
    assert outcome.reason.startswith(f"sample {first}: {reason}")
    assert "must be within" in outcome.reason
    # commands stay within the limits; the stop begins with the last velocity, brakes and ends at rest
    limits, dt = loop.scenario.axes["story_1"].limits, loop.scenario.dt
    sent = np.array([measured.command[0] for measured in history.measured])
    velocity = np.diff(sent) / dt
    assert np.abs(sent).max() <= limits.stroke
    assert np.abs(velocity).max() <= limits.velocity * (1 + 1e-9)
    assert np.abs(np.diff(velocity[first:])).max(initial=0.0) <= limits.deceleration * dt * (1 + 1e-9)
    assert abs(velocity[-1]) <= limits.deceleration * dt
    # the indices end at the start of the stop
    error = np.abs(run.target - run.displacement)[:first]
    assert outcome.metrics["axes"]["story_1"]["max_error_m"] == error.max()


def test_monitor_breach_trips_one_window_later() -> None:
    loop = Loop(Assembly(files.load("chen_ricles_2010", ["duration=8", "monitor.energy_error_percent=2"])))
    collector = Collector(loop.scenario, loop.assembly.names)
    outcome = loop.run([collector])
    breach = loop.monitor.monitor.breach
    assert breach is not None
    assert outcome.state is State.TRIPPED
    assert outcome.reason == f"sample {breach[0] + LOCKSTEP_WINDOW}: {breach[1]}"
    assert np.flatnonzero(collector.run().flags & FLAG_TRIPPED)[0] == breach[0] + LOCKSTEP_WINDOW


def test_interrupt_holds() -> None:
    loop = Loop(Assembly(files.load("chen_ricles_2010", ["duration=8"])))
    outcome = loop.run(interrupted=lambda: loop.rig.sample >= 3000)
    assert outcome.state is State.HELD
    assert outcome.reason.endswith("interrupted")
    assert 3000 < outcome.samples < 3000 + 200


@pytest.mark.parametrize("yields", [1e-5, 1e-9])
def test_frame_that_yields_at_once_does_not_diverge(yields: float) -> None:
    """The restoring force stays within eta k x + (1 - eta) k x_y; with ten increments per step it diverged."""
    overrides = [f"structure.restoring_force.yield_displacement={yields}", "structure.restoring_force.exponent=3"]
    outcome, run = simulate("chen_ricles_2010", "duration=2", *overrides)
    assert outcome.state is State.FINISHED
    elastic = 0.01 * 11.76e6 * np.abs(run.displacement).max()
    assert np.abs(run.restoring_force).max() <= 1.05 * elastic + 0.99 * 11.76e6 * yields


def test_saturated_sensor_is_flagged() -> None:
    _, run = simulate("chen_ricles_2010", "duration=5", "axes.story_1.sensors.displacement_range=0.01")
    flagged = (run.flags & FLAG_SATURATED) > 0
    assert flagged.any()
    np.testing.assert_array_equal(flagged, np.abs(run.true_displacement[:, 0]) >= 0.01)


def test_duration_is_rounded_up_to_whole_steps() -> None:
    outcome, run = simulate("chen_ricles_2010", "duration=0.1")
    assert outcome.samples == 110
    assert len(run.dof_displacement) == 12
    assert len(run.displacement) == 111


# A slower time axis


PERFECT = ("compensator.type=none", "axes.story_1.actuator.type=pure_delay")


@pytest.mark.parametrize("ratio", [10.0, 1.3])
def test_slow_time_axis_with_rate_independent_specimen(ratio: float) -> None:
    overrides = ("duration=1.5", *PERFECT, "axes.story_1.specimen.damping=0")
    _, real_time = simulate("chen_ricles_2010", *overrides)
    _, slow = simulate("chen_ricles_2010", *overrides, f"time_ratio={ratio}")
    np.testing.assert_array_equal(slow.dof_displacement, real_time.dof_displacement)
    np.testing.assert_allclose(slow.dof_velocity, real_time.dof_velocity / ratio, rtol=1e-14)
    np.testing.assert_allclose(slow.exact_acceleration, real_time.exact_acceleration / ratio**2, rtol=1e-14)
    assert len(slow.target) == round(ratio * (len(real_time.target) - 1)) + 1


def test_slow_time_axis_loses_damper_force() -> None:
    _, real_time = simulate("chen_ricles_2010", "duration=3", *PERFECT)
    _, slow = simulate("chen_ricles_2010", "duration=3", *PERFECT, "time_ratio=10")
    assert np.abs(slow.dof_displacement).max() > 1.1 * np.abs(real_time.dof_displacement).max()


@pytest.mark.parametrize("fails_in", ["write", "read", "wait_tick"])
def test_failing_port_ends_test_and_keeps_samples(fails_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost connection gives a failed result, as on the hosts with nodes, and no exception."""
    works, reason = getattr(Simulator, fails_in), "port 'bench' at 10.0.0.2:8000: the connection was reset"
    safe: list[int] = []

    def fail(self: Simulator, *arguments: Any) -> Any:
        if self.sample >= 100:
            raise PortError(reason)
        return works(self, *arguments)

    monkeypatch.setattr(Simulator, fails_in, fail)
    monkeypatch.setattr(Simulator, "safe", lambda self: safe.append(self.sample))
    result = hosts.run("predefined_sine", ["duration=0.5"], engine="python")
    assert (result.outcome, result.exit_code, result.reason) == ("failed", 1, reason)
    assert safe
    assert 98 <= result.samples <= 101
    assert np.isfinite(result.read().displacement[:98]).all()
