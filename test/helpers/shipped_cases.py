# SPDX-License-Identifier: Apache-2.0
"""Shipped scenarios with their cases, as ``name`` and ``name case``."""

from __future__ import annotations

from collections.abc import Iterator

from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

LEARNS = "updating: the copies of the specimen are updated outside the loop"
WITHOUT_KERNELS = {
    "column_under_axial_load": "port.type = 'simulator': only a simulator of displacement axes has a kernel",
    "learning_five_story": LEARNS,
    "learning_five_story at_once": LEARNS,
    "learning_five_story shadow": LEARNS,
    "tall_frame": "interface: a Target contains only a part of the model",
    "tall_frame craig_bampton": "interface: a Target contains only a part of the model",
    "tall_frame modal": "interface: a Target contains only a part of the model",
}
"""Cases without a loop over kernels, with the reason."""
TRIPPING = ("phillips_spencer_2012 b",)
"""Cases that exceed a limit within the first seconds."""


def of_rig(name: str) -> str:
    """Return a scenario that the shipped rig ``name`` can run."""
    scenarios = {"column_udp": "column_under_axial_load", "bench_small_udp": "sdof_by_iteration"}
    return scenarios.get(name, "chen_ricles_2010")


def cases() -> Iterator[str]:
    """Yield all scenarios and cases."""
    for name in files.shipped():
        yield name
        yield from (f"{name} {case}" for case in files.load(name).cases)


def loaded(words: str, *overrides: str) -> Scenario:
    """Load the scenario of ``name case``."""
    name, _, case = words.partition(" ")
    return files.load(name, overrides, case)
