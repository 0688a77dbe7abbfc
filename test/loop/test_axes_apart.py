# SPDX-License-Identifier: Apache-2.0
"""Tests of force axes, pauses and hops with one node per axis: results equal those of one node to the bit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from axis_wires import Wires, apart, weight
from loop_parts import History
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED, MODE_FORCE, Command, Measurement
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.faults import FaultyLoop, parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.rig import check_layout
from rths_nodes.loop.supervision.states import State

CLOSED_BY = ["nodes", "controller"]


def rig(*overrides: str) -> Scenario:
    return files.load("three_independent_axes", ["duration=0.3", "soft_start=null", *overrides])


def bits(measurements: Sequence[Measurement]) -> list[tuple[object, ...]]:
    """Return a history in a form that compares to the bit."""
    return [
        (m.sample, m.flags, m.control_mode, *(a.tobytes() for a in (m.displacement, m.force, m.command)))
        for m in measurements
    ]


class SimulatedTest:
    """A test of ``scenario``, run on one node or with one node per axis."""

    wires: Wires

    def __init__(self, scenario: Scenario, separate: bool, *faults: str, trip: int = 0, lose: int = 0) -> None:
        port = None
        if separate:
            port, self.wires = apart(scenario)
        self.loop = FaultyLoop(Assembly(scenario, port), [parse(fault) for fault in faults])
        if trip:
            self.loop.rig.trip("requested", trip)
        if lose:
            self.wires.deaf["story_2"] = lose
        history = History()
        self.outcome = self.loop.run([history])
        self.measured, self.true = history.measured, history.true
        while port is not None and (state := port.true_state()) is not None:
            self.true.append(state[0])

    @property
    def result(self) -> tuple[object, ...]:
        rig = self.loop.rig
        return bits(self.measured), self.outcome.state, rig.ticks, rig.bridged, rig.slowed


def compare(scenario: Scenario, *faults: str, trip: int = 0) -> SimulatedTest:
    single, run = (SimulatedTest(scenario, separate, *faults, trip=trip) for separate in (False, True))
    assert (run.result, run.outcome.reason) == (single.result, single.outcome.reason)
    if not single.loop.rig.pause.count:  # else true values are numbered by ticks; the actuator node converts them
        assert bits(run.true) == bits(single.true)
    return run


# Force axes


@pytest.mark.parametrize("closed_by", CLOSED_BY)
def test_separate_force_axis_has_identical_results(closed_by: str) -> None:
    run = compare(rig(weight(closed_by)))
    assert run.outcome.state is State.FINISHED, run.outcome.reason
    last = run.measured[-1]
    assert (last.control_mode[3], last.force[3]) == (MODE_FORCE, pytest.approx(20e3, rel=0.1))
    assert last.command[3] == pytest.approx(20e3, rel=1e-3), "in N"
    assert (abs(run.wires.stages["weight"]._sent[0]) > 1e3) == (closed_by == "controller")


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
def test_stops_equal_those_of_one_node(stop: str, closed_by: str) -> None:
    """The same reason at the same sample, and the same path to rest."""
    scenario, faults = rig(weight(closed_by), *STOPS[stop]), ["delay@0.2:command,6,40"] if "late" in stop else []
    single, run = (SimulatedTest(scenario, separate, *faults) for separate in (False, True))
    assert run.result == single.result
    if run.outcome.reason != single.outcome.reason:  # the controller stopped itself: only its node has the reason
        assert mentions(run.outcome.reason, "axes.weight", "node")
        assert single.outcome.reason.endswith(run.wires.stages["weight"].trip)
    assert bits(run.true) == bits(single.true)
    assert run.outcome.state is State.TRIPPED, run.outcome.reason
    assert run.measured[-1].flags & FLAG_TRIPPED
    assert run.measured[-1].control_mode[3] != MODE_FORCE, "held by its displacement in the end"
    assert all(stage.at_rest for stage in run.wires.stages.values())


@pytest.mark.parametrize("closed_by", CLOSED_BY)
@pytest.mark.parametrize("sample", [60, 120, 300])
def test_requested_stop_equals_that_of_one_node(sample: int, closed_by: str) -> None:
    """While held, while the load rises, and under the load."""
    assert compare(rig(weight(closed_by)), trip=sample).outcome.reason == f"sample {sample}: requested"


@pytest.mark.parametrize("closed_by", CLOSED_BY)
def test_load_is_kept_while_other_axes_stop(closed_by: str) -> None:
    run = SimulatedTest(rig(weight(closed_by)), True, lose=300)
    assert run.outcome.reason == "sample 300: no Measurement 300 of story_2"
    stopped = [measured.force for measured in run.measured if measured.flags & FLAG_TRIPPED]
    assert all(np.isnan(force[1]) for force in stopped)
    assert max(abs(force[3] / 20e3 - 1.0) for force in stopped) < 0.15


def test_force_axis_without_leader_is_held_in_place() -> None:
    run = SimulatedTest(rig(weight("controller")), True)
    stage = run.wires.stages["weight"]
    assert not stage.at_rest, "still in force control"
    stage.stop("no leader")
    for _ in range(5):
        measured = stage.stop_alone()
    assert stage.at_rest
    assert measured.command[0] == run.measured[-1].displacement[3]


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(("reading", "trip"), [(math.nan, 0), (-1e6, 0), (math.inf, 298), (1e6, 298), (0.01, 298)])
def test_force_axis_is_held_where_its_sensor_failed(reading: float, trip: int, separate: bool) -> None:
    """The sensor fails at sample 300, under the load or during a stop; 0.01 m is the end of the stroke."""
    scenario = rig(weight("controller"))
    port, wires = apart(scenario) if separate else (None, None)
    loop, places, sent = Loop(Assembly(scenario, port)), list[float](), list[Command]()
    sensed = wires.stages["weight"].port if wires else loop.assembly.port
    read, write = sensed.read, sensed.write

    def fail() -> Measurement:
        measured = read()
        places.append(float(measured.displacement[-1]))
        measured.displacement[-1] = reading if measured.sample >= 300 else places[-1]
        return measured

    sensed.read, sensed.write = fail, lambda command: (sent.append(command), write(command))  # type: ignore[method-assign]
    if trip:
        loop.rig.trip("requested", trip)
    assert loop.run([]).state is State.TRIPPED
    assert (sent[-2].control_mode[-1], sent[-1].control_mode[-1:] in (b"", b"\x01")) == (MODE_FORCE, True)
    assert sent[-1].command[-1] == places[299]


def test_column_needs_force_control_by_nodes() -> None:
    column = "axes.weight.force_control.law.column={column_length: 3.0}"
    check_layout(rig(weight("nodes"), column))
    with pytest.raises(ConfigError, match=naming("axes.weight.force_control.law.column", "actuator_nodes")):
        check_layout(rig(weight("controller"), column))


# Pauses


PAUSES = ("bridge={when_late: pause, max_pause: 0.2}", "compensator={type: none}")


@pytest.mark.parametrize("load", [(), *[(weight(by),) for by in CLOSED_BY]], ids=["no load", *CLOSED_BY])
@pytest.mark.parametrize("fault", ["delay@0.2:command,60,40", "delay@0.2:target,60,40", "drop@0.2:target,1"])
def test_pause_equals_that_of_one_node(fault: str, load: tuple[str, ...]) -> None:
    """The rig slows down, waits and rejoins the motion while its axes count ticks."""
    run = compare(rig(*PAUSES, *load), fault)
    ticks = run.loop.rig.ticks
    assert run.loop.rig.pause.count >= ("delay" in fault)
    if run.outcome.state is State.FINISHED:
        assert [measured.sample for measured in run.measured] == list(range(len(run.measured)))
    assert {stage.sample for stage in run.wires.stages.values()} == {ticks}
    assert [true.sample for true in run.true] == list(range(ticks + 1)), "one per tick"


def test_overlong_pause_equals_that_of_one_node() -> None:
    run = compare(rig("bridge={when_late: pause, max_pause: 0.05}", PAUSES[1]), "delay@0.2:command,300,1")
    assert mentions(run.outcome.reason, "bridge.max_pause", "follow")


@pytest.mark.parametrize("after", [3, 60])
def test_axis_lost_during_pause_trips(after: int) -> None:
    """While the rig slows down, and while it waits."""
    scenario, fault = rig(*PAUSES), "delay@0.2:command,150,40"
    complete = SimulatedTest(scenario, True, fault)
    lost = after + max(measured.sample for measured in complete.measured if measured.sample < 230)
    run = SimulatedTest(scenario, True, fault, lose=lost)
    assert f"no Measurement {lost} of story_2" in run.outcome.reason
    assert run.loop.rig.pause.count == 1
    assert run.outcome.state is State.TRIPPED


@pytest.mark.parametrize("limit", [0.0006, 0.0200])
def test_tracking_errors_over_hops_are_checked_by_the_rig(limit: float) -> None:
    """Such errors refer to past samples, which an axis does not know."""
    changes = [f"axes.{axis}.limits.tracking_error={limit}" for axis in ("story_1", "story_2", "story_3")]
    run = compare(rig("hops.depth=8", "ground_motion.scale=2", *changes))
    assert ("tracking_error" in run.outcome.reason) == (run.outcome.state is State.TRIPPED)
