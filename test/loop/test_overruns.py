# SPDX-License-Identifier: Apache-2.0
"""Tests of overruns: late periods allowed in a row and in a window, and the trip beyond."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import mentions, naming

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Command
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.bridges import BridgeParams, OverrunParams, Overruns
from rths_nodes.loop.supervision.states import State

DT = 1.0 / 1024.0
ALLOWED = {"in_a_row": 2, "in_window": 5, "window": 100 * DT}
NAME = "chen_ricles_2010"


def overruns(**changed: Any) -> Overruns:
    return Overruns(from_data(OverrunParams, ALLOWED | changed, "overruns"), DT)


def first_breach(count: Overruns, late: dict[int, int], samples: int = 300) -> tuple[int, str]:
    """Return sample and reason of the first breach; ``late``: periods missed before a sample, or -1 if bridged."""
    for sample in range(1, samples):
        count.sampled(sample, abs(late.get(sample, 0)))
        if count.breach:
            return sample, count.breach
    return 0, ""


@pytest.mark.parametrize(
    ("late", "sample", "words"),
    [
        ({20: 2, 40: 2}, 0, ()),
        ({20: 3}, 20, ("bridge.overruns.in_a_row", "3", "<= 2")),
        ({20: -1, 21: -1, 22: -1}, 22, ("bridge.overruns.in_a_row", "3", "<= 2")),
        ({20: -1, 21: 2}, 21, ("bridge.overruns.in_a_row", "3", "<= 2")),
        ({20: 2, 22: 2, 24: 2}, 24, ("bridge.overruns.in_window", "6", "0.0976562 s", "<= 5")),
        ({20: 2, 22: 2, 120: 2}, 0, ()),  # the first one has left the window
        ({20: 2, 22: 2, 119: 2}, 119, ("bridge.overruns.in_window", "6", "0.0976562 s", "<= 5")),
    ],
)
def test_late_periods_count_in_a_row_and_in_window(late, sample, words):
    breach_sample, breach = first_breach(overruns(), late)
    assert breach_sample == sample
    assert mentions(breach, *words) if words else not breach


def test_late_periods_in_ignored_time_are_not_counted():
    late = {3: 500, 10: 500, 11: 1}
    assert first_breach(overruns(ignored=10 * DT), late) == (0, "")
    assert first_breach(overruns(ignored=9 * DT), late)[0] == 10


def test_reason_of_single_late_period():
    reason = "bridge.overruns.in_a_row: 1 period was late in a row: must be <= 0"
    assert first_breach(overruns(in_a_row=0, in_window=0), {7: 1}) == (7, reason)


@given(
    st.dictionaries(st.integers(1, 60), st.integers(-1, 3)),
    st.integers(0, 3),
    st.integers(0, 5),
    st.integers(1, 9),
)
def test_first_breach_equals_count_at_every_sample(late, in_a_row, more, window):
    in_window = in_a_row + more
    counted = [abs(late.get(sample, 0)) for sample in range(61)]

    def broken(sample: int) -> bool:
        row = next((back for back in range(sample + 1) if not counted[sample - back]), sample)
        return bool(counted[sample]) and (
            sum(counted[sample - row + 1 : sample + 1]) > in_a_row
            or sum(counted[max(sample - window + 1, 0) : sample + 1]) > in_window
        )

    expected = next((sample for sample in range(1, 61) if broken(sample)), 0)
    count = overruns(in_a_row=in_a_row, in_window=in_window, window=window * DT)
    assert first_breach(count, late, 61)[0] == expected


def test_late_commands_trip():
    allowed = ["bridge.overruns={in_a_row: 1, in_window: 3, window: 1.0}", "duration=2"]
    faults = ["late@0.1:command,0.05"]
    unlimited = hosts.run(NAME, allowed[1:], faults=faults)
    assert (unlimited.exit_code, unlimited.timing["bridged"]) == (4, pytest.approx(100, abs=50))
    done = hosts.run(NAME, allowed, faults=faults)
    assert done.exit_code == 3
    assert "bridge.overruns.in_" in done.reason
    assert hosts.run(NAME, allowed).exit_code == 0, "without faults"


def test_late_period_at_last_sample_trips():
    none = "bridge.overruns={in_a_row: 0, in_window: 0, window: 1.0}"
    scenario = files.load("predefined_sine", ["duration=0.1", "compensator.type=none", none])
    rig = RigStage(scenario, Assembly(scenario).port)
    rig.connect()
    rig.machine.to(State.ARMED)
    rig.first()
    for sample in range(1, scenario.samples):
        rig.tick(Command(sample, np.zeros(1), np.zeros(1)))
    rig.tick(None, late=True)
    rig.settle()
    assert rig.machine.state is State.TRIPPED
    assert mentions(rig.machine.reason, scenario.samples, "bridge.overruns.in_a_row")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            {"overruns": ALLOWED | {"in_a_row": 6}},
            ("bridge.overruns.in_a_row", "6", "<= bridge.overruns.in_window", "5"),
        ),
        ({"overruns": {"in_a_row": 1}}, ("bridge.overruns.in_window", "missing")),
        ({"overruns": ALLOWED, "when_late": "pause"}, ("bridge.overruns", "bridge.when_late", "pause")),
    ],
)
def test_invalid_overruns_are_refused(data, words):
    with pytest.raises(ConfigError, match=naming(*words)):
        from_data(BridgeParams, data, "bridge")


def test_unknown_key_is_refused_with_known_names(capsys):
    sets = "--set=bridge.overruns={in_row: 1, in_window: 3, window: 1.0}"
    assert main(["check", NAME, sets]) == 2
    assert "in_a_row" in capsys.readouterr().err
