# SPDX-License-Identifier: Apache-2.0
"""Identification with least output error: random plants behind noise, rigs with several axes, imported records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from coupled_blocks import transfer_matrix
from messages import naming
from noisy_rigs import RIG, one_by_one
from scipy.signal import lfilter

import rths_nodes
from rths_nodes.analysis.identification.experiments import Noise
from rths_nodes.analysis.identification.frequency_responses import (
    NONE,
    Experiment,
    FrequencyResponse,
    frequency_response,
)
from rths_nodes.analysis.identification.from_recording import polynomials, simulated
from rths_nodes.analysis.identification.output_error import Identified, identify
from rths_nodes.app.commands import terminal
from rths_nodes.app.studies import identification
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.mechanics.models.file import save
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
    order, delay, level = (
        int(rng.integers(1, 4)),
        rng.uniform(0.0, 0.03),
        10.0 ** rng.uniform(-3.0, np.log10(0.02)),
    )
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
    return Drawn(parameters, delay, level), Experiment(command[:, None], measured[:, None])


def noise(rng: np.random.Generator) -> np.ndarray:
    """Noise of 0.3 mm rms in the band for 60 s, then rest."""
    n = 60 * 1024
    frequency = np.fft.rfftfreq(n, DT)
    inside = (frequency >= BAND[0]) & (frequency <= BAND[1])
    history = np.fft.irfft(np.where(inside, np.exp(2j * np.pi * rng.random(len(frequency))), 0.0), n)
    time = DT * np.arange(n)
    rise = np.sin(0.5 * np.pi * np.minimum(1.0, np.minimum(time, time[::-1]))) ** 2
    return np.concatenate([3e-4 * rise * history / history.std(), np.zeros(600)])


def found(experiments: Sequence[Experiment], ramp: bool = False) -> Identified:
    return identify(frequency_response(experiments, DT, 0.1, BAND), DT, ramp)


@pytest.mark.parametrize("count", [8, pytest.param(50, marks=pytest.mark.soak)])
def test_random_plants_are_identified(count: int) -> None:
    """Delay within half a sample or 2 %, error at most that of the noise and 2 %, 95 % intervals that hold."""
    covered = 0
    for seed in range(count):
        plant, experiment = drawn(seed)
        result = found([experiment])
        assert abs(result.delay - plant.delay) <= max(0.5 * DT, 0.02 * plant.delay), seed
        assert result.fit.error[0, 0] <= plant.noise + 0.02, seed
        assert result.explained, seed
        covered += result.delay_range[0] <= plant.delay <= result.delay_range[1]
    assert covered >= 0.9 * count - 1


def test_the_coefficients_come_back_within_their_deviation() -> None:
    plant, experiment = drawn(3)
    result = found([experiment])
    (gain,), denominator = polynomials(plant.parameters)
    known = np.array(denominator[::-1]) / gain
    off = (result.fit.coefficients[: len(known), 0, 0] - known) / result.deviation[: len(known), 0, 0]
    assert np.abs(off).max() < 3.0
    assert result.deviation[1, 0, 0] < 1e-3 * known[1]


def test_a_held_plant_is_not_half_a_sample_early() -> None:
    """Nor is it of third order, nor unstable: the pole 2097 1/s was 2 / dt."""
    command = noise(np.random.default_rng(1))
    alpha = 29.0
    moved = lfilter([1.0 / alpha], [1.0, 1.0 / alpha - 1.0], command)
    result = found([Experiment(command[:, None], moved[:, None])])
    assert result.delay == pytest.approx(0.0, abs=1e-3 * DT)
    assert result.fit.orders.tolist() == [[1]]
    assert result.fit.coefficients[1, 0, 0] == pytest.approx(-DT / np.log(1.0 - 1.0 / alpha), rel=1e-4)


@pytest.mark.parametrize(("noise_rms", "late"), [(0.0, 0), (0.0, 3), (5e-6, 1), (5e-6, 20)])
def test_the_delay_of_coupled_axes_is_found(noise_rms: float, late: int) -> None:
    dt = 1.0 / 1000.0
    result = identify(frequency_response(one_by_one(noise_rms, late), dt, 0.5, (0.5, 40.0)), dt, ramp=True)
    assert result.delay == pytest.approx(late * dt, abs=0.05 * dt)
    assert result.fit.orders.diagonal().tolist() == [3, 3, 3]
    assert result.fit.orders[0, 2] == result.fit.orders[2, 0] == NONE
    exact = np.array([transfer_matrix(RIG, s) for s in result.measured.s])
    model = result.fit.response(result.measured.frequency)
    assert np.abs(model - exact).max() < 5e-3 * np.abs(np.einsum("fii->fi", exact)).max()


def test_the_interval_of_a_narrow_band_holds_the_delay() -> None:
    """A rig that follows at once, two samples and a half late, with a hundredth of noise."""
    frequency = np.arange(0.5, 4.0, 0.1)
    rng = np.random.default_rng(2)
    parts = rng.standard_normal((2, len(frequency)))
    turned = np.exp(-2j * np.pi * frequency * 2.5 * DT) + 0.01 * (parts[0] + 1j * parts[1])
    ones = np.ones((len(frequency), 1, 1))
    response = FrequencyResponse(frequency, turned[:, None, None], ones, 1e-4 * ones)
    least, most = identify(response, DT, ramp=True).delay_range
    assert least <= 2.5 * DT <= most
    assert most - least < 2.0 * DT


def test_responses_without_a_stable_model_are_refused() -> None:
    frequency = np.arange(0.5, 20.0, 0.1)
    diverging = 1.0 / (1.0 - 0.02 * 2j * np.pi * frequency)[:, None, None]
    response = FrequencyResponse(frequency, diverging, np.ones(diverging.shape))
    with pytest.raises(ConfigError, match=naming("stable", "orders")):
        identify(response, DT, ramp=False, orders=np.array([[1]]))


@pytest.fixture(scope="module")
def earthquake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An earthquake behind twelve samples, which ends in motion: the record of another laboratory."""
    place = tmp_path_factory.mktemp("earthquake") / "run"
    changes = ["port.transport_samples=12", "compensator.type=none", "duration=20"]
    rths_nodes.run("chen_ricles_2010", [*changes, f"{NOISY}=2e-5"], record=place)
    return str(place)


