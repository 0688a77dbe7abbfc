# SPDX-License-Identifier: Apache-2.0
"""Times that an integrator answered from outside takes for its steps, and what they mean in real time.

From the Measurement at which a step begins, its Target is not needed for what the ramp predicts of it and for what
the compensator waits for it; then it is bridged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import PATIENCE

ADVISED = 0.6
"""Share of a step that ``predictor_corrector`` predicts unless told otherwise."""


def judged(scenario: Scenario, predicted: int, took: Array) -> Iterator[str]:
    """Sentences on steps that ``took`` so long, s; the ramp predicts ``predicted`` samples of a step."""
    count, bridge, step = len(took), scenario.bridge, scenario.samples_per_step * scenario.dt
    yield f"a step takes {quantiles(took)}"
    in_time = (predicted + PATIENCE) * scenario.dt
    late, lost = (int(np.count_nonzero(took > limit)) for limit in (in_time, in_time + bridge.max_bridge))
    share, ramp = predicted / scenario.samples_per_step, "this ramp"
    if not share:
        share, ramp = ADVISED, "ramp.type = predictor_corrector"
    good = math.ceil(float(took.max()) / share / scenario.dt) * scenario.dt
    yield f"in real time {_ms(in_time)} of {_ms(step)} are left for it: {late} of {count} took longer"
    yield f"none does with {ramp} and steps of {_ms(good)} or more"
    if lost:
        then = "the rig pauses" if bridge.pauses else "the rig trips; with bridge.when_late = pause it slows down"
        yield f"caution: {lost} took longer even than bridge.max_bridge = {_ms(bridge.max_bridge)} lets it: {then}"


def quantiles(took: Array) -> str:
    """Median and tail of the times ``took`` (s), in words."""
    median, rare, longest = (_ms(value) for value in (np.median(took), np.percentile(took, 99.0), took.max()))
    return f"{median} (median), {rare} (99 %), {longest} (longest of {len(took)}), alone on this machine"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
