"""The program around many runs at a time: a study in, a table out, and how far it is from that of the package."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from at_once.arrays import Array
from rths_nodes.app.studies import design

Found = dict[str, Array]
"""Indices of runs by name, ``(runs,)`` each."""


def main(description: str | None, run: Callable[[list[design.Row]], Found], at_once: int) -> Found:
    """Write the table, print how far it is from that of the package; the indices of all runs.

    ``run`` gives the indices of some runs, ``at_once`` of them unless the user says how many.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study")
    parser.add_argument("table", type=Path)
    parser.add_argument("--beside", metavar="TABLE.csv", help="of rths study: what of it was run is compared")
    parser.add_argument("--at-once", type=int, default=at_once, help="runs in one array")
    options = parser.parse_args()
    of = design.load(options.study)
    rows = list(of.rows())
    parts = [run(rows[i : i + options.at_once]) for i in range(0, len(rows), options.at_once)]
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    with open(options.table, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["run", "name", *of.factors, "plant", *found])
        for i, row in enumerate(rows):
            levels = [row.levels[factor] for factor in of.factors]
            writer.writerow([row.number, row.name, *levels, row.plant.number, *(found[name][i] for name in found)])
    if options.beside:
        with open(options.beside, newline="", encoding="utf-8") as stream:
            compare(found, [dict(row) for row in csv.DictReader(stream)])
    return found


def tell(share: float) -> None:
    """How much of the runs in one array is done."""
    print(f"\r{share:.0%} ", end="", file=sys.stderr, flush=True)


def compare(found: Found, beside: list[dict[str, str]]) -> None:
    """Print the largest difference of each index in the runs that the package has done."""
    count = len(next(iter(found.values())))
    done = [row for row in beside if row["outcome"] == "finished" and int(row["run"]) < count]
    places = [int(row["run"]) for row in done]
    print(f"{len(done)} runs of the package:")
    for name, values in found.items():
        if done and name in beside[0]:
            differences = np.abs(values[places] - np.array([float(row[name] or "nan") for row in done]))
            print(f"  {name:28s} {differences.max():.2g} of {np.abs(values[places]).max():.4g}")
