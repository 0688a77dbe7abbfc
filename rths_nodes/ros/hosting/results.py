# SPDX-License-Identifier: Apache-2.0
"""Result of a run on the node hosts, collected from the summaries of the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rths_nodes.core.data import Data, unflatten
from rths_nodes.loop import outcomes
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import LateData
from rths_nodes.ros.nodes.actuator import ActuatorNode
from rths_nodes.ros.nodes.monitor import unjudged_samples
from rths_nodes.ros.nodes.recorder import recording_gaps


@dataclass
class Result:
    state: State = State.IDLE
    reason: str = ""
    sample: int = 0
    late: LateData = field(default_factory=LateData)
    counted: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    exit_code: ExitCode = ExitCode.FAILED
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    judged: bool = True
    """False on a machine whose nodes do not count late samples."""
    begun: bool = False
    """True once all nodes have discovered each other and the rig may have moved."""

    @property
    def outcome(self) -> str:
        return self.exit_code.recorded

    @property
    def ending(self) -> str:
        reason = f": {' '.join(self.reason.split())}" if self.reason else ""
        doubt = self.late.not_valid(self.sample) if self.exit_code is ExitCode.NOT_VALID else ""
        if self.exit_code is ExitCode.FINISHED and not self.judged:
            return f"the test ended after {self.sample} samples; its validity is judged on the monitor's machine"
        return f"{self.exit_code.ending} after {self.sample} samples{f', {doubt}' if doubt else ''}{reason}"

    def blame(self, why: str) -> None:
        if why not in self.reason:
            self.reason = "; ".join(filter(None, (why, self.reason)))

    def judge(self, codes: Sequence[int]) -> None:
        """Set the exit code of the test from the exit ``codes`` of its nodes. Add a missing reason, and notes."""
        code = outcomes.of_nodes(codes, self.state, self.interrupted)
        self.exit_code = outcomes.valid(code, self.late, self.sample)
        if self.exit_code is ExitCode.FAILED and not self.reason:
            self.reason = f"the test did not end; its last state was {self.state.name} at sample {self.sample}"
        problems = (recording_gaps(self.section("recording")), unjudged_samples(self.numbers))
        self.notes += filter(None, (*problems, dropped_messages(self.numbers)))

    def take_state(self, rig: ActuatorNode) -> None:
        if rig.rig is not None:
            self.late = rig.rig.late(rig.rig.bridged)
            paced = rig.settings.clocked
            self.counted = self.late.counts if paced or self.late.bridged else ""
            machine = rig.rig.machine
            self.state, self.reason, self.sample = machine.state, machine.reason, rig.last_sample
            self.begun = rig.phase.begun

    def section(self, name: str) -> Data:
        return unflatten(self.numbers, name)


def dropped_messages(numbers: Mapping[str, float]) -> str:
    foreign: dict[tuple[str, str], float] = {}
    malformed, overflow = list[str](), list[str]()
    for name, count in numbers.items():
        kind, _, rest = name.partition(".")
        peer, _, further = rest.partition(".")
        if kind == "foreign":  # all subscribers of a topic count the same messages
            topic, _, sender = further.partition(".")
            foreign[topic, sender] = max(count, foreign.get((topic, sender), 0.0))
        elif kind == "malformed":
            malformed.append(f"{count:.0f} by {rest}")
        elif kind == "overflow":
            overflow.append(f"{count:.0f} from {peer} on {further}")
    counts = [f"{count:.0f} from {sender} on {topic}" for (topic, sender), count in sorted(foreign.items())]
    notes = {
        "foreign messages were dropped": counts,
        "malformed messages were dropped": malformed,
        "messages were lost because their receiver did not read them": overflow,
    }
    return "; ".join(f"{text}: {', '.join(rows)}" for text, rows in notes.items() if rows)