NOISY = "axes.story_1.sensors.displacement_noise_rms"


@pytest.mark.parametrize(("declared", "lead"), [(0, 11.5 * DT), (12, -0.5 * DT)])
def test_the_transport_of_a_record_is_an_interval_that_holds_it(
    declared: int, lead: float, earthquake: str
) -> None:
    """It was 0 to 51 samples; the model makes up for the transport that is not declared."""
    scenario = files.load("chen_ricles_2010", [f"port.transport_samples={declared}"])
    experiments = identification.read([earthquake], scenario)
    result, model = identification.fit(scenario, experiments, BAND, None, None, None, "")
    least, most = (value / DT for value in result.delay_range)
    assert least <= 12.0 <= most
    assert most - least < 0.5
    assert model.lead == pytest.approx(lead, abs=0.1 * DT)
    assert model.poles().real.max() < 0.0


def test_the_model_compensates(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With its defaults, on a rig that was refused: the pole 2097 1/s."""
    scenario = files.load("tadc_sweep")
    place = str(tmp_path_factory.mktemp("models") / "model.yaml")
    test = identification.run(scenario, Noise(duration=20.0), None, terminal.progress)
    _, model = identification.fit(scenario, test, BAND, None, None, None, "")
    save(model, place)
    errors = [
        error_of(rths_nodes.run("tadc_sweep", ["duration=10", *changes]))
        for changes in (["compensator.type=none"], ["compensator.type=model_based", f"compensator.model={place}"])
    ]
    assert errors[1] < 0.15 * errors[0]


def error_of(run: Run) -> float:
    return float(run.metrics["axes"]["damper"]["error_norm_percent"])
