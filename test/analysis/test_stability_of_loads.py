# SPDX-License-Identifier: Apache-2.0
"""Tests of the stability of tests with force axes: closed forms, and simulations in time."""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming
from scipy.optimize import fsolve

from rths_nodes.analysis.stability.judgement import Judgement, is_stable, judge
from rths_nodes.analysis.stability.loops import ForceLoop
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.laboratory.force_control import NODES
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State

HZ = 2.0 * math.pi
LOAD, HEIGHT, ACTUATOR = 500e3, 3.0, 2.0
MASS, STIFFNESS, DAMPING = 50e3, 1e6, 10e3
NUMERICAL = MASS * HZ**2
DAMPING_RATIO = 0.02
QUIET = [
    f"axes.{axis}.sensors.{what}_noise_rms=0" for axis in ("drift", "load") for what in ("displacement", "force")
]

SOON = ["axes.load.load={value: 500.0e3, ramp_time: 1.0, held_for: 0.1}", "axes.load.limits.force_rate=2e6"]


def column(*overrides: str, delay: float = 0.02) -> Scenario:
    """The shipped scenario without noise and compensation, with a pure ``delay`` (s)."""
    late = f"rig.horizontal={{type: pure_delay, delay: {delay!r}}}"
    return files.load("column_under_axial_load", [*QUIET, *SOON, late, "compensator={type: none}", *overrides])


