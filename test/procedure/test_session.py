# SPDX-License-Identifier: Apache-2.0
"""Tests of the session of a simulated rig, from the idle state over the rungs to the end."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from loop_parts import Hours
from messages import mentions, naming
from rig_walk import steps

from rths_nodes.analysis.overlay import peaks_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.procedure_record import SIGNED, ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.scenario.rehearsal import simulated, slower
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import port_numbers
from rths_nodes.procedure import rungs, session
from rths_nodes.procedure.machine import MOTION, ActRefused
from rths_nodes.procedure.session import RigSession
from rths_nodes.recording.run import Collector

DT = 1.0 / 1024.0
VELOCITY = 1.2
SPRING = "axes.story_1.specimen={type: computed_spring, stiffness: 7.6e6}"
GENTLE = "ground_motion.scale=0.05"
TRIGGER = ("{type: simulator,", "{type: simulator, trigger: true,")


def embedded(scenario, port=None):
    """Run rehearsed as on rungs a and b."""
    loop = Loop(Assembly(scenario, port))
    collector = Collector(scenario, loop.assembly.names)
    loop.run([collector])
    return collector.run()


def test_full_procedure_enters_every_state(walk):
    w = walk().to_start()
    for rung in "cdeg":
        if w.session.state is State.HELD:
            w.session.position()
        scenario = slower(w.scenario, 2) if rung == "e" else w.scenario
        result = w.climb(rung, override(scenario, [GENTLE]) if rung in "de" else scenario)
        assert (result.name, result.outcome, result.reason) == (rung, "finished", "")
        assert w.session.state is State.HELD
        with pytest.raises(ActRefused, match=naming("run", "rig")):
            w.session.run(w._embedded)
    w.session.finish()
    before = [State.CONNECTED, State.REFERENCED, State.CHECKING, State.REFERENCED]
    rung_states = [State.POSITIONING, State.POSITIONED, State.ARMED, State.RUNNING, State.HELD]
    assert w.states == [*before, *rung_states * 4, State.FINISHED]
    assert [rung.name for rung in w.record.rungs] == ["c", "d", "e", "g"]
    assert [rung.time_ratio for rung in w.record.rungs] == [1, 1, 2, 1]
    assert w.record.rungs[0].scenario_hash == w.scenario.whole_hash()
    assert w.record.offsets_before.confirmed
    assert w.record.offsets_after.axes.keys() == {"story_1"}
    assert w.record.outcome == "finished"
    assert w.record.ended
    active = w.record.controller.pop("active command")
    assert w.record.controller == {"hydraulics": "high", "interlock": "closed", "control mode": "displacement"}
    assert float(active.removesuffix(" mm")) == pytest.approx(1e3 * w.session.drive.command[0], abs=6e-4)


@pytest.mark.parametrize(("output", "value", "measured"), [("start", 0.004, 0.004), ("offset", -0.004, 0.0)])
def test_first_command_equals_active_command_of_controller(walk, output, value, measured):
    """The rig waits 4 mm from its zero, or the zero of its controller is 4 mm away."""
    active = 0.004
    w = walk(f"axes.story_1.output.{output}={value}", "duration=0.2").to_start()
    assert w.sent[0] == active
    assert float(w.session.drive.measured.displacement[0]) == pytest.approx(measured, abs=1e-12)
    before = len(w.sent)
    assert w.climb("g").outcome == "finished"
    assert w.sent[before] == pytest.approx(active, abs=VELOCITY * DT)
    assert steps(w.sent) <= VELOCITY * DT * (1.0 + 1e-12)
    assert float(w.run.displacement[0, 0]) == pytest.approx(0.0, abs=1e-12)
    reference = embedded(files.load("chen_ricles_2010", ["duration=0.2"], rig=w.scenario_file))
    assert w.run.displacement == pytest.approx(reference.displacement, abs=1e-9)


def test_external_command_far_from_rig_is_refused(walk):
    w = walk("axes.story_1.output.offset=-0.02")
    with pytest.raises(ConfigError, match=naming("0.02 m", "0 m", "<= 0.0055 m")):
        w.session.connect()
    assert w.session.state is State.IDLE
    assert w.sent == []


def test_confirmed_offsets_are_tared(walk):
    sensors = "axes.story_1.sensors"
    w = walk(f"{sensors}.displacement_offset=0.002", f"{sensors}.force_offset=20e3", "duration=0.2")
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
    reference = embedded(files.load("chen_ricles_2010", ["duration=0.2"], rig=w.scenario_file))
    assert w.run.displacement == pytest.approx(reference.displacement, abs=1e-9)
    assert w.run.force == pytest.approx(reference.force, abs=1.0)
    axis = w.record.offsets_before.axes["story_1"]
    assert (axis.displacement, axis.force, axis.command, axis.force_tared) == (0.002, 20e3, 0.0, True)


@pytest.mark.parametrize(
    ("sensor", "parts"),
    [("force_offset=50e3", ("force", "50000 N", "40000 N", "2%")), ("displacement_offset=0.0054", None)],
)
def test_tare_beyond_two_percent_of_range_is_refused(walk, sensor, parts):
    w = walk(f"axes.story_1.sensors.{sensor}")
    w.session.connect()
    taken = w.session.take_offsets(0.05)
    if parts is None:
        w.session.confirm_offsets(taken.hash, True)
        return
    with pytest.raises(ConfigError, match=naming(*parts)):
        w.session.confirm_offsets(taken.hash, True)
    assert w.session.state is State.CONNECTED
    w.session.confirm_offsets(taken.hash, False)
    assert w.session.state is State.REFERENCED


def test_untared_force_at_rest_needs_signature(walk):
    w = walk("axes.story_1.sensors.force_offset=20e3")
    w.refer(unloaded=False)
    w.session.check()
    with pytest.raises(ActRefused, match=naming("20000 N", "1.00%")):
        w.session.position()
    w.session.sign_for("force at rest of story_1", "A. Nyone")
    assert mentions(w.record.deviations[0], "signed", "Nyone")
    w.session.position()
    assert w.session.state is State.POSITIONED


def test_limits_apply_to_untared_values(walk):
    w = walk(
        "axes.story_1.sensors.force_offset=30e3", "duration=2", rig=("force: 1.8e6", "force: 100e3")
    ).to_start()
    result = w.climb("g")
    assert result.outcome == "tripped"
    assert "axes.story_1.limits.force" in result.reason
    reported = float(re.search(r"measured = (\S+) N", result.reason)[1])
    assert abs(reported) > 100e3
    assert float(w.run.force[-1, 0]) != reported
    assert np.isclose(w.run.force[:, 0], reported - 30e3).any()


def test_findings_cannot_be_signed(walk):
    w = walk("axes.story_1.sensors.force_scale=-1").refer()
    assert mentions(w.session.possible()["position"], "axes", "checked")
    w.session.check()
    with pytest.raises(ActRefused, match=naming("wrong", "sign", "force")):
        w.session.position()
    w.session.sign_for("scale of force of story_1", "A. Nyone")
    with pytest.raises(ActRefused, match=naming("wrong", "sign", "force")):
        w.session.position()


def test_unverified_scales_need_signatures(walk):
    w = walk(rig=("    stiffness_known_to: 0.03\n", "")).refer()
    w.session.check()
    with pytest.raises(ActRefused, match=naming("story_1", "verify")):
        w.session.position()
    w.sign_all("A. Nyone")
    assert w.record.checks["story_1"].force_scale == SIGNED
    w.session.position()


def test_arming_changed_scenario_offsets_or_rig_is_refused(walk):
    w = walk().to_start()
    right, offsets = w.scenario.whole_hash(), w.session.offsets.hash
    louder = override(w.scenario, ["ground_motion.scale=1.1"])
    stiffer = override(w.scenario, ["axes.story_1.limits.force=1.7e6"])
    for scenario, scenario_hash, offsets_hash, reason in (
        (louder, right, offsets, "the scenario has changed"),
        (w.scenario, right, "old", "the offsets have changed: the hash to be armed is old"),
        (stiffer, stiffer.whole_hash(), offsets, "rig has changed since it was connected: axes.story_1.limits"),
    ):
        with pytest.raises(ConfigError, match=reason):
            w.session.arm("g", scenario, scenario_hash, offsets_hash)
        assert w.session.state is State.POSITIONED
    with pytest.raises(ConfigError, match=naming("rung 'b'")):
        w.session.arm("b", w.scenario, right, offsets)
    w.session.arm("g", w.scenario, right, offsets)
    w.session.stop("another day")
    assert (w.session.state, w.session.reason) == (State.HELD, "another day")
    with pytest.raises(ActRefused, match=naming("run", "rig")):
        w.session.run(w._embedded)


def test_rung_c_equals_rehearsal_and_sends_nothing(walk):
    w = walk().to_start()
    held = w.sent[-1]
    del w.sent[:]
    w.climb("c")
    assert set(w.sent) == {held}
    assert len(w.sent) >= w.scenario.samples
    rehearsed = embedded(w.scenario)
    for name in ("displacement", "force", "command", "target"):
        assert np.array_equal(getattr(w.run, name), getattr(rehearsed, name)), name


def test_rung_c_closes_its_simulator(walk, monkeypatch):
    """The process of an FMU or of OpenSees had remained until the end of the test."""
    opened, open_port, close = [], Simulator.open, Simulator.close
    monkeypatch.setattr(Simulator, "open", lambda self, pacer: opened.append(self) or open_port(self, pacer))
    monkeypatch.setattr(Simulator, "close", lambda self: opened.remove(self) or close(self))
    w = walk().to_start()
    w.climb("c")
    assert opened == [w.session.drive.port]


def test_rung_d_equals_rehearsal_with_computed_spring(walk):
    w = walk(SPRING, "axes.story_1.actuator={type: first_order, alpha: 29.0}", GENTLE).to_start()
    assert w.climb("d").outcome == "finished"
    rehearsed = embedded(w.scenario)
    for name in ("displacement", "force", "command", "target"):
        reference = getattr(rehearsed, name)
        assert getattr(w.run, name) == pytest.approx(reference, rel=1e-9, abs=1e-9 * np.abs(reference).max()), name


def test_rung_d_trips_at_elastic_limit(walk):
    w = walk(rig=("elastic_limit: 0.04", "elastic_limit: 0.001")).to_start()
    result = w.climb("d", override(w.scenario, [SPRING]))
    assert result.outcome == "tripped"
    assert mentions(result.reason, "elastic_limit", "measured", "0.001 m")
    assert w.states[-3:] == [State.RUNNING, State.STOPPING, State.TRIPPED]
    with pytest.raises(ActRefused, match=naming("unload", "acknowledge")):
        w.session.unload()
    held = w.session.drive.command
    w.session.acknowledge()
    assert w.session.drive.command is held
    w.session.position()
    assert w.session.state is State.POSITIONED


def test_rung_d_needs_elastic_limit(walk):
    w = walk(rig=("    elastic_limit: 0.04\n", "")).to_start()
    with pytest.raises(ConfigError, match=naming("axes.story_1", "elastic_limit")):
        w.arm("d")
    w.arm("g")


def test_hold_in_slow_time_keeps_results_of_spring(walk):
    spring = "axes.story_1.specimen={type: kelvin_voigt, stiffness: 7.6e6, damping: 0}"
    w = walk(spring, "compensator.type=none", GENTLE).to_start()
    slow = slower(w.scenario, 4)
    w.climb("e", slow)
    uninterrupted = w.run
    w.session.position()

    def on_state(state):
        if state is State.HELD and w.session.possible()["resume"] == "":
            w.session.resume()

    w.on_state = on_state
    w.progress = lambda sample: w.session.hold("coffee") if sample == 1000 else None
    w.states.clear()
    result = w.climb("e", slow)
    assert (result.outcome, result.samples) == ("finished", slow.samples)
    assert mentions(result.remarks[0], "held", "sample", "0.0 s", "kN")
    assert w.session.record.deviations == [f"rung e: {result.remarks[0]}"]
    velocity, reference = (peaks_of(run)["story_1"]["velocity"] for run in (w.run, uninterrupted))
    assert velocity == pytest.approx(reference, rel=0.05)
    assert np.abs(np.diff(w.run.displacement[:, 0])).max() / DT > 1.5 * reference
    after = [State.RUNNING, State.STOPPING, State.HELD, State.RESUMING, State.RUNNING, State.HELD]
    assert w.states == [State.ARMED, *after]
    size = np.abs(uninterrupted.displacement).max()
    assert w.run.displacement == pytest.approx(uninterrupted.displacement, abs=0.01 * size)
    assert w.run.target == pytest.approx(uninterrupted.target, abs=0.01 * size)
    assert steps(w.sent) <= VELOCITY * DT


def test_rung_held_in_slow_time_can_be_stopped(walk):
    w = walk(GENTLE).to_start()
    w.on_state = lambda state: w.session.stop("enough") if state is State.HELD else None
    w.progress = lambda sample: w.session.hold() if sample == 200 else None
    result = w.climb("e", slower(w.scenario, 2))
    assert (result.outcome, w.session.state) == ("held", State.HELD)
    assert "enough" in w.session.reason == result.reason


def test_hold_in_real_time_ends_rung(walk):
    w = walk().to_start()
    w.progress = lambda sample: w.session.hold("coffee") if sample == 100 else None
    result = w.climb("g")
    assert result.outcome == "held"
    assert result.reason.endswith("coffee")
    assert w.states[-3:] == [State.RUNNING, State.STOPPING, State.HELD]


def test_stop_ends_motion(walk):
    w = walk(GENTLE).to_start()
    w.climb("g")
    w.on_state = lambda state: w.session.stop("wait") if state is State.POSITIONING else None
    with pytest.raises(ActRefused, match="wait"):
        w.session.position()
    assert (w.session.state, w.session.reason) == (State.HELD, "wait")
    w.on_state = lambda state: None
    w.session.position()
    assert w.session.state is State.POSITIONED


def test_loss_of_pressure_trips_run_and_prevents_motion(walk):
    w = walk(GENTLE).to_start()
    w.progress = lambda sample: w.session.drive.port.set_hydraulics("off") if sample == 100 else None
    result = w.climb("g")
    assert result.outcome == "tripped"
    assert mentions(result.reason, "hydraulics", "off")
    w.session.acknowledge()
    with pytest.raises(ActRefused, match=naming("position", "rig")):
        w.session.position()
    w.session.drive.port.set_hydraulics("high")
    w.session.drive.tick()
    w.session.position()
    w.session.finish()
    assert w.record.outcome == "tripped"


def test_failing_host_trips_rig(walk):
    w = walk().to_start()

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


def test_host_that_fails_with_unreadable_error_ends_rung(walk):
    class Unreadable(Exception):
        def __str__(self):
            raise ValueError("no text")

    def broken(scenario, port):
        raise Unreadable

    w = walk().to_start()
    w.arm("g")
    with pytest.raises(ValueError, match="no text"):
        w.session.run(broken)
    assert (w.session.state, w.session.rung) == (State.TRIPPED, None)
    assert w.record.rungs[-1].outcome == "failed"


def test_possible_acts_are_those_of_one_state(walk):
    class Slow(session.Test):
        def barred(self, act):
            clock.now += 2_000_000_000 * round(session.ARMED_FOR_S)
            return ""

    clock = Hours()
    w = walk(clock=clock).to_start()
    w.arm("g")
    w.session.test = Slow()
    possible = w.session.possible()
    assert possible["run"] == ""
    assert mentions(possible["position"], "armed")


def test_acts_have_descriptions_without_docstrings():
    command = "from rths_nodes.procedure.session import ACTS; print(ACTS['position'].words)"
    done = subprocess.run([sys.executable, "-OO", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "position"


def test_ended_run_cannot_drive_rig(walk):
    w = walk(GENTLE).to_start()
    ports = []

    def runner(scenario, port):
        ports.append(port)
        return w._embedded(scenario, port)

    w.arm("g")
    w.session.run(runner)
    with pytest.raises(RuntimeError, match=naming("procedure", "taken", "rig")):
        ports[0].wait_tick()


def test_command_changes_only_in_motion_states(walk):
    w = walk(GENTLE)
    changes = []
    w.on_state = lambda state: changes.append((state, len(w.sent)))
    w.to_start()
    w.climb("g")
    w.session.finish()
    for (state, begin), (_, end) in itertools.pairwise([*changes, (State.FINISHED, len(w.sent))]):
        if state not in MOTION:
            assert len({*w.sent[max(begin - 1, 0) : end]}) <= 1, state


def test_procedure_needs_rig_file():
    scenario = files.load("chen_ricles_2010")
    with pytest.raises(ConfigError, match=naming("procedure", "file")):
        RigSession(scenario, ProcedureRecord("test", scenario.name, ""), realtime=False)


def test_port_without_readback_begins_at_measured_position(walk, monkeypatch):
    w = walk("axes.story_1.output.start=0.01")
    monkeypatch.setattr(type(w.session.drive.port), "active_command", None)
    w.session.connect()
    w.session.take_offsets(0.05)
    assert [*dict.fromkeys(w.sent)] == [pytest.approx(0.01)]
    assert mentions(w.record.notes[0].text, "position", "0.01 m")


def test_port_without_readback_needs_positions(walk, monkeypatch):
    """The drive had sent NaN, or a position beyond the stroke, in every tick."""
    for position in (np.nan, 0.275):
        w = walk()
        port, read = w.session.drive.port, w.session.drive.port.read
        monkeypatch.setattr(type(port), "active_command", None)
        port.read = lambda read=read, x=position: replace(read(), displacement=np.full(1, x))
        with pytest.raises(ConfigError, match=naming("axes.story_1", f"displacement = {position} m", "0.25 m")):
            w.session.connect()
        assert w.sent == []


def test_trigger_is_high_from_counter_at_start(walk):
    w = walk(rig=TRIGGER).to_start()
    high, numbers = [], {}
    port = w.session.drive.port
    read = port.read

    def spy():
        measured = read()
        if measured.auxiliary[-1]:
            high.append(measured.sample)
        return measured

    port.read = spy

    def runner(scenario, rung_port):
        outcome = w._embedded(scenario, rung_port)
        numbers.update(port_numbers(rung_port))
        return outcome

    w.arm("g")
    w.session.run(runner)
    assert high[0] == numbers["counter_at_start"] + 2  # Command 1 acts a sample later
    assert len(high) == w.scenario.samples


def test_rung_c_keeps_channels_of_rig(walk, monkeypatch):
    """The simulator of rung c has no trigger, as for a real rig; the test gets the channel of the rig."""
    w = walk(rig=TRIGGER)
    monkeypatch.setattr(rungs, "simulated", lambda scenario: override(simulated(scenario), ["port.trigger=false"]))
    w.to_start()
    channels = set()
    read = rungs.UnsentPort.read

    def spy(self):
        measured = read(self)
        channels.add(tuple(measured.auxiliary.tolist()))
        return measured

    monkeypatch.setattr(rungs.UnsentPort, "read", spy)
    assert w.climb("c").outcome == "finished"
    assert channels == {(0.0,), (1.0,)}
