"""Expected duration of tests: known in real time, tried out in lockstep."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.options import REALTIME
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario

TRIED_S = 0.2
"""Time for which a test is tried to learn its speed."""
WORTH = 100_000
"""Samples of tests that are worth it: fewer take a few seconds."""


def estimated_s(scenarios: Sequence[Scenario], pace: str = "", at_once: int = 1) -> float | None:
    """Estimate the time of tests, s, on the host embedded, ``at_once`` at a time; None if it is short or unknown.

    In lockstep the first one is tried on simulators of its own. One with a part outside of this process, be it a
    rig or a program, is never tried.
    """
    if pace == REALTIME:
        return sum(scenario.samples * scenario.dt for scenario in scenarios)
    samples = sum(scenario.samples for scenario in scenarios)
    if samples < WORTH:
        return None
    try:
        loop = Loop(Assembly(scenarios[0]).twin())
    except ConfigError:
        return None
    end = time.perf_counter() + TRIED_S
    outcome = loop.run(interrupted=lambda: time.perf_counter() > end)
    return float(samples * outcome.timing["loop"]["mean_s"] / at_once)
