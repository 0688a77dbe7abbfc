# SPDX-License-Identifier: Apache-2.0
"""Force axes, pauses and hops of a rig whose axes have a node each: the bits are those of one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from axis_wires import Wires, apart
from messages import mentions, naming
from weighted import weight

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED, MODE_FORCE, Command, Measurement
from rths_nodes.loop.faults.embedded import FaultyLoop
from rths_nodes.loop.faults.kinds import parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.axis import check_layout
from rths_nodes.loop.supervision.states import State

CLOSED_BY = ["nodes", "controller"]


def rig(*overrides: str) -> Scenario:
    return files.load("three_independent_axes", ["duration=0.3", "soft_start=null", *overrides])


class Kept:
    """What a loop tells; ``at`` a sample ``act`` is done."""

    def __init__(self, at: int = -1, act: Any = None) -> None:
        self.measured: list[Measurement] = []
        self.true: list[Measurement] = []
        self._at, self._act = at, act

    def measurement(self, measured: Measurement) -> None:
        self.measured.append(measured)
        if measured.sample == self._at:
            self._act()

    def truth(self, true: Measurement) -> None:
        self.true.append(true)

    def command(self, command: Command) -> None: ...

    def target(self, target: object) -> None: ...

    def state(self, sample: int, values: Sequence[float]) -> None: ...


def bits(measurements: Sequence[Measurement]) -> list[tuple[object, ...]]:
    """All that is told in a history, to the bit."""
    return [
        (m.sample, m.flags, m.control_mode, *(a.tobytes() for a in (m.displacement, m.force, m.command)))
        for m in measurements
    ]


class Ran:
    """A test of ``scenario`` on one node, or on axes ``apart``."""

    def __init__(self, scenario: Scenario, separate: bool, *faults: str, trip: int = 0, lose: int = 0) -> None:
        port, self.wires = apart(scenario) if separate else (None, None)
        assembly = Assembly(scenario, port)
        self.loop = FaultyLoop(assembly, [parse(words) for words in faults])
        if trip:
            self.loop.rig.trip("somebody asks", trip)
        if lose and isinstance(self.wires, Wires):
            self.wires.deaf["story_2"] = lose
        self.kept = Kept()
        self.outcome = self.loop.run([self.kept])
        self.true = self.kept.true
        while port is not None and (found := port.true_state()) is not None:
            self.true.append(found[0])

    @property
    def told(self) -> tuple[object, ...]:
        """What must be the same."""
        rig = self.loop.rig
        return bits(self.kept.measured), self.outcome.state, rig.ticks, rig.bridged, rig.slowed


def compare(scenario: Scenario, *faults: str, trip: int = 0) -> Ran:
    one, separate = (Ran(scenario, each, *faults, trip=trip) for each in (False, True))
    assert separate.told == one.told
    assert separate.outcome.reason == one.outcome.reason
    if not one.loop.rig.pause.count:  # else ticks are told, which the actuator node turns into samples
        assert bits(separate.true) == bits(one.true)
    return separate


# -- force axes


@pytest.mark.parametrize("closed_by", CLOSED_BY)
def test_a_force_axis_apart_has_the_bits_of_one_beside_the_others(closed_by: str) -> None:
    ran = compare(rig(weight(closed_by)))
    assert ran.outcome.state is State.FINISHED, ran.outcome.reason
    last = ran.kept.measured[-1]
    assert last.control_mode[3] == MODE_FORCE
    assert last.force[3] == pytest.approx(20e3, rel=0.1)
    assert last.command[3] == pytest.approx(20e3, rel=1e-3), "it is told in N"
    assert ran.wires is not None
    assert (abs(ran.wires.stages["weight"]._sent[0]) > 1e3) == (closed_by == "controller")


STOPS = {
    "another axis": ("axes.story_2.limits.force=300",),
    "its force": ("axes.weight.limits.force=20.03e3", "axes.weight.limits.force_error=15e3"),
    "its force error": ("axes.weight.limits.force_error=400",),
    "its stroke": ("axes.weight.limits.stroke=5e-4",),
    "its velocity": ("axes.weight.limits.velocity=0.01",),
    "its loop": ("axes.weight.force_control.largest_correction=1e-7",),
    "its specimen": ("axes.weight.specimen.stiffness=1e6", "axes.weight.force_control.largest_correction=1e-4"),
    "late commands": ("bridge.max_bridge=0.002",),
}


@pytest.mark.parametrize("closed_by", CLOSED_BY)
@pytest.mark.parametrize("stop", STOPS)
def test_stops_are_those_of_one_node(stop: str, closed_by: str) -> None:
    """The same reason at the same sample, and the same way to rest."""
    scenario, faults = rig(weight(closed_by), *STOPS[stop]), ["delay@0.2:command,6,40"] if "late" in stop else []
    one, ran = (Ran(scenario, each, *faults) for each in (False, True))
    assert ran.told == one.told
    assert ran.wires is not None
    if ran.outcome.reason != one.outcome.reason:  # a controller that has stopped itself: its node knows the words
        assert mentions(ran.outcome.reason, "axes.weight", "node")
        assert one.outcome.reason.endswith(ran.wires.stages["weight"].trip)
    assert bits(ran.true) == bits(one.true)
    assert ran.outcome.state is State.TRIPPED, ran.outcome.reason
    assert ran.kept.measured[-1].flags & FLAG_TRIPPED
    assert ran.kept.measured[-1].control_mode[3] != MODE_FORCE, "held by its displacement in the end"
    assert all(stage.at_rest for stage in ran.wires.stages.values())


@pytest.mark.parametrize("closed_by", CLOSED_BY)
@pytest.mark.parametrize("sample", [60, 120, 300])
def test_a_stop_at_any_time_is_that_of_one_node(sample: int, closed_by: str) -> None:
    """Held, while the load rises, and under the load."""
    ran = compare(rig(weight(closed_by)), trip=sample)
    assert ran.outcome.reason == f"sample {sample}: somebody asks"


@pytest.mark.parametrize("closed_by", CLOSED_BY)
def test_a_lost_axis_leaves_the_load_on_until_the_others_rest(closed_by: str) -> None:
    ran = Ran(rig(weight(closed_by)), True, lose=300)
    assert ran.outcome.reason == "sample 300: no Measurement 300 of story_2"
    stopped = [each for each in ran.kept.measured if each.flags & FLAG_TRIPPED]
    assert all(np.isnan(each.force[1]) for each in stopped)
    assert max(abs(each.force[3] / 20e3 - 1.0) for each in stopped) < 0.15


def test_a_force_axis_that_nobody_leads_is_held_where_it_is() -> None:
    ran = Ran(rig(weight("controller")), True)
    assert ran.wires is not None
    stage = ran.wires.stages["weight"]
    assert not stage.at_rest, "it is controlled by force still"
    there = ran.kept.measured[-1].displacement[3]
    stage.stop("nobody leads")
    for _ in range(5):
        measured = stage.stop_alone()
    assert stage.at_rest
    assert measured.command[0] == there


def test_a_simulated_controller_apart_sees_no_drift() -> None:
    column = "axes.weight.force_control.law.column={column_length: 3.0}"
    check_layout(rig(weight("nodes"), column))
    with pytest.raises(ConfigError, match=naming("axes.weight.force_control.law.column", "rig")):
        check_layout(rig(weight("controller"), column))


# -- pauses


PAUSES = ("bridge={when_late: pause, max_pause: 0.2}", "compensator={type: none}")


@pytest.mark.parametrize("load", [(), *[(weight(by),) for by in CLOSED_BY]], ids=["no load", *CLOSED_BY])
@pytest.mark.parametrize("fault", ["delay@0.2:command,60,40", "delay@0.2:target,60,40", "drop@0.2:target,1"])
def test_a_pause_is_that_of_one_node(fault: str, load: tuple[str, ...]) -> None:
    """It slows down, waits, and joins the motion again, while its axes count ticks."""
    ran = compare(rig(*PAUSES, *load), fault)
    loop, wires = ran.loop, ran.wires
    assert wires is not None
    assert loop.rig.pause.count >= ("delay" in fault)
    if ran.outcome.state is State.FINISHED:
        assert [each.sample for each in ran.kept.measured] == list(range(len(ran.kept.measured)))
    assert {stage.sample for stage in wires.stages.values()} == {loop.rig.ticks}
    assert [true.sample for true in ran.true] == list(range(loop.rig.ticks + 1)), "of each tick"


def test_a_pause_that_takes_too_long_ends_as_on_one_node() -> None:
    ran = compare(rig("bridge={when_late: pause, max_pause: 0.05}", PAUSES[1]), "delay@0.2:command,300,1")
    assert mentions(ran.outcome.reason, "bridge.max_pause", "follow")


@pytest.mark.parametrize("after", [3, 60])
def test_an_axis_that_is_lost_in_a_pause_ends_it(after: int) -> None:
    """While the rig slows down, and while it waits."""
    scenario = rig(*PAUSES)
    fault = "delay@0.2:command,150,40"
    quiet = Ran(scenario, True, fault)
    last = max(each.sample for each in quiet.kept.measured if each.sample < 230)
    ran = Ran(scenario, True, fault, lose=last + after)
    assert f"no Measurement {last + after} of story_2" in ran.outcome.reason
    assert ran.loop.rig.pause.count == 1
    assert ran.outcome.state is State.TRIPPED


# -- hops


@pytest.mark.parametrize("limit", [0.0006, 0.0200])
def test_errors_over_hops_are_judged_by_the_rig(limit: float) -> None:
    """They are of samples that are over, of which an axis knows nothing."""
    changes = [f"axes.{axis}.limits.tracking_error={limit}" for axis in ("story_1", "story_2", "story_3")]
    ran = compare(rig("hops.depth=8", "ground_motion.scale=2", *changes))
    assert ("tracking_error" in ran.outcome.reason) == (ran.outcome.state is State.TRIPPED)
