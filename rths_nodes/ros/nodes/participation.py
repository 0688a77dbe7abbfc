# SPDX-License-Identifier: Apache-2.0
"""Participation of a node in a test: handshake, phases, ordered Measurements, clocks, warm-up, and shutdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from rths_nodes.core.data import Data, flatten
from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.core.wire import Codec, decode
from rths_nodes.loop.interrupts import SAME_REQUEST_S
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.realtime import Starving
from rths_nodes.loop.supervision.states import ENDED, State
from rths_nodes.loop.timing import Exchange, clock_numbers
from rths_nodes.ros import names
from rths_nodes.ros.names import TEST_STATE, NodeLocation
from rths_nodes.ros.nodes.settings import NodeSettings
from rths_nodes.ros.transport.endpoints import PublisherGuard
from rths_nodes.ros.transport.rclpy_private import Logger
from rths_nodes.ros.transport.topics import DeferredSends, NodeTopics


@dataclass(frozen=True)
class NodeContext:
    location: NodeLocation
    phase: PhaseMachine
    topics: NodeTopics
    deferred: DeferredSends
    logger: Logger
    clock: Clock = SYSTEM_CLOCK


class Phase(IntEnum):
    """Phases of a node, in order, independent of the lifecycle's active state."""

    UNCONFIGURED = 0
    CONFIGURED = 1
    """Stage and endpoints exist, but the node does not participate yet."""
    MATCHING = 2
    READY = 3
    IN_TEST = 4
    """The rig may move."""
    ENDED = 5
    REPORTED = 6
    """The Summary is published, but messages from other nodes may still be needed."""
    GONE = 7
    """The node has finished, and its host may close it."""


_SUCCESSORS = {
    Phase.UNCONFIGURED: (Phase.CONFIGURED,),
    Phase.CONFIGURED: (Phase.UNCONFIGURED, Phase.MATCHING),
    Phase.MATCHING: (Phase.UNCONFIGURED, Phase.READY, Phase.IN_TEST, Phase.ENDED, Phase.REPORTED),
    Phase.READY: (Phase.UNCONFIGURED, Phase.IN_TEST, Phase.ENDED, Phase.REPORTED),
    Phase.IN_TEST: (Phase.UNCONFIGURED, Phase.ENDED, Phase.REPORTED),
    Phase.ENDED: (Phase.UNCONFIGURED, Phase.REPORTED),
    Phase.REPORTED: (Phase.UNCONFIGURED,),
    Phase.GONE: (),
}
"""Valid next phases of each phase, in addition to GONE. A test can end before the rig moves."""

UNDER_WAY = (State.ARMED, State.RUNNING, State.STOPPING)
"""States of a test in which the rig may move."""


@dataclass(frozen=True)
class StateOfTest:
    state: State = State.IDLE
    sample: int = 0
    reason: str = ""


