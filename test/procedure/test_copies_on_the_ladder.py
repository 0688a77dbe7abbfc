# SPDX-License-Identifier: Apache-2.0
"""Copies of the specimen on the rungs: used on a simulated rig, refused on a real one unless in shadow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from absorber import learning, section
from messages import mentions, naming
from rig_walk import Walk

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files, judgement
from rths_nodes.loop.scenario.overrides import override

USED = [*learning(mode="used"), "compensator.alpha_es=29.0", "duration=1.3"]
RELEASED = slice(4, 6)
"""Columns of the recorded knowledge."""


def test_copies_are_used_on_a_simulated_rig(walk: Callable[..., Walk]) -> None:
    w = walk(*USED, rig=("stiffness: 7.6e6", "stiffness: 9.9e6"))
    w.to_start()
    assert w.climb("g").outcome == "finished"
    assert w.run is not None
    assert np.ptp(w.run.updating[:, RELEASED], axis=0).min() > 0.0


def test_an_unstable_corner_is_refused_before_a_rig_moves() -> None:
    wide = section(mode="used")
    wide["parameters"]["stiffness"]["bounds"] = [5e6, 3e10]
    changes = [*USED, *learning(**wide), "integrator.type=explicit_newmark"]
    scenario = files.load("chen_ricles_2010", changes, rig="bench_simulated")
    with pytest.raises(ConfigError, match=naming("unstable", "corner", "bounds")):
        hosts.run(scenario)


def test_copies_that_follow_are_refused_on_a_real_rig() -> None:
    scenario = files.load("chen_ricles_2010", USED, rig="bench_simulated")
    problems = []
    for mode in ("used", "shadow"):
        with pytest.raises(ConfigError) as refused:
            judgement.refuse(override(scenario, [f"updating.mode={mode}"]), simulated=False)
        problems.append(set(refused.value.problems))
    (problem,) = problems[0] - problems[1]
    assert mentions(problem, "updating.mode = used", "must be shadow", "simulated rig")
