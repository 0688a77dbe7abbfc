# SPDX-License-Identifier: Apache-2.0
"""The request to stop a test before its end."""

from __future__ import annotations

from dataclasses import dataclass

from rths_nodes.loop.supervision.states import State


@dataclass(frozen=True)
class StopRequest:
    """``reason`` says who asks for the stop and why; the test ends as ``end``, HELD or TRIPPED.

    The stop begins at ``sample``, or with the next sample where that is past.
    """

    reason: str
    sample: int = 0
    end: State = State.TRIPPED

    def due(self, sample: int) -> bool:
        """True when ``sample`` belongs to the stop."""
        return sample >= self.sample
