# SPDX-License-Identifier: Apache-2.0
"""Round trips of the loop that a recording tells, and the depth that its hops need."""

from __future__ import annotations

import math
from typing import NamedTuple

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.options import REALTIME
from rths_nodes.loop.pacing import ANSWERED
from rths_nodes.recording.run import Run

SAMPLES = 1000
"""So many at least: of fewer 99.9 % are all."""


class RoundTrips(NamedTuple):
    """Time from a Measurement to the Command that answers it: of 99.9 % of the samples, and the longest, s."""

    p999: float
    longest: float

    def depth(self, dt: float) -> int:
        """Return the ``hops.depth`` with which 99.9 % of them are in time, at a servo period of ``dt`` s."""
        return max(0, math.ceil(self.p999 / dt - ANSWERED))


def of_recording(run: Run) -> RoundTrips:
    """Return the round trips of a test in real time. Raises ConfigError for another one, and for a short one."""
    pace = run.information.get("pace", "")
    if pace != REALTIME:
        raise ConfigError(
            f"pace = {pace!r}: must be {REALTIME}: nobody is waited for in it, so hops can be measured"
        )
    if len(run.time) < SAMPLES or "loop" not in run.timing:
        raise ConfigError(
            f"{len(run.time)} samples: must be >= {SAMPLES}, to tell the longest 0.1 % of their ways"
        )
    return RoundTrips(run.timing["loop"]["p999_s"], run.timing["loop"]["max_s"])
