# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML page about several tests: headers, differences and overlaid curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rths_nodes.analysis import figures
from rths_nodes.analysis.figures.drawing import Recordings, on_page
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.overlay import Aligned, Difference, check, differences
from rths_nodes.analysis.report import procedure, tables
from rths_nodes.analysis.report.document import first_line, template, write_page
from rths_nodes.analysis.report.procedure import Part, grid, listed, moment
from rths_nodes.analysis.units import DASH, KN, MM, PERCENT, exact, quantity, rounded
from rths_nodes.recording.procedure import OfProcedure
from rths_nodes.recording.run import Run

SHOWN = {"m": (MM, "mm"), "N": (KN, "kN"), "m/s²": (1.0, "m/s²")}
UNTOLD = ("cases", "description", "name")
"""Keys of a scenario without effect on the test."""


class Compared(NamedTuple):
    name: str
    run: Run
    procedure: OfProcedure | None = None


def write(tests: Sequence[Compared], path: Path) -> Recordings:
    """Write the page that compares ``tests`` with the first test, and return the tests.

    Raises ConfigError if the tests cannot be compared.
    """
    check({test.name: test.run for test in tests})
    aligned = [Aligned(test.name, Evaluation(test.run)) for test in tests]
    drawn = Recordings([test for test in aligned if test.drawable])
    first, *further = aligned
    finished = sum(test.run.ending == "finished" for test in tests)
    result = [(other, differences(first, other)) for other in further]
    contents: dict[str, object] = {
        "title": f"{len(tests)} tests compared",
        "first": [f"{test.name}: {line}." for test in tests if (line := first_line(test.run, test.procedure))],
        "badge": f"{finished} of {len(tests)} finished",
        "kind": "good" if finished == len(tests) else "bad",
        "summary": [sentence for row in result if (sentence := _largest(first, *row))],
        "heads": [_heads(tests), _scenarios(tests)],
        "compared": COMPARED.format(name=first.name),
        "differences": [_part(first, *row) for row in result],
        "table": tables.side_by_side({run.name: run.of for run in aligned}),
        "figures": on_page(figures.drawings(drawn)),
    }
    notes: list[str] = []
    for test in aligned:
        notes += [] if test.drawable else [f"{test.name} is not drawn, because none of its samples counts"]
        notes += [f"{part} of {test.name} is left out ({why})" for part, why in test.of.left_out.items()]
    write_page(path, template("overlay.html.j2").render(contents, notes=notes))
    return drawn


def _heads(tests: Sequence[Compared]) -> Part:
    rows = []
    for name, run, test in tests:
        information, ratio = run.information, run.scenario.time_ratio
        rung = procedure.rung_of(*test) if test else None
        rows.append(
            [
                name,
                f"{test.record.test_id}, rung {rung.name}" if test and rung else information.get("run_id", DASH),
                moment(information.get("started", DASH)),
                run.ending,
                run.scenario.name,
                ", ".join(filter(None, (information.get("host"), information.get("pace")))) or DASH,
                f"{PERCENT * rung.level:g} %" if rung else DASH,
                f"{ratio:g} times slower" if ratio > 1 else "real time",
                type(run.scenario.compensator).type_name,
            ]
        )
    heads = ("Test", "Id", "Started", "Outcome", "Scenario", "Host, pace", "Level", "Time axis", "Compensator")
    return Part("Heads", grid=grid(heads, rows))


def _scenarios(tests: Sequence[Compared]) -> Part:
    settings = [_flat(test.run.scenario.data()) for test in tests]
    keys = dict.fromkeys(key for values in settings for key in values)
    rows = [[key, *(values.get(key, DASH) for values in settings)] for key in keys]
    heads = ("Parameter", *(test.name for test in tests))
    rows = [row for row in rows if len(set(row[1:])) > 1]
    return listed("Differences between the scenarios", heads, rows, "The tests have the same parameters.")


def _flat(data: object, path: str = "") -> dict[str, str]:
    if isinstance(data, Mapping) and (data or not path):
        result: dict[str, str] = {}
        for key, value in data.items():
            result |= {} if not path and key in UNTOLD else _flat(value, f"{path}.{key}" if path else str(key))
        return result
    return {path: DASH if data is None else exact(data)}


COMPARED = (
    "Each difference is the other test minus {name}, at the times of {name} that both tests contain. Displacement "
    "and force are measured; response and absolute acceleration are computed. Percentages are relative to the rms "
    "or largest value of {name}."
)


def _part(first: Aligned, other: Aligned, by_curve: Mapping[str, Difference]) -> Part:
    rows = []
    for name, row in by_curve.items():
        factor, unit = SHOWN[row.unit]
        rms_share, largest_share = (
            rounded(PERCENT * share, digits=2) for share in (row.rms_share, row.largest_share)
        )
        sizes = [rounded(row.rms, factor), rms_share, rounded(row.largest, factor), largest_share]
        rows.append([name, *sizes, rounded(row.at), unit])
    heads = ("Of", "rms", "rms, %", "largest", "largest, %", "at, s", "unit")
    notes = _cautions(first, other)
    if not rows:
        notes.append("Nothing can be compared, because the tests have no time in common.")
    return Part(f"{other.name} less {first.name}", words=tuple(notes), grid=grid(heads, rows))


def _cautions(first: Aligned, other: Aligned) -> list[str]:
    one, two = first.of.scenario, other.of.scenario
    result = []
    if one.time_ratio != two.time_ratio:
        result.append(
            f"The time ratios are {two.time_ratio:g} and {one.time_ratio:g}, so rate-dependent quantities differ."
        )
    if one.servo_rate != two.servo_rate:
        result.append(
            f"The servo rates are {two.servo_rate:g} Hz and {one.servo_rate:g} Hz, so samples are interpolated "
            "linearly."
        )
    ends = [float(test.time[-1]) for test in (first, other) if test.drawable]
    if len(ends) == 2 and abs(ends[0] - ends[1]) > max(one.step, two.step):
        result.append(f"The tests are compared until {min(ends):.4g}\u00a0s, where the shorter test ends.")
    return result


def _largest(first: Aligned, other: Aligned, by_curve: Mapping[str, Difference]) -> str:
    """Return a sentence about the largest difference of a measured displacement."""
    start = "displacement of "
    moved = {name.removeprefix(start): row for name, row in by_curve.items() if name.startswith(start)}
    if not moved:
        return ""
    axis, worst = max(moved.items(), key=lambda row: row[1].largest)
    share = f" ({rounded(PERCENT * worst.largest_share, digits=2)}\u00a0%)" if worst.largest_share else ""
    by = f"by up to {quantity(worst.largest, MM, 'mm')}{share}" if worst.largest else "nowhere"
    where = f" of {axis}" if len(moved) > 1 else ""
    return f"{other.name} differs from {first.name} {by} in the measured displacement{where}."
