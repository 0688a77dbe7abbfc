# SPDX-License-Identifier: Apache-2.0
"""Identification for ``identified_inverse``: excitation, range of the fit, model.

The amplitude follows from the expected motion of the test, and the fit ends where the structure's motion does:
noise far above would move the best fit of the polynomial there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.analysis.identification import periodic
from rths_nodes.analysis.identification.experiments import TAPER, Noise
from rths_nodes.analysis.identification.frequency_responses import Experiment
from rths_nodes.analysis.identification.periodic import Fit, Lines
from rths_nodes.analysis.published_indices import axes_of, reference_displacement
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.models import inverse
from rths_nodes.mechanics.models.file import LoadingModel
from rths_nodes.mechanics.structure import combined
from rths_nodes.numerical.structures.damping import modes


class Periodic(NamedTuple):
    """Defaults of the identification: noise, and end of the fit."""

    period: float = 10.0
    """s."""
    periods: int = 4
    """The first is left out."""
    band: tuple[float, float] = (0.25, 20.0)
    """Hz, of the noise."""
    share: float = 0.1
    """Rms of the noise over the expected rms of the test."""
    beyond_mode: float = 2.75
    """Highest frequency of the fit over the structure's first natural frequency."""


PERIODIC = Periodic()

NAME = "identified_inverse"


def expected_rms(scenario: Scenario) -> float:
    """Return the expected rms (m) of the axis that moves least. Raises ConfigError without a structure."""
    assembly = Assembly(scenario)
    if assembly.structure is None:
        raise ConfigError("structure: missing, so that no motion can be expected; give --rms in m")
    return float(np.std(axes_of(assembly, reference_displacement(assembly)), axis=0).min())


def first_frequency(scenario: Scenario) -> float:
    """Return the first natural frequency of the whole structure, Hz. Raises ConfigError without a structure."""
    structure = Assembly(scenario).structure
    if structure is None:
        raise ConfigError("structure: missing, so that no frequency of it is known; give --fit-up-to in Hz")
    mass, _, stiffness = combined(structure)
    return float(modes(mass, stiffness)[0][0]) / (2.0 * np.pi)


def fitted_up_to(scenario: Scenario, band: tuple[float, float]) -> float:
    """Return the default end of the fit, Hz. Raises ConfigError as :func:`first_frequency`."""
    return min(band[1], PERIODIC.beyond_mode * first_frequency(scenario))


def noise(rms: float, band: tuple[float, float], duration: float | None) -> Noise:
    """Return periodic noise, without its end, where it fades out. Raises ConfigError."""
    whole_periods = PERIODIC.periods * PERIODIC.period if duration is None else duration
    if whole_periods < 2.0 * PERIODIC.period:
        raise ConfigError(
            f"--duration {whole_periods:g}: must be >= {2.0 * PERIODIC.period:g} s, two periods of the noise"
        )
    return from_data(
        Noise,
        {
            "rms": rms,
            "lower_frequency": band[0],
            "upper_frequency": band[1],
            "duration": whole_periods + TAPER,
            "period": PERIODIC.period,
        },
    )


def order_of(scenario: Scenario) -> int:
    """Return the highest fitted derivative, from the scenario's own law if possible."""
    own: Any = scenario.compensator
    return int(own.order) if type(own).type_name == NAME else inverse.ORDER


def fit(
    scenario: Scenario, experiments: Sequence[Experiment], band: tuple[float, float], up_to: float, source: str
) -> tuple[Lines, Fit, LoadingModel]:
    """Return the rig's response at the lines of ``band`` (Hz), its inverse fitted ``up_to`` (Hz), and the model.

    ``source`` describes the experiments. Raises ConfigError without a model.
    """
    try:
        seen = periodic.lines(experiments, scenario.dt, PERIODIC.period, band)
        found = periodic.fit(seen.up_to(up_to), order_of(scenario))
    except ValueError as error:
        raise ConfigError(f"{scenario.name}: no inverse: {error}") from None
    words = f"rths identify {scenario.name} --for identified_inverse: {source}; fitted up to {up_to:.4g} Hz"
    inverse.check_static(found.coefficients, f"the model of {scenario.name}")
    transport = scenario.transport_samples * scenario.dt  # already in the coefficients
    model = LoadingModel(
        scenario.moved_axes,
        found.coefficients,
        None,
        scenario.servo_rate,
        words,
        -transport,
        deviation=found.deviation,
    )
    return seen, found, model
