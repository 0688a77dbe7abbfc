# SPDX-License-Identifier: Apache-2.0
"""Shipped scenarios with their cases, as ``name`` and ``name case``."""

from __future__ import annotations

from collections.abc import Iterator

from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

LEARNS = "updating: the copies of the specimen are updated outside the loop"
WITHOUT_KERNELS = {
    "column_under_axial_load": "port: ForceLoopPort is not a plain simulator",
    "learning_five_story": LEARNS,
    "learning_five_story at_once": LEARNS,
    "learning_five_story shadow": LEARNS,
    "tall_frame": "interface: a Target contains only a part of the model",
    "tall_frame craig_bampton": "interface: a Target contains only a part of the model",
    "tall_frame modal": "interface: a Target contains only a part of the model",
}
"""Those that have no loop over kernels, with the reason."""
TRIPPING = ("phillips_spencer_2012 b",)
"""Those in which a limit is broken within the first seconds."""


def of_rig(name: str) -> str:
    """The scenario that the shipped rig ``name`` can run."""
    others = {"column_udp": "column_under_axial_load", "bench_small_udp": "sdof_by_iteration"}
    return others.get(name, "chen_ricles_2010")


def cases() -> Iterator[str]:
    """All of them."""
    for name in files.shipped():
        yield name
        yield from (f"{name} {case}" for case in files.load(name).cases)


def loaded(words: str, *overrides: str) -> Scenario:
    """The scenario of ``name case``."""
    name, _, case = words.partition(" ")
    return files.load(name, overrides, case)
