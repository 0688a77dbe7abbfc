# SPDX-License-Identifier: Apache-2.0
"""A node for each axis: over topics the same bits as one node for all; what dies stops the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

import forked
from messages import mentions, naming
from weighted import weight

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED, Command
from rths_nodes.core.wire.plain import decode
from rths_nodes.loop.options import run_options
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import bag
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting import descriptions as launching
from rths_nodes.ros.names import NODES, RECORDER
from rths_nodes.ros.nodes.shutdown import Shutdown

NAME = "three_independent_axes"
AXES = ("story_1", "story_2", "story_3")
SHORT = ["duration=0.4", "soft_start=null"]
PEERS = {*NODES, *(f"{axis}/axis" for axis in AXES)}


def per_axis(overrides=SHORT, **options):
    return hosts.run(NAME, overrides, actuator_nodes="per_axis", **options)


@pytest.mark.parametrize(("host", "pace"), [("composed", "lockstep"), ("processes", "lockstep")])
def test_the_same_bits_as_with_one_node(host, pace, tmp_path, different):
    reference = rths_nodes.run(NAME, SHORT)
    report = per_axis(host=host, pace=pace, record=tmp_path / "run")
    assert (report.exit_code, report.actuator_nodes, report.notes) == (0, "per_axis", [])
    assert different(reference, rths_nodes.read(tmp_path / "run")) == []
    recording = bag.read(tmp_path / "run")
    about = recording.information
    assert (about["gaps"], about["silent"], about["actuator_nodes"]) == ("0", "", "per_axis")
    summaries = [decode("Summary", d) for topic, d, _ in recording.messages() if topic == "/rths/summary"]
    assert {summary["node"] for summary in summaries} == PEERS - {RECORDER}
    assert not any("story" in topic for topic in recording.counts), "the gathered topics are those of the rig"


def test_a_real_time_run_gives_the_same_bits(different):
    reference = rths_nodes.run(NAME, SHORT)
    run = rths_nodes.run(NAME, SHORT, host="composed", pace="realtime", actuator_nodes="per_axis")
    assert run.information["gaps"] == "0"
    run.flags = reference.flags  # a tick may slip; what was computed must not show it
    assert different(reference, run) == []


@pytest.mark.soak
def test_a_real_time_run_in_processes_gives_the_same_bits_until_one_is_late(patience):
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
def test_a_force_axis_with_a_node_of_its_own_has_the_same_bits(host, closed_by, tmp_path, different):
    overrides = [*SHORT, weight(closed_by)]
    reference = rths_nodes.run(NAME, overrides)
    report = per_axis(overrides, host=host, pace="lockstep", record=tmp_path / "run")
    assert (report.exit_code, report.reason) == (0, "")
    run = rths_nodes.read(tmp_path / "run")
    assert run.loads.force[-1, 0] == pytest.approx(20e3, rel=0.1)
    assert different(reference, run) == []


@pytest.mark.parametrize("fault", ["sensor_spike@0.3:story_2,force,1e6", "hydraulics@0.3:off"])
@pytest.mark.parametrize("closed_by", ["nodes", "controller"])
def test_faults_beside_a_force_axis_do_the_same_as_with_one_node(closed_by, fault, tmp_path, different):
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
FREEZES = "freeze@0.5:integrator,0.4"


@pytest.mark.parametrize("host", ["composed", "processes"])
def test_a_rig_whose_axes_have_nodes_pauses_and_goes_on(host, tmp_path):
    """The integrator stands still for 0.4 s: ticks go on, no sample is lost, and each has its true state."""
    report = per_axis(PAUSES, host=host, pace="realtime", faults=[FREEZES], record=tmp_path / "run")
    assert (report.outcome, report.reason) == ("finished", "")
    assert report.exit_code in (ExitCode.FINISHED, ExitCode.NOT_VALID), "a busy host misses ticks"
    run = rths_nodes.read(tmp_path / "run")
    assert report.timing["pauses"] >= 1
    assert report.timing["paused_s"] > 0.2
    assert run.information["gaps"] == "0"
    assert len(run.time) == 1 + 384
    assert np.array_equal(run.true_displacement, run.displacement), "of the same sample, not of the same tick"
    limits = np.array([axis.limits.velocity for axis in run.scenario.axes.values()])
    assert (np.abs(np.diff(run.command, axis=0)).max(axis=0) <= limits / 256.0).all()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("axes.story_2.limits.force=2000", "axes.story_2.limits.force: measured"),
        ("axes.story_3.limits.velocity=0.01", "axes.story_3.limits.velocity: command"),
    ],
)
def test_a_breach_of_one_axis_stops_all_at_the_same_sample(override, words, tmp_path, different):
    overrides = ["duration=3", "soft_start=null", override]
    reference = hosts.run(NAME, overrides)
    report = per_axis(overrides, host="composed", record=tmp_path / "run")
    assert (report.outcome, report.exit_code) == ("tripped", 3)
    assert report.reason == reference.reason
    assert words in report.reason
    assert different(reference.read(), rths_nodes.read(tmp_path / "run")) == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("sensor_spike@0.2:story_2,force,1e6", ("axes.story_2.limits.force", "measured")),
        ("sensor_stuck@0.2:story_3,displacement", ("axes.story_3.limits.velocity",)),
        ("nan@0.2:measurement", ("axes.story_1.limits.stroke", "nan m")),
        ("nan@0.2:command", ("axes.story_1",)),
        ("interlock@0.2", ("rig", "interlock")),
        ("hydraulics@0.2:off", ("rig", "hydraulics")),
    ],
)
def test_a_fault_on_purpose_does_the_same_as_with_one_node(fault, words, tmp_path, different):
    overrides = ["duration=3", "soft_start=null", "monitor.stuck_displacement=0.1"]  # a limit of the axis trips
    reference = hosts.run(NAME, overrides, faults=[fault])
    report = per_axis(overrides, host="composed", faults=[fault], record=tmp_path / "run")
    assert (report.outcome, report.exit_code) == ("tripped", 3), report.reason
    assert report.reason == reference.reason
    assert mentions(report.reason, *words)
    assert different(reference.read(), rths_nodes.read(tmp_path / "run")) == []


def test_an_operator_holds_all_axes(tmp_path):
    asked = iter([False] * 3)
    long = ["duration=60", "soft_start=null"]  # nobody is so late that it could end before
    report = per_axis(long, host="composed", record=tmp_path / "run", interrupted=lambda: next(asked, True))
    assert (report.outcome, report.exit_code) == ("held", 130)
    assert rths_nodes.read(tmp_path / "run").information["gaps"] == "0"


def run_with(action, tmp_path):
    """All nodes in one process; ``action(nodes by peer)`` is called once the test runs."""
    descriptions = launching.describe(
        run_options(
            {"scenario": NAME, "overrides": ["duration=3", "soft_start=null"], "record": tmp_path / "run"}
        ),
        AXES,
    )
    with composed.ros_context() as context:
        nodes = {}
        for d in descriptions:
            words = ["--ros-args", "-r", f"__ns:=/{d.namespace}"]
            nodes[d.peer] = composed.make_node(d.role, hosts.open_writer, context, d.parameters, cli_args=words)
            nodes[d.peer].start()
        called = []

        def idle():
            if nodes["actuator"].rig.sample > 100 and not called:
                called.append(action(nodes))

        executor = composed.LoopExecutor(list(nodes.values()), context, idle)
        executor.run()
        nodes["recorder"].close()
        machine = nodes["actuator"].rig.machine
        rested = [nodes[f"{axis}/axis"].stage.at_rest for axis in AXES]
        codes = {peer: node.phase.exit_code for peer, node in nodes.items()}
        for node in nodes.values():
            node.destroy_node()
    return machine, rested, codes, rths_nodes.read(tmp_path / "run")


@pytest.mark.parametrize("transition", ["shutdown", "deactivate"])
def test_an_axis_node_that_leaves_stops_the_test_first(transition, tmp_path):
    leave = lambda nodes: getattr(nodes["story_2/axis"], f"trigger_{transition}")()  # noqa: E731
    machine, rested, _, run = run_with(leave, tmp_path)
    assert machine.state == State.TRIPPED
    assert "story_2" in machine.reason
    assert rested == [True] * 3
    assert run.information["gaps"] == "0"
    assert np.isfinite(run.displacement).all(), "its safe stop is measured"


def test_a_surprise_in_an_axis_node_stops_the_others(tmp_path):
    def break_it(nodes):
        nodes["story_2/axis"].stage.port.write = lambda *_: 1 / 0

    machine, rested, codes, run = run_with(break_it, tmp_path)
    assert machine.state == State.TRIPPED
    assert mentions(machine.reason, "story_2/axis", "ZeroDivisionError")
    assert (rested[0], rested[2]) == (True, True)
    assert codes["story_2/axis"] == 1
    tripped = run.flags & FLAG_TRIPPED > 0
    assert np.isnan(run.displacement[tripped, 1]).all()
    assert np.isfinite(run.displacement[:, [0, 2]]).all()
    assert np.isfinite(run.displacement[~tripped]).all()


# -- real processes ---------------------------------------------------------------------------------------


class Rig:
    """`rths run ... --host processes --actuator-nodes per_axis`, its nodes by peer."""

    def __init__(self, record: Path, *words: str) -> None:
        command = [sys.executable, "-m", "rths_nodes.app.cli", "run", NAME, "--host", "processes"]
        self.popen = subprocess.Popen(
            [*command, "--actuator-nodes", "per_axis", "--record", str(record), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.journal = record / f"{record.name}_0.mcap"

    def wait_until_running(self) -> None:
        while self.popen.poll() is None and not (self.journal.exists() and self.journal.stat().st_size > 150_000):
            time.sleep(0.02)
        assert set(self.nodes()) == PEERS

    def wait_until_frozen(self) -> int:
        """The integrator's process, once it is stopped by its fault."""
        while self.popen.poll() is None:
            found = self.nodes().get("integrator")
            if found is not None and Path(f"/proc/{found}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return found
            time.sleep(0.01)
        raise AssertionError(self.popen.communicate())

    def nodes(self) -> dict[str, int]:
        found = {}
        for process, words in forked.nodes_of(self.popen.pid):
            if "rths_nodes.app.node" in words and alive(process):
                role = words[words.index("rths_nodes.app.node") + 1]
                namespace = next(word for word in words if word.startswith("__ns:="))
                found[f"{namespace.rpartition('/')[2]}/axis" if role == "axis" else role] = process
        return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("peer", ["story_2/axis", pytest.param("actuator", marks=pytest.mark.soak)])
def test_a_killed_node_ends_the_run_with_a_reason(peer, tmp_path):
    rig = Rig(tmp_path / "run", "--set", "soft_start=null")
    rig.wait_until_running()
    os.kill(rig.nodes()[peer], signal.SIGKILL)
    killed = time.monotonic()
    while any(other != "recorder" for other in rig.nodes()):
        assert time.monotonic() - killed < 10.0  # about a second, on a machine that has nothing else to do
        time.sleep(0.01)
    out, errors = rig.popen.communicate(timeout=60)
    assert "Traceback" not in errors
    assert rig.popen.returncode == 1
    assert f"the {peer} node died (SIGKILL)" in " ".join(out.split())
    run = rths_nodes.read(tmp_path / "run")
    reference = rths_nodes.run(NAME, ["soft_start=null", "duration=5"])
    driven = min(int(np.count_nonzero((run.flags & FLAG_TRIPPED) == 0)), len(reference.time))
    assert np.array_equal(run.displacement[:driven], reference.displacement[:driven])
    if peer != "actuator":
        assert f"the {peer} node died" in run.information["reason"]
        stopped = run.displacement[driven:]
        assert len(stopped) > 0, "the safe stop is in the recording"
        assert np.isfinite(stopped[:, [0, 2]]).all()
        assert np.isnan(stopped[-1, 1])
        assert run.outcome == "tripped"


def test_a_killed_axis_node_ends_a_pause_with_a_reason(tmp_path):
    """The integrator stands still; while the rig waits, an axis dies."""
    words = [word for change in PAUSES for word in ("--set", change)]
    rig = Rig(tmp_path / "run", *words, "--pace", "realtime", "--fault", "freeze@0.5:integrator,4")
    integrator = rig.wait_until_frozen()
    time.sleep(0.3)  # the rig rests by now
    os.kill(rig.nodes()["story_2/axis"], signal.SIGKILL)
    killed = time.monotonic()
    while "actuator" in rig.nodes():
        assert time.monotonic() - killed < 10.0
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.kill(integrator, signal.SIGCONT)
    out, errors = rig.popen.communicate(timeout=60)
    assert "Traceback" not in errors
    assert rig.popen.returncode == 1
    assert mentions(" ".join(out.split()), "story_2/axis", "SIGKILL")
    run = rths_nodes.read(tmp_path / "run")
    assert run.outcome == "tripped"
    assert "story_2/axis" in run.information["reason"]
    stopped = run.displacement[run.flags & FLAG_TRIPPED > 0]
    assert np.isfinite(stopped[:, [0, 2]]).all()
    assert np.isnan(stopped[-1, 1])


# -- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        (NAME, {"host": "embedded"}, ("host", "embedded")),
        (NAME, {"host": "composed", "actuator_nodes": "two"}, ("one", "per_axis")),
        ("phillips_spencer_2012", {"host": "composed"}, ("rig", "axes")),
    ],
)
def test_a_layout_that_cannot_be_is_refused(name, options, words):
    with pytest.raises(ConfigError, match=naming(*words)):
        hosts.run(name, **({"actuator_nodes": "per_axis"} | options))


