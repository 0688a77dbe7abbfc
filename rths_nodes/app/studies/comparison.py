"""Variants of a scenario, run side by side on all cores: what ``rths compare`` prints and draws.

No arithmetic of a test stands here: every variant is a run of :mod:`rths_nodes.app.hosts`, embedded, in a
process of its own, and its indices are those of ``analysis/histories.py`` on the true displacement.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.response_errors import response_errors
from rths_nodes.analysis.units import MM, MS
from rths_nodes.app import hosts
from rths_nodes.app.studies import engine
from rths_nodes.core import yaml_text
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.overrides import override, with_case
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.indices import PUBLISHED
from rths_nodes.recording.run import Run

AXIS_INDICES: dict[str, tuple[str, float]] = {
    "J1": (PUBLISHED["J1"], MS),
    "J2": (PUBLISHED["J2"], 1.0),
    "J3": (PUBLISHED["J3"], 1.0),
    "max_error_mm": ("max_error_m", MM),
    "fei_amplitude": ("fei_amplitude", 1.0),
    "fei_delay_ms": ("fei_delay_s", MS),
}
"""Indices of an axis by the names that ``published`` of a case has: key of the index and factor to its unit.

As papers print them: J1 in ms, J2 and J3 in %.
"""
TEST_INDICES: dict[str, tuple[str, float]] = {
    "hsem_percent": ("hsem_percent", 1.0),
    "max_displacement_mm": ("max_displacement_m", MM),
    "min_displacement_mm": ("min_displacement_m", MM),
    "end_displacement_mm": ("end_displacement_m", MM),
}
"""Indices of the whole test, likewise."""
RESPONSE = {"response": "displacement", "acceleration": "acceleration"}
"""``response_x``, ``acceleration_x``: RMS error (%) of the degree of freedom x against the whole structure."""
RANGE = "_range"
"""``alpha_range``: largest minus smallest value of the compensator's inner number alpha during the test."""
FORMATS = (".png", ".svg", ".pdf")
"""Kinds of files of a figure."""
FEW = 20_000
"""Samples of all variants that are done before a second process would have started (half a second)."""

_BETWEEN = re.compile(r"[\s,]+(?=[A-Za-z_][\w.]*=)")


@dataclass(frozen=True)
class Variant:
    """One row of a comparison: its name, the checked scenario, how it differs, what was published of it."""

    name: str
    scenario: Scenario
    changes: tuple[str, ...] = ()
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Result:
    """What a variant came to.

    ``axes``: indices of the true displacement by axis, in SI units; ``parameters``: smallest and largest value by
    quantity and axis; ``response``: errors (%) against the whole structure by degree of freedom, empty where they
    were not asked for; ``run`` holds the histories where they were.
    """

    variant: Variant
    outcome: str
    reason: str
    axes: dict[str, dict[str, float]]
    metrics: dict[str, Any]
    parameters: dict[str, dict[str, tuple[float, float]]]
    wall_s: float
    response: dict[str, dict[str, float]] = field(default_factory=dict)
    run: Run | None = None

    @property
    def values(self) -> dict[str, float]:
        """The indices in the units of their names: of each axis, and of the worst one without a name behind it."""
        found = {name: factor * _worst(self.axes, key) for name, (key, factor) in AXIS_INDICES.items()}
        for axis, row in self.axes.items():
            found |= {f"{name}_{axis}": factor * row[key] for name, (key, factor) in AXIS_INDICES.items()}
        for dof, errors in self.response.items():
            found |= {f"{name}_{dof}": errors[key] for name, key in RESPONSE.items()}
        found |= {name: factor * self.metrics[key] for name, (key, factor) in TEST_INDICES.items()}
        ranges = {
            quantity + RANGE: max(high - low for low, high in rows.values())
            for quantity, rows in self.parameters.items()
        }
        return found | ranges


def _worst(axes: Mapping[str, Mapping[str, float]], key: str) -> float:
    values = [row[key] for row in axes.values()]
    if not values or np.isnan(values).all():
        return float("nan")
    distance = [abs(value - (1.0 if key == "fei_amplitude" else 0.0)) for value in values]
    return values[int(np.nanargmax(distance))]


# -- variants ---------------------------------------------------------------------------------------------