class PhaseMachine:
    """Holds the phase of a node, and raises RuntimeError for an invalid transition.

    ``active`` is true in the active state of the lifecycle. ``begun`` is true if the rig may have moved. ``note``
    is information for the user. ``on_ended`` is called at the end of the test. ``exit_code`` and ``problem`` (the
    reason, or an empty string) describe the end of the node. A ``silent`` end is not published.
    """

    def __init__(self, on_ended: Callable[[], None] = lambda: None) -> None:
        self._on_ended = on_ended
        self.now = Phase.UNCONFIGURED
        self.gone = False
        self.active = False
        self.ended = False
        self.begun = False
        self.test = StateOfTest()
        self.note = ""
        self.configure()

    def to(self, phase: Phase) -> None:
        if phase is Phase.GONE:
            self.gone = True
        elif phase not in _SUCCESSORS[self.now]:
            raise RuntimeError(f"phase {self.now.name} -> {phase.name}: no such transition")
        self.now = phase

    def configure(self) -> None:
        self.blame(ExitCode.FINISHED, "")

    def clean_up(self) -> None:
        if self.now not in (Phase.UNCONFIGURED, Phase.GONE):
            self.to(Phase.UNCONFIGURED)
        self.test, self.ended, self.begun = StateOfTest(), False, False

    def activate(self, active: bool) -> None:
        self.active = active
        if active and self.now is Phase.CONFIGURED:
            self.to(Phase.MATCHING)

    def follow(self, test: StateOfTest) -> None:
        had_ended = self.ended
        self.test = test
        self.ended = test.state in ENDED
        if self.ended and not had_ended:
            self._on_ended()
        self.begun = self.begun or test.state in UNDER_WAY or test.sample > 0
        if self.ended and Phase.MATCHING <= self.now < Phase.ENDED:
            self.to(Phase.ENDED)
        elif test.state in UNDER_WAY and Phase.MATCHING <= self.now < Phase.IN_TEST:
            self.to(Phase.IN_TEST)

    def report(self) -> None:
        if Phase.MATCHING <= self.now < Phase.REPORTED:
            self.to(Phase.REPORTED)

    def end(self, exit_code: int, problem: str, silent: bool = False) -> None:
        self.blame(exit_code, problem, silent)
        self.to(Phase.GONE)

    def blame(self, exit_code: int, problem: str, silent: bool = False) -> None:
        self.exit_code, self.problem, self.silent = exit_code, problem, silent

    def fail(self, problem: str) -> None:
        in_order = self.exit_code in (ExitCode.FINISHED, ExitCode.HELD)
        self.blame(ExitCode.FAILED if in_order else self.exit_code, problem)

    def remark(self, note: str) -> None:
        self.note = note

    @property
    def under_way(self) -> bool:
        return self.test.state in UNDER_WAY


PATIENCE_NS = 500_000_000
"""Longest wait of an interrupted node for the end of the test, from the last Measurement on, ns."""
SAME_REQUEST_NS = round(SAME_REQUEST_S * SECOND)
"""Time within which signals count as one request, ns, because a terminal and launch both forward Ctrl-C."""
LEADER_LOST_NS = 1_000_000_000
"""Time after the departure of the actuator node within which its last messages may still arrive, ns."""
OVERDUE_NS = 6_000_000_000
"""Time from the end of a test until the actuator node is considered gone, ns.

The actuator node leaves within 5 s (``Completion``). The middleware keeps the participant for another 20 s if the
datagram that announces the departure is lost."""


