# SPDX-License-Identifier: Apache-2.0
"""Notes on what copies of the specimen have learnt in a test."""

from __future__ import annotations

from rths_nodes.core.data import Data
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import FREEZE, USED, Copies
from rths_nodes.mechanics.updating.step import IDENTIFIED

TROUBLE = {
    "flagged": "flagged",
    "not_finite": "not finite",
    "too_fast": "faster than the axis can move",
    "dead": "with a force that stood still while the specimen moved",
    "spikes": "with a force that was not to be expected",
}
"""Texts for counts of skipped samples."""


def learning_notes(told: Data, scenario: Scenario) -> list[str]:
    """Return notes on the integrator's numbers ``told``, if anything has learnt."""
    numbers = told.get("updating")
    if scenario.updating is None or not numbers:
        return []
    copies = Copies(scenario)
    strange, first = numbers.get("unexplained", 0), numbers.get("first_unexplained_sample", 0)
    found = []
    if first:
        share = (
            100.0 * strange / max(1.0, sum(numbers.get(name, 0) for name in ("learnt", "unexplained", *TROUBLE)))
        )
        found.append(
            f"the model of the copies does not explain the specimen: first at {first * scenario.dt:.4g} s, in "
            f"{share:.3g} % of the samples; the copies went back towards their "
            "initial values meanwhile, and the estimates mean nothing"
        )
    if (left := numbers.get("left_prior_sample")) and (level := scenario.updating.leaves):
        kept = "; from there on the copies kept what they had" if level.then == FREEZE else ""
        found.append(
            f"an estimate left its prior, {level.deviations:g} standard deviations, at sample {left:.0f} "
            f"({left * scenario.dt:.4g} s){kept}"
        )
    names = zip(copies.learns.names, copies.learns.units, strict=True)
    rows = [_parameter(name, unit, numbers[name], not first) for name, unit in names if name in numbers]
    how = "used" if scenario.updating.mode == USED else "in shadow"
    found += [f"copies of {scenario.updating.axis}, {how}: {'; '.join(rows)}"] if rows else []
    trouble = [f"{numbers[name]:.0f} {words}" for name, words in TROUBLE.items() if numbers.get(name)]
    found += [f"copies learnt nothing from samples: {', '.join(trouble)}"] if trouble else []
    return found


def _parameter(name: str, unit: str, told: Data, explained: bool) -> str:
    known = "identified" if explained and told["left"] <= IDENTIFIED else "not identified"
    bound = ", stood at a bound" if told["at_bound"] else ""
    return (
        f"{name} {told['initial']:.4g} -> {told['estimate']:.4g} +- {told['deviation']:.2g} {unit}".rstrip()
        + f" ({known}{bound}; released {told['released']:.4g})"
    )
