"""Whether the test may begin: every peer is ready, and all of them run the same scenario with the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rths_nodes.core.durations import SECOND
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.ros import environment
from rths_nodes.ros.nodes.handshake import Handshake
from rths_nodes.ros.nodes.phase import Phase, PhaseMachine
from rths_nodes.ros.transport.topics import NodeTopics


class StartRefused(Exception):
    """The test must not begin; the message is for people, ``exit_code`` for the process."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class StartGate:
    """Collects the NodeStatus of the peers and decides whether the test may begin.

    ``role`` is the node that asks, ``peers`` are those that must be ready, ``scenario_hash`` and ``scenario`` (its
    name) what they must run, ``timeout`` how long they may take from :meth:`activate` on, s. ``phase``, ``topics``
    and ``handshake`` are those of the node itself. ``sections_of`` reads the sections of the scenario, with their
    values, out of a NodeStatus.
    """

    def __init__(
        self,
        role: str,
        peers: Sequence[str],
        scenario_hash: str,
        scenario: str,
        timeout: float,
        phase: PhaseMachine,
        topics: NodeTopics,
        handshake: Handshake,
        sections_of: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._role, self._peers = role, tuple(peers)
        self._hash, self._scenario = scenario_hash, scenario
        self._timeout = timeout
        self._phase, self._topics, self._handshake = phase, topics, handshake
        self._sections_of = sections_of
        self._clock = clock
        self._statuses: dict[str, Mapping[str, Any]] = {}
        self._active_since = 0

    def activate(self) -> None:
        """From now on the peers are waited for."""
        self._active_since = self._clock.monotonic_ns()

    def hear(self, statuses: Iterable[Mapping[str, Any]]) -> None:
        """Take in NodeStatus messages; of each node the last one counts."""
        for status in statuses:
            # who does not know the run yet is not ready, whatever it says
            self._statuses[status["node"]] = status if status["frame_id"] else {**status, "ready": False}

    def may_begin(self) -> bool:
        """True when the test may begin, False while somebody is waited for. Raises StartRefused."""
        self._check_hashes()
        missing = [peer for peer in self._peers if not self._statuses.get(peer, {}).get("ready")]
        if missing or self._phase.now < Phase.READY:
            self._check_timeout(missing)
            return False
        self._check_values()
        return not self._handshake.duplicated()

    def _check_hashes(self) -> None:
        for node, status in self._statuses.items():
            if status["scenario_hash"] != self._hash:
                raise StartRefused(
                    f"{node} runs another scenario, or another run, than {self._role}: hash "
                    f"{status['scenario_hash'] or 'none'}, here {self._hash} ({self._scenario})",
                    ExitCode.REFUSED,
                )

    def _check_timeout(self, missing: Sequence[str]) -> None:
        if self._clock.monotonic_ns() - self._active_since <= self._timeout * SECOND:
            return
        own = f"{self._role} (waits for {self._topics.missing()})"
        names = ", ".join(map(self._with_problem, missing)) or own
        given = environment.discovery_settings()
        perhaps = f"; they look for each other as the environment says: {given}" if given else ""
        raise StartRefused(f"not ready within {self._timeout:g} s: {names}{perhaps}", ExitCode.FAILED)

    def _with_problem(self, peer: str) -> str:
        problem = self._statuses.get(peer, {}).get("problem")
        return f"{peer} ({problem})" if problem else peer

    def _check_values(self) -> None:
        """Two nodes may run with different values of a section, by parameters of their own: that is refused."""
        first: dict[str, tuple[str, Any]] = {}
        for node, status in sorted(self._statuses.items()):
            for section, values in self._sections_of(status).items():
                other, known = first.setdefault(section, (node, values))
                if values != known:
                    differ = f"{section}: {other} and {node} run with different values"
                    raise StartRefused(f"{differ}; use overrides, for all nodes", ExitCode.REFUSED)
