# SPDX-License-Identifier: Apache-2.0
"""Tests of heartbeats: which peer times out, and when it is reported."""

from __future__ import annotations

from typing import Any

import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.supervision.heartbeat import BEATS, Heartbeat, HeartbeatParams

SECOND = 1_000_000_000
CHECK = 4_000_000
"""Interval of checks, ns."""


def params(**data: Any) -> HeartbeatParams:
    return from_data(HeartbeatParams, data, "heartbeat")


def losses(heartbeat: Heartbeat, begin: int, end: int, sender: str = "") -> list[tuple[float, str, str]]:
    """Return time (ns), name and reason of the peers lost from ``begin`` to ``end`` while ``sender`` is alive."""
    lost = []
    for now in range(begin, end + 1, CHECK):
        heartbeat.received(sender, now)
        lost += [(now, *loss) for loss in heartbeat.lost(now)]
    return lost


def test_silent_peer_is_reported_once_after_timeout() -> None:
    heartbeat = Heartbeat(params(monitor=0.2, recorder=1.5), ["monitor", "recorder"])
    heartbeat.begin(0)
    reason = "heartbeat.monitor: silent for 0.2 s: must be <= 0.2 s"
    assert losses(heartbeat, 0, SECOND, "recorder") == [(SECOND // 5 + CHECK, "monitor", reason)]
    # the monitor is back; its loss was already reported
    reason = "heartbeat.recorder: silent for 1.5 s: must be <= 1.5 s"
    expected = 2 * SECOND + SECOND // 2 + CHECK, "recorder", reason
    assert losses(heartbeat, SECOND, 3 * SECOND, "monitor") == [expected]


def test_own_interruption_does_not_lose_peers() -> None:
    heartbeat = Heartbeat(params(monitor=0.2), ["monitor"])
    heartbeat.begin(0)
    assert losses(heartbeat, 0, SECOND // 10) == []
    assert [now for now, *_ in losses(heartbeat, 2 * SECOND, 3 * SECOND)] == [2 * SECOND + SECOND // 10 + CHECK]


def test_regular_peer_is_never_lost() -> None:
    heartbeat = Heartbeat(params(), ["monitor"])
    heartbeat.begin(0)
    for now in range(0, 10 * SECOND, round(params().period * SECOND)):
        assert heartbeat.lost(now) == []
        heartbeat.received("monitor", now)


@pytest.mark.parametrize(("missing", "at"), [(0.0, SECOND // 5), (0.6, 4 * SECOND // 5)])
def test_blind_monitor_is_lost(missing: float, at: int) -> None:
    """A target may be missing for 0.6 s: bridged for 0.5 s, and a step of 0.1 s lost on the way."""
    heartbeat = Heartbeat(params(monitor=0.2), ["monitor"], missing=missing)
    heartbeat.begin(0)
    lost = []
    for now in range(0, SECOND, CHECK):
        heartbeat.received("monitor", now, behind=now)
        lost += [(now, *loss) for loss in heartbeat.lost(now)]
    reason = "heartbeat.monitor: sends heartbeats, but has received no Measurement for 0.2 s: must be <= 0.2 s"
    assert lost == [(at + CHECK, "monitor", reason)]


def test_peer_with_constant_lag_is_not_lost() -> None:
    heartbeat = Heartbeat(params(monitor=0.2), ["monitor"])
    heartbeat.begin(0)
    for now in range(0, SECOND, CHECK):
        heartbeat.received("monitor", now, behind=min(now, 3 * SECOND // 20))
        assert heartbeat.lost(now) == []


@pytest.mark.parametrize("rate", [10.0, 15.0, 64.0])
def test_slow_loop_detects_silent_monitor_in_time(rate: float) -> None:
    heartbeat = Heartbeat(params(monitor=0.2), ["monitor"], period=1.0 / rate)
    heartbeat.begin(0)
    period = round(SECOND / rate)
    lost = [now for now in range(period, SECOND, period) if heartbeat.lost(now)]
    assert lost == [period * (SECOND // 5 // period + 1)]


def test_no_loss_before_begin_or_from_strangers() -> None:
    heartbeat = Heartbeat(params(), ["monitor"])
    assert losses(heartbeat, 0, SECOND) == []
    heartbeat.begin(SECOND)
    assert losses(heartbeat, SECOND, SECOND + SECOND // 10, "stranger") == []


def test_default_timeout_is_below_a_quarter_second() -> None:
    """Including the check every 4 ms and one sample until the safe policy acts."""
    assert params().monitor + params().period / BEATS < 0.25


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"monitor": 0.0}, ("heartbeat.monitor", "0 s", ">= 0.05")),
        ({"monitor": 11.0}, ("heartbeat.monitor", "11 s", ">= 0.05", "<= 10")),
        ({"monitor": 2.0}, ("heartbeat.recorder", "1.5 s", ">= heartbeat.monitor", "2 s")),
        ({"recorder_lost": "ignore"}, ("heartbeat.recorder_lost",)),
    ],
)
def test_invalid_timeouts_are_refused(data: dict[str, Any], message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        params(**data)
