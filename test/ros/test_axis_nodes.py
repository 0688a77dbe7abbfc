# SPDX-License-Identifier: Apache-2.0
"""A node for each axis: the same bits over topics as with one actuator node, and a failed node stops all axes."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from programs import begun

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

import forked
from axis_wires import weight
from messages import mentions, naming

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED, Command
from rths_nodes.core.wire import decode
from rths_nodes.loop.options import run_options
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import bag
from rths_nodes.ros.hosting import composed, node_processes
from rths_nodes.ros.names import NODES, RECORDER
from rths_nodes.ros.nodes.participation import Shutdown

NAME = "three_independent_axes"
AXES = ("story_1", "story_2", "story_3")
SHORT = ["duration=0.4", "soft_start=null"]
LONG = ["duration=3", "soft_start=null"]
PEERS = {*NODES, *(f"{axis}/axis" for axis in AXES)}


def per_axis(overrides=SHORT, **options):
    return hosts.run(NAME, overrides, actuator_nodes="per_axis", **options)


@pytest.mark.parametrize(("host", "pace"), [("composed", "lockstep"), ("processes", "lockstep")])
def test_axis_nodes_give_the_bits_of_one_node(host, pace, tmp_path, different):
    reference = rths_nodes.run(NAME, SHORT)
    report = per_axis(host=host, pace=pace, record=tmp_path / "run")
    assert (report.exit_code, report.actuator_nodes, report.notes) == (0, "per_axis", [])
    assert different(reference, rths_nodes.read(tmp_path / "run")) == []
    recording = bag.read(tmp_path / "run")
    information = recording.information
    assert (information["gaps"], information["silent"], information["actuator_nodes"]) == ("0", "", "per_axis")
    summaries = [decode("Summary", d) for topic, d, _ in recording.messages() if topic == "/rths/summary"]
    assert {summary["node"] for summary in summaries} == PEERS - {RECORDER}
    assert not any("story" in topic for topic in recording.counts), "topics of an axis are recorded"


def test_real_time_run_gives_the_bits_of_one_node(different):
    reference = rths_nodes.run(NAME, SHORT)
    run = rths_nodes.run(NAME, SHORT, host="composed", pace="realtime", actuator_nodes="per_axis")
    assert run.information["gaps"] == "0"
    run.flags = reference.flags  # a tick may slip, which must not change the results
    assert different(reference, run) == []


@pytest.mark.soak
def test_processes_in_real_time_give_the_same_bits_until_bridged(patience):
    overrides = [*SHORT, *patience]
    reference = rths_nodes.run(NAME, overrides)
    run = rths_nodes.run(NAME, overrides, host="processes", pace="realtime", actuator_nodes="per_axis")
    assert (run.outcome, run.information["gaps"]) == ("finished", "0")
    bridged = run.flags & np.uint32(FLAG_BRIDGED) != 0
    first = int(np.argmax(bridged)) if bridged.any() else len(bridged)
    assert first > 0
    assert run.command[:first].tobytes() == reference.command[:first].tobytes()


@pytest.mark.parametrize("closed_by", ["nodes", "controller"])
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_node_of_force_axis_gives_the_bits_of_one_node(host, closed_by, tmp_path, different):
    overrides = [*SHORT, weight(closed_by)]
    reference = rths_nodes.run(NAME, overrides)
    report = per_axis(overrides, host=host, pace="lockstep", record=tmp_path / "run")
    assert (report.exit_code, report.reason) == (0, "")
    run = rths_nodes.read(tmp_path / "run")
    assert run.loads.force[-1, 0] == pytest.approx(20e3, rel=0.1)
    assert different(reference, run) == []


@pytest.mark.parametrize("fault", ["sensor_spike@0.3:story_2,force,1e6", "hydraulics@0.3:off"])
@pytest.mark.parametrize("closed_by", ["nodes", "controller"])
def test_faults_with_force_axis_trip_as_with_one_node(closed_by, fault, tmp_path, different):
    overrides = [*SHORT, weight(closed_by)]
    reference = hosts.run(NAME, overrides, faults=[fault])
    report = per_axis(overrides, host="composed", faults=[fault], record=tmp_path / "run")
    assert (report.exit_code, report.reason) == (3, reference.reason)
    assert different(reference.read(), rths_nodes.read(tmp_path / "run")) == []


PAUSES = [
    *("duration=1.5", "soft_start=null", "compensator={type: none}", "heartbeat={monitor: 5, recorder: 5}"),
    *("bridge={when_late: pause, max_pause: 5, max_bridge: 0.012}", "servo_rate=256"),
    *(f"axes.{axis}.sensors.displacement_noise_rms=0" for axis in AXES),
]


@pytest.mark.parametrize("host", ["composed", "processes"])
def test_rig_with_axis_nodes_pauses_and_resumes(host, tmp_path):
    """The integrator freezes for 0.4 s; ticks continue, no sample is lost, and each has its true state."""
    faults = ["freeze@0.5:integrator,0.4"]
    report = per_axis(PAUSES, host=host, pace="realtime", faults=faults, record=tmp_path / "run")
    assert (report.outcome, report.reason) == ("finished", "")
    assert report.exit_code in (ExitCode.FINISHED, ExitCode.NOT_VALID), "a busy machine misses ticks"
    run = rths_nodes.read(tmp_path / "run")
    assert report.timing["pauses"] >= 1
    assert report.timing["paused_s"] > 0.2
    assert run.information["gaps"] == "0"
    assert len(run.time) == 1 + 384
    assert np.array_equal(run.true_displacement, run.displacement), "true states belong to a tick, not to a sample"
    limits = np.array([axis.limits.velocity for axis in run.scenario.axes.values()])
    assert (np.abs(np.diff(run.command, axis=0)).max(axis=0) <= limits / 256.0).all()


STUCK = "monitor.stuck_displacement=0.1"
"""Override with which the limit of the axis trips before the monitor."""


@pytest.mark.parametrize(
    ("override", "faults", "parts"),
    [
        ("axes.story_2.limits.force=2000", [], ("axes.story_2.limits.force: measured",)),
        ("axes.story_3.limits.velocity=0.01", [], ("axes.story_3.limits.velocity: command",)),
        (STUCK, ["sensor_spike@0.2:story_2,force,1e6"], ("axes.story_2.limits.force", "measured")),
        (STUCK, ["sensor_stuck@0.2:story_3,displacement"], ("axes.story_3.limits.velocity",)),
        (STUCK, ["nan@0.2:measurement"], ("axes.story_1.limits.stroke", "nan m")),
        (STUCK, ["nan@0.2:command"], ("axes.story_1",)),
        (STUCK, ["interlock@0.2"], ("rig", "interlock")),
        (STUCK, ["hydraulics@0.2:off"], ("rig", "hydraulics")),
    ],
    ids=str,
)
def test_breaches_and_faults_trip_as_with_one_node(override, faults, parts, tmp_path, different):
    """All axes stop at the same sample."""
    reference = hosts.run(NAME, [*LONG, override], faults=faults)
    report = per_axis([*LONG, override], host="composed", faults=faults, record=tmp_path / "run")
    assert (report.outcome, report.exit_code) == ("tripped", 3), report.reason
    assert report.reason == reference.reason
    assert mentions(report.reason, *parts)
    assert different(reference.read(), rths_nodes.read(tmp_path / "run")) == []


def test_operator_holds_all_axes(tmp_path):
    requests = iter([False] * 3)
    overrides = ["duration=60", "soft_start=null"]  # cannot finish before the request
    interrupted = lambda: next(requests, True)  # noqa: E731
    report = per_axis(overrides, host="composed", record=tmp_path / "run", interrupted=interrupted)
    assert (report.outcome, report.exit_code) == ("held", 130)
    assert rths_nodes.read(tmp_path / "run").information["gaps"] == "0"


@pytest.mark.parametrize("transition", ["shutdown", "deactivate"])
def test_axis_node_that_leaves_trips_the_test(transition, act_during_run):
    leave = lambda nodes: getattr(nodes["story_2/axis"], f"trigger_{transition}")()  # noqa: E731
    test = act_during_run(leave, NAME, *LONG, axes=AXES)
    assert test.machine.state == State.TRIPPED
    assert "story_2" in test.machine.reason
    assert all(test.nodes[f"{axis}/axis"].stage.at_rest for axis in AXES)
    assert test.run.information["gaps"] == "0"
    assert np.isfinite(test.run.displacement).all(), "its safe stop is not measured"


def test_exception_in_axis_node_stops_the_other_axes(act_during_run):
    def break_port(nodes):
        nodes["story_2/axis"].stage.port.write = lambda *_: 1 / 0

    test = act_during_run(break_port, NAME, *LONG, axes=AXES)
    assert test.machine.state == State.TRIPPED
    assert mentions(test.machine.reason, "story_2/axis", "ZeroDivisionError")
    assert test.nodes["story_1/axis"].stage.at_rest
    assert test.nodes["story_3/axis"].stage.at_rest
    assert test.nodes["story_2/axis"].phase.exit_code == 1
    run = test.run
    tripped = run.flags & FLAG_TRIPPED > 0
    assert np.isnan(run.displacement[tripped, 1]).all()
    assert np.isfinite(run.displacement[:, [0, 2]]).all()
    assert np.isfinite(run.displacement[~tripped]).all()


def process_state(process: int) -> str:
    """Return the state of a process as in /proc, Z also after its end."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


