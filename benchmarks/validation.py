# SPDX-License-Identifier: Apache-2.0
"""The page doc/validation.md: every published figure of the shipped scenarios beside ours.

    python benchmarks/validation.py > doc/validation.md

Runs all cases that have published figures, two minutes on two processors. The figures stand in the scenarios
(``cases.NAME.published``), the runs are those of ``rths compare``.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator

from rths_nodes.app.commands import compare
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

HEAD = """\
# Validation

Every published figure that the shipped scenarios name, beside what this package computes: made by
`python benchmarks/validation.py > doc/validation.md` in two minutes; `rths compare SCENARIO` prints one scenario
of it. [Equations](papers.md) has what differs in the methods, and why.

A computed figure, of a model whose numbers are printed, should come out again. A measured one belongs to a loading
system that nobody else has: there the variants should have the published order, not the published size. Where that
is not so, its section says it.

J2 is the error norm and J3 the largest error of an axis in %; `response` and `acceleration` are RMS errors of a
degree of freedom against the whole structure in %; the names of the RTHS benchmark are its J1 to J9 in words.
"""
EXPECTED = {
    "rths_benchmark_2020": (
        "Computed, with the code of the benchmark: to come out again",
        "The published controller in the four cases of the RTHS benchmark (Silva et al. 2020). What is left is "
        "the noise of the sensors, which is drawn otherwise, and what "
        "[Equations](papers.md#the-benchmark-of-real-time-hybrid-simulation) has of it.",
    ),
    "phillips_spencer_2012": (
        "Computed, constants of actuators and noise not printed",
        "The constants are those that reproduce the tracking of case c. With them the tracking of the other cases "
        "comes out, in its order and, where noise does not decide, in its size. The errors of the response do "
        "not: of the uncoupled cases they are larger, of the coupled ones smaller than printed.",
    ),
    "chen_ricles_2010": (
        "Measured, with another record, damper and plant: the order only",
        "With the right estimate (29) the simulated actuator is undone to rounding, which no laboratory does. "
        "From a wrong one errors fall with k_p, as published.",
    ),
    "tadc_el_centro": ("Measured: the order only", "One stage (SADC) errs more than two (TADC), as published."),
    "tadc_sweep": ("Measured: the order only", "One stage (SADC) errs more than two (TADC), as published."),
}
"""Scenario -> kind of its figures, and what is to be said of the comparison; in the order of the page."""
COLUMNS = "| case | index | published | ours | difference |\n|---|---|---|---|---|"


def cases_of(scenario: Scenario) -> list[str]:
    """Names of the cases of which something was published."""
    return [name for name, case in scenario.cases.items() if case.published]


def row(case: str, index: str, published: float, ours: float) -> str:
    """A line of the table; the difference in per cent of the published figure."""
    return f"| {case} | {index} | {published:g} | {ours:.3g} | {100.0 * (ours / published - 1.0):+.1f} % |"


def section(name: str) -> Iterator[str]:
    """The lines of the page about a scenario."""
    scenario = files.load(name)
    kind, words = EXPECTED[name]
    yield f"## {name}\n\n*{kind}*\n\n{textwrap.fill(words, 115)}\n\n{COLUMNS}"
    chosen = compare.variants(scenario, cases=cases_of(scenario))
    for result in compare.compare(chosen, response=compare.has_response(chosen)):
        if result.outcome != "finished":
            sys.exit(f"{name}, {result.variant.name}: {result.outcome}: {result.reason}")
        for index, published in result.variant.published.items():
            yield row(result.variant.name, index, published, result.values[index])


def page() -> str:
    """Return the whole page."""
    parts = ["\n".join(section(name)) for name in EXPECTED]
    return "\n".join([HEAD, *(f"{part}\n" for part in parts)])


if __name__ == "__main__":
    sys.stdout.write(page())
