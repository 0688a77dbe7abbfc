# SPDX-License-Identifier: Apache-2.0
"""Tests of identification by least output error, of its experiments, and of axis models from a recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from coupled_rigs import RIG, one_by_one, transfer_matrix
from loop_parts import make
from messages import mentions, naming
from scipy.signal import lfilter

import rths_nodes
from rths_nodes.analysis.identification import frequency_responses
from rths_nodes.analysis.identification.experiments import Noise, driven
from rths_nodes.analysis.identification.frequency_responses import Experiment, FrequencyResponse, identify
from rths_nodes.analysis.identification.from_recording import axis_models, polynomials, simulated, usable
from rths_nodes.app import hosts
from rths_nodes.app.commands import terminal
from rths_nodes.app.studies import identification
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import from_text, override, replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.loading_model import save
from rths_nodes.recording.run import Run

DT = 1.0 / 1024.0
BAND = (0.25, 50.0)


class Drawn(NamedTuple):
    """A plant of order 1 to 3 behind a delay (s), and the noise of its sensor, relative to its motion."""

    parameters: np.ndarray
    delay: float
    noise: float


def drawn(seed: int) -> tuple[Drawn, Experiment]:
    rng = np.random.default_rng(seed)
    order, delay = int(rng.integers(1, 4)), rng.uniform(0.0, 0.03)
    level = 10.0 ** rng.uniform(-3.0, np.log10(0.02))
    lag, damping, gain = rng.uniform(0.004, 0.02), rng.uniform(0.4, 1.0), rng.uniform(0.95, 1.05)
    shares = {1: (1.0, 0.0), 2: (0.0, 1.0), 3: (0.3, 0.7)}[order]
    first = [np.log(shares[0] * lag)] if shares[0] else []
    second = [np.log(2.0 * damping / (shares[1] * lag)), np.log(damping)] if shares[1] else []
    parameters = np.array([gain, *first, *second])
    command = noise(rng)
    n = len(command)
    late = np.exp(-2j * np.pi * np.fft.rfftfreq(n, DT) * delay)
    moved = np.fft.irfft(np.fft.rfft(simulated(parameters, command, DT)) * late, n)
    measured = moved + level * moved.std() * rng.standard_normal(n)
    return Drawn(parameters, delay, level), (command[:, None], measured[:, None])


def noise(rng: np.random.Generator) -> np.ndarray:
    """Noise of 0.3 mm rms in the band for 60 s, then rest."""
    n = 60 * 1024
    frequency = np.fft.rfftfreq(n, DT)
    inside = (frequency >= BAND[0]) & (frequency <= BAND[1])
    history = np.fft.irfft(np.where(inside, np.exp(2j * np.pi * rng.random(len(frequency))), 0.0), n)
    time = DT * np.arange(n)
    rise = np.sin(0.5 * np.pi * np.minimum(1.0, np.minimum(time, time[::-1]))) ** 2
    return np.concatenate([3e-4 * rise * history / history.std(), np.zeros(600)])


def identified(experiments: Sequence[Experiment], ramp: bool = False) -> frequency_responses.Identified:
    return identify(frequency_responses.frequency_response(experiments, DT, 0.1, BAND), DT, ramp)


@pytest.mark.parametrize("count", [8, pytest.param(50, marks=pytest.mark.soak)])
def test_random_plants_are_identified(count: int) -> None:
    """Delay within half a sample or 2 %, error at most the noise plus 2 %, valid 95 % intervals."""
    covered = 0
    for seed in range(count):
        plant, experiment = drawn(seed)
        result = identified([experiment])
        assert abs(result.delay - plant.delay) <= max(0.5 * DT, 0.02 * plant.delay), seed
        assert result.fit.error[0, 0] <= plant.noise + 0.02, seed
        assert result.explained, seed
        covered += result.delay_range[0] <= plant.delay <= result.delay_range[1]
    assert covered >= 0.9 * count - 1


def test_coefficients_are_within_their_deviation() -> None:
    plant, experiment = drawn(3)
    result = identified([experiment])
    (gain,), denominator = polynomials(plant.parameters)
    exact = np.array(denominator[::-1]) / gain
    errors = (result.fit.coefficients[: len(exact), 0, 0] - exact) / result.deviation[: len(exact), 0, 0]
    assert np.abs(errors).max() < 3.0
    assert result.deviation[1, 0, 0] < 1e-3 * exact[1]


def test_held_plant_has_no_delay() -> None:
    """Regression: it was of third order and unstable, with a pole at 2 / dt = 2097 1/s."""
    command = noise(np.random.default_rng(1))
    alpha = 29.0
    moved = lfilter([1.0 / alpha], [1.0, 1.0 / alpha - 1.0], command)
    result = identified([(command[:, None], moved[:, None])])
    assert result.delay == pytest.approx(0.0, abs=1e-3 * DT)
    assert result.fit.orders.tolist() == [[1]]
    assert result.fit.coefficients[1, 0, 0] == pytest.approx(-DT / np.log(1.0 - 1.0 / alpha), rel=1e-4)


@pytest.mark.parametrize(("noise_rms", "late"), [(0.0, 0), (0.0, 3), (5e-6, 1), (5e-6, 20)])
def test_delay_of_coupled_axes_is_identified(noise_rms: float, late: int) -> None:
    dt = 1.0 / 1000.0
    result = identify(
        frequency_responses.frequency_response(one_by_one(noise_rms, late), dt, 0.5, (0.5, 40.0)), dt, ramp=True
    )
    assert result.delay == pytest.approx(late * dt, abs=0.05 * dt)
    assert result.fit.orders.diagonal().tolist() == [3, 3, 3]
    assert result.fit.orders[0, 2] == result.fit.orders[2, 0] == frequency_responses.NONE
    exact = np.array([transfer_matrix(RIG, s) for s in result.measured.s])
    model = result.fit.response(result.measured.frequency)
    assert np.abs(model - exact).max() < 5e-3 * np.abs(np.einsum("fii->fi", exact)).max()


def test_interval_of_narrow_band_contains_delay() -> None:
    """A pure delay of 2.5 samples with 1 % of noise."""
    frequency = np.arange(0.5, 4.0, 0.1)
    rng = np.random.default_rng(2)
    parts = rng.standard_normal((2, len(frequency)))
    turned = np.exp(-2j * np.pi * frequency * 2.5 * DT) + 0.01 * (parts[0] + 1j * parts[1])
    ones = np.ones((len(frequency), 1, 1))
    response = FrequencyResponse(frequency, turned[:, None, None], ones, 1e-4 * ones)
    least, most = identify(response, DT, ramp=True).delay_range
    assert least <= 2.5 * DT <= most
    assert most - least < 2.0 * DT


def test_responses_without_stable_model_are_refused() -> None:
    frequency = np.arange(0.5, 20.0, 0.1)
    diverging = 1.0 / (1.0 - 0.02 * 2j * np.pi * frequency)[:, None, None]
    response = FrequencyResponse(frequency, diverging, np.ones(diverging.shape))
    with pytest.raises(ConfigError, match=naming("stable", "orders")):
        identify(response, DT, ramp=False, orders=np.array([[1]]))


@pytest.fixture(scope="module")
def earthquake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An earthquake with twelve samples of transport that ends in motion, like an imported record."""
    path = tmp_path_factory.mktemp("earthquake") / "run"
    changes = ["port.transport_samples=12", "compensator.type=none", "duration=20"]
    rths_nodes.run("chen_ricles_2010", [*changes, f"{NOISY}=2e-5"], record=path)
    return str(path)


