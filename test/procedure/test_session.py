# SPDX-License-Identifier: Apache-2.0
"""A session of a simulated rig: from cold over the rungs to the end, and what is refused on the way."""

from __future__ import annotations

import re

import numpy as np
import pytest
from messages import mentions, naming
from rig_walk import steps

from rths_nodes.app.procedure.ladder import peaks_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.procedure_record import SIGNED, ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.rehearsal import hash_of, simulated, slower
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import port_numbers
from rths_nodes.procedure import rungs
from rths_nodes.procedure.machine import MOTION, ActRefused
from rths_nodes.procedure.session import RigSession
from rths_nodes.recording.run import Collector

DT = 1.0 / 1024.0
VELOCITY = 1.2
SPRING = "axes.story_1.specimen={type: computed_spring, stiffness: 7.6e6}"
GENTLE = "ground_motion.scale=0.05"


def embedded(scenario, port=None):
    """A run as of rungs (a) and (b)."""
    loop = Loop(Assembly(scenario, port))
    collector = Collector(scenario, loop.assembly.names)
    loop.run([collector])
    return collector.run({}, {}, {})


def test_a_whole_procedure_enters_every_state_by_an_act(walk):
    w = walk()
    w.to_start()
    for rung in "cdeg":
        if w.session.state is State.HELD:
            w.session.position()
        scenario = slower(w.scenario, 2) if rung == "e" else w.scenario
        scenario = override(scenario, [GENTLE]) if rung in "de" else scenario
        written = w.climb(rung, scenario)
        assert (written.name, written.outcome, written.reason) == (rung, "finished", "")
        assert w.session.state is State.HELD
        with pytest.raises(ActRefused, match=naming("run", "rig")):
            w.session.run(w._embedded)
    w.session.finish()
    one = [State.POSITIONING, State.POSITIONED, State.ARMED, State.RUNNING, State.HELD]
    before = [State.CONNECTED, State.REFERENCED, State.CHECKING, State.REFERENCED]
    assert w.states == [*before, *one * 4, State.FINISHED]
    assert [rung.name for rung in w.record.rungs] == ["c", "d", "e", "g"]
    assert [rung.time_ratio for rung in w.record.rungs] == [1, 1, 2, 1]
    assert w.record.rungs[0].scenario_hash == hash_of(w.scenario)
    assert w.record.offsets_before.confirmed
    assert w.record.offsets_after.axes.keys() == {"story_1"}
    assert w.record.outcome == "finished"
    assert w.record.ended
    last = w.record.controller.pop("active command")
    assert w.record.controller == {"hydraulics": "high", "interlock": "closed", "control mode": "displacement"}
    assert float(last.removesuffix(" mm")) == pytest.approx(1e3 * w.session.drive.command[0], abs=6e-4)


@pytest.mark.parametrize(
    ("what", "active", "measured"),
    [
        ({"start": 0.004}, 0.004, 0.004),  # it waits elsewhere
        ({"offset": -0.004}, 0.004, 0.0),  # its zero is elsewhere
    ],
)
def test_the_first_command_is_the_active_one_of_the_controller(walk, what, active, measured):
    w = walk(*(f"axes.story_1.output.{key}={value}" for key, value in what.items()), "duration=0.2")
    w.to_start()
    assert w.sent[0] == active
    assert float(w.session.measured.displacement[0]) == pytest.approx(measured, abs=1e-12)
    before = len(w.sent)
    assert w.climb("g").outcome == "finished"
    assert w.sent[before] == pytest.approx(active, abs=VELOCITY * DT)
    assert steps(w.sent) <= VELOCITY * DT * (1.0 + 1e-12)
    # the test counts from there
    assert float(w.run.displacement[0, 0]) == pytest.approx(0.0, abs=1e-12)
    there = embedded(files.load("chen_ricles_2010", ["duration=0.2"], rig=w.scenario_file))
    assert w.run.displacement == pytest.approx(there.displacement, abs=1e-9)


def test_an_external_command_far_from_where_the_rig_stands_is_not_accepted(walk):
    w = walk("axes.story_1.output.offset=-0.02")
    with pytest.raises(ConfigError, match=naming("0.02 m", "0 m", "<= 0.0055 m")):
        w.session.connect()
    assert w.session.state is State.IDLE
    assert w.sent == []


