# SPDX-License-Identifier: Apache-2.0
"""Heartbeats of monitor and recorder. A node whose heartbeats stop counts as lost.

Nodes of the loop need no heartbeat, because a missing Target or Command is detected within ``bridge.max_bridge``.
"""

from __future__ import annotations

from collections.abc import Iterable

from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import number, params, text

BEATS = 4
"""Number of consecutive heartbeats that may be missing before a node counts as lost."""
SUSPENDED_NS = 50_000_000
"""Time between two checks beyond which this process counts as suspended, ns."""


@params
class HeartbeatParams:
    """Timeouts for the heartbeats of monitor and recorder in real time. In lockstep, the rig waits for both."""

    monitor: float = number(
        "time without a heartbeat of the monitor, or without samples at the monitor, after which the rig trips, "
        "because the monitor no longer checks its limits",
        "s",
        0.2,
        at_least=0.05,
        at_most=10.0,
    )
    recorder: float = number(
        "time without a heartbeat after which the recorder counts as lost; a slow recorder loses no messages for "
        "about 2 s",
        "s",
        1.5,
        at_least=0.1,
        at_most=10.0,
    )
    recorder_lost: str = text(
        "reaction to a lost recorder: stop, or warn and continue without a recording", "stop", ("stop", "warn")
    )

    def validate(self, path: str) -> None:
        """Refuse a recorder timeout below the monitor timeout; the recorder may have to wait for a disk."""
        if self.recorder < self.monitor:
            raise ConfigError(
                f"{path}.recorder = {show(self.recorder)} s: must be >= {path}.monitor = {show(self.monitor)} s"
            )

    @property
    def period(self) -> float:
        """Interval of heartbeats, s."""
        return self.monitor / BEATS


class Heartbeat:
    """Detects lost ``peers`` by the times of their last heartbeats. All times come from one clock, ns.

    A heartbeat reports the newest sample that its sender has received. A peer that receives no samples therefore
    counts as lost, like a silent peer. ``period`` is the servo period (s). Samples may lag by ``missing`` s.
    """

    def __init__(
        self, params: HeartbeatParams, peers: Iterable[str], period: float = 0.0, missing: float = 0.0
    ) -> None:
        self._limits = {peer: round(getattr(params, peer) * SECOND) for peer in peers}
        self._suspended = max(SUSPENDED_NS, round(1.5 * period * SECOND))
        self._missing = round(missing * SECOND)
        self._peers: dict[str, tuple[int, int, int]] = {}
        """For each peer, in ns: latest time at which it was alive, last heartbeat, age of its newest sample."""
        self._looked = 0

    def begin(self, now: int) -> None:
        self._peers, self._looked = dict.fromkeys(self._limits, (now, now, 0)), now

    def received(self, peer: str, now: int, behind: int = 0) -> None:
        """Record a heartbeat from ``peer``, whose newest sample is ``behind`` ns old. Ignore lost peers."""
        if peer in self._peers:
            behind = max(0, behind - self._missing)
            self._peers[peer] = max(self._peers[peer][0], now - behind), now, behind

    def lost(self, now: int) -> list[tuple[str, str]]:
        gap, self._looked, lost = now - self._looked, now, []
        for peer, (since, spoken, behind) in [*self._peers.items()]:
            since += gap if gap > self._suspended else 0
            self._peers[peer] = since, spoken, behind
            if now - since > self._limits[peer]:
                del self._peers[peer]
                state = "sends heartbeats, but has received no Measurement" if now - spoken < behind else "silent"
                age, limit = (now - since) / SECOND, self._limits[peer] / SECOND
                lost.append((peer, f"heartbeat.{peer}: {state} for {age:.2g} s: must be <= {limit:g} s"))
        return lost