class Rig:
    """`rths run ... --host processes --actuator-nodes per_axis`."""

    def __init__(self, record: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "rths_nodes.app.cli", "run", NAME, "--host", "processes"]
        self.popen = begun([*command, "--actuator-nodes", "per_axis", "--record", str(record), *arguments])
        self.record = record
        self.journal = record / f"{record.name}_0.mcap"

    def wait_until_running(self) -> None:
        while self.popen.poll() is None and not (self.journal.exists() and self.journal.stat().st_size > 150_000):
            time.sleep(0.02)
        assert set(self.nodes()) == PEERS

    def wait_until_frozen(self) -> int:
        """Wait until a fault has stopped the process of the integrator, and return its id."""
        while self.popen.poll() is None:
            process = self.nodes().get("integrator")
            if process is not None and process_state(process) == "T":
                return process
            time.sleep(0.01)
        raise AssertionError(self.popen.communicate())

    def nodes(self) -> dict[str, int]:
        """Return the ids of the processes that are alive, by peer."""
        processes = {}
        for process, arguments in forked.nodes_of(self.popen.pid):
            if "rths_nodes.app.node" in arguments and process_state(process) != "Z":
                role = arguments[arguments.index("rths_nodes.app.node") + 1]
                namespace = next(argument for argument in arguments if argument.startswith("__ns:="))
                processes[f"{namespace.rpartition('/')[2]}/axis" if role == "axis" else role] = process
        return processes

    def kill(self, peer: str, *dependent: str) -> None:
        """Kill a node and wait until the ``dependent`` nodes have left, which takes about 1 s."""
        os.kill(self.nodes()[peer], signal.SIGKILL)
        killed = time.monotonic()
        while self.nodes().keys() & dependent:
            assert time.monotonic() - killed < 10.0
            time.sleep(0.01)

    def ended(self, peer: str) -> rths_nodes.Run:
        """Wait for the end, which reports the death of ``peer``; return the recorded run."""
        out, errors = self.popen.communicate(timeout=60)
        assert "Traceback" not in errors
        assert self.popen.returncode == 1
        assert f"the {peer} node died (SIGKILL)" in " ".join(out.split())
        return rths_nodes.read(self.record)