class TrueHistory:
    """A sink that stores the true drift and load."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float]] = []

    def target(self, target: Any) -> None: ...

    def command(self, command: Any) -> None: ...

    def measurement(self, measured: Any) -> None: ...

    def truth(self, true: Measurement) -> None:
        self.rows.append((float(true.displacement[0]), float(true.force[1])))

    def state(self, sample: int, values: Any) -> None: ...


def run(scenario: Scenario) -> tuple[Array, Array]:
    """Drift (m) and load (N) at every sample."""
    history = TrueHistory()
    outcome = Loop(Assembly(scenario)).run([history])
    assert outcome.state is State.FINISHED, outcome.reason
    drift, load = np.array(history.rows).T
    return drift, load


def grows(history: Array, first: float, then: float, width: float = 2.0) -> bool:
    """True if the motion is larger at ``then`` (s) than at ``first`` (s)."""
    sizes = [np.ptp(history[round(1024 * at) : round(1024 * (at + width))]) for at in (first, then)]
    return bool(sizes[1] > sizes[0])


def closed_form(load: float) -> tuple[float, float]:
    """Critical delay (s) and its frequency (Hz) in continuous time.

    The delayed stiffness is k - P / h - P / L; the setup adds P / L without delay:
    m s^2 + c s + K + P / L + (k - P / h - P / L + c_e s) e^{-s T} = 0.
    """
    damping = 2.0 * DAMPING_RATIO * MASS * HZ
    tested = STIFFNESS - load / HEIGHT - load / ACTUATOR

    def residual(unknown: Array) -> list[float]:
        s = 1j * unknown[0]
        delayed = (tested + DAMPING * s) * cmath.exp(-s * unknown[1])
        value = (MASS * s * s + damping * s + NUMERICAL + load / ACTUATOR + delayed) / NUMERICAL
        return [value.real, value.imag]

    omega, delay = fsolve(residual, [1.2 * HZ, 0.03])
    return float(delay), float(omega) / HZ


@pytest.mark.parametrize("load", [500e3, 100e3])
def test_column_mode_and_critical_delay_have_closed_form(load: float) -> None:
    """P-Delta takes P / h of its stiffness; the thrust P / L of the inclined actuator affects only the delay."""
    result = judge(column(f"axes.load.load.value={load!r}"))
    assert result.stable
    assert result.axes == ("drift",)
    (mode,) = result.modes
    down = load / 1e9  # shortening that the setup neglects
    stiffness = NUMERICAL + STIFFNESS - load / (HEIGHT - down) - load / (ACTUATOR + down) + load / ACTUATOR
    assert mode.frequency == pytest.approx(math.sqrt(stiffness / MASS) / HZ, rel=1e-6)
    damping = 2.0 * DAMPING_RATIO * MASS * HZ + DAMPING
    assert mode.damping_ratio == pytest.approx(damping / (2.0 * math.sqrt(stiffness * MASS)), rel=1e-5)
    delay, frequency = closed_form(load)
    assert result.further_delay is not None
    assert result.critical_delay == pytest.approx(delay, rel=2e-3)
    assert result.further_delay.frequency == pytest.approx(frequency, rel=2e-3)
    assert any(mentions(words, "load", "largest") for words in result.assumptions)


@pytest.mark.parametrize("transport", [pytest.param(0, marks=pytest.mark.soak), 3])
def test_drift_grows_beyond_critical_delay(transport: int) -> None:
    port = f"port={{type: simulator, transport_samples: {transport}}}"
    critical = judge(column(port)).critical_delay
    assert critical is not None
    shake = "ground_motion={type: delayed, delay: 1.5, motion: {type: harmonic, amplitude: 0.02, frequency: 1.0}}"
    for factor, expected in ((0.95, False), (1.05, True)):
        late = factor * critical - transport / 1024.0
        scenario = column(
            port, "duration=12", shake.replace("frequency: 1.0", "frequency: 1.0, periods: 2"), delay=late
        )
        assert is_stable(scenario) is not expected
        assert grows(run(scenario)[0], 4.0, 10.0) is expected, factor


def force_loop(closed_by: str, *overrides: str, delay: float = 0.01) -> Scenario:
    """The column at rest with a load actuator of pure ``delay`` (s) and wide limits."""
    law = {
        "nodes": "{type: feed_forward_pi, stiffness: 1.0e9, integral_gain: 20.0}",
        "controller": "{type: servo_valve, stiffness: 1.0e9, gain: 20.0, valve_time_constant: 0.005}",
    }
    control = {"closed_by": closed_by, "law": law[closed_by], "largest_correction": 1e-2}
    return column(
        *("ground_motion={type: none}", "duration=5", f"rig.vertical={{type: pure_delay, delay: {delay!r}}}"),
        *(f"axes.load.force_control.{key}={value}" for key, value in control.items()),
        *("axes.load.limits.force_error=1e8", "axes.load.limits.force=1e8", *overrides),
    )


def loop_of(result: Judgement) -> Any:
    (loop,) = result.force_loops
    return loop


def test_integral_force_loop_margins_have_closed_form() -> None:
    """k_i T = pi / 2, where a sum of samples lags by half a sample."""
    loop = loop_of(judge(force_loop("nodes", delay=10.0 / 1024.0)))
    around = 10.5 / 1024.0
    assert loop.stable
    assert loop.stiffness == pytest.approx(1e9, rel=1e-6)
    delay, frequency = loop.further_delay
    assert frequency == pytest.approx(20.0 / HZ, rel=1e-4)
    assert delay == pytest.approx(0.5 * math.pi / 20.0 - around, rel=1e-4)
    at, half = 0.5 * math.pi / around, 0.5 / 1024.0
    assert loop.gain == pytest.approx(math.sin(at * half) / (20.0 * half), rel=1e-6)


def test_servo_valve_margins_have_closed_form() -> None:
    """An integral behind a first-order lag, in samples: arg L = -pi/2 - w (T + dt / 2) - arg of the spool."""
    delay, frequency = loop_of(judge(force_loop("controller"))).further_delay
    omega, dt = HZ * frequency, 1.0 / 1024.0
    z, share = cmath.exp(1j * omega * dt), 1.0 - math.exp(-dt / 0.005)
    spool = share / (1.0 - (1.0 - share) / z)
    open_loop = 20.0 * dt / (1.0 - 1.0 / z) * spool / z * cmath.exp(-1j * omega * 0.01)
    assert abs(open_loop) == pytest.approx(1.0, rel=1e-3)
    assert delay == pytest.approx((math.pi + cmath.phase(open_loop)) / omega, rel=1e-3)


@pytest.mark.parametrize(
    ("proportional", "integral", "limit"), [(0.0, 0.05, 40.0), (0.85, 0.05, 8.0 / 7.0), (0.5, 0.1, 20.0 / 11.0)]
)
def test_stiffness_limit_includes_nyquist_frequency(proportional: float, integral: float, limit: float) -> None:
    """Without a delay in the rig, a PI loop (k_p + k_i / (1 - 1/z)) / z first grows at z = -1."""
    law = np.array([proportional + integral, -proportional])
    loop = ForceLoop("a", NODES, 1.0, law, np.ones(1), 1, 1e-3)
    assert loop.gain == pytest.approx(limit)
    assert [bool(loop.growing(gain=share * limit)) for share in (0.999, 1.001)] == [False, True]


@pytest.mark.parametrize("how", ["nodes", "controller"])
@pytest.mark.parametrize("varied", ["delay", "stiffness"])
def test_load_oscillates_beyond_limits_of_force_loop(how: str, varied: str) -> None:
    port = "port={type: simulator, transport_samples: 2}"
    loop = loop_of(judge(force_loop(how, port)))
    for factor, expected in ((0.95, False), (1.05, True)):
        late, gain = 0.01, []
        if varied == "delay":
            late = 0.01 + factor * (loop.further_delay[0] + 0.01) - 0.01
        else:
            gain = ["axes.load.load.value=100.0", f"rig.axial_stiffness={float(factor * loop.gain * 1e9)!r}"]
        scenario = force_loop(how, port, *gain, delay=late)
        result = judge(scenario)
        assert result.stable is not expected
        assert is_stable(scenario) is not expected
        assert mentions(result.verdict(), "UNSTABLE", "force", "load") is expected
        assert grows(run(scenario)[1], 1.5, 4.0, 1.0) is expected, factor


def test_load_beyond_strength_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("axes.load.load", "500000 N")):
        judge(column("rig.crushing_force=400e3"))
