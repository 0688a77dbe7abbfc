# SPDX-License-Identifier: Apache-2.0
"""Compensators to be compared, with settings from one identification with periodic noise (``doc/studies.md``).

Compensators from other packages get the results as parameters with these names: ``delay``, ``alpha``,
``alpha_es``, ``inverse``, ``model`` (without the transport delay if they declare ``transport_in_lead``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rths_nodes.analysis.identification.experiments import Noise
from rths_nodes.analysis.identification.frequency_responses import Experiment, frequency_response
from rths_nodes.analysis.identification.from_recording import discrete_model_spacing, estimate, first_order_alpha
from rths_nodes.app.studies import identification
from rths_nodes.app.studies.identification import PERIODIC
from rths_nodes.app.studies.tasks import Shown
from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import declared, required_names
from rths_nodes.core.validation import to_data
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.loading_model import DERIVATIVES, LoadingModel, save

SLOW = 5.0
"""Upper frequency of slow motions, Hz. The delay of slow motions is the initial delay of compensators."""
MODELS = {"model", "inverse", "known"}
"""Compensator parameters that describe the rig. A compensator with such parameters needs a value of at least one
of them."""
RESOLUTION = identification.LINES / PERIODIC.period
"""Resolution of the responses, Hz: each interval contains ``LINES`` spectral lines of the noise."""


@dataclass(frozen=True)
class Identified:
    """Results of one identification for all compensators.

    ``delay`` is the mean delay of the axes (s), ``rms`` the rms of the noise (m). ``model`` is the path of a model
    file without the transport delay; the file ``whole_model`` includes this delay. ``inverse`` has the
    coefficients of ``whole_model`` by derivative. Missing results are empty. ``suggested`` has parameters by
    compensator and name.
    """

    delay: float
    dt: float
    rms: float
    model: str
    whole_model: str
    inverse: Data
    suggested: Mapping[str, Mapping[str, object]]
    notes: tuple[str, ...] = ()

    @property
    def alpha(self) -> float:
        """Delay constant of the inverse compensation, samples."""
        return first_order_alpha(max(0.0, self.delay), self.dt)


@dataclass(frozen=True)
class Candidate:
    """Compensator with its settings (including the type) as plain data.

    ``reason`` is empty unless the compensator cannot take part.
    """

    name: str
    settings: Data
    reason: str = ""


def identify(scenario: Scenario, folder: Path, progress: Shown) -> Identified:
    """Identify the rig of ``scenario`` and write models to ``folder``.

    Raises ConfigError if the rig cannot be identified, Stopped if a test does not finish, and OSError if a file
    cannot be written.
    """
    rms = Noise().rms
    with suppress(ConfigError):
        rms = PERIODIC.share * identification.expected_rms(scenario) or rms
    noise = identification.periodic_noise(scenario, {"rms": rms})
    runs = [*identification.histories(scenario, noise, None, progress, "a smaller ground motion or wider limits")]
    estimates = {axis: estimate(run, axis)[axis] for axis, run in zip(scenario.moved_axes, runs, strict=True)}
    experiments = list(map(identification.experiment, runs))
    notes = [f"{axis}: {note}" for axis, result in estimates.items() for note in result.notes]
    text = f"periodic noise of {noise.rms:.3g} m rms for {noise.duration:g} s"
    band, model, full = PERIODIC.band, "", ""
    inverse: Data = {}
    try:
        how = identification.DECLARED
        _, fitted = identification.fit(scenario, experiments, band, RESOLUTION, None, how, text)
        model = _saved(fitted, folder / "model.yaml")
    except ConfigError as error:
        notes += [f"no model: {problem}" for problem in error.problems]
    try:
        up_to = identification.fitted_up_to(scenario, band)
        fit, fitted = identification.fit_periodic(scenario, experiments, band, up_to, text)
        full = _saved(fitted, folder / "inverse.yaml")
        inverse = dict(zip(DERIVATIVES, fit.coefficients.tolist(), strict=True))
    except ConfigError as error:
        notes += [f"no inverse: {problem}" for problem in error.problems]
    delay, suggested = _slow_delay(experiments, scenario.dt), next(iter(estimates.values())).suggested
    return Identified(delay, scenario.dt, noise.rms, model, full, inverse, suggested, tuple(notes))


def _saved(model: LoadingModel, path: Path) -> str:
    save(model, str(path.absolute()))
    return str(path.absolute())


def _slow_delay(experiments: Sequence[Experiment], dt: float) -> float:
    """Return the mean delay (s) of slow motions: least-squares slope of the phase up to ``SLOW``."""
    response = frequency_response(experiments, dt, RESOLUTION, (PERIODIC.band[0], SLOW))
    omega, axes = response.s.imag, range(response.response.shape[1])
    phases = [np.unwrap(np.angle(response.response[:, axis, axis])) for axis in axes]
    return float(np.mean([-(omega @ phase) / (omega @ omega) for phase in phases]))


def chosen(
    scenario: Scenario, identified: Identified, names: Sequence[str], settings: Mapping[str, Mapping[str, object]]
) -> list[Candidate]:
    """Return a candidate for each compensator in ``names``, checked with the scenario.

    Settings come from ``settings``, from the identification, or from the scenario's own compensator, in this order
    of precedence.
    """
    laws = []
    for name in dict.fromkeys(names):
        try:
            law = _settings(scenario, identified, {"type": name} | dict(settings.get(name, {})))
            checked_loop(replace(scenario, [(["compensator"], law)]))
            laws.append(Candidate(name, law))
        except ConfigError as error:
            laws.append(Candidate(name, {}, "; ".join(error.problems)))
    return laws


def _settings(scenario: Scenario, identified: Identified, settings: Data) -> dict[str, object]:
    name = settings["type"]
    built = registry.load("compensator", name)
    parameters, needed = declared(built.Params), set(required_names(built.Params))
    current = dict(to_data(scenario.compensator)) if type(scenario.compensator).type_name == name else {}
    offered = _offered(identified, name, built.transport_in_lead)
    taken = {key: value for key, value in offered.items() if key in parameters and value}
    if current:  # replace only parts that the scenario sets
        taken = {key: value for key, value in taken.items() if current.get(key) is not None}
    elif "inverse" in taken:
        taken.pop("model", None)  # the inverse is stored in the scenario itself
    if any(settings.get(key) is not None for key in MODELS):
        current, taken = (
            {key: value for key, value in values.items() if key not in MODELS} for values in (current, taken)
        )
    merged = current | taken | dict(settings)
    if MODELS & parameters.keys() and not any(merged.get(key) is not None for key in MODELS):
        reason = "; ".join(note for note in identified.notes if note.startswith("no "))
        raise ConfigError(f"needs a model, but the identification does not provide any ({reason})")
    if missing := needed - merged.keys():
        raise ConfigError(
            f"must have settings for {', '.join(sorted(missing))}, because the identification provides no values"
        )
    return merged


def _offered(identified: Identified, name: str, transport_in_lead: bool) -> dict[str, object]:
    return {
        **identified.suggested.get(name, {}),
        "delay": identified.delay,
        "alpha": identified.alpha,
        "alpha_es": identified.alpha,
        "model": identified.model if transport_in_lead else identified.whole_model,
        "inverse": identified.inverse,
        # the two stages of Wang et al. (TADC)
        "first": {"type": "discrete_model", "spacing": discrete_model_spacing(identified.dt)},
        "second": {"type": "polynomial", "order": 2, "delay": identified.delay},
        "compensator": {"type": "inverse", "alpha": identified.alpha},
    }
