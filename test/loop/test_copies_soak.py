# SPDX-License-Identifier: Apache-2.0
"""Tests of updated copies for random plants. Figures: python test/loop/test_copies_soak.py PLANTS"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from absorber import OFF, OPEN, RECORDS, SECONDS, frame, run, scaled, section

from rths_nodes.loop.scenario.files import replace
from rths_nodes.mechanics.updating import IDENTIFIED

LARGEST = 2.0
"""Bound of the largest displacement over the displacement with true copies."""


def evaluate(seed: int) -> tuple[float, list[float]]:
    """Return the largest displacement over that with true copies, and the errors of identified parameters."""
    rng = np.random.default_rng(seed)
    true = {name: OFF[name] * (1.0 + 0.3 * rng.choice([-1.0, 1.0])) for name in OPEN}
    hardening = {"post_yield_ratio": OFF["post_yield_ratio"]}
    specimen = {
        "type": "elastoplastic_absorber",
        "stiffness": true["stiffness"],
        "yield_force": true["stiffness"] * true["yield_displacement"],
    } | hardening
    changes: list[tuple[list[str], Any]] = [(["ground_motion"], scaled(RECORDS[seed % 3])), (["seed"], seed + 1)]
    scenario = replace(frame(*SECONDS, updating=section(mode="used"), specimen=specimen), changes)
    law = {"type": "bouc_wen"} | hardening | true
    alike = replace(scenario, [(["updating"], None), (["structure", "restoring_force"], law)])
    used, reference = run(scenario), run(alike)
    ratio = np.abs(used.dof_displacement).max() / np.abs(reference.dof_displacement).max()
    rows = used.integrator["updating"]
    errors = [abs(rows[name]["estimate"] / true[name] - 1.0) for name in OPEN if rows[name]["left"] <= IDENTIFIED]
    return float(ratio), errors


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(s, marks=pytest.mark.soak) for s in range(3, 200))])
def test_plants_are_identified_within_5_percent_and_bounded(seed: int) -> None:
    ratio, errors = evaluate(seed)
    assert ratio <= LARGEST
    assert max(errors, default=0.0) <= 0.05


if __name__ == "__main__":
    ratios, errors = [], []
    for number in range(int(sys.argv[1])):
        ratio, identified = evaluate(number)
        ratios.append(ratio)
        errors += identified
        limits = f"largest displacement {min(ratios):.3f} to {max(ratios):.3f} of that with true copies"
        count = f"{len(errors)} of {2 * len(ratios)} parameters identified"
        within = f"within {100.0 * max(errors, default=0.0):.2f} %"
        print(f"{number + 1} plants: {limits}; {count}, {within}", flush=True)