@pytest.mark.parametrize("peer", ["story_2/axis", pytest.param("actuator", marks=pytest.mark.soak)])
def test_killed_node_ends_the_run_with_reason(peer, tmp_path):
    rig = Rig(tmp_path / "run", "--set", "soft_start=null")
    rig.wait_until_running()
    rig.kill(peer, *PEERS - {RECORDER})
    run = rig.ended(peer)
    reference = rths_nodes.run(NAME, ["soft_start=null", "duration=5"])
    driven = min(int(np.count_nonzero((run.flags & FLAG_TRIPPED) == 0)), len(reference.time))
    assert np.array_equal(run.displacement[:driven], reference.displacement[:driven])
    if peer != "actuator":
        assert f"the {peer} node died" in run.information["reason"]
        stopped = run.displacement[driven:]
        assert len(stopped) > 0, "the safe stop is not recorded"
        assert np.isfinite(stopped[:, [0, 2]]).all()
        assert np.isnan(stopped[-1, 1])
        assert run.outcome == "tripped"


def test_killed_axis_node_ends_a_pause_with_reason(tmp_path):
    """The axis dies while the rig waits for the frozen integrator."""
    overrides = [argument for override in PAUSES for argument in ("--set", override)]
    rig = Rig(tmp_path / "run", *overrides, "--pace", "realtime", "--fault", "freeze@0.5:integrator,4")
    integrator = rig.wait_until_frozen()
    time.sleep(0.3)  # until the rig is at rest
    rig.kill("story_2/axis", "actuator")
    with suppress(ProcessLookupError):
        os.kill(integrator, signal.SIGCONT)
    run = rig.ended("story_2/axis")
    assert run.outcome == "tripped"
    assert "story_2/axis" in run.information["reason"]
    stopped = run.displacement[run.flags & FLAG_TRIPPED > 0]
    assert np.isfinite(stopped[:, [0, 2]]).all()
    assert np.isnan(stopped[-1, 1])


