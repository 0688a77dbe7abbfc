# SPDX-License-Identifier: Apache-2.0
"""Which depth hops need, by the round trips of a recording."""

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
def test_a_command_has_the_depth_and_what_a_sample_leaves_for_its_way(p999: float, depth: int) -> None:
    assert needed_depth(p999, 1e-3) == depth


def run(pace: str, samples: int) -> Any:
    timing = {"loop": {"p999_s": 0.011, "max_s": 0.02}}
    return SimpleNamespace(information={"pace": pace}, time=np.zeros(samples), timing=timing)


def test_only_a_test_in_real_time_tells() -> None:
    assert round_trips(run("realtime", 1000)) == (0.011, 0.02)
    with pytest.raises(ConfigError, match=naming("pace", "lockstep")):
        round_trips(run("lockstep", 1000))
    with pytest.raises(ConfigError, match=naming("999", ">= 1000")):
        round_trips(run("realtime", 999))


def test_a_depth_that_cannot_be_is_told_as_that() -> None:
    """Of hops that are far too long, the other lines are told all the same."""
    scenario = files.load("chen_ricles_2010", ["duration=0.2"])
    lines = list(check._hops(scenario, (1.0, 2.0), partial(check._rehearsed, scenario)))
    assert "This requires hops.depth = 1024; the scenario has 0" in lines[0]
    assert mentions(lines[1], "hops.depth", "0", "norm")
    assert mentions(lines[2], "hops.depth", "1024", ">= 0", "<= 63")
