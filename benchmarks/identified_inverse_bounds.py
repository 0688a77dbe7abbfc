# SPDX-License-Identifier: Apache-2.0
"""Largest errors of identified_inverse in a study of the RTHS benchmark, with their bounds.

    rths study benchmarks/studies/identified_inverse_bounds.yaml
    python benchmarks/identified_inverse_bounds.py runs/identified_inverse_bounds/table.csv

The exit code is 1 if a run exceeded a bound or did not finish.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from spread import Rows, column, read

CASES = ("case_1", "case_2", "case_3", "case_4")


def largest(*names: str) -> Callable[[Rows], float]:
    """Return a function for the largest absolute value of some indices over all rows."""
    return lambda rows: max(float(np.abs(column(rows, name)).max()) for name in names)


def over_noise(name: str) -> Callable[[Rows], float]:
    """Return a function for the largest ratio of an index to its part from sensor noise."""
    return lambda rows: float((column(rows, name) / column(rows, "noise_floor_percent")).max())


class Bound(NamedTuple):
    """Title of a quantity, function for its largest value over the runs of a case, and the bound of each case."""

    title: str
    largest: Callable[[Rows], float]
    bounds: tuple[float, ...]


def same(bound: float) -> tuple[float, ...]:
    """Return the same bound for all cases."""
    return (bound,) * len(CASES)


J2, J4 = "tracking_rms_percent", "rms_1_percent"
UPPER, PEAKS = ("rms_2_percent", "rms_3_percent"), ("peak_2_percent", "peak_3_percent")
BOUNDS = {
    "force_lead": (
        Bound("signed delay, ms", largest("signed_delay_ms"), same(0.05)),
        Bound("J2 over the noise", over_noise(J2), same(1.02)),
        Bound("J4 over the noise", over_noise(J4), same(1.02)),
        Bound("J6 to J9, %", largest(*UPPER, *PEAKS), same(0.3)),
        Bound("true J2, %", largest(f"{J2}_true"), same(0.3)),
        Bound("true J4, %", largest(f"{J4}_true"), same(0.3)),
    ),
    "lead_of_one_sample": (
        Bound("J2 over the noise", over_noise(J2), same(1.05)),
        Bound("J4, %", largest(J4), (2.75, 2.6, 2.0, 2.4)),
        Bound("J6, J7, %", largest(*UPPER), same(1.3)),
        Bound("J8, J9, %", largest(*PEAKS), same(0.8)),
    ),
}


def stopped(row: dict[str, str]) -> bool:
    """Return true if the run did not finish."""
    return row["outcome"] != "finished"


def bounds(rows: Rows) -> bool:
    """Print the largest values of each case with their bounds. Return true if all bounds hold."""
    held = not any(map(stopped, rows))
    print(f"{len(rows)} runs, {sum(map(stopped, rows))} stopped by a limit")
    for force, entries in BOUNDS.items():
        print(f"\n{force}\n| worst, and the bound | {' | '.join(CASES)} |\n|---|{'---|' * len(CASES)}")
        for title, largest_of, limits in entries:
            cells = []
            for case, limit in zip(CASES, limits, strict=True):
                runs = [row for row in rows if row["case"] == case and row["force"] == force and not stopped(row)]
                value = largest_of(runs) if runs else float("nan")
                exceeded = bool(runs) and not value <= limit
                held &= not exceeded
                mark = "**" if exceeded else ""
                cells.append(f"{mark}{value:.3f}{mark} ({limit:g})")
            print(f"| {title} | {' | '.join(cells)} |")
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="table of rths study, CSV")
    options = parser.parse_args()
    return 0 if bounds([row for row in read(options.table) if row["outcome"] != "lost"]) else 1


if __name__ == "__main__":
    sys.exit(main())