def variants(
    scenario: Scenario, settings: Sequence[str] = (), cases: Sequence[str] = (), common: Iterable[str] = ()
) -> list[Variant]:
    """The variants to be run, checked to the last component, so that nothing is refused later.

    Each of ``settings`` is one variant: assignments ``section.key=value`` with spaces or commas between them; an
    empty one is the scenario as it is. ``cases`` are names of cases of the scenario; all of them if neither is
    given. ``common`` are assignments for every variant. Raises ConfigError for whatever cannot be run.
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
    """As short as the difference allows: ``inverse, alpha=29``."""
    words = [text.removeprefix("compensator.type=").removeprefix("compensator.") for text in assignments]
    return ", ".join(words) or "as it is"


def _check(variant: Variant) -> None:
    """Builds every component; refuses published values that nothing here is called."""
    try:
        assembly = checked_loop(variant.scenario).assembly
    except ConfigError as error:
        raise error.within(variant.name) from None
    quantities = {name.rpartition(".")[2] for name in assembly.names.state}
    known = [*AXIS_INDICES, *TEST_INDICES, *(quantity + RANGE for quantity in sorted(quantities))]
    known += [f"{name}_{axis}" for name in AXIS_INDICES for axis in variant.scenario.axes]
    known += [f"{name}_{dof}" for name in RESPONSE for dof in assembly.names.model]
    for name in variant.published:
        if name not in known:
            raise unknown(f"cases.{variant.name}.published.{name}", "index", name, known)


# -- runs -------------------------------------------------------------------------------------------------


def has_response(chosen: Sequence[Variant]) -> bool:
    """True when response errors of one of the variants were published."""
    names = {name for variant in chosen for name in variant.published}
    return any(name.startswith(f"{kind}_") for kind in RESPONSE for name in names)


def compare(
    chosen: Sequence[Variant],
    keep: bool = False,
    response: bool = False,
    workers: int | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> list[Result]:
    """Run all variants, as many at a time as there are cores (or ``workers``; short ones in this process).

    The results come in the order of ``chosen``. ``keep`` keeps the histories; ``response`` adds the errors against
    the whole structure; ``progress`` gets how many samples are done, and how many there are in all variants.
    """
    samples = [variant.scenario.samples for variant in chosen]
    shares = [0.0] * len(chosen)

    def told(now: Sequence[float]) -> None:
        if progress:
            progress(sum(share * each for share, each in zip(now, samples, strict=True)), sum(samples))

    def tell(number: int, share: float) -> None:
        shares[number] = share
        told(shares)

    processes = at_once(chosen, workers)
    finished = (
        ((number, _result(each, keep, response, partial(tell, number))) for number, each in enumerate(chosen))
        if processes <= 1
        else _side_by_side(chosen, keep, response, processes, told)
    )
    found = dict(finished)
    return [found[number] for number in range(len(chosen))]


def at_once(chosen: Sequence[Variant], workers: int | None = None) -> int:
    """How many of the variants run at a time."""
    few = sum(variant.scenario.samples for variant in chosen) < FEW
    return min(len(chosen), workers or (1 if few else os.cpu_count() or 1))


def _side_by_side(
    chosen: Sequence[Variant],
    keep: bool,
    response: bool,
    processes: int,
    told: Callable[[Sequence[float]], None],
) -> Iterator[tuple[int, Result]]:
    """Results in the order in which they are ready, with the numbers of their variants."""
    # text travels, not objects: classes of components are looked up again on the other side
    jobs = [(yaml_text.dump(variant.scenario.data()), keep, response) for variant in chosen]
    for number, plain in engine.side_by_side(_remote, jobs, processes, told):
        yield number, _bound(plain, chosen[number])


def _remote(text: str, keep: bool, response: bool, tell: engine.Tell) -> dict[str, Any]:
    """A run in another process: what of its Result can travel."""
    result = _result(Variant("", files.from_text(text, "variant")), keep, response, tell)
    plain = {name: value for name, value in vars(result).items() if name not in ("variant", "run")}
    if result.run is not None:
        plain["run"] = {name: value for name, value in vars(result.run).items() if name != "scenario"}
    return plain


def _bound(plain: dict[str, Any], variant: Variant) -> Result:
    run = plain.pop("run", None)
    kept = None if run is None else Run(scenario=variant.scenario, **run)
    return Result(variant=variant, run=kept, **plain)


def _result(variant: Variant, keep: bool, response: bool, tell: engine.Tell) -> Result:
    report = hosts.run(variant.scenario, progress=lambda sample, samples: tell(min(1.0, sample / samples)))
    run = report.read()
    evaluation = Evaluation(run)
    return Result(
        variant=variant,
        outcome=report.outcome,
        reason=report.reason,
        axes=evaluation.indices(run.true_displacement),
        metrics={key: report.metrics[key] for key, _ in TEST_INDICES.values()},
        parameters=evaluation.parameter_ranges(),
        wall_s=report.wall_s,
        response=response_errors(evaluation) if response else {},
        run=run if keep else None,
    )


# -- what is printed and drawn ----------------------------------------------------------------------------


def as_json(scenario: Scenario, results: Sequence[Result]) -> dict[str, Any]:
    """Plain data of a comparison."""
    return {"scenario": scenario.name, "variants": [_plain(result) for result in results]}


def _plain(result: Result) -> dict[str, Any]:
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


def check_figure(path: Path) -> None:
    """Refuses a figure of a kind that cannot be drawn. Raises ConfigError."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: a figure must be one of {', '.join(FORMATS)}")


def write_figure(results: Sequence[Result], path: Path) -> None:
    """One figure of all variants: target and errors, synchronisation, parameters. Needs kept histories."""
    from rths_nodes.analysis.figures import compared

    check_figure(path)
    compared.write([(result.variant.name, result.run) for result in results if result.run is not None], path)
