# SPDX-License-Identifier: Apache-2.0
"""Expected duration of tests: known in real time, tried out in lockstep."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.compiled.native import loop_over_kernels
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.options import REALTIME
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario

TRIED_S = 0.2
"""Duration of a trial, s."""
WORTH = 100_000
"""Samples from which a trial pays off: fewer take a few seconds."""


def estimated_s(scenarios: Sequence[Scenario], pace: str = "", at_once: int = 1) -> float | None:
    """Estimate the time of tests, s, on the host embedded, ``at_once`` at a time; None if it is short or unknown.

    In lockstep the first one is tried.
    """
    if pace == REALTIME:
        return sum(scenario.samples * scenario.dt for scenario in scenarios)
    found = of_samples(scenarios[0], sum(scenario.samples for scenario in scenarios))
    return None if found is None else found / at_once


def of_samples(scenario: Scenario, samples: float) -> float | None:
    """Estimate the time of ``samples`` of tests like ``scenario``, s; None if it is short or unknown.

    The trial uses simulators of its own; tests with external parts (a rig or a program) are never tried.
    """
    if samples < WORTH:
        return None
    try:
        stages = Loop(Assembly(scenario).twin())
    except ConfigError:
        return None
    found = loop_over_kernels(stages, compiled=False)
    loop = stages if isinstance(found, str) else found
    end = time.perf_counter() + TRIED_S
    outcome = loop.run(interrupted=lambda: time.perf_counter() > end)
    return float(samples * outcome.timing["loop"]["mean_s"])
