# SPDX-License-Identifier: Apache-2.0
"""Section ``updating``: models of the specimen in the structure (copies), and estimation of their parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.parameters import (
    AnyParams,
    OfParams,
    declared,
    number,
    params,
    section,
    sections,
    text,
    texts,
    type_of,
    vector,
)
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.updating import IDENTIFIED, KINDS, LAWS, PERIOD, Copy, Follower, Open, Settings

PLACE = "updating"
PARAMETERS = f"{PLACE}.parameters"
OTHERS = ("expected force [N]", "spread of force [N]", "mean square of innovation", "told")
"""Quantities recorded in addition to the parameters. Values of the last one are keys of ``updating.WORDS``."""
TOPIC = "updating_state"
SHADOW, USED = MODES = ("shadow", "used")
TELL, FREEZE = THEN = ("tell", "freeze")


@params
class Updated:
    bounds: tuple[float, ...] = vector("lower and upper bound, in the unit of the parameter", more_than=0.0)
    initial: float | None = number(
        "initial value for the specimen, in the unit of the parameter; default: the common value of the copies. "
        "The ratio of each copy to this value remains constant",
        default=None,
        more_than=0.0,
    )
    uncertainty: float = number(
        "standard deviation of the initial value, relative to this value", default=0.3, more_than=0.0, at_most=1.0
    )

    def validate(self, path: str) -> None:
        if len(self.bounds) != 2 or not self.bounds[0] < self.bounds[1]:
            raise ConfigError(
                f"{path}.bounds = {show(list(self.bounds))}: must be two numbers, the lower one first"
            )


@params
class Leaves:
    deviations: float = number(
        "distance from the initial value at which an estimate leaves its prior, in standard deviations",
        more_than=0.0,
    )
    then: str = text(
        "tell: the event is only reported; freeze: the copies also keep their parameters", "tell", THEN
    )


@params
class Updating:
    """Model updating: the parameters of copies of the specimen are estimated during the test."""

    of: tuple[str, ...] = texts(
        "names of the restoring forces of the structure that are copies of the specimen: names of stories for a "
        "shear_frame, x for an sdof"
    )
    axis: str = text("axis of the copied specimen")
    law: str = text("ukf: unscented Kalman filter; rls: recursive least squares", "ukf", LAWS)
    parameters: dict[str, Updated] = sections(Updated, "updated parameters, by name")
    noise: float = number("rms error of the measured force, including the error of the model", "N", more_than=0.0)
    mode: str = text(
        "shadow: the estimates are only recorded; used: the copies follow the estimates", SHADOW, MODES
    )
    leaves: Leaves | None = section(Leaves, "reaction if an estimate leaves its prior; default: none", None)


class Copies:
    """Checks the section ``updating`` of a scenario, and provides the copies of the specimen.

    ``learns`` is the copy whose parameters are estimated. ``laws`` contains the parameters of each restoring force
    that copies the specimen, by name. Raises ConfigError if the section is invalid.
    """

    def __init__(self, scenario: AnyParams) -> None:
        section: Updating = scenario.updating
        self.section = section
        self.laws = _laws(section, {} if scenario.structure is None else scenario.structure.laws())
        _check_axis(section, scenario)
        first = next(iter(self.laws.values()))
        model = type_of(first)
        names = declared(type(first))
        values = {name: getattr(first, name) for name in names}
        opened = []
        for name, updated in section.parameters.items():
            if name not in names:
                raise unknown(PARAMETERS, "parameter", name, names)
            opened.append(Open(name, (updated.bounds[0], updated.bounds[1])))
            if updated.initial is not None:
                values[name] = updated.initial
        self._check_alike(names)
        self.learns = Copy(model, values, opened, PARAMETERS)
        if section.law == "rls" and not self.learns.linear:
            raise ConfigError(
                f"{PLACE}.law = 'rls': requires a force that is linear in {', '.join(self.learns.names)}, but the "
                f"force of {model} is not. Use ukf"
            )
        self.axis = list(scenario.axes).index(section.axis)
        step = scenario.samples_per_step
        self.every = step * max(1, round(PERIOD / (step * scenario.dt)))
        late = scenario.axes[section.axis].sensors.force_delay
        self.first = self.every * (1 - -late // self.every)
        """First sample with an update. Before it, no velocity or no simultaneous force is available."""
        prior = np.array([parameter.uncertainty for parameter in section.parameters.values()])
        velocity = scenario.axes[section.axis].limits.velocity
        self.settings = Settings(self.every * scenario.dt, section.noise, prior, velocity)
        if (level := section.leaves) is not None:
            self.settings = self.settings._replace(leaves=level.deviations, freezes=level.then == FREEZE)

    def _check_alike(self, names: Mapping[str, object]) -> None:
        free = {name for name, parameter in self.section.parameters.items() if parameter.initial is not None}
        (one, first), *rest = self.laws.items()
        for name, other in rest:
            if type_of(other) != type_of(first):
                raise ConfigError(
                    f"{PLACE}.of: {name} is {type_of(other)} and {one} is {type_of(first)}, but all copies must "
                    "have the same model"
                )
            for key in names:
                if key not in free and getattr(first, key) != getattr(other, key):
                    raise ConfigError(
                        f"{PLACE}.of: {key} is {show(getattr(first, key))} in {one} and "
                        f"{show(getattr(other, key))} in {name}, but must be the same unless "
                        f"{PARAMETERS}.{key}.initial is set"
                    )

    def followers(self) -> dict[str, Follower]:
        names = self.learns.names
        return {
            name: Follower(type_of(law), {key: getattr(law, key) for key in declared(type(law))}, names)
            for name, law in self.laws.items()
        }

    def check_used(self, scenario: AnyParams) -> None:
        path = f"{PLACE}.mode = {USED!r}"
        parameters = KINDS[self.learns.model].parameters
        for name in self.learns.names:
            if name not in parameters:
                raise ConfigError(f"{path}: copies can follow only {', '.join(parameters)}, not {name}")
        integrator = scenario.integrator
        if not integrator.cannot_be_built and not registry.class_of("integrator", integrator).follows:
            raise ConfigError(
                f"{path}: the integrator {type_of(integrator)} cannot change its restoring forces. Use "
                "central_difference, cr, explicit_newmark or kr_alpha"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names and units of recorded quantities: estimates, deviations, released values and :data:`OTHERS`."""
        kinds, copy = ("{}", "deviation of {}", "released {}"), self.learns
        shown = [f"[{unit}]" if unit else "" for unit in copy.units]
        pairs = list(zip(copy.names, shown, strict=True))
        return (*(f"{kind.format(name)} {unit}".rstrip() for kind in kinds for name, unit in pairs), *OTHERS)

    @property
    def corners(self) -> Array:
        """Corners ``(2^m, m)`` of the range of m parameters, divided by the initial values."""
        pairs = zip(self.learns.lower.tolist(), self.learns.upper.tolist(), strict=True)
        return np.array(list(itertools.product(*pairs)))


