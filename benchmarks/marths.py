# SPDX-License-Identifier: Apache-2.0
"""Single runs of the multi-axial benchmark, as a table: python benchmarks/marths.py

Each row is a change of ``marths_2023`` (El Centro at 0.4, complete record) and takes some 15 s. Prints J2 of the
two actuators, J5 and J7 of x and theta, and J8 of stories 2 and 3, in %, and the largest command of each actuator,
in mm.
"""

from __future__ import annotations

import argparse

import numpy as np

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.published_indices import MARTHS_2023, published_indices
from rths_nodes.analysis.units import MM
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Collector

NAME = "marths_2023"
FIXED = "compensator.learning=false"
WHOLE = "structure.ground_load=whole"
PERFECT = (
    *("compensator.type=none", "port.transport_samples=0", "rig.hold=ramp", "rig.common_poles=null"),
    *(f"rig.responses.actuator_{n}.{rest}" for n in (1, 2) for rest in ("poles=[-1e5,-1e5]", "zeros=null")),
    *("rig.responses.actuator_1.static_gains=[1,0]", "rig.responses.actuator_2.static_gains=[0,1]"),
)
"""Ideal actuators, without delay."""
ROWS: dict[str, tuple[str, ...]] = {
    "identified_inverse": (),
    "fixed coefficients": (FIXED,),
    "ideal actuators": PERFECT,
    "whole mass: identified_inverse": (WHOLE,),
    "whole mass: fixed coefficients": (WHOLE, FIXED),
    "whole mass: ideal actuators": (WHOLE, *PERFECT),
}
HEAD = "| | J2 | J2, true displacement | J5 | J7 | J8 | largest command |"


def row(name: str) -> str:
    """Return the row of one run: its figures, or its outcome if it did not finish."""
    loop = Loop(Assembly(files.load(NAME, ROWS[name])))
    collector = Collector(loop.scenario, loop.assembly.names)
    outcome = loop.run([collector])
    if outcome.state is not State.FINISHED:
        return f"| {name} | {outcome.state.name.lower()}: {outcome.reason} |"
    evaluation = Evaluation(collector.run(metrics=outcome.metrics))
    measured, true = published_indices(evaluation)
    columns = [
        ", ".join(f"{indices[index]:.2f}" for index in MARTHS_2023[number])
        for number, indices in (("J2", measured), ("J2", true), ("J5", measured), ("J7", measured))
    ]
    stories = " ".join(f"{measured[index]:.2f}" for index in MARTHS_2023["J8"])
    largest = ", ".join(f"{value:.1f}" for value in MM * np.abs(evaluation.run.command).max(axis=0))
    return f"| {name} | {' | '.join(columns)} | {stories} | {largest} mm |"


def main() -> None:
    """Print the table row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[""], help="only rows whose names contain one of these")
    options = parser.parse_args()
    print(f"{HEAD}\n|{'---|' * 7}")
    for name in ROWS:
        if any(part in name for part in options.only):
            print(row(name), flush=True)


if __name__ == "__main__":
    main()