def test_offsets_are_bounded_shown_confirmed_and_tared(walk):
    wrong = ("axes.story_1.sensors.displacement_offset=0.002", "axes.story_1.sensors.force_offset=20e3")
    w = walk(*wrong, "duration=0.2")
    w.session.connect()
    taken = w.session.take_offsets(0.05)
    assert (taken.displacement[0], taken.force[0]) == (0.002, 20e3)
    assert w.session.state is State.CONNECTED
    with pytest.raises(ActRefused, match=naming("no_such", taken.hash)):
        w.session.confirm_offsets("no_such", unloaded=True)
    w.session.confirm_offsets(taken.hash, unloaded=True)
    w.session.check()
    w.session.position()
    w.climb("g")
    true = embedded(files.load("chen_ricles_2010", ["duration=0.2"], rig=w.scenario_file))
    assert w.run.displacement == pytest.approx(true.displacement, abs=1e-9)
    assert w.run.force == pytest.approx(true.force, abs=1.0)
    axis = w.record.offsets_before.axes["story_1"]
    assert (axis.displacement, axis.force, axis.command, axis.force_tared) == (0.002, 20e3, 0.0, True)


@pytest.mark.parametrize(
    ("sensor", "words"),
    [
        ("force_offset=50e3", ("force", "50000 N", "40000 N", "2%")),
        ("displacement_offset=0.0054", None),
    ],
)
def test_a_tare_beyond_two_percent_of_the_range_is_refused(walk, sensor, words):
    w = walk(f"axes.story_1.sensors.{sensor}")
    w.session.connect()
    taken = w.session.take_offsets(0.05)
    if words is None:
        w.session.confirm_offsets(taken.hash, True)
        return
    with pytest.raises(ConfigError, match=naming(*words)):
        w.session.confirm_offsets(taken.hash, True)
    assert w.session.state is State.CONNECTED
    w.session.confirm_offsets(taken.hash, False)
    assert w.session.state is State.REFERENCED


def test_a_force_at_rest_that_nobody_tared_bars_the_way(walk):
    w = walk("axes.story_1.sensors.force_offset=20e3")
    w.refer(unloaded=False)
    w.session.check()
    with pytest.raises(ActRefused, match=naming("20000 N", "1.00%")):
        w.session.position()
    w.session.sign_for("force at rest of story_1", "A. Nyone")
    assert mentions(w.record.deviations[0], "signed", "Nyone")
    w.session.position()
    assert w.session.state is State.POSITIONED


def test_limits_act_on_untared_values(walk):
    shown = "axes.story_1.sensors.force_offset=30e3"
    w = walk(shown, "duration=2", rig=("force: 1.8e6", "force: 100e3"))
    w.to_start()
    written = w.climb("g")
    assert written.outcome == "tripped"
    assert "axes.story_1.limits.force" in written.reason
    told = float(re.search(r"measured = (\S+) N", written.reason)[1])
    assert abs(told) > 100e3
    assert float(w.run.force[-1, 0]) != told
    assert np.isclose(w.run.force[:, 0], told - 30e3).any()


def test_findings_bar_the_way_and_nobody_can_sign_for_them(walk):
    w = walk("axes.story_1.sensors.force_scale=-1")
    w.refer()
    assert mentions(w.session.possible()["position"], "axes", "checked")
    w.session.check()
    with pytest.raises(ActRefused, match=naming("wrong", "sign", "force")):
        w.session.position()
    w.session.sign_for("scale of force of story_1", "A. Nyone")
    with pytest.raises(ActRefused, match=naming("wrong", "sign", "force")):
        w.session.position()


def test_scales_that_are_not_verified_bar_the_way_until_they_are_signed_for(walk):
    w = walk(rig=("    stiffness_known_to: 0.03\n", ""))
    w.refer()
    w.session.check()
    with pytest.raises(ActRefused, match=naming("story_1", "verify")):
        w.session.position()
    for name in w.session.clearance.unsigned():
        w.session.sign_for(name, "A. Nyone")
    assert w.record.checks["story_1"].force_scale == SIGNED
    w.session.position()


def test_arming_with_a_changed_scenario_offsets_or_rig_is_refused(walk):
    w = walk()
    w.to_start()
    right, offsets = hash_of(w.scenario), w.session.offsets.hash
    louder = override(w.scenario, ["ground_motion.scale=1.1"])
    stiffer = override(w.scenario, ["axes.story_1.limits.force=1.7e6"])
    for scenario, scenario_hash, offsets_hash, words in (
        (louder, right, offsets, "the scenario has changed"),
        (w.scenario, right, "old", "the offsets have changed: the hash to be armed is old"),
        (stiffer, hash_of(stiffer), offsets, "the rig has changed since it was connected: axes.story_1.limits"),
    ):
        with pytest.raises(ConfigError, match=words):
            w.session.arm("g", scenario, scenario_hash, offsets_hash)
        assert w.session.state is State.POSITIONED
    with pytest.raises(ConfigError, match=naming("rung 'b'")):
        w.session.arm("b", w.scenario, right, offsets)
    w.session.arm("g", w.scenario, right, offsets)
    w.session.stop("another day")
    assert (w.session.state, w.session.reason) == (State.HELD, "another day")
    with pytest.raises(ActRefused, match=naming("run", "rig")):
        w.session.run(w._embedded)


