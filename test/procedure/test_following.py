# SPDX-License-Identifier: Apache-2.0
"""Slow motions, and tests, end where the rig does not follow, or its sensor does not show that it does."""

from __future__ import annotations

import re

import numpy as np
import pytest
from faulty_sensors import set_sensor
from messages import mentions, naming
from rig_walk import RIG

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Command
from rths_nodes.loop.scenario.rehearsal import slower
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import session as sessions
from rths_nodes.procedure.following import OneWay
from rths_nodes.procedure.machine import ActRefused

START = 0.028
"""m: where the test is to begin."""
MOVED = "the displacement does not move with the rig"
GENTLE = "ground_motion.scale=0.3"
WRONG = ("frozen", "flickers", "flipped")
FAR = ("ground_motion={type: sine, amplitude: 0.5, frequency: 1.0}", "duration=2", "compensator.type=none")


class Wrong:
    """A walk whose displacement sensor goes wrong; by how far what is measured was off its command, m."""

    def __init__(self, w) -> None:
        self.walk, self.port, self.furthest = w, w.session.drive.port, 0.0
        self._sent = w.session.drive.command if hasattr(w.session.drive, "command") else None
        write, read = self.port.write, self.port.read

        def sent(command: Command) -> None:
            self._sent = command.command
            write(command)

        def seen():
            measured = read()
            if self._sent is not None:
                self.furthest = max(self.furthest, float(np.abs(measured.displacement - self._sent).max()))
            return measured

        self.port.write, self.port.read = sent, seen

    def goes(self, how: str, rate: float = 0.0, channel: str = "displacement") -> None:
        set_sensor(self.port, 0, channel, how, rate)
        self.furthest = 0.0


def rest(w) -> None:
    """Nobody is so quick that the actuators still come to rest."""
    for _ in range(512):
        w.session.drive.tick()


@pytest.fixture
def far(monkeypatch):
    monkeypatch.setattr(sessions, "start_of", lambda scenario, port: np.array([START]))


@pytest.mark.parametrize("how", WRONG)
def test_a_way_to_the_start_ends_where_the_sensor_does_not_follow(walk, far, how):
    w = walk()
    w.refer()
    w.session.check()
    wrong = Wrong(w)
    wrong.goes(how)
    with pytest.raises(ActRefused, match=f"axes.story_1: {MOVED}|axes.story_1.slow_error"):
        w.session.position()
    assert w.session.state is State.TRIPPED
    assert abs(w.sent[-1]) < 0.6e-3
    assert wrong.furthest < 1.0e-3


@pytest.mark.parametrize("how", WRONG)
def test_a_fast_way_to_the_start_is_looked_at_from_its_first_tick(walk, far, how):
    small = "small_move: {displacement: 1.0e-3, velocity: "
    w = walk(rig=(f"{small}20.0e-3", f"slow_error: 1.5e-3\n    {small}400.0e-3"))
    w.refer()
    w.session.check()
    rest(w)
    wrong = Wrong(w)
    wrong.goes(how)
    with pytest.raises(ActRefused, match=r"axes.story_1.slow_error"):  # sooner than a travel could be told
        w.session.position()
    assert wrong.furthest < 2.0e-3


@pytest.mark.parametrize("how", WRONG)
def test_unloading_ends_where_the_displacement_does_not_follow(walk, how):
    w = walk(*FAR)
    w.to_start()
    assert w.climb("g").outcome == "finished"
    rest(w)
    wrong = Wrong(w)
    wrong.goes(how)
    before = w.sent[-1]
    assert abs(before) > 5e-3
    with pytest.raises(ActRefused, match=f"axes.story_1: {MOVED}|axes.story_1.slow_error"):
        w.session.unload()
    assert w.session.state is State.TRIPPED
    assert abs(w.sent[-1] - before) < 1.2e-3
    assert wrong.furthest < 2.0e-3


def test_a_sensor_that_drifts_ends_a_slow_motion_at_the_bound(walk, far):
    w = walk()
    w.refer()
    w.session.check()
    wrong = Wrong(w)
    wrong.goes("drifts", 1e-3)
    with pytest.raises(ActRefused) as told:
        w.session.position()
    found = re.search(r"axes.story_1.slow_error: measured - command = \S+ mm: .* \+- (\S+) mm", str(told.value))
    assert found
    bound = 1e-3 * float(found[1])
    assert 1e-3 <= bound < 2e-3
    assert wrong.furthest < bound + 0.05e-3


@pytest.mark.parametrize("bound", ["0.5e-3", "0.8e-3"])
def test_a_rig_file_may_bound_it(walk, far, bound):
    w = walk(rig=("    elastic_limit", f"    slow_error: {bound}\n    elastic_limit"))
    w.refer()
    w.session.check()
    wrong = Wrong(w)
    wrong.goes("drifts", 1e-3)
    with pytest.raises(ActRefused, match=naming("within", f"{1e3 * float(bound):.3f} mm")):
        w.session.position()
    assert wrong.furthest < float(bound) + 0.05e-3


