# SPDX-License-Identifier: Apache-2.0
"""Many plants with copies that follow stay bounded. Figures: python test/loop/test_copies_soak.py PLANTS"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from absorber import OFF, OPEN, PEAK, RECORDS, SECONDS, frame, peak, run, section

from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.mechanics.updating.step import IDENTIFIED

MOST = 2.0
"""Largest displacement over that of true copies, below which no plant is called unstable."""


def judged(seed: int) -> tuple[float, list[float]]:
    """Largest displacement over that of true copies, and errors of the parameters that are identified."""
    rng = np.random.default_rng(seed)
    true = {name: OFF[name] * (1.0 + 0.3 * rng.choice([-1.0, 1.0])) for name in OPEN}
    ratio = OFF["post_yield_ratio"]
    specimen = {
        "type": "elastoplastic_absorber",
        "stiffness": true["stiffness"],
        "yield_force": true["stiffness"] * true["yield_displacement"],
        "post_yield_ratio": ratio,
    }
    record = RECORDS[seed % 3]
    motion = {"type": "record", "record": record, "scale": PEAK / peak(record), "accept_any_peak": True}
    changes: list[tuple[list[str], Any]] = [(["ground_motion"], motion), (["seed"], seed + 1)]
    scenario = replace(frame(*SECONDS, updating=section(mode="used"), specimen=specimen), changes)
    law = {"type": "bouc_wen", "post_yield_ratio": ratio} | true
    alike = replace(scenario, [(["updating"], None), (["structure", "restoring_force"], law)])
    used, other = run(scenario), run(alike)
    most = np.abs(used.dof_displacement).max() / np.abs(other.dof_displacement).max()
    told = used.integrator["updating"]
    errors = [abs(told[name]["estimate"] / true[name] - 1.0) for name in OPEN if told[name]["left"] <= IDENTIFIED]
    return float(most), errors


def check(seed: int) -> None:
    """Bounded, and within 5 %."""
    most, errors = judged(seed)
    assert most <= MOST
    assert max(errors, default=0.0) <= 0.05


@pytest.mark.parametrize("seed", range(3))
def test_a_plant_of_each_record_is_found_and_stays_bounded(seed: int) -> None:
    check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 200))
def test_200_plants_are(seed: int) -> None:
    check(seed)


if __name__ == "__main__":
    ratios, found = [], []
    for number in range(int(sys.argv[1])):
        one, several = judged(number)
        ratios.append(one)
        found += several
        limits = f"largest displacement {min(ratios):.3f} to {max(ratios):.3f} of that of true copies"
        known = f"{len(found)} of {2 * len(ratios)} parameters identified"
        print(
            f"{number + 1} plants: {limits}; {known}, within {100.0 * max(found, default=0.0):.2f} %", flush=True
        )
