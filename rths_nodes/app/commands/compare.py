# SPDX-License-Identifier: Apache-2.0
"""``rths compare``: run variants of a scenario and print their indices in one table."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rths_nodes.analysis.published_indices import TRUE
from rths_nodes.analysis.units import plain, span
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies import engine, runs
from rths_nodes.app.studies.runs import Findings, known_indices, needs_response
from rths_nodes.core.errors import ConfigError, unknown, within
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.options import AUTO
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.overrides import override, with_case
from rths_nodes.loop.scenario.schema import Scenario

FEW = 20_000

_BETWEEN = re.compile(r"[\s,]+(?=[A-Za-z_][\w.]*=)")


@dataclass(frozen=True)
class Variant:
    name: str
    scenario: Scenario
    changes: tuple[str, ...] = ()
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Result(Findings):
    variant: Variant = field(kw_only=True)


def variants(
    scenario: Scenario, settings: Sequence[str] = (), cases: Sequence[str] = (), common: Iterable[str] = ()
) -> list[Variant]:
    """Return the checked variants of ``scenario``: one for each text in ``settings`` and name in ``cases``.

    A text contains assignments, separated by spaces or commas. Without ``settings`` and ``cases``, all cases are
    variants. Raises ConfigError if a variant is invalid or none is defined.
    """
    names = list(cases) or ([] if settings else list(scenario.cases))
    if not names and not settings:
        raise ConfigError(f"{scenario.name}: the scenario has no cases to compare; give variants with --variant")
    shared = list(common)
    result: list[Variant] = []
    for name in names:
        changed = override(with_case(scenario, name), shared)
        case = scenario.cases[name]
        changes_of_case = tuple(f"{key}={value}" for key, value in case.set.items())
        result.append(Variant(name, changed, changes_of_case, case.published))
    changes = [_BETWEEN.split(text.strip()) if text.strip() else [] for text in settings]
    labels = [_label(assignments) for assignments in changes]
    for label, assignments in zip(labels, changes, strict=True):
        name = label if labels.count(label) == 1 else " ".join(assignments)
        result.append(Variant(name, override(scenario, [*shared, *assignments]), tuple(assignments)))
    for variant in result:
        with within(variant.name):
            indices = known_indices(checked_loop(variant.scenario).assembly)
        for name in variant.published:
            if name not in indices:
                raise unknown(f"cases.{variant.name}.published.{name}", "index", name, indices)
    return result


def _label(assignments: Sequence[str]) -> str:
    texts = [text.removeprefix("compensator.type=").removeprefix("compensator.") for text in assignments]
    return ", ".join(texts) or "as it is"


def compare(
    chosen: Sequence[Variant],
    keep: bool = False,
    response: bool = False,
    workers: int | None = None,
    progress: engine.Report | None = None,
    by: str = AUTO,
) -> list[Result]:
    """Run all variants with the engine ``by`` and return the results in the same order.

    ``keep`` stores the histories; ``response`` adds errors relative to the response of the entire structure.
    """
    where = engine.Where(at_once(chosen, workers), engine=by)
    scenarios = [variant.scenario for variant in chosen]
    report = engine.summed(progress) if progress else None
    results = dict(runs.all_of(scenarios, where, keep, response, progress=report))
    return [Result(**vars(results[number]), variant=variant) for number, variant in enumerate(chosen)]


def at_once(chosen: Sequence[Variant], workers: int | None = None) -> int:
    few = sum(variant.scenario.samples for variant in chosen) < FEW
    return min(len(chosen), workers or (1 if few else engine.processors()))


def as_json(scenario: Scenario, results: Sequence[Result]) -> dict[str, object]:
    rows = [
        {
            "name": result.variant.name,
            "set": list(result.variant.changes),
            "outcome": result.outcome,
            "reason": result.reason,
            "values": result.values,
            "published": dict(result.variant.published),
            "axes": result.axes,
            "axes_measured": result.measured,
            "response_error_percent": result.response,
            "parameters": {
                quantity: {axis: {"lowest": low, "highest": high} for axis, (low, high) in rows.items()}
                for quantity, rows in result.parameters.items()
            },
            "wall_s": result.wall_s,
        }
        for result in results
    ]
    return {"scenario": scenario.name, "variants": rows}


_COMPARED = (("J1 (ms)", "J1"), ("J2 (%)", "J2"), ("J3 (%)", "J3"), ("max (mm)", "max_error_mm"))


def add_arguments(add: arguments.Arguments) -> None:
    add("scenario", "name of a shipped scenario or path of a YAML file")
    add.several("--variant 'SECTION.KEY=VALUE ...'", "changes of one variant, separated by spaces or commas")
    text = "cases of the scenario; default: all cases, or none if there is a --variant"
    add.several("--cases NAME,...", text, type=arguments.names)
    add.several("--set SECTION.KEY=VALUE", "value to change in all variants")
    add.removed(with_="renamed; use --set")
    add.flags(response="also compute the entire structure in one piece, and print the errors of the response")
    add.figure("all variants in one figure")
    add.engine()
    add.json()


def run(options: arguments.Options) -> int:
    figure = arguments.figure(options)
    loaded = files.load(options.scenario)
    cases = [name for names in options.cases for name in names]
    if options.cases and not cases:
        raise ConfigError("--cases: must name at least one case")
    chosen = variants(loaded, options.variant, cases, options.set)
    scenarios = [variant.scenario for variant in chosen]
    samples = sum(scenario.samples for scenario in scenarios)
    where = engine.Where(at_once(chosen), engine=options.engine)
    where = runs.decided(where, samples, scenarios, terminal.tell)
    expected = engine.expected_s(chosen[0].scenario, samples, where.engine)
    if expected is not None:
        count = f"{len(chosen)} variants with {samples} samples in total, {where.processes} at a time"
        terminal.tell([f"{count}, take about {span(expected / where.processes)}"])
    with terminal.progress(loaded.name) as progress:
        response = options.response or needs_response(name for variant in chosen for name in variant.published)
        results = compare(chosen, keep=figure is not None, response=response, progress=progress, by=where.engine)
    terminal.output(options.json, as_json(loaded, results), _print_comparison, loaded.name, results)
    if figure:
        from rths_nodes.analysis.figures.histories import compared

        histories = [(entry.variant.name, entry.run) for entry in results if entry.run is not None]
        arguments.save_figure(options, figure, compared, histories)
    return ExitCode.FINISHED if all(result.outcome == "finished" for result in results) else ExitCode.TRIPPED


def _print_comparison(name: str, results: Sequence[Result]) -> None:
    from rich.text import Text

    several = any(len(result.axes) > 1 for result in results)
    rows = [(result, axis, n == 0) for result in results for n, axis in enumerate(result.axes or [""])]
    keys = {key for row in rows for _, key in _COMPARED if _published(*row, key) is not None}
    beside = ["measured", "published"] if any(result.measured for result in results) else ["published"]
    kinds = "true and measured" if beside[1:] and keys else "true"
    terminal.say(f"{name}: {len(results)} variants, indices of the {kinds} displacement")
    numbers = [head for title, key in _COMPARED for head in (title, *(beside if key in keys else []))]
    heads = "variant", "outcome", *(["axis"] if several else [])
    lines = []
    for result, axis, first in rows:
        colour = "green" if result.outcome == "finished" else "red"
        head = (Text(result.variant.name), Text(result.outcome, colour)) if first else ("", "")
        cells = []
        for _, key in _COMPARED:
            index, factor = runs.AXIS_INDICES[key]
            cells.append(plain(result.axes.get(axis, {}).get(index), factor))
            if key in keys:
                if beside[1:]:
                    cells.append(plain((result.measured or result.axes).get(axis, {}).get(index), factor))
                printed = _published(result, axis, first, key)
                cells.append("-" if printed is None else f"{printed:g}")
        lines.append([*head, *([axis] if several else []), *cells, _ranges(result.parameters, axis)])
    terminal.table(lines, *heads, numbers=numbers, last=["parameters, smallest to largest"])
    if any(result.response for result in results):
        _print_response(results)
    axes = {f"_{axis}" for result in results for axis in result.axes}
    shown = {key + axis for _, key in _COMPARED for axis in ("", *axes)}
    shown |= {f"{kind}_{dof}" for result in results for kind in runs.RESPONSE for dof in result.response}
    for result in results:
        for key, printed in sorted(result.variant.published.items()):
            if key not in shown:
                value = result.values.get(key, math.nan)
                true = result.values.get(key + TRUE, value)
                further = f" (true displacement: {true:.4g})" if true != value else ""
                terminal.say(f"{result.variant.name}: {key} {value:.4g}{further}, published {printed:g}")
        if result.reason:
            terminal.say(f"{result.variant.name}: {result.outcome}: {result.reason}")


def _published(result: Result, axis: str, first: bool, key: str) -> float | None:
    """Return the published index of an axis. An index without an axis is in the row of the first axis."""
    published = result.variant.published
    return published.get(f"{key}_{axis}", published.get(key) if first else None)


def _print_response(results: Sequence[Result]) -> None:
    print("response: RMS error relative to the entire structure computed in one piece")
    numbers = ("displacement (%)", "published", "absolute acceleration (%)", "published")
    rows = []
    for result in results:
        for number, (dof, errors) in enumerate(result.response.items()):
            row = [result.variant.name if number == 0 else "", dof]
            for kind, key in runs.RESPONSE.items():
                printed = result.variant.published.get(f"{kind}_{dof}")
                row += plain(errors[key]), "-" if printed is None else f"{printed:g}"
            rows.append(row)
    terminal.table(rows, "variant", "degree of freedom", numbers=numbers)


def _ranges(parameters: Mapping[str, Mapping[str, tuple[float, float]]], axis: str) -> str:
    rows = []
    for quantity, row in parameters.items():
        low, high = (f"{value:.4g}" for value in row.get(axis, row.get("", (math.nan, math.nan))))
        rows.append(f"{quantity} {low}" + (f" to {high}" if high != low else ""))
    return "\n".join(rows)
