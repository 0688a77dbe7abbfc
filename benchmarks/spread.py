# SPDX-License-Identifier: Apache-2.0
"""Distribution of each published index over the runs of a study, as a table.

    rths study benchmarks/studies/marths_thousand.yaml
    python benchmarks/spread.py runs/marths_thousand/table.csv
    python benchmarks/spread.py runs/identified_inverse_thousand/table.csv --by case

Indices that differ only by axis or by story are in one line. Runs that did not finish are counted and omitted. The
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
    """Rows of a table of ``rths study``, CSV."""
    with open(table, newline="", encoding="utf-8") as stream:
        return [dict(row) for row in csv.DictReader(stream)]


def column(rows: Rows, name: str) -> np.ndarray:
    """Numbers of the ``rows``; nan where there is none."""
    return np.array([float(row[name] or "nan") for row in rows])


def title(which: str, name: str) -> str:
    """Title of a line of like indices: their number in the set ``which`` and the unit, else their name."""
    bare = name.removesuffix(TRUE)
    number = numbers(which, bare).get(CODE)
    true = "true " if name.endswith(TRUE) else ""
    if number is None:
        return true + re.sub("_([12]|x|theta)(?=_|$)", "", bare)
    return f"{true}{number.partition(',')[0]}, {'ms' if bare.endswith('_ms') else '%'}"


def lines(rows: Rows) -> dict[str, list[str]]:
    """Columns of the table by title: indices that are published, and how far the law has learned."""
    which, found = json.loads(rows[0]["scenario"])["indices"], dict[str, list[str]]()
    for name in rows[0]:
        published = "percent" in name or re.search("delay.*_ms", name)
        if (published and not name.startswith(("fei", "hsem"))) or name == "prior_distance_range":
            found.setdefault(title(which, name), []).append(name)
    return found


def cell(rows: Rows, names: list[str], share: int, size: bool) -> str:
    """The ``share`` (%) of the runs does not exceed this: of each of the indices, or of its ``size``."""
    values = [column(rows, name) for name in names]
    return ", ".join(f"{np.percentile(np.abs(each) if size else each, share):.3f}" for each in values)


def main() -> int:
    """Print the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="of rths study, as CSV")
    parser.add_argument("--by", metavar="FACTOR", help="a column for each level of it")
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
            of = [[row for row in finished if row[options.by] == level] for level in levels]
            cells = [", ".join(cell(each, columns, share, True) for share in OF_LEVELS.values()) for each in of]
        else:
            cells = [cell(finished, columns, share, False) for share in SHARES.values()]
        print(f"| {name} | {' | '.join(cells)} |")
    return int(len(finished) < len(rows))


if __name__ == "__main__":
    sys.exit(main())
