# SPDX-License-Identifier: Apache-2.0
"""Signs of life: who is silent for too long, and when that is said."""

from __future__ import annotations

from typing import Any

import pytest
from messages import mentions

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.supervision.heartbeat import BEATS, Heartbeat, HeartbeatParams

SECOND = 1_000_000_000
LOOK = 4_000_000


def params(**data: Any) -> HeartbeatParams:
    return from_data(HeartbeatParams, data, "heartbeat")


def listen(heartbeat: Heartbeat, begin: int, end: int, heard: str = "") -> list[tuple[float, str, str]]:
    """Who is lost from ``begin`` to ``end``, ns, with a look every 4 ms: when (ns), name and words."""
    found = []
    for now in range(begin, end + 1, LOOK):
        heartbeat.received(heard, now)
        found += [(now, *lost) for lost in heartbeat.lost(now)]
    return found


def test_a_silent_peer_is_lost_after_its_time_and_told_once() -> None:
    heartbeat = Heartbeat(params(monitor=0.2, recorder=1.5), ["monitor", "recorder"])
    heartbeat.begin(0)
    words = "heartbeat.monitor: silent for 0.2 s: must be <= 0.2 s"
    assert listen(heartbeat, 0, SECOND, heard="recorder") == [(SECOND // 5 + LOOK, "monitor", words)]
    # the monitor is back again: it is known that it was away
    words = "heartbeat.recorder: silent for 1.5 s: must be <= 1.5 s"
    assert listen(heartbeat, SECOND, 3 * SECOND, heard="monitor") == [
        (2 * SECOND + SECOND // 2 + LOOK, "recorder", words)
    ]


def test_who_was_stopped_himself_does_not_take_others_for_silent() -> None:
    heartbeat = Heartbeat(params(monitor=0.2), ["monitor"])
    heartbeat.begin(0)
    assert listen(heartbeat, 0, SECOND // 10) == []
    assert [now for now, *_ in listen(heartbeat, 2 * SECOND, 3 * SECOND)] == [2 * SECOND + SECOND // 10 + LOOK]


def test_who_speaks_in_time_is_never_lost() -> None:
    heartbeat = Heartbeat(params(), ["monitor"])
    heartbeat.begin(0)
    for now in range(0, 10 * SECOND, round(params().period * SECOND)):
        assert heartbeat.lost(now) == []
        heartbeat.received("monitor", now)


def blind(heartbeat: Heartbeat, end: int) -> list[tuple[float, str, str]]:
    """Who is lost when, with a monitor that speaks all the time and has seen nothing since the beginning."""
    heartbeat.begin(0)
    found = []
    for now in range(0, end, LOOK):
        heartbeat.received("monitor", now, behind=now)
        found += [(now, *lost) for lost in heartbeat.lost(now)]
    return found


def test_who_speaks_but_does_not_see_the_rig_is_lost_like_one_who_is_silent() -> None:
    words = "heartbeat.monitor: speaks, but does not see the rig for 0.2 s: must be <= 0.2 s"
    assert blind(Heartbeat(params(monitor=0.2), ["monitor"]), SECOND) == [(SECOND // 5 + LOOK, "monitor", words)]


def test_nobody_is_lost_because_the_loop_misses_a_target() -> None:
    """It may be bridged for 0.5 s, and a step of 0.1 s be lost on the way."""
    heartbeat = Heartbeat(params(monitor=0.2), ["monitor"], missing=0.6)
    assert [now for now, *_ in blind(heartbeat, SECOND)] == [4 * SECOND // 5 + LOOK]


def test_who_is_behind_but_comes_on_is_not_lost() -> None:
    heartbeat = Heartbeat(params(monitor=0.2), ["monitor"])
    heartbeat.begin(0)
    for now in range(0, SECOND, LOOK):
        heartbeat.received("monitor", now, behind=min(now, 3 * SECOND // 20))
        assert heartbeat.lost(now) == []


@pytest.mark.parametrize("rate", [10.0, 15.0, 64.0])
def test_a_slow_loop_finds_a_silent_monitor_as_soon(rate: float) -> None:
    heartbeat = Heartbeat(params(monitor=0.2), ["monitor"], period=1.0 / rate)
    heartbeat.begin(0)
    period = round(SECOND / rate)
    found = [now for now in range(period, SECOND, period) if heartbeat.lost(now)]
    assert found == [period * (SECOND // 5 // period + 1)]


def test_before_the_test_and_of_strangers_nothing_is_expected() -> None:
    heartbeat = Heartbeat(params(), ["monitor"])
    assert listen(heartbeat, 0, SECOND) == []
    heartbeat.begin(SECOND)
    assert listen(heartbeat, SECOND, SECOND + SECOND // 10, heard="stranger") == []


def test_the_monitor_is_missed_within_a_quarter_of_a_second() -> None:
    """With the look every 4 ms and a sample until the safe policy drives."""
    assert params().monitor + params().period / BEATS < 0.25


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"monitor": 0.0}, ("heartbeat.monitor", "0 s", ">= 0.05")),
        ({"monitor": 11.0}, ("heartbeat.monitor", "11 s", ">= 0.05", "<= 10")),
        ({"monitor": 2.0}, ("heartbeat.recorder", "1.5 s", ">= heartbeat.monitor", "2 s")),
        ({"recorder_lost": "ignore"}, ("heartbeat.recorder_lost",)),
    ],
)
def test_limits_that_are_none_are_refused(data: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        params(**data)
    assert mentions(str(caught.value), *words)
