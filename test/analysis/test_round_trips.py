# SPDX-License-Identifier: Apache-2.0
"""Tests of the depth of hops from the round trips of a recording."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.app.commands import check
from rths_nodes.app.commands.check import needed_depth, round_trips
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files


@pytest.mark.parametrize(
    ("p999", "depth"), [(0.2e-3, 0), (0.8e-3, 0), (0.81e-3, 1), (1.8e-3, 1), (11.2e-3, 11), (11.9e-3, 12)]
)
def test_needed_depth_covers_round_trip(p999: float, depth: int) -> None:
    assert needed_depth(p999, 1e-3) == depth


def run(pace: str, samples: int) -> Any:
    timing = {"loop": {"p999_s": 0.011, "max_s": 0.02}}
    return SimpleNamespace(information={"pace": pace}, time=np.zeros(samples), timing=timing)


def test_round_trips_need_long_real_time_test() -> None:
    assert round_trips(run("realtime", 1000)) == (0.011, 0.02)
    with pytest.raises(ConfigError, match=naming("pace", "lockstep")):
        round_trips(run("lockstep", 1000))
    with pytest.raises(ConfigError, match=naming("999", ">= 1000")):
        round_trips(run("realtime", 999))


def test_impossible_depth_is_reported() -> None:
    """For excessive round trips the other lines are still reported."""
    scenario = files.load("chen_ricles_2010", ["duration=0.2"])
    lines = list(check._hops(scenario, (1.0, 2.0), partial(check._rehearsed, scenario)))
    assert "This requires hops.depth = 1024; the scenario has 0" in lines[0]
    assert mentions(lines[1], "hops.depth", "0", "norm")
    assert mentions(lines[2], "hops.depth", "1024", ">= 0", "<= 63")