def refusal(role, namespace, **parameters):
    values = {"scenario": NAME} | parameters
    with composed.ros_context() as context:
        words = ["--ros-args", "-r", f"__ns:=/{namespace}"]
        node = composed.make_node(role, hosts.open_writer, context, values, cli_args=words)
        try:
            with pytest.raises(ConfigError) as caught:
                node.start()
        finally:
            node.destroy_node()
    return str(caught.value)


@pytest.mark.parametrize(
    ("role", "namespace", "parameters", "words"),
    [
        ("axis", "rths/story_4", {}, ("story_1", "story_2", "story_3")),
        ("axis", "rths/story_2", {"axes.story_1.limits.force": 1.0}, ("axes.story_1.limits.force",)),
        ("axis", "rths/story_2", {"axes.story_2.limits.froce": 1.0}, ("axes.story_2.limits.froce", "force")),
        (
            "actuator",
            "rths",
            {"peers": ["actuator", "story_1/axis"]},
            ("none", "story_1/axis"),
        ),
        ("actuator", "rths", {"peers": ["actuator", "story_1/axle"]}, ("unknown", "node", "story_1/axle")),
    ],
)
def test_a_node_refuses_what_does_not_fit(role, namespace, parameters, words):
    assert mentions(refusal(role, namespace, **parameters), *words)


