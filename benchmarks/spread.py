# SPDX-License-Identifier: Apache-2.0
"""Distribution of each published index over the runs of a study, as a table.

    rths study benchmarks/studies/marths_thousand.yaml
    python benchmarks/spread.py runs/marths_thousand/table.csv
    python benchmarks/spread.py runs/identified_inverse_thousand/table.csv --by case

Indices that differ only by axis or by story share a row. Runs that did not finish are counted and omitted. The
exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys

import numpy as np

from rths_nodes.analysis.published_indices import CODE, TRUE, numbers

SHARES = {"least": 0, "5 %": 5, "median": 50, "95 %": 95, "largest": 100}
OF_LEVELS = {"median": 50, "95 %": 95, "worst": 100}
Rows = list[dict[str, str]]


def read(table: str) -> Rows:
    """Read a table of ``rths study``, CSV."""
    with open(table, newline="", encoding="utf-8") as stream:
        return [dict(row) for row in csv.DictReader(stream)]


def column(rows: Rows, name: str) -> np.ndarray:
    """Return a column of the ``rows``; NaN for an empty cell."""
    return np.array([float(row[name] or "nan") for row in rows])


def title(index_set: str, name: str) -> str:
    """Return the title of a row: number of the index in ``index_set`` with its unit, or the name without axis."""
    bare = name.removesuffix(TRUE)
    number = numbers(index_set, bare).get(CODE)
    true = "true " if name.endswith(TRUE) else ""
    if number is None:
        return true + re.sub("_([12]|x|theta)(?=_|$)", "", bare)
    return f"{true}{number.partition(',')[0]}, {'ms' if bare.endswith('_ms') else '%'}"


def lines(rows: Rows) -> dict[str, list[str]]:
    """Return columns of the table by title: published indices, and the distance of the learned coefficients."""
    index_set, columns = json.loads(rows[0]["scenario"])["indices"], dict[str, list[str]]()
    for name in rows[0]:
        published = "percent" in name or re.search("delay.*_ms", name)
        if (published and not name.startswith(("fei", "hsem"))) or name == "prior_distance_range":
            columns.setdefault(title(index_set, name), []).append(name)
    return columns


def cell(rows: Rows, names: list[str], share: int, size: bool) -> str:
    """Return a percentile of each index, or of its absolute value if ``size`` is true."""
    columns = [column(rows, name) for name in names]
    return ", ".join(f"{np.percentile(np.abs(values) if size else values, share):.3f}" for values in columns)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="table of rths study, CSV")
    parser.add_argument("--by", metavar="FACTOR", help="print a column for each level of FACTOR")
    options = parser.parse_args()
    rows = read(options.table)
    finished = [row for row in rows if row["outcome"] == "finished"]
    print(f"{len(rows)} runs, {len(rows) - len(finished)} did not finish")
    if not finished:
        return 1
    levels = sorted({row[options.by] for row in finished}) if options.by else []
    heads = levels or list(SHARES)
    print(f"| {', '.join(OF_LEVELS) if levels else ''} | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    for name, columns in lines(finished).items():
        if levels:
            groups = [[row for row in finished if row[options.by] == level] for level in levels]
            shares = OF_LEVELS.values()
            cells = [", ".join(cell(group, columns, share, True) for share in shares) for group in groups]
        else:
            cells = [cell(finished, columns, share, False) for share in SHARES.values()]
        print(f"| {name} | {' | '.join(cells)} |")
    return int(len(finished) < len(rows))


if __name__ == "__main__":
    sys.exit(main())