def test_commands_that_are_not_sent_give_what_nodes_with_a_simulator_give(walk):
    w = walk()
    w.to_start()
    held = w.sent[-1]
    del w.sent[:]
    w.climb("c")
    assert set(w.sent) == {held}
    assert len(w.sent) >= w.scenario.samples
    rehearsed = embedded(w.scenario)
    for name in ("displacement", "force", "command", "target"):
        assert np.array_equal(getattr(w.run, name), getattr(rehearsed, name)), name


def test_a_computed_force_on_a_rig_without_specimen_is_the_rehearsal_with_a_computed_spring(walk):
    w = walk(SPRING, "axes.story_1.actuator={type: first_order, alpha: 29.0}", GENTLE)
    w.to_start()
    assert w.climb("d").outcome == "finished"
    rehearsed = embedded(w.scenario)
    for name in ("displacement", "force", "command", "target"):
        shown, there = getattr(w.run, name), getattr(rehearsed, name)
        assert shown == pytest.approx(there, rel=1e-9, abs=1e-9 * np.abs(there).max()), name


def test_rungs_below_the_elastic_limit_end_there(walk):
    w = walk(rig=("elastic_limit: 0.04", "elastic_limit: 0.001"))
    w.to_start()
    written = w.climb("d", override(w.scenario, [SPRING]))
    assert written.outcome == "tripped"
    assert mentions(written.reason, "elastic_limit", "measured", "0.001 m")
    assert w.states[-3:] == [State.RUNNING, State.STOPPING, State.TRIPPED]
    with pytest.raises(ActRefused, match=naming("unload", "acknowledge")):
        w.session.unload()
    held = w.session.drive.command
    w.session.acknowledge()
    assert w.session.drive.command is held  # nothing has moved since
    w.session.position()
    assert w.session.state is State.POSITIONED


def test_without_an_elastic_limit_its_rungs_are_refused(walk):
    w = walk(rig=("    elastic_limit: 0.04\n", ""))
    w.to_start()
    with pytest.raises(ConfigError, match=naming("axes.story_1", "elastic_limit")):
        w.arm("d")
    w.arm("g")


def test_a_hold_in_slow_time_changes_nothing_for_a_specimen_without_rates(walk):
    spring = "axes.story_1.specimen={type: kelvin_voigt, stiffness: 7.6e6, damping: 0}"
    w = walk(spring, "compensator.type=none", GENTLE)
    w.to_start()
    slow = slower(w.scenario, 4)
    w.climb("e", slow)
    whole = w.run
    w.session.position()

    def on_state(state):
        if state is State.HELD and w.session.possible()["resume"] == "":
            w.session.resume()

    w.on_state = on_state
    w.progress = lambda sample: w.session.hold("coffee") if sample == 1000 else None
    w.states.clear()
    written = w.climb("e", slow)
    assert written.outcome == "finished"
    assert written.samples == slow.samples
    assert mentions(written.remarks[0], "held", "sample", "0.0 s", "kN")
    assert w.session.record.deviations == [f"rung e: {written.remarks[0]}"]
    velocities = peaks_of(w.run)["story_1"]["velocity"], peaks_of(whole)["story_1"]["velocity"]
    assert velocities[0] == pytest.approx(velocities[1], rel=0.05)
    assert np.abs(np.diff(w.run.displacement[:, 0])).max() / DT > 1.5 * velocities[1]
    after = [State.RUNNING, State.STOPPING, State.HELD, State.RESUMING, State.RUNNING, State.HELD]
    assert w.states == [State.ARMED, *after]
    size = np.abs(whole.displacement).max()
    assert w.run.displacement == pytest.approx(whole.displacement, abs=0.01 * size)
    assert w.run.target == pytest.approx(whole.target, abs=0.01 * size)
    assert steps(w.sent) <= VELOCITY * DT


def test_what_is_held_in_slow_time_can_be_stopped(walk):
    w = walk(GENTLE)
    w.to_start()
    w.on_state = lambda state: w.session.stop("enough") if state is State.HELD else None
    w.progress = lambda sample: w.session.hold() if sample == 200 else None
    written = w.climb("e", slower(w.scenario, 2))
    assert (written.outcome, w.session.state) == ("held", State.HELD)
    assert "enough" in written.reason


def test_a_hold_in_real_time_ends_the_test(walk):
    w = walk()
    w.to_start()
    w.progress = lambda sample: w.session.hold("coffee") if sample == 100 else None
    written = w.climb("g")
    assert written.outcome == "held"
    assert written.reason.endswith("coffee")
    assert w.states[-3:] == [State.RUNNING, State.STOPPING, State.HELD]