def test_an_axis_node_has_the_parameters_of_its_axis_and_they_are_recorded(tmp_path, different):
    descriptions = launching.describe(
        run_options({"scenario": NAME, "overrides": SHORT, "record": tmp_path / "run"}), AXES
    )
    for description in descriptions:
        if description.axis == "story_2":
            description.parameters["axes.story_2.sensors.force_noise_rms"] = 25  # N
    assert composed.run(descriptions, hosts.open_writer).exit_code == 0
    run = rths_nodes.read(tmp_path / "run")
    assert run.scenario.axes["story_2"].sensors.force_noise_rms == 25.0
    reference = rths_nodes.run(NAME, [*SHORT, "axes.story_2.sensors.force_noise_rms=25"])
    assert different(reference, run) == []


def test_limits_are_the_same_for_all(tmp_path):
    descriptions = launching.describe(run_options({"scenario": NAME, "overrides": SHORT}), AXES)
    for description in descriptions:
        if description.axis == "story_2":
            description.parameters["axes.story_2.limits.force"] = 1e3
    result = composed.run(descriptions, hosts.open_writer)
    assert (result.outcome, result.exit_code) == ("refused", 2)
    assert mentions(result.reason, "story_2/axis", "scenario")


# -- one axis node by hand --------------------------------------------------------------------------------


