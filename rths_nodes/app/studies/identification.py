# SPDX-License-Identifier: Apache-2.0
"""Identification of a loading system: tests with noise on one axis at a time, frequency responses, fit.

The other axes are at rest (Phillips & Spencer 2012, section 3.1). For ``identified_inverse`` the noise is
periodic, and the fit ends just above the frequencies of the structure's motion, because higher frequencies would
degrade the fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.analysis.identification import frequency_responses
from rths_nodes.analysis.identification.experiments import TAPER, Noise, driven, loaded_at
from rths_nodes.analysis.identification.frequency_responses import Experiment, Identified, Orders
from rths_nodes.analysis.published_indices import axes_of, reference_displacement
from rths_nodes.analysis.units import MM
from rths_nodes.app import hosts
from rths_nodes.app.studies.engine import Shown
from rths_nodes.core.errors import ConfigError, Stopped, within
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.loading_model import ORDER, LoadingModel, check_static
from rths_nodes.mechanics.structure import combined
from rths_nodes.numerical.structures.damping import some_modes
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run

MODEL_BASED, IDENTIFIED_INVERSE = "model_based", "identified_inverse"
DECLARED, MEASURED = "declared", "measured"
"""Sources of the command delay that the model excludes: the port's declaration, or the measured responses."""

FINEST, LINES = 0.1, 6
"""Default resolution, Hz: the width of ``LINES`` spectral lines of the recording, at least ``FINEST``."""


PERIOD, PERIODS = 10.0, 4
"""Period of periodic noise, s, and number of periods. The first period is not evaluated."""
BAND = (0.25, 20.0)
"""Frequency band of periodic noise, Hz."""
SHARE = 0.1
"""Ratio of the rms of periodic noise to the expected rms of the test."""
BEYOND_MODE = 2.75
"""Ratio of the upper frequency of the fit to the structure's first natural frequency."""


def run(scenario: Scenario, noise: Noise, record: str | None, progress: Shown) -> list[Experiment]:
    """Run one test per axis, with ``noise`` on that axis only, and return one experiment per axis.

    The tests are recorded in ``record``/<axis> if ``record`` is set. Raises ConfigError if a test is invalid, and
    Stopped if a test does not finish.
    """
    result = histories(scenario, noise, record, progress, "a smaller rms or a narrower band of the noise")
    return list(map(experiment, result))


def experiment(run: Run) -> Experiment:
    first = round(loaded_at(run.scenario) * run.scenario.servo_rate)
    return run.command[first:], run.displacement[first:]


def histories(
    scenario: Scenario, noise: Noise, record: str | None, progress: Shown, smaller: str
) -> Iterator[Run]:
    for index, name in enumerate(scenario.moved_axes):
        test = driven(scenario, index, noise)
        yield finished(test, test.name, Path(record) / name if record else None, progress, smaller)


def finished(test: Scenario, name: str, record: Path | None, progress: Shown, smaller: str) -> Run:
    """Run ``test`` and return its histories. ``name`` labels the progress.

    Raises Stopped if the test does not finish. After a trip, the message recommends the remedy ``smaller``.
    """
    with progress(name) as report:
        result = hosts.run(test, record=record, progress=report)
    if result.outcome != "finished":
        hint = f". Use {smaller}" if result.outcome == "tripped" else ""
        raise Stopped(f"{name}: {result.outcome}: {result.reason}{hint}", result.exit_code)
    return result.read()


def read(recordings: Sequence[str], scenario: Scenario) -> list[Experiment]:
    """Return the experiments in ``recordings``, sorted by axis. Raises ConfigError if one is unsuitable."""
    experiments = [_read(recording, scenario) for recording in recordings]
    axes = [int(np.argmax(np.var(command, axis=0))) for command, _ in experiments]
    if sorted(axes) != list(range(len(scenario.moved_axes))):
        names = ", ".join(scenario.moved_axes[axis] for axis in axes)
        raise ConfigError(
            f"--from: the driven axes are {names}. Each axis must be driven in exactly one recording"
        )
    return [experiments[number] for number in np.argsort(axes)]


def _read(recording: str, scenario: Scenario) -> Experiment:
    result = read_run(recording)
    if result.notes:  # a model needs complete recordings
        raise ConfigError(*result.notes)
    if result.axes != scenario.moved_axes:
        names, moved = ", ".join(result.axes), ", ".join(scenario.moved_axes)
        raise ConfigError(f"{recording}: has the axes {names}, but the scenario has the axes {moved}")
    rate, needed = result.scenario.servo_rate, scenario.servo_rate
    if rate != needed:
        raise ConfigError(f"{recording}: servo_rate = {rate:g} Hz: must be {needed:g} Hz, as in the scenario")
    return experiment(result)


