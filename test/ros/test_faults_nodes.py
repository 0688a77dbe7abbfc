# SPDX-License-Identifier: Apache-2.0
"""Faults on the node hosts: the rig never jumps, stops safely in time, and the recording has the reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions, naming

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.supervision.safe_stop import excess_travel
from rths_nodes.recording import bag

ROOT = Path(__file__).resolve().parents[2]
NAME = "chen_ricles_2010"
SHORT = ["duration=1"]
FAULT = 512
"""Sample of a fault at 0.5 s."""
LONGEST = 10
"""Samples in 10 ms at 1024 Hz: longest bridge."""
SAFE = 51
"""Samples in 50 ms."""


def check_limits(run) -> np.ndarray:
    """Return the commands of a recording, (n,) m, after checking stroke and velocity."""
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
def test_messages_and_sensors_fail_as_embedded(faults, run_patiently, different):
    reference = hosts.run(NAME, SHORT, faults=faults)
    test = run_patiently(NAME, SHORT, *faults)
    result, run = test.result, test.run
    check_limits(run)
    assert (result.outcome, result.exit_code) == (reference.outcome, reference.exit_code)
    assert result.reason == reference.reason == run.information["reason"]
    bridged = result.section("timing")["bridged"]
    assert bridged == reference.timing["bridged"] == np.count_nonzero(run.flags & FLAG_BRIDGED)
    assert run.information["faults"] == " ".join(faults)
    if result.outcome == "finished":
        assert different(reference.read(), run, may_slip=True) == []


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
def test_rig_stops_safely_in_time(fault, code, reason, run_patiently):
    test = run_patiently(NAME, SHORT, fault)
    result, run = test.result, test.run
    assert result.exit_code == code, result.reason
    assert mentions(result.reason, *reason)
    assert mentions(run.information["reason"], *reason)
    sent = check_limits(run)
    first = int(np.flatnonzero(run.flags & (FLAG_BRIDGED | FLAG_TRIPPED))[0])
    tripped = int(np.flatnonzero(run.flags & FLAG_TRIPPED)[0])
    assert tripped - first <= LONGEST
    assert first - FAULT <= run.scenario.samples_per_step
    assert len(sent) - first <= SAFE, "not at rest in time"
    limits = run.scenario.axes["story_1"].limits
    assert np.abs(sent[first:] - sent[first - 1]).max() <= excess_travel(limits, 0.010)
    assert np.count_nonzero(run.flags & FLAG_BRIDGED) <= LONGEST
    assert np.array_equal(run.displacement[:first], hosts.run(NAME, SHORT).read().displacement[:first])


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
def test_faults_outside_the_loop_change_no_number(fault, code, samples, run_patiently):
    """A freeze of the whole loop in one process changes no number either."""
    test = run_patiently(NAME, SHORT, fault)
    run = test.run
    assert test.result.exit_code in ({0, 4} if code == 0 else {code}), test.result.reason  # 4: on a busy machine
    check_limits(run)
    plain = hosts.run(NAME, SHORT).read()
    end = samples or len(plain.flags)
    assert len(run.flags) >= end
    assert np.array_equal(run.displacement[:end], plain.displacement[:end])
    assert np.array_equal(run.command[:end], plain.command[:end])


@pytest.mark.parametrize(
    ("faults", "codes", "reason"),
    [
        (("kill@0.5:integrator", "drop@0.3:target"), {1, 3}, ()),
        (("freeze@0.5:actuator,0.1", "corrupt@0.3:measurement"), {3, 4}, ()),
        (("kill@0.5:monitor",), {1}, ("monitor", "died")),
    ],
    ids=["kill and drop", "freeze and corrupt", "kill"],
)
def test_faults_of_a_node_and_its_stream(faults, codes, reason, run_patiently):
    test = run_patiently(NAME, SHORT, *faults)
    assert test.result.exit_code in codes, test.result.reason
    assert mentions(test.result.reason, *reason)
    check_limits(test.run)


@pytest.mark.parametrize("fault", ["kill@0.573:actuator", "kill@0.56:actuator"])
def test_messages_sent_before_the_death_of_the_actuator_are_recorded(fault, run_patiently):
    test = run_patiently(NAME, SHORT, fault, pace="lockstep")
    assert (test.result.exit_code, len(test.run.flags)) == (1, test.result.sample)


@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_full_disk_ends_the_test_with_little_loss(host, tmp_path):
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
def test_processes_stop_as_safely(faults, codes, reason, tmp_path):
    """Processes on a loaded machine bridge also without faults; no assertion depends on that."""
    patient = [*SHORT, "heartbeat.monitor=5", "heartbeat.recorder=5"]
    report = hosts.run(NAME, patient, host="processes", pace="realtime", record=tmp_path / "run", faults=faults)
    run = rths_nodes.read(tmp_path / "run")
    assert report.exit_code in codes, report.reason
    assert mentions(report.reason, *reason)
    assert run.information["faults"] == " ".join(faults)
    check_limits(run)
    in_a_row = np.diff(np.flatnonzero(np.diff((run.flags & FLAG_BRIDGED) > 0, prepend=False, append=False)))[::2]
    assert in_a_row.max(initial=0) <= LONGEST
    if report.exit_code:
        assert np.count_nonzero(run.flags & FLAG_TRIPPED) <= SAFE - LONGEST


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("drop@0.3:command", ("Command 309",)), ("kill@0.3:monitor", ("Progress", "monitor"))],
)
def test_missing_messages_trip_in_lockstep(fault, reason, run_patiently):
    test = run_patiently(NAME, ["duration=2", "port.longest_wait=0.2"], fault, pace="lockstep")
    assert test.result.exit_code == (1 if "kill" in fault else 3)
    assert mentions(test.result.reason, *reason)
    assert mentions(test.run.information["reason"], *reason)
    check_limits(test.run)


@pytest.mark.parametrize(
    ("host", "pace", "fault", "parts"),
    [
        ("composed", "lockstep", "delay@0.5:target,3", ("lockstep", "nodes")),
        ("processes", "lockstep", "slow@0.5:integrator,0.1", ("lockstep", "nodes")),
        ("composed", "realtime", "disk_full@0.5", ("recorder",)),
        ("processes", "realtime", "kill@7:monitor", ("time", "7 s", "< 1.00586 s")),
        ("composed", "realtime", "sensor_spike@0.5:story_2,force,1", ("unknown", "axis", "story_2")),
    ],
)
def test_faults_without_meaning_are_refused(host, pace, fault, parts):
    with pytest.raises(ConfigError, match=naming(*parts)):
        hosts.run(NAME, SHORT, host=host, pace=pace, faults=[fault])


# Actuator process that is suspended by SIGSTOP for 0.4 s in real time

SUSPENDED_S = 0.4
SUSPENDED = f"freeze@0.5:actuator,{SUSPENDED_S}"
CALM = ("servo_rate=256", "substeps=3", "ground_motion.scale=0.005", "port.longest_wait=10", "duration=2")
PATIENT = ("heartbeat.monitor=5", "heartbeat.recorder=5", "bridge.max_bridge=0.2")


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize("host", ["processes", "composed"])
def test_suspended_actuator_makes_the_test_not_valid(host, tmp_path):
    record = tmp_path / "run"
    report = hosts.run(NAME, (*CALM, *PATIENT), host=host, pace="realtime", faults=[SUSPENDED], record=record)
    assert (report.outcome, report.reason) == ("finished", "")
    assert report.exit_code == ExitCode.NOT_VALID
    assert report.timing["missed"] >= 0.9 * SUSPENDED_S * 256
    assert report.timing["longest_gap_s"] >= 0.9 * SUSPENDED_S
    assert report.ending.startswith("not valid: ")
    for part in ("% missed", "(at most 2 %)", "no sample for", "ms (bridge.max_bridge = 200 ms)"):
        assert part in report.ending
    run = rths_nodes.read(record)
    assert run.ending == report.ending == f"{run.not_valid}"


@pytest.mark.usefixtures("fresh_programs")
def test_command_line_exits_with_4_if_not_valid(tmp_path, capsys):
    arguments = ["run", NAME, "--host", "composed", "--pace", "realtime", "--fault", SUSPENDED, "--json"]
    arguments += [argument for override in (*CALM, *PATIENT) for argument in ("--set", override)]
    assert main([*arguments, "--record", str(tmp_path / "run")]) == 4
    report = json.loads(capsys.readouterr().out)
    assert report["outcome"] == "finished"
    assert report["ending"].startswith("not valid: ")
    assert report["timing"]["longest_gap_s"] > 0.01


FREEZE = """
import os, time
from rths_nodes.ros.hosting import fault_injection
kill = os.kill
os.kill = lambda *arguments: (time.sleep(0.5), kill(*arguments))
fault_injection._freezer(0.05)()
"""


def test_frozen_process_on_a_busy_machine_continues(fresh_programs):
    """The signal that continues the process is not sent before the signal that suspends it."""
    process = subprocess.Popen([sys.executable, "-c", FREEZE], cwd=ROOT)
    try:
        assert process.wait(30.0) == 0
    finally:
        process.kill()
        process.wait()
