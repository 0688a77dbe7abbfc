"""The compensators of a comparison, each with settings that follow from one and the same identification.

The rig alone is driven with noise, at a share of the motion that the test is expected to make; from that recording
come delay, delay constant and models, by the means of ``rths estimate`` and ``rths identify``. A compensator of
another package gets what it asks for by the same names: ``delay``, ``alpha``, ``alpha_es``, ``model``. What cannot
be built so is told with the reason, and takes part with settings that are given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.analysis.identification import single_axis
from rths_nodes.analysis.identification.estimate import estimate
from rths_nodes.analysis.identification.experiments import Noise
from rths_nodes.analysis.identification.frequency_responses import Experiment, frequency_response
from rths_nodes.analysis.response_errors import whole_response
from rths_nodes.app import hosts
from rths_nodes.app.studies import identification
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.models.file import save
from rths_nodes.core.parameters import declared, required_names
from rths_nodes.core.samples import Motion
from rths_nodes.core.strict import as_data
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.loop.scenario.schema import Scenario

SHARE = 0.1
"""Of the rms of the expected motion: with so little the rig is driven."""
BAND = (0.25, 20.0)
"""Of the noise and of the fit, Hz."""
SLOW = 5.0
"""Up to this frequency a motion is slow: the delay that compensators begin with is that of slow motions, Hz."""
DURATION = 20.0
"""Of the test of each axis, s."""
POSES = 2000
"""Steps of the expected motion of which the rms is taken."""


@dataclass(frozen=True)
class Identified:
    """What one identification tells all compensators: the mean ``delay`` of the axes (s), a model file, more.

    ``suggested``: parameters by compensator and name, those of ``rths estimate`` of the first axis. ``rms`` is
    that of the noise (m). ``notes`` say what could not be found.
    """

    delay: float
    dt: float
    rms: float
    model: str
    suggested: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...] = ()

    @property
    def alpha(self) -> float:
        """The delay constant of the inverse compensation, samples."""
        return single_axis.first_order_alpha(max(0.0, self.delay), self.dt)


@dataclass(frozen=True)
class Law:
    """A compensator with its settings, plain data with its type; ``reason`` says why it cannot take part."""

    name: str
    settings: Mapping[str, Any]
    reason: str = ""


def expected_rms(scenario: Scenario) -> float:
    """Root mean square (m) of the axes' motion in the structure computed in one piece; nan where there is none."""
    try:
        displacement, _ = whole_response(scenario)
    except ConfigError:
        return math.nan
    setup, still = Assembly(scenario).setup, np.zeros(displacement.shape[1])
    poses = displacement[:: max(1, len(displacement) // POSES)]
    moved = np.array([setup.axes(Motion(pose, still, still)).displacement for pose in poses])
    return float(np.sqrt(np.square(moved).mean()))


def identify(scenario: Scenario, folder: Path) -> Identified:
    """Drive the rig of ``scenario`` and tell what it is; the model file is written into ``folder``.

    Raises ConfigError and Stopped where the rig cannot be driven, OSError where the file cannot be written.
    """
    rms = SHARE * expected_rms(scenario)
    shape = {"lower_frequency": BAND[0], "upper_frequency": BAND[1], "duration": DURATION}
    noise = Noise(**shape) if math.isnan(rms) else Noise(rms=rms, **shape)
    estimates, experiments = [], []
    for index, (axis, test) in enumerate(zip(scenario.axes, identification.tests(scenario, noise), strict=True)):
        result = hosts.run(test, interrupted=lambda: False)
        if result.outcome != "finished":
            raise identification.Stopped(f"{test.name}: {result.outcome}: {result.reason}", result.exit_code)
        run = result.read()
        estimates.append(estimate(run, list(scenario.axes)[index])[axis])
        experiments.append(Experiment(run.command, run.displacement))
    notes = [f"{axis}: {note}" for axis, of in zip(scenario.axes, estimates, strict=True) for note in of.notes]
    model, delay = "", _slow_delay(experiments, scenario.dt)
    try:
        words = f"noise of {noise.rms:.3g} m rms, {noise.duration:g} s"
        found = identification.fit(scenario, experiments, BAND, None, None, identification.DECLARED, words)
        model = str((folder / "model.yaml").absolute())
        save(found.model, model)
    except ConfigError as error:
        notes += [f"no model: {problem}" for problem in error.problems]
        model = ""
    return Identified(delay, scenario.dt, noise.rms, model, estimates[0].suggested, tuple(notes))


def _slow_delay(experiments: Sequence[Experiment], dt: float) -> float:
    """Delay (s) of slow motions, mean of the axes: the slope of the phase up to ``SLOW``, by least squares."""
    resolution = max(identification.FINEST, identification.LINES / DURATION)
    found = frequency_response(experiments, dt, resolution, (BAND[0], SLOW))
    omega, axes = found.s.imag, range(found.response.shape[1])
    phases = [np.unwrap(np.angle(found.response[:, axis, axis])) for axis in axes]
    return float(np.mean([-(omega @ phase) / (omega @ omega) for phase in phases]))


def laws(
    scenario: Scenario, identified: Identified, names: Sequence[str], given: Mapping[str, Mapping[str, Any]]
) -> list[Law]:
    """The compensators ``names``, then those of ``given`` that are not among them; all checked with the scenario.

    Settings that are given (plain data of the section ``compensator``) count before all others, then what was
    identified, then those of the scenario's own compensator.
    """
    return [_law(scenario, identified, name, given.get(name)) for name in dict.fromkeys([*names, *given])]


def _law(scenario: Scenario, identified: Identified, name: str, given: Mapping[str, Any] | None) -> Law:
    try:
        settings = dict(given) if given else _settings(scenario, identified, name)
        settings.setdefault("type", name)
        checked_loop(replace(scenario, [(["compensator"], settings)]))
    except ConfigError as error:
        return Law(name, {}, "; ".join(error.problems))
    return Law(name, settings)


def _settings(scenario: Scenario, identified: Identified, name: str) -> dict[str, Any]:
    own = dict(as_data(scenario.compensator)) if type(scenario.compensator).type_name == name else {}
    cls = registry.load("compensator", name).Params
    known = declared(cls)
    parts = {
        "first": {"type": "discrete_model"},  # the two stages of Wang et al. (TADC)
        "second": {"type": "polynomial", "order": 2, "delay": identified.delay},
        "compensator": {"type": "inverse", "alpha": identified.alpha},
    }
    offered: dict[str, Any] = {
        **identified.suggested.get(name, {}),
        "delay": identified.delay,
        "alpha": identified.alpha,
        "alpha_es": identified.alpha,
        "model": identified.model or None,
        **parts,
    }
    needed = set(required_names(cls))
    taken = {key: value for key, value in offered.items() if key in known and value is not None}
    if own:  # what it has left out, it has in another way
        taken = {key: value for key, value in taken.items() if own.get(key) is not None}
    missing = needed - taken.keys() - own.keys()
    if missing:
        raise ConfigError(f"needs {', '.join(sorted(missing))}, which no identification tells; give its settings")
    return own | {"type": name} | taken
