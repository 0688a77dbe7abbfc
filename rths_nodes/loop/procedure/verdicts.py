"""A rung in one word: how it ended, whether that is valid, and whether it went as its rehearsal did."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rths_nodes.loop.procedure.records import RungRecord

OK = "ok"
DIFFERS = 0.1
"""Largest difference (rms over rms) of a rung that is called ok; where the ladder ends, a file of answers says."""
REHEARSAL = " to its rehearsal"
"""Behind the names of differences between a rung and its own rehearsal on a simulator."""


def largest(found: Mapping[str, float]) -> float:
    """The largest of the differences, to the own rehearsal where there was one, else to the rung before.

    0 where there are none, inf where one cannot be told.
    """
    own = [value for name, value in found.items() if name.endswith(REHEARSAL)]
    return max((math.inf if math.isnan(value) else value for value in own or found.values()), default=0.0)


def verdict(rung: RungRecord) -> str:
    """``ok``, ``differs``, ``not valid: 55 % bridged``, or how the rung ended where it did not finish."""
    if rung.outcome != "finished":
        return rung.outcome
    return rung.not_valid or ("differs" if largest(rung.differences) > DIFFERS else OK)
