# SPDX-License-Identifier: Apache-2.0
"""Signs of life of monitor and recorder: their silence is a fault.

Nodes of the loop need none: a missing Target or Command shows within ``bridge.max_bridge``.
"""

from __future__ import annotations

from collections.abc import Iterable

from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import number, params, text

BEATS = 4
"""Consecutive signs of life that may be missed before a node counts as lost."""
SUSPENDED_NS = 50_000_000
"""Suspension of this process from which its duration does not count as silence of the peers."""


@params
class HeartbeatParams:
    """Silence of its monitor or recorder that the rig bears in real time; in lockstep it waits for them."""

    monitor: float = number(
        "silence of the monitor, or time without seeing the rig, after which the rig trips: its limits are no "
        "longer watched",
        "s",
        0.2,
        at_least=0.05,
        at_most=10.0,
    )
    recorder: float = number(
        "silence of the recorder after which it counts as lost: messages wait for it about two seconds",
        "s",
        1.5,
        at_least=0.1,
        at_most=10.0,
    )
    recorder_lost: str = text(
        "what the rig does then: stop, or warn and continue without a recording", "stop", choices=("stop", "warn")
    )

    def validate(self, path: str) -> None:
        """Refuse a shorter timeout of the recorder, which may wait for a disk, than of the monitor."""
        if self.recorder < self.monitor:
            raise ConfigError(
                f"{path}.recorder = {show(self.recorder)} s: must be >= {path}.monitor = {show(self.monitor)} s"
            )

    @property
    def period(self) -> float:
        """Interval of signs of life, s."""
        return self.monitor / BEATS


class Heartbeat:
    """Times of the last signs of life of ``peers``; ns of one clock.

    A sign of life is as old as the newest sample received by its sender: a peer that does not receive the rig's
    samples is lost like a silent one. ``period`` (s) of the rig's samples. A lag of up to ``missing`` s does
    not count.
    """

    def __init__(
        self, params: HeartbeatParams, peers: Iterable[str], period: float = 0.0, missing: float = 0.0
    ) -> None:
        self._limits = {peer: round(getattr(params, peer) * SECOND) for peer in peers}
        self._suspended = max(SUSPENDED_NS, round(1.5 * period * SECOND))
        self._missing = round(missing * SECOND)
        self._heard: dict[str, int] = {}
        self._spoken: dict[str, int] = {}
        self._behind: dict[str, int] = {}
        self._looked = 0

    def begin(self, now: int) -> None:
        """Count all peers, which are ready, as just received."""
        self._heard = dict.fromkeys(self._limits, now)
        self._spoken = dict(self._heard)
        self._behind = dict.fromkeys(self._limits, 0)
        self._looked = now

    def heard(self, peer: str, now: int, behind: int = 0) -> None:
        """Take a sign of life of a peer that lags ``behind`` ns; lost or unknown peers are ignored."""
        if peer in self._heard:
            self._spoken[peer], self._behind[peer] = now, max(0, behind - self._missing)
            self._heard[peer] = max(self._heard[peer], now - self._behind[peer])

    def lost(self, now: int) -> list[tuple[str, str]]:
        """Return newly lost peers, each with the reason."""
        gap = now - self._looked
        self._looked = now
        if gap > self._suspended:
            self._heard = {peer: since + gap for peer, since in self._heard.items()}
        silent = [peer for peer, since in self._heard.items() if now - since > self._limits[peer]]
        return [(peer, self._words(peer, now)) for peer in silent]

    def _words(self, peer: str, now: int) -> str:
        age = (now - self._heard.pop(peer)) / SECOND
        blind = now - self._spoken[peer] < self._behind[peer]
        state = f"speaks, but does not see the rig for {age:.2g} s" if blind else f"silent for {age:.2g} s"
        return f"heartbeat.{peer}: {state}: must be <= {self._limits[peer] / SECOND:g} s"