class Shutdown:
    """Ends the participation of a node. ``final()`` returns the last sample number and the results."""

    def __init__(
        self,
        context: NodeContext,
        final: Callable[[], tuple[int, Mapping[str, float]]],
        on_reported: Callable[[], object] = lambda: None,
    ) -> None:
        self._place, self._phase = context.location, context.phase
        self._topics, self._deferred = context.topics, context.deferred
        self._final, self._on_reported = final, on_reported
        self._now = context.clock.monotonic_ns
        self._asked_at = self._patient_from = self.exit_asked_at = self._led_until = self._ended_at = 0
        self.interrupted = False
        self.leader_lost = False
        """True once the actuator node has left. The state of the test is then unknown."""
        self.summary: dict[str, float] = {}
        self._counted: dict[str, int] | None = None

    def interrupt(self) -> None:
        """Handle a stop signal: wait a limited time for the end of the test. A second signal ends the wait."""
        now = self._now()
        if self._asked_at and now - self._asked_at < SAME_REQUEST_NS:
            return
        if self._asked_at or self._phase.ended:  # a second signal: do not wait any longer
            self.exit_asked_at = self.exit_asked_at or now
        self._asked_at = self._patient_from = now
        self.interrupted = True

    @property
    def interrupted_for(self) -> int:
        """Time since the last stop request, ns, or 0 without a request."""
        return self._now() - self._asked_at if self._asked_at else 0

    @property
    def exit_now(self) -> bool:
        return bool(self.exit_asked_at)

    def be_patient(self) -> None:
        self._patient_from = self._now()

    @property
    def patience_over(self) -> bool:
        return self.interrupted and self._now() - self._patient_from > PATIENCE_NS

    def look_for_leader(self) -> None:
        guard, now = self._topics.guards.get("test_state"), self._now()
        if guard is None:
            return
        self._ended_at = (self._ended_at or now) if self._phase.ended else 0
        if self._phase.ended and now - self._ended_at > OVERDUE_NS:
            self.lose_leader()
        if not self._phase.under_way:
            self._led_until = 0
        elif guard.subscription.get_publisher_count():
            self._led_until = now
        elif self._led_until and now - self._led_until > LEADER_LOST_NS and not self.leader_lost:
            self.lose_leader(ExitCode.FAILED, "the actuator node has left during the test")

    def lose_leader(self, exit_code: int = ExitCode.FINISHED, problem: str = "") -> None:
        self.leader_lost = True
        if problem and not self._phase.problem:
            self._phase.blame(exit_code, problem)

    @property
    def abandoned(self) -> bool:
        """True if the actuator node has left, or if the test ended before the rig could move."""
        if self.leader_lost or (self._phase.ended and not self._phase.begun):
            return True
        return (self._phase.ended or self.interrupted) and self._topics.guards["test_state"].gone

    def leave(self, receive_state: Callable[[], None]) -> None:
        if self.abandoned or self.exit_now or (self.patience_over and not self._phase.ended):
            if not self.reported:
                self.report()
            receive_state()  # a finished test can still trip
            self._phase.to(Phase.GONE)

    @property
    def reported(self) -> bool:
        return self._counted is not None and self._counted == self._topics.stream_counts

    def report(self) -> None:
        self.publish(*self._final())

    def publish(self, sample: int, numbers: Mapping[str, float]) -> None:
        self._deferred.send()
        self._counted = self._topics.stream_counts
        # stream names of an axis node are relative to the rig
        below = f"{self._place.axis}/" if self._place.axis else ""
        sent = {f"{below}{stream}": count for stream, count in self._counted.items()}
        self.summary = dict(numbers) | flatten(sent, "sent") | self._topics.dropped(self._place.peer)
        values = [float(value) for value in self.summary.values()]
        self._topics.publish(
            "summary",
            {"node": self._place.peer, "sample": max(sample, 0), "names": list(self.summary), "values": values},
        )
        self._phase.report()
        self._on_reported()


class MeasurementSequence:
    """Receives Measurements in order, until one is missing or malformed. ``on_lost`` receives the reason."""

    def __init__(self, topics: NodeTopics, shutdown: Shutdown, on_lost: Callable[[str], None]) -> None:
        self._topics, self._shutdown, self._on_lost = topics, shutdown, on_lost
        self.reset()

    def reset(self) -> None:
        self.expected = 0
        self.handed_over = False
        """True if the actuator node is in this process and passes Measurements directly."""
        self.broken = False

    def next(self) -> tuple[Measurement, int] | None:
        topics = self._topics
        while (measurement := topics.receive("measurement", topics.codec.unpack_measurement)) is not None:
            sample = measurement[0].sample
            if sample == self.expected and not self.broken:
                if sample == 0:
                    inbox = topics.opened["measurement"]
                    self.handed_over = inbox.by_hand and topics.inboxes["measurement"] is inbox
                self.expected += 1
                if self._shutdown.interrupted:
                    self._shutdown.be_patient()
                return measurement
            if sample > self.expected:
                self.lose(f"received Measurement {sample}, expected Measurement {self.expected}")
        return None

    def lose(self, reason: str) -> None:
        if not self.broken:
            self.broken = True
            self._on_lost(reason)


class WarmUp:
    """Keeps caches warm. Calls ``twin`` (``step_warm_up``) once per integration step of ``substeps`` samples."""

    def __init__(
        self,
        context: NodeContext,
        measurements: MeasurementSequence,
        twin: Callable[[Codec], object] | None = None,
        substeps: int = 1,
    ) -> None:
        self._context, self._measurements = context, measurements
        self.twin, self._substeps = twin, substeps
        self._done = 0

    @property
    def due(self) -> bool:
        if self.twin is None or self._measurements.expected % self._substeps:
            return False
        return self._measurements.expected > self._done

    def __call__(self) -> None:
        assert self.twin is not None
        self._done = self._measurements.expected
        try:
            self.twin(self._context.topics.codec)
        except Starving:
            raise
        except Exception as error:  # a warm-up only improves speed, so a failure does not stop the rig
            self.twin = None
            peer = self._context.location.peer
            self._context.phase.remark(f"{peer}: the warm-up failed ({type(error).__name__}: {error})")


