# SPDX-License-Identifier: Apache-2.0
"""Time of large studies, each without cached libraries: python benchmarks/large_studies.py

    inverse       1000 runs of identified_inverse_thousand    plants      100 plants of the RTHS benchmark
    marths        1000 runs of marths_thousand                scoreboard  104 runs, every compensator
    tune          200 evaluations on the RTHS benchmark

``--share 0.1`` makes a tenth of the runs. ``--against FOLDER`` alternates with the package of another checkout,
because on a shared machine only ratios within one session are comparable. For each study, prints the shortest
elapsed time of all turns and the shortest processor time including all child processes, s.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rths_nodes.core.yaml_text import dump, parse

HERE = Path(__file__).resolve().parent
BENCHMARK = "rths_benchmark_2020"


class Times(NamedTuple):
    """Elapsed time and processor time of a command, s."""

    elapsed: float
    processor: float


def study(folder: Path, name: str, **changes: object) -> list[str]:
    """Write the study ``name`` of benchmarks/studies with ``changes`` and return its command."""
    shipped = HERE / "studies" / f"{name}.yaml"
    path = folder / f"{name}.yaml"
    path.write_text(dump(parse(shipped.read_text(encoding="utf-8"), str(shipped)) | changes), encoding="utf-8")
    return ["study", str(path), "--out", str(folder / "out")]


def command(name: str, share: float, folder: Path) -> list[str]:
    """Return the arguments of ``rths`` for a row of the table, with a ``share`` of its runs."""
    if name == "inverse":
        return study(folder, "identified_inverse_thousand", plants=max(1, round(250 * share)))
    if name == "marths":
        return study(folder, "marths_thousand", plants=max(1, round(1000 * share)))
    if name == "plants":
        factors = {"seed": {"integers": [1, 1000000]}}
        return study(folder, "identified_inverse_thousand", plants=max(1, round(100 * share)), factors=factors)
    if name == "scoreboard":
        cases = ["--cases", "case_1"] if share < 1.0 else []
        return ["scoreboard", "--plants", "0", "--noise-seeds", "1", "--out", str(folder / "out"), *cases]
    return ["tune", BENCHMARK, "--evaluations", str(max(8, round(200 * share)))]


def timed(name: str, share: float, checkout: Path, jobs: int) -> Times:
    """Run a row once with the package in ``checkout``. Raises CalledProcessError if it fails."""
    with tempfile.TemporaryDirectory(prefix="rths_studies_") as text:
        folder = Path(text)
        paths = os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH", "")]))
        cold = {"PYTHONPATH": paths, "XDG_CACHE_HOME": str(folder / "cache"), "NUMBA_CACHE_DIR": str(folder / "n")}
        rths = [sys.executable, "-m", "rths_nodes.app.cli", *command(name, share, folder), "--jobs", str(jobs)]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(rths, cwd=folder, env=os.environ | cold, stdout=subprocess.DEVNULL, check=False)
        elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 3):  # 3: one of the runs did not finish
        raise subprocess.CalledProcessError(done.returncode, rths)
    return Times(elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("inverse", "marths", "plants", "scoreboard", "tune")
    parser.add_argument("names", nargs="*", default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--share", type=float, default=1.0, help="fraction of the runs; default: %(default)s")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout, run alternately")
    parser.add_argument("--turns", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=2, help="processes; default: %(default)s")
    options = parser.parse_args()
    checkouts = [HERE.parent, *filter(None, [options.against])]
    for name in options.names:
        times_of: dict[Path, list[Times]] = {checkout: [] for checkout in checkouts}
        for _ in range(options.turns):
            for checkout, times in times_of.items():
                times.append(timed(name, options.share, checkout, options.jobs))
        for checkout, times in times_of.items():
            least = Times(*map(min, zip(*times, strict=True)))
            print(f"{name:<12}{least.elapsed:8.1f}{least.processor:8.1f}  {checkout}", flush=True)


if __name__ == "__main__":
    main()