def _laws(section: Updating, defaults: Mapping[str, OfParams]) -> dict[str, OfParams]:
    if not section.of:
        raise ConfigError(
            f"{PLACE}.of: must name at least one restoring force; known: {', '.join(defaults) or 'none'}"
        )
    if len(set(section.of)) < len(section.of):
        raise ConfigError(f"{PLACE}.of = {', '.join(section.of)}: must list each copy only once")
    laws = {}
    for name in section.of:
        if name not in defaults:
            raise unknown(f"{PLACE}.of", "restoring force of the structure", name, defaults)
        law = defaults[name]
        if type_of(law) not in KINDS:
            raise ConfigError(f"{PLACE}.of: {name} is {type_of(law)}, but only {', '.join(KINDS)} can be updated")
        laws[name] = law
    return laws


def _check_axis(section: Updating, scenario: AnyParams) -> None:
    path = f"{PLACE}.axis = {section.axis!r}"
    if section.axis not in scenario.axes:
        raise unknown(f"{PLACE}.axis", "axis", section.axis, scenario.axes)
    if section.axis in scenario.force_axes:
        raise ConfigError(
            f"{path}: the mode of this axis is force, but copies learn only from an axis that follows "
            "displacements"
        )
    if scenario.rig is not None:
        raise ConfigError(
            f"{path}: rig couples all axes with one specimen, but copies learn only from an axis with its own "
            "specimen"
        )
    if scenario.scaled:
        raise ConfigError(f"{path}: copies require a specimen in the scale of the structure (similitude = 1)")


def check_updating(scenario: AnyParams) -> None:
    """Raise ConfigError if ``updating`` is invalid. Do nothing if the structure cannot be built here."""
    structure = scenario.structure
    if scenario.updating is None or (structure is not None and structure.cannot_be_built):
        return
    copies = Copies(scenario)
    if scenario.updating.mode == USED:
        copies.check_used(scenario)


TROUBLE = {
    "flagged": "flagged",
    "not_finite": "not finite",
    "too_fast": "faster than the velocity limit of the axis",
    "dead": "with a force that did not change while the specimen moved",
    "spikes": "with an unexpected force",
}


def learning_notes(numbers_of_copies: Data, scenario: AnyParams) -> list[str]:
    numbers = numbers_of_copies.get("updating")
    if scenario.updating is None or not numbers:
        return []
    copies = Copies(scenario)
    strange, first = numbers.get("unexplained", 0), numbers.get("first_unexplained_sample", 0)
    notes = []
    if first:
        total = sum(numbers.get(name, 0) for name in ("learnt", "unexplained", *TROUBLE))
        share = 100.0 * strange / max(1.0, total)
        notes.append(
            f"the model of the copies does not explain the specimen in {share:.3g} % of the samples, first at "
            f"{first * scenario.dt:.4g} s. The copies then returned towards their initial values, and the "
            "estimates are not valid"
        )
    if (left := numbers.get("left_prior_sample")) and (level := scenario.updating.leaves):
        kept = ". After this sample the copies kept their parameters" if level.then == FREEZE else ""
        notes.append(
            f"an estimate left its prior ({level.deviations:g} standard deviations) at sample {left:.0f} "
            f"({left * scenario.dt:.4g} s){kept}"
        )
    names = zip(copies.learns.names, copies.learns.units, strict=True)
    rows = [_parameter(name, unit, numbers[name], not first) for name, unit in names if name in numbers]
    how = "used" if scenario.updating.mode == USED else "in shadow"
    notes += [f"copies of {scenario.updating.axis} ({how}): {'; '.join(rows)}"] if rows else []
    trouble = [
        f"{numbers[name]:.0f} {trouble_text}" for name, trouble_text in TROUBLE.items() if numbers.get(name)
    ]
    notes += [f"the copies did not learn from these samples: {', '.join(trouble)}"] if trouble else []
    return notes


def _parameter(name: str, unit: str, numbers: Data, explained: bool) -> str:
    verdict = "identified" if explained and numbers["left"] <= IDENTIFIED else "not identified"
    initial, estimate = numbers["initial"], numbers["estimate"]
    bound = ", at a bound" if numbers["at_bound"] else ""
    return (
        f"{name} {initial:.4g} -> {estimate:.4g} +- {numbers['deviation']:.2g} {unit}".rstrip()
        + f" ({verdict}{bound}; released {numbers['released']:.4g})"
    )