PROGRESS_SAMPLES = 64
"""Number of samples between Progress messages in lockstep, well below LOCKSTEP_WINDOW."""


class ProgressReports:
    def __init__(self, context: NodeContext, lockstep: bool, period: float) -> None:
        self._node, self._topics, self._now = context.location.peer, context.topics, context.clock.monotonic_ns
        self._lockstep = lockstep
        self._period = round(period * 1e9)
        self._told_of, self._due = -1, 0

    def publish_if_due(self, sample: int) -> None:
        now = self._now()
        if sample - self._told_of < PROGRESS_SAMPLES if self._lockstep else now < self._due:
            return
        self._told_of, self._due = sample, now + self._period
        self.publish(sample)

    def publish(self, sample: int, done: bool = False) -> None:
        values = {"node": self._node, "sample": max(sample, 0)}
        self._topics.publish("progress", values | ({"done": True} if done else {}))


QUESTION, ANSWER = "clock_question", "clock_answer"
QUESTIONS = 16
"""Number of clock requests before the test, and again after it. The fastest answer gives the clock offset."""
UNANSWERED_NS = 100_000_000


def _received_with_age(topics: NodeTopics, topic: str) -> Iterator[tuple[Data, int]]:
    inbox = topics.inboxes[topic]
    while (data := inbox.take()) is not None:
        waited = inbox.waited()
        try:
            yield decode(names.TOPICS[topic].message, data), waited
        except ValueError:
            topics.drop_malformed()


def answer_questions(context: NodeContext) -> None:
    topics, now_ns = context.topics, context.clock.time_ns
    for question, waited in _received_with_age(topics, QUESTION) if QUESTION in topics.inboxes else ():
        came = now_ns() - waited
        ahead = (came - question["stamp"]) / SECOND
        now = now_ns()
        answer = {"node": context.location.peer, "number": question["number"], "ahead": ahead}
        topics.publish(ANSWER, answer | {"stamp": now, "held": (now - came) / SECOND})


class ClockQuestions:
    """Requests the time from ``peers`` on other machines. Each request addresses all peers."""

    def __init__(self, context: NodeContext, peers: Sequence[str]) -> None:
        self._node, self._peers, self._topics = context.location.peer, tuple(peers), context.topics
        self._now, self._elapsed = context.clock.time_ns, context.clock.monotonic_ns
        self.before: dict[str, list[Exchange]] = {peer: [] for peer in peers}
        self._after: dict[str, list[Exchange]] = {peer: [] for peer in peers}
        self._asked = self._asked_at = 0
        self._silent: set[str] = set()

    def done_before(self) -> bool:
        return self._ask(self.before, QUESTIONS)

    def done_after(self) -> bool:
        return self._ask(self._after, 2 * QUESTIONS)

    def _ask(self, exchanges: dict[str, list[Exchange]], last: int) -> bool:
        if not self._peers:
            return True
        self._receive(exchanges)
        if self._silent and self._elapsed() - self._asked_at < UNANSWERED_NS:
            return False
        if self._asked >= last:
            return True
        self._asked += 1
        self._silent = set(self._peers)
        self._asked_at = self._elapsed()
        self._topics.publish(QUESTION, {"node": self._node, "number": self._asked, "stamp": self._now()})
        return False

    def _receive(self, exchanges: dict[str, list[Exchange]]) -> None:
        for answer, waited in _received_with_age(self._topics, ANSWER):
            peer = answer["node"]
            if answer["number"] == self._asked and peer in self._silent:
                self._silent.discard(peer)
                round_trip = (self._elapsed() - waited - self._asked_at) / SECOND - answer["held"]
                if round_trip > 0.0:  # otherwise a clock was set while a message waited
                    exchanges[peer].append(Exchange(answer["ahead"], round_trip))

    @property
    def silent(self) -> list[str]:
        return [peer for peer, exchanges in self.before.items() if not exchanges]

    def numbers(self) -> dict[str, dict[str, float]]:
        return {peer: clock_numbers(self.before[peer], self._after[peer]) for peer in self._peers}