NOISY = "axes.story_1.sensors.displacement_noise_rms"


@pytest.mark.parametrize(("declared", "lead"), [(0, 11.5 * DT), (12, -0.5 * DT)])
def test_interval_of_record_contains_transport(declared: int, lead: float, earthquake: str) -> None:
    """Regression: it was 0 to 51 samples. The model compensates the undeclared transport."""
    scenario = files.load("chen_ricles_2010", [f"port.transport_samples={declared}"])
    experiments = identification.read([earthquake], scenario)
    result, model = identification.fit(scenario, experiments, BAND, None, None, None, "")
    least, most = (value / DT for value in result.delay_range)
    assert least <= 12.0 <= most
    assert most - least < 0.5
    assert model.lead == pytest.approx(lead, abs=0.1 * DT)
    assert model.poles().real.max() < 0.0


def test_identified_model_compensates(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Defaults on a rig that was refused for a pole at 2097 1/s."""
    scenario = files.load("tadc_sweep")
    path = str(tmp_path_factory.mktemp("models") / "model.yaml")
    test = identification.run(scenario, Noise(duration=20.0), None, terminal.progress)
    _, model = identification.fit(scenario, test, BAND, None, None, None, "")
    save(model, path)
    errors = [
        rths_nodes.run("tadc_sweep", ["duration=10", *changes]).metrics["axes"]["damper"]["error_norm_percent"]
        for changes in (["compensator.type=none"], ["compensator.type=model_based", f"compensator.model={path}"])
    ]
    assert errors[1] < 0.15 * errors[0]


NOISE = ["axes.story_1.sensors.displacement_noise_rms=2e-5", "axes.story_1.sensors.force_noise_rms=500"]
THIRD = [1.0 / 60.0, 2.0 * 0.6 / 90.0, 1.0 / 90.0**2]
"""tau, 2 zeta / w, 1 / w^2 of an actuator of third order."""


def recorded(*overrides: str, **sections: Any) -> Run:
    scenario = files.load("chen_ricles_2010", ["duration=6", *overrides])
    return rths_nodes.run(
        replace(scenario, [(["axes", "story_1", key], value) for key, value in sections.items()])
    )


def third_order() -> dict[str, Any]:
    denominator = np.convolve([THIRD[0], 1.0], [THIRD[2], THIRD[1], 1.0])
    return {"type": "transfer_function", "numerator": [1.01], "denominator": denominator.tolist()}


@pytest.mark.parametrize("parameters", [[0.98, -3.5], [1.0, 4.2, -0.5], [1.02, -4.5, 4.7, -0.3]])
def test_simulated_fit_equals_actuator(parameters: list[float]) -> None:
    numerator, denominator = polynomials(np.array(parameters))
    cls = registry.load("actuator", "transfer_function")
    specimen = registry.load("specimen", "kelvin_voigt")
    actuator = cls(
        from_data(cls.Params, {"numerator": numerator, "denominator": denominator}, "actuator"),
        DT,
        specimen(from_data(specimen.Params, {}, "specimen")),
    )
    command = np.cumsum(np.random.default_rng(1).normal(size=500)) * 1e-3
    moved = []
    for value in command:
        actuator.step(float(value))
        moved.append(actuator.displacement)
    np.testing.assert_allclose(simulated(np.array(parameters), command, DT), moved, atol=1e-9)


def test_third_order_actuator_and_specimen_are_identified() -> None:
    """With noise, within a few percent; the port adds transport."""
    run = recorded("port.transport_samples=3", "compensator.type=none", *NOISE, actuator=third_order())
    (model,) = axis_models(run).values()
    denominator = np.array(model.actuator["denominator"])
    expected = np.array(third_order()["denominator"])
    assert model.actuator["numerator"][0] == pytest.approx(1.01, rel=0.005)
    assert denominator[-2] == pytest.approx(expected[-2], rel=0.02)
    assert denominator[-3] == pytest.approx(expected[-3], rel=0.1)
    assert model.specimen["stiffness"] == pytest.approx(7.6e6, rel=0.01)
    assert model.specimen["damping"] == pytest.approx(0.64e6, rel=0.02)
    assert model.displacement_fit > 99.0
    assert model.force_fit > 99.0
    assert model.residual == pytest.approx(2e-5, rel=0.1)


def test_fit_reports_unexplained_force() -> None:
    """A slipping specimen is not a spring with a dashpot."""
    (model,) = axis_models(recorded(specimen={"type": "slipping_elastomeric"})).values()
    assert model.displacement_fit > 95.0
    assert model.force_fit < 95.0


def test_recording_is_used_until_first_bridged_sample() -> None:
    run = recorded("compensator.type=none")
    assert usable(run) == len(run.time)
    run.flags[700] |= 1
    assert usable(run) == 700
    run.displacement[300] = np.nan
    assert usable(run) == 300
    with pytest.raises(ConfigError, match=naming("300", ">= 500")):
        axis_models(run)


def test_coupled_and_resting_rigs_are_refused() -> None:
    with pytest.raises(ConfigError, match=naming("rig", "coupled")):
        axis_models(rths_nodes.run("phillips_spencer_2012", ["duration=0.1"]))
    with pytest.raises(ConfigError, match=naming("story_1", "recording")):
        axis_models(recorded("ground_motion={type: none}"))


SPECIMEN = "mass: [[98.3, 0.0], [0.0, 98.3]], damping: [[125.0, -50.0], [-50.0, 50.0]]"
TWO_AXES = f"""
version: 1
name: two_actuators
servo_rate: 1000.0
substeps: 4
duration: 30.0
structure: {{type: shear_frame, masses: [900.0, 900.0], stiffnesses: [5.0e+5, 5.0e+5]}}
integrator: {{type: cr}}
compensator: {{type: inverse}}
soft_start: {{duration: 5.0, frequency: 1.0, amplitude: 0.001}}
rig: {{type: coupled_servo_hydraulic, {SPECIMEN}, stiffness: [[12.0e+5, -6.84e+5], [-6.84e+5, 6.84e+5]]}}
axes:
  story_1: &axis {{limits: {{stroke: 0.1, velocity: 0.5, force: 1.0e+5}}}}
  story_2: *axis
"""
DAMPER = ["rig.damper={type: magnetorheological_damper}", "semi_active={type: clipped_optimal, voltage: 1.5}"]


def loaded(*overrides: str) -> Scenario:
    return override(from_text(TWO_AXES, "this test"), overrides)


def noise_params(**data: float) -> Noise:
    return from_data(Noise, {"rms": 1e-3, "duration": 2.0, "lower_frequency": 1.0, "upper_frequency": 30.0} | data)


@pytest.mark.parametrize("axis", [0, 1])
def test_only_one_axis_is_commanded(axis: int) -> None:
    run = hosts.run(driven(loaded(), axis, noise_params())).read()
    assert run.command.shape == (2001, 2)
    np.testing.assert_array_equal(run.command[:, 1 - axis], 0.0)
    moved = run.command[:, axis]
    assert moved.std() == pytest.approx(1e-3, rel=0.15)  # the tapers reduce it
    assert np.abs(moved[[0, -1]]).max() < 1e-12
    power = np.abs(np.fft.rfft(moved)) ** 2
    assert power[62:].sum() < 1e-3 * power.sum()
    # the specimen moves the other axis
    assert 0.0 < np.abs(run.displacement[:, 1 - axis]).max() < 0.05 * np.abs(moved).max()


def test_experiment_keeps_rig_and_limits() -> None:
    scenario = loaded("axes.story_1.limits.stroke=0.002", "port.transport_samples=2")
    test = driven(scenario, 0, noise_params())
    assert (test.rig, test.port, test.axes) == (scenario.rig, scenario.port, scenario.axes)
    assert test.name == "two_actuators.identify_story_1"
    with pytest.raises(ConfigError) as error:
        hosts.run(test)
    assert mentions(str(error.value), "axes.story_1.limits.stroke = 0.002 m")


def test_damper_is_switched_with_controller_voltage() -> None:
    test = driven(loaded(*DAMPER), 1, noise_params())
    assert type(test.semi_active).type_name == "random_switching"
    assert test.semi_active.voltage == 1.5
    assert driven(loaded(DAMPER[0]), 1, noise_params()).semi_active.voltage == 2.25
    assert driven(loaded(), 1, noise_params()).semi_active is None


def test_switching_is_fair_and_repeatable() -> None:
    measured = Measurement(0, *np.zeros((3, 1)))
    switch = make("semi_active", "random_switching", None, 0.01, (), interval=0.05, voltage=2.0)

    def drive(steps: int) -> np.ndarray:
        switch.reset()
        return np.array([switch.step(measured, 0.0)[0] for _ in range(steps)])

    first = drive(50_000)
    assert set(first) == {0.0, 2.0}
    np.testing.assert_array_equal(np.diff(first.reshape(-1, 5)), 0.0)  # five steps per decision
    assert first.mean() == pytest.approx(1.0, abs=0.05)
    assert np.mean(np.diff(first[::5]) != 0.0) == pytest.approx(0.5, abs=0.02)
    np.testing.assert_array_equal(drive(200), first[:200])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"upper_frequency": 500.0}, ("upper_frequency", "500 Hz", "servo_rate")),
        ({"rms": 0.0}, ("rms", "0 m", "> 0 m")),
        ({"lower_frequency": 30.0}, ("lower_frequency", "30 Hz", "< upper_frequency")),
        ({"duration": 4000.0}, ("duration", "4000 s", "> 0", "<= 3600 s")),
    ],
)
def test_invalid_noise_is_refused(change: dict[str, float], message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        driven(loaded(), 0, noise_params(**change))
