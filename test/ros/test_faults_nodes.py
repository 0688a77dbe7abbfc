# SPDX-License-Identifier: Apache-2.0
"""Every kind of fault in the node hosts: the rig never jumps, goes safe in time, and the recording says why."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions, naming

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED
from rths_nodes.loop.supervision.safe_stop import excess_travel
from rths_nodes.recording import bag

NAME = "chen_ricles_2010"
SHORT = ["duration=1"]
FAULT = 512
"""Sample of a fault at 0.5 s."""
LONGEST = 10
"""Samples in 10 ms at 1024 Hz: bridged at most."""
SAFE = 51
"""Samples in 50 ms."""


def judged(run) -> np.ndarray:
    """The commands of a recording, (n,) m, which keep the limits of the rig from one to the next."""
    limits, dt = run.scenario.axes["story_1"].limits, run.scenario.dt
    sent = run.command[:, 0]
    assert np.isfinite(sent).all()
    assert np.abs(sent).max() <= limits.stroke
    assert np.abs(np.diff(sent, prepend=0.0)).max() <= limits.velocity * dt * (1.0 + 1e-9)
    assert run.information["gaps"] == "0"
    return sent


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "faults",
    [
        ("drop@0.2:command,1,100", "duplicate@0.1:target,3", "delay@0.6:target,5"),
        ("reorder@0.2:command,2", "duplicate@0.3:command,5", "late@0.4:target,0.2,3"),
        ("corrupt@0.1:command,1,90", "sensor_stuck@0.3:story_1,displacement,0.01"),
        ("nan@0.4:command,inf",),
        ("nan@0.4:target",),
        ("nan@0.4:measurement,nan,force",),
        ("sensor_spike@0.4:story_1,force,1e7",),
    ],
    ids=lambda faults: faults[0].partition("@")[0] + " " + faults[0].partition(":")[2],
)
def test_messages_and_sensors_fail_as_in_the_embedded_loop(faults, run_patiently, different):
    reference = hosts.run(NAME, SHORT, faults=faults)
    test = run_patiently(NAME, SHORT, *faults)
    result, found = test.result, test.run
    judged(found)
    assert (result.outcome, result.exit_code) == (reference.outcome, reference.exit_code)
    assert result.reason == reference.reason == found.information["reason"]
    bridged = result.section("timing")["bridged"]
    assert bridged == reference.timing["bridged"] == np.count_nonzero(found.flags & FLAG_BRIDGED)
    assert found.information["faults"] == " ".join(faults)
    if result.outcome == "finished":
        assert different(reference.read(), found, may_slip=True) == []


@pytest.mark.parametrize(
    ("fault", "code", "reason"),
    [
        ("kill@0.5:integrator", 1, ("Target", "10.7 ms")),
        ("kill@0.5:compensator", 1, ("Command", "10.7 ms")),
        ("freeze@0.5:integrator,0.04", 3, ("Target", "10.7 ms")),
        ("freeze@0.5:compensator,0.04", 3, ("Command", "10.7 ms")),
        ("drop@0.5:target", 3, ("compensator", "54", "53")),
        ("drop@0.5:measurement", 3, ("513", "512")),
    ],
)
def test_the_rig_is_safe_in_time_and_says_why(fault, code, reason, run_patiently):
    test = run_patiently(NAME, SHORT, fault)
    result, found = test.result, test.run
    assert result.exit_code == code, result.reason
    assert mentions(result.reason, *reason)
    assert mentions(found.information["reason"], *reason)
    sent = judged(found)
    first = int(np.flatnonzero(found.flags & (FLAG_BRIDGED | FLAG_TRIPPED))[0])
    tripped = int(np.flatnonzero(found.flags & FLAG_TRIPPED)[0])
    assert tripped - first <= LONGEST
    assert first - FAULT <= found.scenario.samples_per_step
    assert len(sent) - first <= SAFE, "at rest"
    limits = found.scenario.axes["story_1"].limits
    assert np.abs(sent[first:] - sent[first - 1]).max() <= excess_travel(limits, 0.010)
    assert np.count_nonzero(found.flags & FLAG_BRIDGED) <= LONGEST
    reference = hosts.run(NAME, SHORT).read()
    assert np.array_equal(found.displacement[:first], reference.displacement[:first])


@pytest.mark.parametrize(
    ("fault", "code", "samples"),
    [
        ("kill@0.5:actuator", 1, FAULT),
        ("freeze@0.5:actuator,0.05", 4, None),
        ("freeze@0.5:monitor,0.1", 0, None),
        ("freeze@0.5:recorder,0.2", 0, None),
        ("slow@0.5:compensator,0.002,3", 0, None),
        ("kill@0.5:recorder", 1, FAULT),
    ],
)
def test_who_is_not_in_the_loop_changes_no_number(fault, code, samples, run_patiently):
    """Nor does a loop that stands still as a whole, in one process."""
    test = run_patiently(NAME, SHORT, fault)
    result, found = test.result, test.run
    assert result.exit_code in ({0, 4} if code == 0 else {code}), result.reason  # 4: on a busy machine
    judged(found)
    plain = hosts.run(NAME, SHORT).read()
    end = samples or len(plain.flags)
    assert len(found.flags) >= end
    assert np.array_equal(found.displacement[:end], plain.displacement[:end])
    assert np.array_equal(found.command[:end], plain.command[:end])


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        (("kill@0.5:integrator", "drop@0.3:target"), {1, 3}),
        (("freeze@0.5:actuator,0.1", "corrupt@0.3:measurement"), {3, 4}),
    ],
    ids=["kill and drop", "freeze and corrupt"],
)
def test_faults_of_a_node_go_with_those_of_its_stream(faults, code, run_patiently):
    test = run_patiently(NAME, SHORT, *faults)
    result, found = test.result, test.run
    assert result.exit_code in code, result.reason
    judged(found)


@pytest.mark.parametrize("fault", ["kill@0.573:actuator", "kill@0.56:actuator"])
def test_what_was_sent_before_the_actuator_node_died_is_recorded(fault, run_patiently):
    test = run_patiently(NAME, SHORT, fault, pace="lockstep")
    result, found = test.result, test.run
    assert (result.exit_code, len(found.flags)) == (1, result.sample)


@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_a_full_disk_ends_the_test_and_loses_next_to_nothing_before(host, tmp_path):
    report = hosts.run(NAME, SHORT, host=host, pace="realtime", record=tmp_path / "run", faults=["disk_full@0.5"])
    assert report.exit_code == 1
    assert mentions(report.reason, "recording", "space")
    assert bag.recover(tmp_path / "run").messages > 1000
    assert FAULT - len(rths_nodes.read(tmp_path / "run").flags) < 0.2 * 1024


@pytest.mark.parametrize(
    ("faults", "codes", "reason"),
    [
        pytest.param(
            ("duplicate@0.1:command,3", "duplicate@0.2:target,3", "sensor_stuck@0.3:story_1,force,0.003"),
            (0, 3),
            (),
            marks=pytest.mark.soak,
        ),
        pytest.param(("delay@0.5:command,60",), (3,), ("bridge.max_bridge",), marks=pytest.mark.soak),
        (("freeze@0.5:compensator,0.04",), (3,), ("bridge.max_bridge",)),
        pytest.param(("kill@0.5:integrator",), (1,), ("integrator", "SIGKILL"), marks=pytest.mark.soak),
    ],
    ids=["passing", "delay", "freeze", "kill"],
)
def test_processes_are_as_safe(faults, codes, reason, tmp_path):
    """On a loaded machine they bridge of their own accord, too: what is asserted does not depend on that."""
    patient = [*SHORT, "heartbeat.monitor=5", "heartbeat.recorder=5"]
    report = hosts.run(NAME, patient, host="processes", pace="realtime", record=tmp_path / "run", faults=faults)
    found = rths_nodes.read(tmp_path / "run")
    assert report.exit_code in codes, report.reason
    assert mentions(report.reason, *reason)
    assert found.information["faults"] == " ".join(faults)
    judged(found)
    in_a_row = np.diff(np.flatnonzero(np.diff((found.flags & FLAG_BRIDGED) > 0, prepend=False, append=False)))[::2]
    assert in_a_row.max(initial=0) <= LONGEST
    if report.exit_code:
        assert np.count_nonzero(found.flags & FLAG_TRIPPED) <= SAFE - LONGEST


def test_a_dead_monitor_is_told(run_patiently):
    test = run_patiently(NAME, SHORT, "kill@0.5:monitor")
    result, found = test.result, test.run
    assert result.exit_code == 1
    assert mentions(result.reason, "monitor", "died")
    judged(found)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("drop@0.3:command", ("Command 309",)), ("kill@0.3:monitor", ("Progress", "monitor"))],
)
def test_in_lockstep_what_never_comes_trips(fault, reason, run_patiently):
    test = run_patiently(NAME, ["duration=2", "port.longest_wait=0.2"], fault, pace="lockstep")
    result, found = test.result, test.run
    assert result.exit_code == (1 if "kill" in fault else 3)
    assert mentions(result.reason, *reason)
    assert mentions(found.information["reason"], *reason)
    judged(found)


@pytest.mark.parametrize(
    ("host", "pace", "fault", "message"),
    [
        (
            "composed",
            "lockstep",
            "delay@0.5:target,3",
            ("lockstep", "nodes"),
        ),
        ("processes", "lockstep", "slow@0.5:integrator,0.1", ("lockstep", "nodes")),
        ("composed", "realtime", "disk_full@0.5", ("recorder",)),
        ("processes", "realtime", "kill@7:monitor", ("time", "7 s", "< 1.00586 s")),
        ("composed", "realtime", "sensor_spike@0.5:story_2,force,1", ("unknown", "axis", "story_2")),
    ],
)
def test_what_has_no_meaning_is_refused(host, pace, fault, message):
    with pytest.raises(ConfigError, match=naming(*message)):
        hosts.run(NAME, SHORT, host=host, pace=pace, faults=[fault])