COMPLAINT_NS = 3_000_000_000
"""Period of messages about undiscovered peers, ns."""
DUPLICATE_NS = 2_000_000_000
"""Time for which duplicate names are tolerated before a test, ns. Nodes of the previous test may be leaving."""
DUPLICATES_EVERY_NS = 100_000_000
"""Period of the search for duplicate peers while another peer is missing, ns. A query takes 0.2 ms."""
LIVE_NS = 1 * SECOND
"""Largest age of a live message from the actuator node once the test is ARMED, ns."""
OLD_NS = 60 * SECOND
"""Largest age of the state of an active or ended test when this node starts, ns. Older states are ignored."""
_STATES = frozenset(map(int, State))


class Membership:
    """Decides whether TestStates belong to this run. A node may join another run before the test.

    ``join(mark)`` joins the other run, and raises ConfigError for an invalid mark. The other run must have the
    hash ``scenario_hash``, unless this is None. Once ``settled()`` is true, other runs are ignored.

    Replayed messages have older stamps than messages of the actuator node. Old messages, and active or
    ended tests of other runs, are accepted only if ``guard()`` is certain of their sender. A message that arrives
    before the name of its publisher is kept for :meth:`cleared`.
    """

    def __init__(
        self,
        scenario_hash: str | None,
        join: Callable[[str], None],
        guard: Callable[[], PublisherGuard],
        settled: Callable[[], bool],
        on_refused: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._hash, self._join = scenario_hash, join
        self._guard, self._settled, self._on_refused = guard, settled, on_refused
        self._now = clock.time_ns
        self._began = self._now()
        self._joined_at = 0
        self._in_doubt: tuple[Data, int] | None = None

    def cleared(self) -> list[Data]:
        """Return the kept TestState in a list if its publisher is now accepted, otherwise an empty list."""
        if self._in_doubt is None or not self._guard().certain:
            return []
        state, publishers = self._in_doubt
        self._in_doubt = None
        return [state] if self._guard().count >= publishers and self.counts(state) else []

    def _certain(self, state: Data) -> bool:
        if self._guard().certain:
            return True
        if publishers := self._guard().doubtful:
            self._in_doubt = state, publishers
        return False

    def counts(self, values: Data) -> bool:
        self._in_doubt = None
        state, stamp, mark = values["state"], values["stamp"], self._guard().run.mark
        if state not in _STATES:
            return False
        if values["run"] and values["run"] == mark:
            live = abs(self._now() - stamp) <= LIVE_NS
            return state < State.ARMED or live or self._certain(values)
        if self._settled() or stamp < self._joined_at:
            return False
        if state == State.IDLE and not mark:
            return self._certain(values)  # the test is refused, perhaps because this node belongs to another run
        if self._hash not in (None, values["scenario_hash"]):
            return False
        if state > State.ARMED and (stamp < self._began - OLD_NS or not self._certain(values)):
            return False
        try:
            self._join(values["run"])
        except ConfigError as error:
            self._on_refused(f"TestState of the actuator node: {error}")
            return False
        self._joined_at = stamp
        return True


class Handshake:
    """Discovers the peers, publishes NodeStatus and follows TestState.

    ``prepare()`` is called before the node reports ready.
    """

    def __init__(
        self,
        context: NodeContext,
        settings: NodeSettings,
        state_names: Sequence[str],
        prepare: Callable[[], None],
        on_refused: Callable[[str], None],
        own_missing: Callable[[], str] = str,
    ) -> None:
        self._topics, self._phase = topics, phase = context.topics, context.phase
        self._logger, self._now = context.logger, context.clock.monotonic_ns
        self._peers = context.location.full_names(settings.peers)
        self._facts, self._patience = settings.facts() | {"state_names": state_names}, settings.patience
        self._prepare, self._on_refused, self._own_missing = prepare, on_refused, own_missing
        self._seen_at = 0
        """Time at which this node became active or last detected the actuator node, ns."""
        self._complain_at = self._duplicate_since = self._next_duplicates = 0
        self._same_versions = False
        self._membership = Membership(
            settings.hash,
            self._join,
            lambda: topics.guards[TEST_STATE],
            lambda: phase.under_way or phase.ended,
            on_refused,
            context.clock,
        )

    def begin(self) -> None:
        self._seen_at = self._now()
        self._complain_at = self._seen_at + COMPLAINT_NS
        if self._phase.now is Phase.READY:  # the node was inactive before
            self.publish()

    def look(self) -> None:
        if self._phase.now is Phase.MATCHING:
            self._match()
        elif self._phase.now is Phase.READY:
            self._topics.lines.call()
            self._wait_for_the_test()
        self.receive_state()
        if self._phase.now is Phase.MATCHING:
            self._topics.lines.answer()  # streams have no messages yet
        else:
            self._topics.look()
        self._topics.name_publishers()

    def _match(self) -> None:
        unknown_run = "" if self._topics.run.mark else f"the run in {TEST_STATE} from the actuator node"
        missing = self._topics.missing() or unknown_run or self._own_missing()
        now = self._now()
        if not missing or now >= self._next_duplicates:
            self._next_duplicates = now + DUPLICATES_EVERY_NS
            if self.duplicated():
                return
        if missing:
            self._same_versions = False
            if now > self._complain_at:
                self._complain_at = now + COMPLAINT_NS
                self._logger.info(f"waits for {missing}")
                self.publish(f"waits for {missing}")
                self._check_versions()
            self._give_up_after(self._patience, missing)
            return
        if not self._same_versions and self._check_versions():
            return
        self._same_versions = True
        if self._topics.lines.call():
            return
        self._prepare()
        self._logger.debug(f"ready: discovered {', '.join(self._peers)}")
        self._phase.to(Phase.READY)
        self.publish()

    def _wait_for_the_test(self) -> None:
        if self._patience is None:
            return
        if self._topics.guards[TEST_STATE].subscription.get_publisher_count():
            self._seen_at = self._now()
        self._give_up_after(self._patience, "the actuator node, which has left")

    def _give_up_after(self, seconds: float | None, missing: str) -> None:
        if seconds is not None and self._now() - self._seen_at > seconds * SECOND:
            self._phase.blame(ExitCode.FAILED, f"not ready within {seconds:g} s: waits for {missing}")
            self.publish()
            self._phase.to(Phase.GONE)

    def duplicated(self) -> bool:
        """Return True while several nodes have the name of one peer.

        The test is refused if a name is duplicated for longer than ``DUPLICATE_NS``.
        """
        duplicates, now = self._topics.duplicate_names(self._peers), self._now()
        self._duplicate_since = (self._duplicate_since or now) if duplicates else 0
        if duplicates and now - self._duplicate_since > DUPLICATE_NS:
            self._on_refused(f"{duplicates}; every rig needs its own namespace or ROS_DOMAIN_ID")
        return bool(duplicates)

    def _check_versions(self) -> bool:
        if versions := self._topics.other_versions():
            self._on_refused(versions)
        return bool(versions)

    def receive_state(self) -> None:
        if TEST_STATE not in self._topics.inboxes:
            return
        for state in (*self._topics.received(TEST_STATE, self._membership.counts), *self._membership.cleared()):
            test = StateOfTest(State(state["state"]), state["sample"], state["reason"])
            self._phase.follow(test)
            self._logger.debug(f"the test is {test.state.name} at sample {test.sample}")
            if test.state == State.IDLE and test.reason:
                self._phase.end(ExitCode.REFUSED, self._phase.problem)
            if test.state == State.ARMED:
                self._topics.close_guards()
                self._logger.debug(f"incoming streams: {self._topics.lines.way}")

    def _join(self, mark: str) -> None:
        self._topics.join(mark)
        self._logger.debug(f"joined the run {mark}")
        self.publish()

    def publish(self, problem: str = "") -> None:
        ready = self._phase.active and Phase.READY <= self._phase.now < Phase.GONE
        self._topics.publish(
            "node_status", self._facts | {"ready": ready, "problem": problem or self._phase.problem}
        )
