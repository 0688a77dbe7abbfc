# SPDX-License-Identifier: Apache-2.0
"""Handshake: membership in a run, discovery of participants, and the state of the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.names import TEST_STATE
from rths_nodes.ros.nodes.participation import NodeContext, Phase, StateOfTest
from rths_nodes.ros.nodes.settings import NodeSettings
from rths_nodes.ros.transport.peers import PublisherGuard

COMPLAINT_NS = 3_000_000_000
"""Period of messages about undiscovered peers, ns."""
DUPLICATE_NS = 2_000_000_000
"""Time for which duplicate names are tolerated before a test, ns. Nodes of the previous test may be leaving."""
DUPLICATES_EVERY_NS = 100_000_000
"""Period of searching for duplicate peers while another peer is missing, ns. A query takes 0.2 ms."""
LIVE_NS = 1 * SECOND
"""Largest age of a live message from the actuator node once the test is ARMED, ns."""
OLD_NS = 60 * SECOND
"""Largest age of the state of an active or ended test when this node starts, ns. Older states are ignored."""
_STATES = frozenset(map(int, State))


class Membership:
    """Decides whether TestStates belong to this run. Before the test, a node may join another run.

    ``join(mark)`` joins the other run, and raises ConfigError for an invalid mark. The other run must have the
    hash ``scenario_hash``, unless this is None. Once ``settled()`` is true, other runs are ignored.

    Replayed messages have older stamps than messages of the actuator node. If ``guard()`` is not certain that the
    actuator node has sent a message, the node joins no active or ended test and ignores an old message. A message
    that arrives before the name of its publisher is kept for :meth:`cleared`.
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

    def counts(self, state: Data) -> bool:
        self._in_doubt = None
        return self._counts(state)

    def cleared(self) -> list[Data]:
        """Return the kept TestState in a list if its publisher is now accepted; otherwise an empty list."""
        if self._in_doubt is None or not self._guard().certain:
            return []
        state, publishers = self._in_doubt
        self._in_doubt = None
        return [state] if self._guard().count >= publishers and self._counts(state) else []

    def _certain(self, state: Data) -> bool:
        if self._guard().certain:
            return True
        if publishers := self._guard().doubtful:
            self._in_doubt = state, publishers
        return False

    def _counts(self, values: Data) -> bool:
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
    """Discovers the peers, publishes NodeStatus and follows TestState; calls ``prepare()`` before it is ready."""

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
        if self._phase.now is Phase.READY:  # active again
            self.publish()

    def look(self) -> None:
        if self._phase.now is Phase.MATCHING:
            self._match()
        elif self._phase.now is Phase.READY:
            self._topics.lines.call()
            self._wait_for_the_test()
        self.receive_state()
        if self._phase.now is Phase.MATCHING:
            self._topics.lines.answer()  # there are no messages of streams yet
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
        """Return True while two nodes have one peer's name. Refuse the test after ``DUPLICATE_NS``."""
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
