"""What a run on the node hosts comes to, gathered from the nodes' summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rths_nodes import wire
from rths_nodes.safety import ENDED, State


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
        return wire.nested(self.numbers, name)


def doubts(recording: Mapping[str, Mapping[str, float]]) -> str:
    """What the user is told of a recording with gaps (by topic) and silent nodes; empty when it is complete."""
    gaps = [f"{count:.0f} in {name}" for name, count in recording.get("gaps", {}).items() if count]
    silent = recording.get("silent", {})
    words = [f"gaps: {', '.join(gaps)}"] if gaps else []
    words += [f"no last words of: {', '.join(silent)}"] if silent else []
    return f"the recording may not be complete: {'; '.join(words)}" if words else ""


def unseen(numbers: Mapping[str, float]) -> str:
    """What the user is told of samples at the end that the monitor did not see, by its Summary; empty: none."""
    count = numbers.get("unseen.samples", 0.0)
    return f"the monitor has not seen the last {count:.0f} samples: the indices are without them" if count else ""


def dropped(numbers: Mapping[str, float]) -> str:
    """What the user is told of messages that nodes have dropped, by the ``numbers`` of Summaries; empty: none."""
    foreign: dict[tuple[str, str], float] = {}
    malformed: list[str] = []
    for name, count in numbers.items():
        kind, _, rest = name.partition(".")
        if kind == "foreign":  # the nodes that listen to a topic count the same messages
            _, topic, sender = rest.split(".")
            foreign[topic, sender] = max(count, foreign.get((topic, sender), 0.0))
        elif kind == "malformed":
            malformed.append(f"{count:.0f} by {rest}")
    words = [f"{count:.0f} of {sender} on {topic}" for (topic, sender), count in sorted(foreign.items())]
    found = [f"foreign messages were dropped: {', '.join(words)}"] if words else []
    return "; ".join(found + ([f"malformed messages were dropped: {', '.join(malformed)}"] if malformed else []))