def fit(
    scenario: Scenario,
    experiments: Sequence[Experiment],
    band: tuple[float, float],
    resolution: float | None,
    orders: Orders | None,
    how: str | None,
    source: str,
) -> tuple[Identified, LoadingModel]:
    """Fit the loading system of ``scenario`` to one experiment per axis. Return the fit and the model.

    ``band`` and ``resolution`` (None: default) of the responses are in Hz. ``orders`` are the orders of the
    inverse (None: chosen automatically). ``how`` is the source of the delay; by default, the declared delay unless
    the responses contradict it. ``source`` describes the experiments. Raises ConfigError if no model fits.
    """
    shortest = min(len(command) for command, _ in experiments) * scenario.dt
    finest = max(FINEST, LINES / shortest) if resolution is None else resolution
    try:
        responses = frequency_responses.frequency_response(experiments, scenario.dt, finest, band)
    except ValueError as error:
        raise ConfigError(f"{scenario.name}: the responses cannot be computed ({error})") from None
    dt, ramp, declared = scenario.dt, _on_ramps(scenario), scenario.transport_samples * scenario.dt
    with within(scenario.name):
        delay = declared if how == DECLARED else None
        identified = frequency_responses.identify(responses, dt, ramp, orders, delay)
        least, most = identified.delay_range
        near = min(least, identified.delay - 0.5 * dt) <= declared <= max(most, identified.delay + 0.5 * dt)
        if how is None and (near or not identified.explained):
            with suppress(ConfigError):
                fixed = frequency_responses.identify(responses, dt, ramp, orders, declared)
                identified = fixed._replace(delay_range=identified.delay_range, explained=identified.explained)
    text = f"rths identify {scenario.name}: {source}; {band[0]:g} to {band[1]:g} Hz"
    # omit the half sample by which a held command lags
    lead = max(identified.delay - (0.0 if ramp else 0.5 * dt), 0.0) - declared
    axes, rate, coefficients = scenario.moved_axes, scenario.servo_rate, identified.fit.coefficients
    deviation = identified.deviation
    return identified, LoadingModel(axes, coefficients, None, rate, text, lead, deviation=deviation)


def _on_ramps(scenario: Scenario) -> bool:
    """Return true if the rig interpolates linearly between commands, instead of holding each command."""
    data = scenario.data()
    parts = [data["port"], data["rig"], *(axis["actuator"] for axis in data["axes"].values())]
    return any(part.get("hold") == "ramp" or part["type"] == "pure_delay" for part in parts if part)


def expected_rms(scenario: Scenario) -> float:
    """Return the smallest expected rms displacement of an axis, m. Raises ConfigError without a structure."""
    assembly = Assembly(scenario)
    if assembly.structure is None:
        raise ConfigError("structure: missing, so the expected motion is unknown. Set rms, in m")
    return float(np.std(axes_of(assembly, reference_displacement(assembly)), axis=0).min())


def fitted_up_to(scenario: Scenario, band: tuple[float, float]) -> float:
    """Return the default upper frequency of the periodic fit, Hz. Raises ConfigError if there is no structure."""
    structure = Assembly(scenario).structure
    if structure is None:
        raise ConfigError("structure: missing, so its frequencies are unknown. Set fit_up_to, in Hz")
    mass, _, stiffness = combined(structure)
    frequency = float(some_modes(mass, stiffness, 1)[0][0]) / (2.0 * np.pi)
    return min(band[1], BEYOND_MODE * frequency)


def end_of_fit(scenario: Scenario, band: tuple[float, float], up_to: float | None) -> float:
    end = fitted_up_to(scenario, band) if up_to is None else up_to
    if not band[0] < end <= band[1]:
        raise ConfigError(
            f"fit_up_to = {end:g} Hz: must be > {band[0]:g} and <= {band[1]:g} Hz, the band of the noise"
        )
    return end


def description(noise: Noise) -> str:
    rms = f"periodic noise, {MM * noise.rms:.3g} mm" if noise.period else f"noise, {noise.rms:g} m"
    return f"{noise.duration:g} s of {rms} rms, on each axis"


def periodic_noise(scenario: Scenario, wanted: Mapping[str, float]) -> Noise:
    """Return periodic noise with the ``wanted`` parameters, and defaults for the others.

    The duration includes the fade-out. The default amplitude is derived from the expected motion of the test.
    Raises ConfigError if a parameter is invalid.
    """
    duration = wanted.get("duration", PERIODS * PERIOD)
    if duration < 2.0 * PERIOD:
        raise ConfigError(f"duration = {duration:g} s: must be >= {2.0 * PERIOD:g} s, two periods of the noise")
    rms = wanted["rms"] if "rms" in wanted else SHARE * expected_rms(scenario)
    lower, upper = BAND
    defaults = {"rms": rms, "lower_frequency": lower, "upper_frequency": upper}
    whole_periods = PERIOD * (duration // PERIOD)  # partial periods are not evaluated
    fixed = {"duration": whole_periods + TAPER, "period": PERIOD}
    return from_data(Noise, defaults | dict(wanted) | fixed)


def fit_periodic(
    scenario: Scenario, experiments: Sequence[Experiment], band: tuple[float, float], up_to: float, source: str
) -> tuple[frequency_responses.Fit, LoadingModel]:
    """Fit the inverse to the spectral lines of ``band`` up to ``up_to`` (Hz). Return the fit and the model.

    The inverse includes the transport delay. An ``identified_inverse`` in the scenario sets the order. ``source``
    describes the experiments. Raises ConfigError if no inverse fits.
    """
    compensator: Any = scenario.compensator
    name = IDENTIFIED_INVERSE
    order = int(compensator.order) if type(compensator).type_name == name else ORDER
    try:
        lines = frequency_responses.lines(experiments, scenario.dt, PERIOD, (band[0], up_to))
        result = frequency_responses.fit(*lines, order)
    except ValueError as error:
        raise ConfigError(f"{scenario.name}: the inverse cannot be fitted ({error})") from None
    text = f"rths identify {scenario.name} --for {name}: {source}; fitted up to {up_to:.4g} Hz"
    check_static(result.coefficients, f"the model of {scenario.name}")
    lead = -scenario.transport_samples * scenario.dt  # the coefficients include the transport
    axes, rate = scenario.moved_axes, scenario.servo_rate
    return result, LoadingModel(axes, result.coefficients, None, rate, text, lead, deviation=result.deviation)
