"""Signs of life: who is silent for too long, and when that is said."""

from __future__ import annotations

from typing import Any

import pytest

from rths_nodes.heartbeat import BEATS, Heartbeat, HeartbeatParams
from rths_nodes.params import ConfigError, build

SECOND = 1_000_000_000


def params(**data: Any) -> HeartbeatParams:
    return build(HeartbeatParams, data, "heartbeat")


def test_a_silent_peer_is_lost_after_its_time_and_told_once() -> None:
    heartbeat = Heartbeat(params(monitor=0.2, recorder=1.5), ["monitor", "recorder"])
    heartbeat.begin(SECOND)
    assert heartbeat.lost(SECOND + 200_000_000) == []
    heartbeat.heard("recorder", SECOND + 100_000_000)
    assert heartbeat.lost(SECOND + 200_000_001) == ["heartbeat.monitor: silent for 0.2 s: must be <= 0.2 s"]
    assert heartbeat.lost(SECOND + 300_000_000) == []
    heartbeat.heard("monitor", SECOND + 300_000_000)  # back again: it is known that it was away
    assert heartbeat.lost(3 * SECOND) == ["heartbeat.recorder: silent for 1.9 s: must be <= 1.5 s"]


def test_who_speaks_in_time_is_never_lost() -> None:
    heartbeat = Heartbeat(params(), ["monitor"])
    heartbeat.begin(0)
    for now in range(0, 10 * SECOND, round(params().period * SECOND)):
        assert heartbeat.lost(now) == []
        heartbeat.heard("monitor", now)


def test_before_the_test_and_of_strangers_nothing_is_expected() -> None:
    heartbeat = Heartbeat(params(), ["monitor"])
    assert heartbeat.lost(100 * SECOND) == []
    heartbeat.begin(0)
    heartbeat.heard("stranger", 1)
    assert heartbeat.lost(1) == []


def test_the_monitor_is_missed_within_a_quarter_of_a_second() -> None:
    """With the look every 4 ms and a sample until the safe policy drives."""
    assert params().monitor + params().period / BEATS < 0.25


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"monitor": 0.0}, "heartbeat.monitor = 0 s: must be >= 0.05"),
        ({"monitor": 11.0}, "heartbeat.monitor = 11 s: must be >= 0.05 and <= 10"),
        ({"monitor": 2.0}, "heartbeat.recorder = 1.5 s: must be >= heartbeat.monitor = 2 s"),
        ({"recorder_lost": "ignore"}, "heartbeat.recorder_lost"),
    ],
)
def test_limits_that_are_none_are_refused(data: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        params(**data)
    assert words in str(caught.value)