@pytest.fixture
def axis(by_hand, clock, monkeypatch):
    with by_hand.node("axis", "rths/story_2", clock=clock, scenario=NAME) as node:
        monkeypatch.setattr(Shutdown, "abandoned", False)
        yield node


def lead(node, samples, step=4e-4):
    """Commands of a constant velocity, answered."""
    for k in range(samples + 1):
        value = np.array([k * step])
        node.topics.inboxes["command"].put(node.topics.codec.pack_command(Command(k, value, value), k))
    while node.work():
        pass


def test_without_a_leader_an_axis_stops_by_itself(axis, clock):
    lead(axis, 20)
    assert not axis.stage.at_rest
    axis.shutdown.interrupt()
    clock.now += 1_000_000_000
    while axis.work():
        pass
    assert axis.stage.at_rest
    assert axis.phase.gone
    assert axis.phase.exit_code == 3
    assert mentions(axis.phase.problem, "interrupt", "Command 21")


def test_a_test_that_has_ended_without_it_stops_an_axis(axis, by_hand):
    lead(axis, 20)
    by_hand.put_state(axis, State.TRIPPED, 20, "the actuator node has failed")
    while axis.work():
        pass
    assert axis.stage.at_rest
    assert mentions(axis.phase.problem, "test", "axis")


def test_an_axis_whose_test_has_finished_says_how_much_it_has_sent(axis, by_hand):
    lead(axis, 20)
    by_hand.put_state(axis, State.FINISHED, 20)
    axis.work()
    assert (axis.phase.exit_code, axis.phase.problem) == (0, "")
    assert axis.shutdown.summary["sent.story_2/measurement"] == 21
    assert axis.shutdown.summary["sent.story_2/true_state"] == 21
