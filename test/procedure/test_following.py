# SPDX-License-Identifier: Apache-2.0
"""Tests of the stop of slow motions and runs when the rig does not follow, or its sensor does not show it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from faulty_sensors import set_sensor
from messages import mentions, naming
from rig_walk import RIG

from rths_nodes.loop.scenario.rehearsal import slower
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import rungs
from rths_nodes.procedure.following import OneWay
from rths_nodes.procedure.machine import ActRefused

MOVED = "the displacement does not follow the command"
LARGE = ("ground_motion={type: sine, amplitude: 0.5, frequency: 1.0}", "duration=2", "compensator.type=none")
UNKNOWN = ("    stiffness: 7.6e6\n    stiffness_known_to: 0.03\n", "")
each_fault = pytest.mark.parametrize("how", ["frozen", "flickers", "flipped"])


class SensorFault:
    """Fault of a sensor on request; records ``furthest``, the largest difference from the command, m."""

    def __init__(self, w):
        self.port, self.furthest = w.session.drive.port, 0.0
        self._command = w.session.drive.command
        write, read = self.port.write, self.port.read

        def watched_write(command):
            self._command = command.command
            write(command)

        def watched_read():
            measured = read()
            self.furthest = max(self.furthest, float(np.abs(measured.displacement - self._command).max()))
            return measured

        self.port.write, self.port.read = watched_write, watched_read

    def begin(self, how, rate=0.0):
        set_sensor(self.port, 0, "displacement", how, rate)
        self.furthest = 0.0


@pytest.fixture
def checked(walk, monkeypatch):
    """Makes a checked rig 28 mm from the start of its test."""
    monkeypatch.setattr(rungs, "start_of", lambda scenario, port: np.array([0.028]))

    def make(*sets, **rig):
        w = walk(*sets, **rig).refer()
        w.session.check()
        return w

    return make


@each_fault
def test_faulty_sensor_stops_motion_to_start(checked, how):
    w = checked()
    fault = SensorFault(w)
    fault.begin(how)
    with pytest.raises(ActRefused, match=f"axes.story_1: {MOVED}|axes.story_1.slow_error"):
        w.session.position()
    assert w.session.state is State.TRIPPED
    assert abs(w.sent[-1]) < 0.6e-3
    assert fault.furthest < 1.0e-3


@each_fault
def test_fast_motion_is_checked_from_its_first_tick(checked, how):
    small = "small_move: {displacement: 1.0e-3, velocity: "
    w = checked(rig=(f"{small}20.0e-3", f"slow_error: 1.5e-3\n    {small}400.0e-3"))
    w.tick(512)
    fault = SensorFault(w)
    fault.begin(how)
    with pytest.raises(ActRefused, match=r"axes.story_1.slow_error"):  # before the travel is large enough
        w.session.position()
    assert fault.furthest < 2.0e-3


@each_fault
def test_faulty_sensor_stops_unloading(walk, how):
    w = walk(*LARGE).to_start()
    assert w.climb("g").outcome == "finished"
    w.tick(512)
    fault = SensorFault(w)
    fault.begin(how)
    before = w.sent[-1]
    assert abs(before) > 5e-3
    with pytest.raises(ActRefused, match=f"axes.story_1: {MOVED}|axes.story_1.slow_error"):
        w.session.unload()
    assert w.session.state is State.TRIPPED
    assert abs(w.sent[-1] - before) < 1.2e-3
    assert fault.furthest < 2.0e-3


def test_drifting_sensor_stops_slow_motion_at_bound(checked):
    w = checked()
    fault = SensorFault(w)
    fault.begin("drifts", 1e-3)
    with pytest.raises(ActRefused) as refused:
        w.session.position()
    reason = re.search(
        r"axes.story_1.slow_error: measured - command = \S+ mm: .* \+- (\S+) mm", str(refused.value)
    )
    assert reason
    bound = 1e-3 * float(reason[1])
    assert 1e-3 <= bound < 2e-3
    assert fault.furthest < bound + 0.05e-3


@pytest.mark.parametrize("bound", ["0.5e-3", "0.8e-3"])
def test_rig_file_sets_bound_of_slow_error(checked, bound):
    w = checked(rig=("    elastic_limit", f"    slow_error: {bound}\n    elastic_limit"))
    fault = SensorFault(w)
    fault.begin("drifts", 1e-3)
    with pytest.raises(ActRefused, match=naming("within", f"{1e3 * float(bound):.3f} mm")):
        w.session.position()
    assert fault.furthest < float(bound) + 0.05e-3


def test_static_error_of_small_move_widens_bound(checked):
    """The rig rests 3.5 mm short of its command at the start, 13 % of its travel, as in the small move."""
    w = checked("axes.story_1.output.static_stiffness=60e6", rig=("    stiffness_known_to: 0.03\n", ""))
    assert w.record.checks["story_1"].static_error == pytest.approx(7.6 / 67.6 * 1e-3, rel=0.1)
    w.sign_all()
    fault = SensorFault(w)
    w.session.position()
    assert w.session.state is State.POSITIONED
    assert fault.furthest > 3e-3


@each_fault
@pytest.mark.parametrize("ratio", [1, 4])
def test_faulty_sensor_trips_run(walk, how, ratio):
    w = walk(*LARGE, "monitor.corridor=null").to_start()
    w.arm("g" if ratio == 1 else "e", w.scenario if ratio == 1 else slower(w.scenario, ratio))
    begin = 300 * ratio
    fault = SensorFault(w)
    w.progress = lambda sample: fault.begin(how) if sample == begin else None
    result = w.session.run(w._embedded)
    assert result.outcome == "tripped"
    assert MOVED in result.reason
    assert result.samples < begin + 0.6 * ratio * w.scenario.servo_rate


def test_resuming_is_checked_as_slow_motion(walk):
    w = walk(*LARGE).to_start()
    fault = SensorFault(w)

    def on_state(state):
        if state is State.HELD and w.session.possible()["resume"] == "":
            fault.begin("drifts", 1.0)
            w.session.resume()

    w.on_state = on_state
    w.progress = lambda sample: w.session.hold("coffee") if sample == 2000 else None
    result = w.climb("e", slower(w.scenario, 4))
    assert result.outcome == "tripped"
    assert mentions(result.reason, "axes.story_1.slow_error", "measured")


def test_damper_force_raises_no_remark(walk):
    """The force follows the rate: it is the same at both ends of a cycle."""
    w = walk(
        *LARGE, "axes.story_1.specimen={type: kelvin_voigt, stiffness: 1.0e6, damping: 0.6e6}", rig=UNKNOWN
    ).to_start(signs=True)
    assert w.climb("g").remarks == []


@pytest.mark.parametrize(("peak", "stuck"), [(100.0, False), (4.0, True)])
def test_changing_force_is_not_stuck(peak, stuck):
    """A force a quarter of a cycle late is the same at both ends of each travel."""
    watch, results = OneWay(50.0, 8, least=10.0), []
    for k in range(4000):
        phase = 2.0 * np.pi * k / 1000
        results.append(bool(watch.stuck(100.0 * np.cos(phase), peak * np.sin(phase))) and watch.both_ways)
    assert any(results) == stuck


def test_run_reports_dead_load_cell(walk):
    remarks = {}
    for how in ("right", "frozen"):
        w = walk(*LARGE, "axes.story_1.specimen={type: kelvin_voigt, stiffness: 7.6e6, damping: 0}").to_start()
        w.progress = lambda sample, w=w, how=how: (
            set_sensor(w.session.drive.port, 0, "force", how) if sample == 200 else None
        )
        result = w.climb("g")
        assert result.outcome == "finished"
        remarks[how] = result.remarks
    assert remarks["right"] == []
    assert len(remarks["frozen"]) == 1
    assert mentions(remarks["frozen"][0], "axes.story_1", "rig")


SIZES = {
    "desktop": {
        "mm, range: 275.0": "mm, range: 6.0, resolution: 0.0005, noise_rms: 0.0002",
        "kN, range: 2000.0": "N, range: 12.0, noise_rms: 0.002",
        "mm, range: 260.0": "mm, range: 5.5",
        "stroke: 0.25, velocity: 1.2, force: 1.8e6": "stroke: 0.005, velocity: 0.1, force: 10.0",
        "elastic_limit: 0.04": "elastic_limit: 0.004",
        "stiffness: 7.6e6": "stiffness: 4.0e3",
        "1.0e-3, velocity: 20.0e-3, force: 30.0e3": "0.2e-3, velocity: 2.0e-3, force: 3.0",
        "travel: 0.05, velocity: 5.0e-3": "travel: 0.005, velocity: 2.0e-3",
    },
    "5 MN": {
        "mm, range: 275.0": "mm, range: 275.0, resolution: 0.005, noise_rms: 0.004",
        "kN, range: 2000.0": "kN, range: 6000.0, noise_rms: 1.0",
        "force: 1.8e6": "force: 5.0e6",
        "stiffness: 7.6e6": "stiffness: 400.0e6",
        "1.0e-3, velocity: 20.0e-3, force: 30.0e3": "0.5e-3, velocity: 5.0e-3, force: 0.4e6",
    },
}


@pytest.mark.parametrize(("size", "peak", "stiffness"), [("desktop", 2e-3, 4e3), ("5 MN", 8e-3, 4e8)])
def test_rigs_of_any_size_raise_no_remark(walk, size, peak, stiffness):
    text = RIG
    for old, new in SIZES[size].items():
        assert old in text
        text = text.replace(old, new)
    w = walk(
        f"integrator={{type: prescribed, displacement: {{type: sine, amplitude: {peak}, frequency: 1.0}}}}",
        "structure=null",
        "ground_motion={type: none}",
        f"axes.story_1.specimen={{type: kelvin_voigt, stiffness: {stiffness}, damping: 0}}",
        f"axes.story_1.output.static_stiffness={4e9 if size == '5 MN' else 4e4}",
        "compensator.type=none",
        rig=(RIG, text),
    ).to_start()
    assert w.climb("g").outcome == "finished"
    assert w.record.rungs[-1].remarks == []
    assert w.session.unload().given_up == ""
    w.session.finish()
    assert (w.record.outcome, w.record.notes) == ("finished", [])
    assert [axis.remarks for axis in w.record.checks.values()] == [[]]
