# SPDX-License-Identifier: Apache-2.0
"""Host ``processes``: each node runs in its own process, monitored by the runner, which collects the result."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rclpy.context import Context
from rclpy.node import Node

from rths_nodes.core.data import Data, unflatten
from rths_nodes.core.wire import Codec, encode
from rths_nodes.loop import outcomes
from rths_nodes.loop.supervision.states import ENDED, State
from rths_nodes.loop.timing import LateData
from rths_nodes.ros import names
from rths_nodes.ros.hosting.node_processes import NodeDescription, Process, Processes, starting_words
from rths_nodes.ros.nodes.actuator import ActuatorNode
from rths_nodes.ros.nodes.monitor import unjudged_samples
from rths_nodes.ros.nodes.participation import UNDER_WAY, Membership
from rths_nodes.ros.nodes.recorder import recording_gaps
from rths_nodes.ros.transport.endpoints import message_class, quality
from rths_nodes.ros.transport.middleware import ros_context
from rths_nodes.ros.transport.topics import NodeTopics


@dataclass
class Result:
    state: State = State.IDLE
    reason: str = ""
    sample: int = 0
    late: LateData = field(default_factory=LateData)
    counted: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    exit_code: outcomes.ExitCode = outcomes.ExitCode.FAILED
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
        doubt = self.late.not_valid(self.sample) if self.exit_code is outcomes.ExitCode.NOT_VALID else ""
        if self.exit_code is outcomes.ExitCode.FINISHED and not self.judged:
            return f"the test ended after {self.sample} samples; its validity is judged on the monitor's machine"
        return f"{self.exit_code.ending} after {self.sample} samples{f', {doubt}' if doubt else ''}{reason}"

    def blame(self, why: str) -> None:
        if why not in self.reason:
            self.reason = "; ".join(filter(None, (why, self.reason)))

    def judge(self, codes: Sequence[int]) -> None:
        """Set the exit code of the test from the ``codes`` of its nodes. Add notes, and the reason if missing."""
        code = outcomes.of_nodes(codes, self.state, self.interrupted)
        self.exit_code = outcomes.valid(code, self.late, self.sample)
        if self.exit_code is outcomes.ExitCode.FAILED and not self.reason:
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


GRACE_S = 0.6
"""Time for the other nodes to report after a node has died, s."""
LOOK_S = 0.01


class Console(Node):
    """Console of the runner: receives state, progress and results of a test with the nodes ``descriptions``."""

    def __init__(self, context: Context, descriptions: Sequence[NodeDescription]) -> None:
        first = descriptions[0]
        silent = {"start_parameter_services": False, "enable_rosout": False}
        super().__init__("console", context=context, namespace=first.namespace, **silent)
        self._run_id = first.parameters["run_id"]
        self._topics = topics = NodeTopics(self)
        peers = [description.peer for description in descriptions]
        wanted = names.endpoints(names.NodeLocation(names.CONSOLE, f"/{first.namespace}"), peers)
        topics.open([endpoint for endpoint in wanted if not endpoint.publishes], Codec(0, 0, 0))
        self._settled = False
        self._membership = Membership(
            None, topics.join, lambda: topics.guards[names.TEST_STATE], lambda: self._settled, self._refuse
        )
        self._trip: Any = None
        self.result = Result()
        self.reported: set[str] = set()
        self.missing = dict.fromkeys(peers, "")
        """Nodes that are not ready, and their problems (empty if unknown)."""

    def listen(self) -> None:
        guards = self._topics.guards.values()
        for guard in guards:
            if not guard.complete:
                guard.look()
        if self._trip is None and all(guard.complete for guard in guards):
            trip = names.TOPICS["trip"]
            self._trip = self.create_publisher(message_class(trip.type), trip.name, quality(trip))
        for name in self._topics.inboxes:
            for values in self._topics.received(name):
                with suppress(ValueError):  # ignore a foreign message on this topic
                    self._receive(name, values)
        for state in self._membership.cleared():
            self._receive_state(state)

    def wait(self) -> None:
        self.listen()
        time.sleep(LOOK_S)

    def _receive(self, name: str, values: Data) -> None:
        result = self.result
        if name == "summary":
            self.reported.add(values["node"])
            result.numbers |= dict(zip(values["names"], values["values"], strict=True))
        elif name == names.TEST_STATE:
            if values["run_id"] == self._run_id and self._membership.counts(values):
                self._receive_state(values)
            else:
                self._topics.guards[name].drop()  # before the test, another node may have the name of a peer
        elif name == "node_status":
            if values["ready"]:
                self.missing.pop(values["node"], None)
            elif values["node"] in self.missing:
                self.missing[values["node"]] = values["problem"]  # a waiting node repeats its problem until ready
        else:
            result.sample = max(result.sample, values["sample"])

    def _receive_state(self, test_state: Data) -> None:
        state, result = State(test_state["state"]), self.result
        self._settled = self._settled or state >= State.ARMED
        result.state, result.reason = state, test_state["reason"]
        if state == State.ARMED:  # earlier messages belong to another test
            result.numbers.clear()
            self.reported.clear()
            self._topics.close_guards()
        result.sample = max(result.sample, test_state["sample"])
        result.begun = result.begun or state in UNDER_WAY or result.sample > 0

    def _refuse(self, reason: str) -> None:
        if names.ACTUATOR in self.missing:
            self.missing[names.ACTUATOR] = reason

    def trip(self, reason: str) -> None:
        """Trip the rig. Do nothing until all nodes are discovered, because the rig does not move before then."""
        if self._trip is not None:
            header = {"stamp": time.time_ns(), "run": self._topics.run.mark}
            self._trip.publish(encode("Trip", header | {"source": "runner", "reason": reason}))


def run(
    descriptions: Sequence[NodeDescription],
    progress: Callable[[int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    starting: Callable[[str], None] | None = None,
) -> Result:
    """Run the nodes as processes, and return the result. Raises ConfigError if nodes or ROS 2 do not start."""
    with Processes(descriptions) as processes, ros_context() as context:
        console = Console(context, descriptions)
        result, requested = console.result, False
        leader = next(process for process in processes.running if process.role == names.ACTUATOR)

        def idle() -> None:
            console.wait()
            if progress:
                progress(result.sample)
            if starting and result.state is State.IDLE:
                starting(starting_words(console.missing))

        try:
            while leader.popen.poll() is None and not processes.dead():
                idle()
                leader.check()  # the rig itself detects other silent nodes
                result.interrupted = result.interrupted or bool(interrupted and interrupted())
                if result.interrupted and not requested and leader.handles_signals:
                    requested = True
                    processes.send(signal.SIGINT, names.ACTUATOR)
            died = [process for process in processes.dead() if process.popen.returncode not in outcomes.IN_ORDER]
            if died:
                _end_after(died[0], processes, console, idle)
            result.judge(exit_codes(processes, console, result, idle, died))
            if result.interrupted and not (result.begun or result.reason):
                result.reason = "interrupted before the test began"
        finally:
            console.destroy_node()
        return result


def _end_after(died: Process, processes: Processes, console: Console, idle: Callable[[], None]) -> None:
    if died.popen.returncode == outcomes.ExitCode.REFUSED and console.result.state not in UNDER_WAY:
        processes.send(signal.SIGTERM)
        return
    console.trip(died.death)
    if died.role == names.ACTUATOR:  # no rig to trip, but the recorder needs the reason
        processes.send(signal.SIGTERM)
    if not processes.wait(GRACE_S, (names.RECORDER,), idle):
        processes.send(signal.SIGTERM)
        processes.wait(0.2, (names.RECORDER,), idle)
    stopping = [process.role for process in processes.running if names.axis_of(process.role)]
    processes.kill(names.RECORDER, names.ACTUATOR, *stopping)  # a safe stop may still be in progress
    processes.send(signal.SIGTERM, names.RECORDER)


def exit_codes(
    processes: Processes,
    console: Console,
    result: Result,
    idle: Callable[[], None],
    died: Sequence[Process] = (),
) -> list[int]:
    """Wait until all processes have exited. Complete ``result`` and return the exit codes that determine it."""
    if not (died or (result.begun and result.state in ENDED)):  # otherwise the nodes know the outcome
        processes.send(signal.SIGTERM)
    result.notes += processes.see_out(idle)
    console.listen()
    result.numbers |= console.result.numbers
    # if a node has died, the runner has ended the others: their exit codes do not count
    counted = [process for process in processes.counted(console.reported) if not (died and process.ended_by_us)]
    failed = [process for process in counted if process.popen.returncode not in outcomes.IN_ORDER]
    if died and result.state is State.HELD and not result.interrupted:
        result.reason = ""  # the runner itself has interrupted the nodes
    for process in died[:1] or reversed(failed):  # the reason begins with the first failure
        result.blame(processes.why(process))
    return [process.popen.returncode for process in counted]