def test_a_loop_that_is_soft_under_load_follows_by_its_own_measure(walk, far):
    """It rests 3.5 mm short of its command at the start, which is 13 % of its way: as the small move has shown."""
    w = walk("axes.story_1.output.static_stiffness=60e6", rig=("    stiffness_known_to: 0.03\n", ""))
    w.refer()
    w.session.check()
    found = w.record.checks["story_1"]
    assert found.static_error == pytest.approx(7.6 / 67.6 * 1e-3, rel=0.1)
    for name in w.session.clearance.unsigned():
        w.session.sign_for(name)
    wrong = Wrong(w)
    w.session.position()
    assert w.session.state is State.POSITIONED
    assert wrong.furthest > 3e-3


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("ratio", [1, 4])
def test_a_test_ends_where_the_sensor_does_not_move_with_the_rig(walk, how, ratio):
    w = walk(*FAR, "monitor.corridor=null")
    w.to_start()
    scenario = w.scenario if ratio == 1 else slower(w.scenario, ratio)
    w.arm("g" if ratio == 1 else "e", scenario)
    begin = 300 * ratio
    wrong = Wrong(w)
    w.progress = lambda sample: wrong.goes(how) if sample == begin else None
    written = w.session.run(w._embedded)
    assert written.outcome == "tripped"
    assert MOVED in written.reason
    assert written.samples < begin + 0.6 * ratio * w.scenario.servo_rate


def test_a_resumed_test_is_looked_at_as_a_slow_motion(walk):
    w = walk(*FAR)
    w.to_start()
    slow = slower(w.scenario, 4)
    wrong = Wrong(w)

    def on_state(state: State) -> None:
        if state is State.HELD and w.session.possible()["resume"] == "":
            wrong.goes("drifts", 1.0)
            w.session.resume()

    w.on_state = on_state
    w.progress = lambda sample: w.session.hold("coffee") if sample == 2000 else None
    written = w.climb("e", slow)
    assert written.outcome == "tripped"
    assert mentions(written.reason, "axes.story_1.slow_error", "measured")


DAMPED = "axes.story_1.specimen={type: kelvin_voigt, stiffness: 1.0e6, damping: 0.6e6}"
"""Its force is that of its rate: at the ends of a cycle it has the same one."""


def test_the_force_of_a_damper_moves_with_the_rig(walk):
    w = walk(*FAR, DAMPED, rig=("    stiffness: 7.6e6\n    stiffness_known_to: 0.03\n", ""))
    w.refer()
    w.session.check()
    for name in w.session.clearance.unsigned():
        w.session.sign_for(name)
    w.session.position()
    assert w.climb("g").remarks == []


@pytest.mark.parametrize(("peak", "told"), [(100.0, False), (4.0, True)])
def test_what_changes_at_all_is_not_dead(peak, told):
    """A quarter of a cycle late it is the same at both ends of each way."""
    watch, dead = OneWay(50.0, 8, least=10.0), []
    for k in range(4000):
        phase = 2.0 * np.pi * k / 1000
        dead.append(bool(watch.stuck(100.0 * np.cos(phase), peak * np.sin(phase))) and watch.both_ways)
    assert any(dead) == told


def test_a_dead_load_cell_is_told_in_a_test(walk):
    spring = "axes.story_1.specimen={type: kelvin_voigt, stiffness: 7.6e6, damping: 0}"
    told = {}
    for how in ("right", "frozen"):
        w = walk(*FAR, spring)
        w.to_start()
        w.arm("g")
        w.progress = lambda sample, w=w, how=how: (
            set_sensor(w.session.drive.port, 0, "force", how) if sample == 200 else None
        )
        written = w.session.run(w._embedded)
        assert written.outcome == "finished"
        told[how] = written.remarks
    assert told["right"] == []
    assert len(told["frozen"]) == 1
    assert mentions(told["frozen"][0], "axes.story_1", "rig")


# -- behind a port that is no simulator -------------------------------------------------------------------------


def test_a_real_rig_runs_only_with_a_bound_of_its_tracking_error(walk, monkeypatch):
    monkeypatch.setattr("rths_nodes.laboratory.ports.simulator.Simulator.simulated", False)
    with pytest.raises(ConfigError, match=naming("axes.bench.limits.tracking_error", "bench", "missing")):
        walk()
    bounded = walk(rig=("deceleration: 20.0}", "deceleration: 20.0, tracking_error: 0.02}"))
    assert bounded.session.state is State.IDLE


@pytest.mark.parametrize("still", ["displacement", "force"])
def test_channels_without_scatter_are_refused_behind_a_real_port(walk, monkeypatch, still):
    monkeypatch.setattr("rths_nodes.laboratory.ports.simulator.Simulator.simulated", False)
    noise = {"displacement": 2e-6, "force": 50.0} | {still: 0.0}
    sets = [f"axes.story_1.sensors.{name}_noise_rms={value}" for name, value in noise.items()]
    w = walk(*sets, rig=("deceleration: 20.0}", "deceleration: 20.0, tracking_error: 0.02}"))
    with pytest.raises(ConfigError, match=naming(f"axes.bench.{still}", "0.05 s")) as refused:
        w.refer()
    assert len(refused.value.problems) == 1
    assert w.session.state is State.CONNECTED


# -- false words ------------------------------------------------------------------------------------------------

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
def test_rigs_of_any_size_have_no_false_word(walk, tmp_path, size, peak, stiffness):
    text = RIG
    for old, new in SIZES[size].items():
        assert old in text
        text = text.replace(old, new)
    loop = 4e9 if size == "5 MN" else 4e4
    w = walk(
        f"integrator={{type: prescribed, displacement: {{type: sine, amplitude: {peak}, frequency: 1.0}}}}",
        "structure=null",
        "ground_motion={type: none}",
        f"axes.story_1.specimen={{type: kelvin_voigt, stiffness: {stiffness}, damping: 0}}",
        f"axes.story_1.output.static_stiffness={loop}",
        "compensator.type=none",
        rig=(RIG, text),
        name="chen_ricles_2010",
    )
    w.to_start()
    assert w.climb("g").outcome == "finished"
    assert w.record.rungs[-1].remarks == []
    assert w.session.unload().given_up == ""
    w.session.finish()
    assert (w.record.outcome, w.record.notes) == ("finished", [])
    assert [words for each in w.record.checks.values() for words in each.remarks] == []
