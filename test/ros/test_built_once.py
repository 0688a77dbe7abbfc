# SPDX-License-Identifier: Apache-2.0
"""No node builds a component of its scenario twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("rclpy")

from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros import names

NAME = "phillips_spencer_2012"
TWINS = {
    names.INTEGRATOR: ("structure", "damping", "restoring_force", "integrator", "setup", "semi_active"),
    names.COMPENSATOR: ("ramp", "setup", "compensator"),
}
"""What a node that warms up has a second one of."""


@pytest.mark.parametrize("pace", ["lockstep", "realtime"])
@pytest.mark.parametrize("role", names.NODES)
def test_a_node_builds_nothing_twice(
    role: str, pace: str, by_hand: Any, built: Counter[str], declared: Callable[[Scenario], Counter[str]]
) -> None:
    loaded = files.load(NAME, ["substeps=2"])
    with by_hand.node(role, scenario=NAME, overrides=["substeps=2"], pace=pace):
        pass
    twins = TWINS.get(role, ()) if pace == "realtime" else ()
    for name, count in declared(loaded).items():
        assert built[name] <= count * (1 + (name.partition(" ")[0] in twins)), name
