"""What a run on the node hosts comes to, gathered from the nodes' summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rths_nodes.core.flat_names import unflatten
from rths_nodes.loop.supervision.states import ENDED, State
from rths_nodes.ros.nodes.findings import doubts, dropped, unseen


@dataclass
class Result:
    """How a test ended: last state and reason, last sample, final numbers, exit code, and what it ran on."""

    state: State = State.IDLE
    reason: str = ""
    sample: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    exit_code: int = 0
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def outcome(self) -> str:
        """``finished``, ``held``, ``tripped``, ``refused`` or ``failed``."""
        if self.exit_code == 2:
            return "refused"
        if self.exit_code == 1 or self.state not in ENDED:
            return "failed"
        return self.state.name.lower()

    def add(self, numbers: Mapping[str, float]) -> None:
        """The summary of one node."""
        self.numbers |= numbers

    def judge(self, codes: Sequence[int]) -> None:
        """The exit code of the whole test from those of its nodes: failed, refused, tripped, interrupted."""
        if any(code < 0 or code == 1 for code in codes):
            self.exit_code = 1
        else:
            self.exit_code = max(codes, default=0) or (130 if self.interrupted else 0)
        found = (doubts(self.section("recording")), unseen(self.numbers), dropped(self.numbers))
        self.notes += filter(None, found)

    def section(self, name: str) -> dict[str, Any]:
        """``metrics``, ``timing`` or ``compensator``, nested again."""
        return unflatten(self.numbers, name)
