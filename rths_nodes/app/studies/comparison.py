# SPDX-License-Identifier: Apache-2.0
"""Comparison of variants of a scenario on all cores, for ``rths compare``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rths_nodes.app.studies import engine, remaining, runs
from rths_nodes.app.studies.runs import Findings, known_indices, needs_response
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.options import AUTO
from rths_nodes.loop.scenario.overrides import override, with_case
from rths_nodes.loop.scenario.schema import Scenario

FEW = 20_000
"""Samples of all variants that take less time than starting a second process (half a second)."""

_BETWEEN = re.compile(r"[\s,]+(?=[A-Za-z_][\w.]*=)")


@dataclass(frozen=True)
class Variant:
    """One row of a comparison: name, checked scenario, differences, published values."""

    name: str
    scenario: Scenario
    changes: tuple[str, ...] = ()
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Result(Findings):
    """Result of the run of a variant."""

    variant: Variant = field(kw_only=True)


def variants(
    scenario: Scenario, settings: Sequence[str] = (), cases: Sequence[str] = (), common: Iterable[str] = ()
) -> list[Variant]:
    """Return the variants to run, fully checked.

    Each of ``settings`` is one variant: assignments ``section.key=value`` separated by spaces or commas; an empty
    one is the unchanged scenario. ``cases`` are names of cases; all of them if neither is given. ``common`` are
    assignments for every variant. Raises ConfigError.
    """
    names = list(cases) or ([] if settings else list(scenario.cases))
    if not names and not settings:
        raise ConfigError(f"{scenario.name}: has no cases to compare; give variants with --set")
    common = list(common)
    found = [_case(scenario, name, common) for name in names]
    changes = [_BETWEEN.split(text.strip()) if text.strip() else [] for text in settings]
    labels = [_label(assignments) for assignments in changes]
    for label, assignments in zip(labels, changes, strict=True):
        name = label if labels.count(label) == 1 else " ".join(assignments)
        changed = override(scenario, [*common, *assignments])
        found.append(Variant(name, changed, tuple(assignments)))
    for variant in found:
        _check(variant)
    return found


def _case(scenario: Scenario, name: str, common: Sequence[str]) -> Variant:
    changed = override(with_case(scenario, name), common)
    case = scenario.cases[name]
    return Variant(name, changed, tuple(f"{key}={value}" for key, value in case.set.items()), case.published)


def _label(assignments: Sequence[str]) -> str:
    words = [text.removeprefix("compensator.type=").removeprefix("compensator.") for text in assignments]
    return ", ".join(words) or "as it is"


def _check(variant: Variant) -> None:
    try:
        assembly = checked_loop(variant.scenario).assembly
    except ConfigError as error:
        raise error.within(variant.name) from None
    known = known_indices(assembly)
    for name in variant.published:
        if name not in known:
            raise unknown(f"cases.{variant.name}.published.{name}", "index", name, known)


def has_response(chosen: Sequence[Variant]) -> bool:
    return needs_response(name for variant in chosen for name in variant.published)


def compare(
    chosen: Sequence[Variant],
    keep: bool = False,
    response: bool = False,
    workers: int | None = None,
    progress: Callable[[float, float], None] | None = None,
    by: str = AUTO,
) -> list[Result]:
    """Run all variants, as many at a time as there are cores (or ``workers``; short ones in this process).

    Results have the order of ``chosen``. ``keep`` stores the histories; ``response`` adds errors against the whole
    structure; ``progress`` gets done and total work; ``by`` is the engine.
    """
    processes = at_once(chosen, workers)
    samples = [variant.scenario.samples for variant in chosen]
    kinds = [(number,) for number in range(len(chosen))]
    told = remaining.weighed(progress or (lambda done, of: None), kinds, samples, processes)
    scenarios = [variant.scenario for variant in chosen]
    found = dict(runs.all_of(scenarios, engine.Where(processes, engine=by), keep, response, told))
    return [Result(**vars(found[number]), variant=variant) for number, variant in enumerate(chosen)]


def at_once(chosen: Sequence[Variant], workers: int | None = None) -> int:
    few = sum(variant.scenario.samples for variant in chosen) < FEW
    return min(len(chosen), workers or (1 if few else engine.processors()))


def as_json(scenario: Scenario, results: Sequence[Result]) -> dict[str, object]:
    return {"scenario": scenario.name, "variants": [_plain(result) for result in results]}


def _plain(result: Result) -> dict[str, object]:
    return {
        "name": result.variant.name,
        "set": list(result.variant.changes),
        "outcome": result.outcome,
        "reason": result.reason,
        "values": result.values,
        "published": dict(result.variant.published),
        "axes": result.axes,
        "response_error_percent": result.response,
        "parameters": {
            quantity: {axis: {"lowest": low, "highest": high} for axis, (low, high) in rows.items()}
            for quantity, rows in result.parameters.items()
        },
        "wall_s": result.wall_s,
    }