def test_a_stop_ends_a_motion_and_the_rig_is_held(walk):
    w = walk(GENTLE)
    w.to_start()
    w.climb("g")
    w.on_state = lambda state: w.session.stop("wait") if state is State.POSITIONING else None
    with pytest.raises(ActRefused, match="wait"):
        w.session.position()
    assert (w.session.state, w.session.reason) == (State.HELD, "wait")
    w.on_state = lambda state: None
    w.session.position()
    assert w.session.state is State.POSITIONED


def test_without_pressure_nothing_is_moved_and_a_test_trips(walk):
    w = walk(GENTLE)
    w.to_start()
    w.progress = lambda sample: w.session.drive.port.set_hydraulics("off") if sample == 100 else None
    written = w.climb("g")
    assert written.outcome == "tripped"
    assert mentions(written.reason, "hydraulics", "off")
    w.session.acknowledge()
    with pytest.raises(ActRefused, match=naming("position", "rig")):
        w.session.position()
    w.session.drive.port.set_hydraulics("high")
    w.session.drive.tick()
    w.session.position()
    w.session.finish()
    assert w.record.outcome == "tripped"


def test_a_host_that_fails_leaves_the_rig_tripped_and_held(walk):
    w = walk()
    w.to_start()

    def broken(scenario, port):
        port.open(None)
        port.begin()
        raise OSError("the host is gone")

    w.arm("g")
    with pytest.raises(OSError, match="gone"):
        w.session.run(broken)
    assert w.session.state is State.TRIPPED
    assert w.record.rungs[-1].outcome == "failed"
    w.session.acknowledge()
    w.session.position()


def test_a_run_that_is_over_cannot_drive_the_rig_any_more(walk):
    w = walk(GENTLE)
    w.to_start()
    kept = []

    def runner(scenario, port):
        kept.append(port)
        return w._embedded(scenario, port)

    w.arm("g")
    w.session.run(runner)
    with pytest.raises(RuntimeError, match=naming("procedure", "taken", "rig")):
        kept[0].wait_tick()


def test_only_in_motion_states_the_command_changes(walk):
    w = walk(GENTLE)
    seen = []
    w.on_state = lambda state: seen.append((state, len(w.sent)))
    w.to_start()
    w.climb("g")
    w.session.finish()
    for (state, begin), (_, end) in zip(seen, [*seen[1:], (State.FINISHED, len(w.sent))], strict=True):
        if state not in MOTION:
            assert len({*w.sent[max(begin - 1, 0) : end]}) <= 1, state


def test_a_procedure_needs_a_rig_file():
    scenario = files.load("chen_ricles_2010")
    with pytest.raises(ConfigError, match=naming("procedure", "file")):
        RigSession(scenario, ProcedureRecord("test", scenario.name, ""), realtime=False)


def test_a_port_without_readback_begins_where_the_rig_is_measured(walk, monkeypatch):
    w = walk("axes.story_1.output.start=0.01")
    monkeypatch.setattr(type(w.session.drive.port), "active_command", None)
    w.session.connect()
    w.session.take_offsets(0.05)
    assert len(set(w.sent)) == 1
    assert w.sent[0] == pytest.approx(0.01)
    assert mentions(w.record.notes[0].text, "position", "0.01 m")


def test_a_rung_tells_what_the_counter_of_the_rig_was_at_its_start(walk):
    """The channel of the trigger is high in the rung alone, and begins at that counter."""
    made = walk(rig=("{type: simulator,", "{type: simulator, trigger: true,"))
    made.to_start()
    heard, told = [], {}
    port = made.session.drive.port
    read = port.read

    def spy():
        measured = read()
        heard.append((measured.sample, float(measured.auxiliary[-1])))
        return measured

    port.read = spy

    def told_of(scenario, of_rung):
        outcome = made._embedded(scenario, of_rung)
        told.update(port_numbers(of_rung))
        return outcome

    made.arm("g")
    made.session.run(told_of)
    high = [sample for sample, value in heard if value]
    assert high[0] == told["counter_at_start"] + 2  # Command 1 acts a sample later
    assert len(high) == made.scenario.samples


def test_a_rung_that_is_not_sent_keeps_the_channels_of_the_rig(walk, monkeypatch):
    """The simulator that answers has no trigger, as that of a real rig; the test gets what the rig shows."""
    made = walk(rig=("{type: simulator,", "{type: simulator, trigger: true,"))
    monkeypatch.setattr(rungs, "simulated", lambda of: override(simulated(of), ["port.trigger=false"]))
    made.to_start()
    heard = []
    read = rungs.UnsentPort.read

    def spy(self):
        measured = read(self)
        heard.append(measured.auxiliary.tolist())
        return measured

    monkeypatch.setattr(rungs.UnsentPort, "read", spy)
    assert made.climb("c").outcome == "finished"
    assert set(map(tuple, heard)) == {(0.0,), (1.0,)}