# Refusals


@pytest.mark.parametrize(
    ("name", "options", "parts"),
    [
        (NAME, {"host": "embedded"}, ("host", "embedded")),
        (NAME, {"host": "composed", "actuator_nodes": "two"}, ("one", "per_axis")),
        ("phillips_spencer_2012", {"host": "composed"}, ("rig", "axes")),
    ],
)
def test_impossible_layouts_are_refused(name, options, parts):
    with pytest.raises(ConfigError, match=naming(*parts)):
        hosts.run(name, **({"actuator_nodes": "per_axis"} | options))


@pytest.mark.parametrize(
    ("role", "namespace", "parameters", "parts"),
    [
        ("axis", "rths/story_4", {}, ("story_1", "story_2", "story_3")),
        ("axis", "rths/story_2", {"axes.story_1.limits.force": 1.0}, ("axes.story_1.limits.force",)),
        ("axis", "rths/story_2", {"axes.story_2.limits.froce": 1.0}, ("axes.story_2.limits.froce", "force")),
        ("actuator", "rths", {"peers": ["actuator", "story_1/axis"]}, ("none", "story_1/axis")),
        ("actuator", "rths", {"peers": ["actuator", "story_1/axle"]}, ("unknown", "node", "story_1/axle")),
    ],
)
def test_node_refuses_incompatible_parameters(role, namespace, parameters, parts):
    with composed.ros_context() as context:
        arguments = composed.in_namespace(f"/{namespace}")
        node = composed.make_node(role, hosts.open_writer, context, {"scenario": NAME} | parameters, arguments)
        try:
            with pytest.raises(ConfigError, match=naming(*parts)):
                node.start()
        finally:
            node.destroy_node()


def run_with_parameter(parameter, value, **options):
    """Run nodes of which only the node of story_2 has this parameter."""
    nodes = node_processes.describe(run_options({"scenario": NAME, "overrides": SHORT} | options), AXES)
    next(node for node in nodes if node.axis == "story_2").parameters[parameter] = value
    return composed.run(nodes, hosts.open_writer)


def test_parameters_of_an_axis_node_are_used_and_recorded(tmp_path, different):
    parameter = "axes.story_2.sensors.force_noise_rms"  # N
    assert run_with_parameter(parameter, 25, record=tmp_path / "run").exit_code == 0
    run = rths_nodes.read(tmp_path / "run")
    assert run.scenario.axes["story_2"].sensors.force_noise_rms == 25.0
    assert different(rths_nodes.run(NAME, [*SHORT, f"{parameter}=25"]), run) == []


def test_different_limits_of_an_axis_node_are_refused():
    result = run_with_parameter("axes.story_2.limits.force", 1e3)
    assert (result.outcome, result.exit_code) == ("refused", 2)
    assert mentions(result.reason, "story_2/axis", "scenarios")


# One axis node after 20 Commands at constant velocity


@pytest.fixture
def axis(by_hand, clock, monkeypatch):
    with by_hand.node("axis", "rths/story_2", clock=clock, scenario=NAME) as node:
        monkeypatch.setattr(Shutdown, "abandoned", False)
        for k in range(21):
            value = np.array([k * 4e-4])
            by_hand.put_sample(node, "command", Command(k, value, value), k)
        by_hand.work(node)
        yield node


def test_axis_stops_without_commands(axis, by_hand, clock):
    assert not axis.stage.at_rest
    axis.shutdown.interrupt()
    clock.now += 1_000_000_000
    by_hand.work(axis)
    assert axis.stage.at_rest
    assert axis.phase.gone
    assert axis.phase.exit_code == 3
    assert mentions(axis.phase.problem, "interrupt", "Command 21")


def test_axis_stops_when_the_test_has_tripped(axis, by_hand):
    by_hand.put_state(axis, State.TRIPPED, 20, "the actuator node has failed")
    by_hand.work(axis)
    assert axis.stage.at_rest
    assert mentions(axis.phase.problem, "test", "axis")


def test_axis_reports_sent_messages_after_the_test(axis, by_hand):
    by_hand.put_state(axis, State.FINISHED, 20)
    axis.work()
    assert (axis.phase.exit_code, axis.phase.problem) == (0, "")
    assert axis.shutdown.summary["sent.story_2/measurement"] == 21
    assert axis.shutdown.summary["sent.story_2/true_state"] == 21
