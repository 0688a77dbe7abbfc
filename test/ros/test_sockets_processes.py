# SPDX-License-Identifier: Apache-2.0
"""Tests of processes over sockets: squatters, callers, subscribers and a second rig change no bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from ear import node_inputs
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from messages import mentions
from programs import start_node
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLIPPED, FLAG_TRIPPED
from rths_nodes.core.wire import decode
from rths_nodes.recording import bag
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.transport.endpoints import message_class
from rths_nodes.ros.transport.line import address

NAME = "chen_ricles_2010"
SHORT = "duration=1.5"
NOBODY = 65534
"""User id that exists on every machine."""


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    return rths_nodes.run(NAME, [SHORT]).arrays()


def different(recording: Path, expected: Any, end: int | None = None) -> list[str]:
    """Return the names of the histories of a ``recording`` that differ from the ``expected`` histories.

    With an ``end`` compare only histories of the rig up to that sample. Ticks may slip without effect on results.
    """
    arrays = rths_nodes.read(recording).arrays()
    arrays["flags"] &= ~np.uint32(FLAG_SLIPPED)
    names = ("flags", "command", "displacement", "force") if end is not None else expected
    return [name for name in names if arrays[name][:end].tobytes() != expected[name][:end].tobytes()]


# -- other processes on the machine -----------------------------------------------------------------------

HOSTILE = """
import itertools, os, socket, sys
if {user}: os.setuid({user})
sockets, files = [], {names!r}
def call(name):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.setblocking(False)
    try: made.connect(name)
    except OSError: return None
    return made
def squat(listens):
    for name in files:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.bind(name)
        if listens: made.listen()
        sockets.append(made)
def annoy():
    os.nice(10)
    for number in itertools.count():
        for name in files:
            made = call(name)
            if made is None: continue
            payloads = ((), (b"x" * 70,), (b'{{"run": "rt',), [os.urandom(300)] * 1000)[number % 4]
            try:
                for payload in payloads: made.send(payload)
            except OSError: pass
            sockets.append(made)
        del sockets[:-50]
{prepare}
print("up", flush=True)
{act}
sys.stdin.read()
"""


def hostile(prepare: str = "", act: str = "", user: int = 0) -> subprocess.Popen[str]:
    """Start a process that uses the addresses of all nodes of a rig."""
    domain = int(os.environ["ROS_DOMAIN_ID"])
    addresses = [address(f"/rths/{role}", domain) for role in names.NODES]
    script = HOSTILE.format(user=user, names=addresses, prepare=prepare, act=act)
    command = [sys.executable, "-I", "-S", "-c", script]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    return process


@pytest.mark.parametrize(
    ("prepare", "user"),
    [
        ("squat(True)", 0),
        pytest.param("squat(False)", 0, marks=pytest.mark.soak),
        pytest.param("squat(True)", NOBODY, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_squatters_are_reported_and_change_no_bit(
    prepare: str, user: int, undisturbed: Any, tmp_path: Path, capfd: Any
) -> None:
    if user and os.getuid():
        pytest.skip("only root may act as another user")
    with hostile(prepare, user=user) as squatter:
        report = hosts.run(NAME, [SHORT], host="processes", record=tmp_path / "run")
        squatter.kill()
    assert (report.exit_code, report.reason) == (0, "")
    assert different(tmp_path / "run", undisturbed) == []
    captured = capfd.readouterr()
    bound = f"process {squatter.pid} of user {user} has bound the address of the node"
    warning = bound if "True" in prepare else "in use"
    assert captured.err.count(warning) + captured.out.count(warning) >= len(names.NODES)


def test_invalid_callers_are_counted_and_change_no_bit(undisturbed: Any, tmp_path: Path) -> None:
    """They send nothing, half a greeting, noise, and floods of messages; many thousands a second."""
    with hostile(act="annoy()") as caller:
        report = hosts.run(NAME, [SHORT], host="processes", record=tmp_path / "run")
        caller.kill()
    assert (report.exit_code, report.reason) == (0, "")
    assert different(tmp_path / "run", undisturbed) == []
    assert any(mentions(note, caller.pid, f"user {os.getuid()}") for note in report.notes)


@pytest.mark.parametrize(
    ("pace", "options"),
    [
        ("lockstep", {"transport": "topics"}),
        pytest.param("realtime", {}, marks=pytest.mark.soak),
        pytest.param("lockstep", {}, marks=pytest.mark.soak),
        pytest.param("lockstep", {"reliability": "best_effort"}, marks=pytest.mark.soak),
        pytest.param("realtime", {"transport": "topics"}, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_transports_give_same_bits(
    pace: str, options: dict[str, str], undisturbed: Any, tmp_path: Path, patience: list[str]
) -> None:
    sets = [SHORT, *(patience if pace == "realtime" else [])]
    expected = rths_nodes.run(NAME, sets).arrays() if pace == "realtime" else undisturbed
    with node_inputs() as (_, inputs):
        report = hosts.run(NAME, sets, host="processes", pace=pace, record=tmp_path / "run", **options)
    assert (report.outcome, report.reason) == ("finished", "")
    run = rths_nodes.read(tmp_path / "run")
    assert run.information["gaps"] == "0"
    end = equally_bridged(run, expected) if pace == "realtime" else None
    assert different(tmp_path / "run", expected, end) == []
    assert inputs == dict.fromkeys([f"rths/{role}" for role in names.NODES], options.get("transport", "sockets"))


def equally_bridged(run: Any, expected: Any) -> int:
    """Return the number of samples until a busy machine delayed a process, which bridged other samples."""
    end = min(len(run.flags), len(expected["flags"]))
    delayed = (run.flags[:end] ^ expected["flags"][:end]) & np.uint32(FLAG_BRIDGED) != 0
    return int(np.argmax(delayed)) if delayed.any() else end


@pytest.mark.soak
@pytest.mark.parametrize(
    "faults",
    [
        ("duplicate@0.1:target,3", "sensor_stuck@0.3:story_1,displacement,0.01", "duplicate@0.4:command,2"),
        ("nan@0.4:measurement,nan,force",),
        ("nan@0.4:target",),
        ("sensor_spike@0.4:story_1,force,1e7",),
    ],
    ids=str,
)
def test_faults_equal_embedded_loop(faults: Sequence[str], tmp_path: Path) -> None:
    reference = hosts.run(NAME, [SHORT], faults=faults)
    report = hosts.run(NAME, [SHORT], host="processes", record=tmp_path / "run", faults=faults)
    assert (report.outcome, report.exit_code) == (reference.outcome, reference.exit_code), report.reason
    run, expected = rths_nodes.read(tmp_path / "run"), reference.read()
    assert different(tmp_path / "run", expected.arrays(), driven(expected)) == []
    assert driven(run) == driven(expected) > 300
    assert run.information["gaps"] == "0"


def driven(run: Any) -> int:
    """Return the number of samples before a trip."""
    tripped = np.flatnonzero(run.flags & np.uint32(FLAG_TRIPPED))
    return int(tripped[0]) if len(tripped) else len(run.flags)


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["corrupt@0.4:measurement", "drop@0.4:command", "corrupt@0.4:target"])
def test_missing_message_trips_and_changes_no_earlier_bit(fault: str, undisturbed: Any, tmp_path: Path) -> None:
    sets = [SHORT, "port.longest_wait=0.5", "seed=3"]  # with this seed, corrupt messages are unreadable
    report = hosts.run(NAME, sets, host="processes", record=tmp_path / "run", faults=[fault])
    assert (report.outcome, report.exit_code) == ("tripped", 3), report.reason
    run = rths_nodes.read(tmp_path / "run")
    assert driven(run) > 300
    assert different(tmp_path / "run", undisturbed, driven(run)) == []
    assert run.information["gaps"] == "0"


@pytest.mark.soak
def test_late_messages_are_bridged_as_in_embedded_loop(patience: list[str], tmp_path: Path) -> None:
    faults = ["reorder@0.1:command,2", "late@0.2:target,0.2,3", "delay@0.6:target,5"]
    sets = [SHORT, *patience]
    expected = hosts.run(NAME, sets, faults=faults).read()
    report = hosts.run(NAME, sets, host="processes", pace="realtime", record=tmp_path / "run", faults=faults)
    assert (report.outcome, report.reason) == ("finished", "")
    end = equally_bridged(rths_nodes.read(tmp_path / "run"), expected.arrays())
    assert different(tmp_path / "run", expected.arrays(), end) == []


@pytest.mark.soak
def test_axis_nodes_and_separate_recorder_use_sockets(tmp_path: Path) -> None:
    scenario, sets = "three_independent_axes", [SHORT]
    expected = rths_nodes.run(scenario, sets).arrays()
    run = tmp_path / "axes"
    with node_inputs() as (_, inputs):
        report = hosts.run(scenario, sets, host="processes", actuator_nodes="per_axis", record=run)
    assert report.exit_code == 0
    assert set(inputs.values()) == {"sockets"}
    assert different(run, expected) == []
    run = tmp_path / "separate"
    with node_inputs() as (_, inputs):
        report = hosts.run(scenario, sets, host="composed", separate=["recorder"], record=run)
    assert report.exit_code == 0
    loop = dict.fromkeys([f"rths/{role}" for role in names.NODES if role != names.RECORDER], "process")
    assert inputs == loop | {"rths/recorder": "sockets"}
    assert different(run, expected) == []


def start(role: str, folder: Path, *values: str, prefix: Sequence[str] = ()) -> subprocess.Popen[str]:
    common = (f"scenario:={NAME}", f"overrides:=['{SHORT}']", "run_id:=one_by_one")
    return start_node(role, folder, *common, *values, prefix=prefix)


@contextmanager
def ended(processes: Sequence[subprocess.Popen[str]]) -> Iterator[None]:
    """Check at the end of the ``with`` block that all processes exit with 0."""
    try:
        yield
        assert [process.wait(60) for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_node_on_another_machine_uses_topics_and_changes_no_bit(
    two_machines: Any, undisturbed: Any, tmp_path: Path
) -> None:
    """The integrator's Targets are published: their receivers return their other lines."""
    here, there = two_machines
    machine = dict.fromkeys(names.NODES, here) | {names.INTEGRATOR: there}
    with ended([start(role, tmp_path, prefix=machine[role]) for role in names.NODES]):
        pass
    assert different(tmp_path / "run", undisturbed) == []
    information = rths_nodes.read(tmp_path / "run").information
    assert (information["outcome"], information["gaps"]) == ("finished", "0")


def test_reconfigured_nodes_change_no_bit(undisturbed: Any, tmp_path: Path) -> None:
    again = (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_CLEANUP)
    with (
        node_inputs() as (_, inputs),
        ended([start(role, tmp_path, "autostart:=false") for role in names.NODES]),
        operator() as change,
    ):
        for step in (*again, *again):
            for role in names.NODES[:-1]:  # the recorder starts a recording only once
                change(role, step)
        for step in (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE):
            for role in names.NODES:
                change(role, step)
    assert different(tmp_path / "run", undisturbed) == []
    assert set(inputs.values()) == {"sockets"}


@contextmanager
def operator() -> Iterator[Callable[[str, int], None]]:
    """Yield a function that requests a lifecycle transition of a node."""
    with composed.ros_context() as context:
        node = Node("operator", context=context)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        clients: dict[str, Any] = {}

        def change(role: str, step: int) -> None:
            client = clients.get(role) or node.create_client(ChangeState, f"/rths/{role}/change_state")
            clients[role] = client
            assert client.wait_for_service(30.0)
            request = ChangeState.Request()
            request.transition.id = step
            for lost in (False, True):
                answer = client.call_async(request)
                executor.spin_until_future_complete(answer, 10.0)
                if answer.done():  # a second request is refused, as the transition is done
                    assert answer.result().success or lost, (role, step)
                    return
                # the middleware can lose the answer to a client that it has only just discovered
            raise AssertionError(f"{role} answers no request")

        yield change
        executor.shutdown()
        node.destroy_node()


# -- subscribers, and two rigs ----------------------------------------------------------------------------

TOPICS = ("command", "measurement", "true_state")
JOINS = 225
"""Measurements that the first subscribers have received when the next ones join."""
ENOUGH = 100
"""Messages that one of those has received when the test may end."""


def test_subscriber_receives_every_message_after_its_first(patience: list[str], tmp_path: Path) -> None:
    """Typed subscribers that join before and during the test, on topics with no other subscriber."""
    received: list[tuple[str, list[int]]] = []
    qos = QoSProfile(history=HistoryPolicy.KEEP_ALL, depth=0)
    over = threading.Event()
    with composed.ros_context() as context:
        node = Node("listener", context=context)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)

        def join() -> None:
            for topic in TOPICS:
                samples: list[int] = []
                received.append((f"/rths/{topic}", samples))
                kind = message_class(names.TOPICS[topic].type)
                node.create_subscription(
                    kind, f"/rths/{topic}", lambda message, to=samples: to.append(message.sample), qos
                )

        def listen() -> None:
            join()
            measurements = received[TOPICS.index("measurement")][1]
            while not over.is_set():
                if len(received) == len(TOPICS) and len(measurements) > JOINS:
                    join()
                executor.spin_once(timeout_sec=0.01)

        def joined_during_test() -> bool:
            return any(len(samples) > ENOUGH for _, samples in received[len(TOPICS) :])

        thread = threading.Thread(target=listen)
        thread.start()
        # so slow that the subscriber keeps up on a busy machine: a publisher waits only briefly for it at the end.
        # The middleware decides when it discovers a subscriber: the test runs until one has joined during it
        sets = ["servo_rate=256", *patience]
        options: dict[str, Any] = {"host": "processes", "pace": "realtime", "record": tmp_path / "run"}
        report = hosts.run(NAME, sets, interrupted=joined_during_test, **options)
        over.set()
        thread.join()
        quiet = 0
        while quiet < 10:  # messages that have arrived but were not taken yet
            before = sum(len(samples) for _, samples in received)
            executor.spin_once(timeout_sec=0.1)
            quiet = quiet + 1 if sum(len(samples) for _, samples in received) == before else 0
        executor.shutdown()
        node.destroy_node()
    assert joined_during_test(), report.reason
    assert (report.outcome, report.exit_code) == ("held", 130), report.reason
    recorded = recorded_samples(tmp_path / "run")
    for topic, samples in recorded.items():
        assert samples == list(range(samples[0], samples[0] + len(samples))), f"{topic}: no gap"
    for topic, samples in received:  # even the first subscribers may be discovered during the test
        assert samples == recorded[topic][len(recorded[topic]) - len(samples) :], topic
    assert all(samples for _, samples in received[: len(TOPICS)]), "subscribed before the test"
    assert any(0 < len(samples) < len(recorded[topic]) for topic, samples in received), "joined during the test"


def recorded_samples(recording: Path) -> dict[str, list[int]]:
    """Return the samples of all recorded messages of the TOPICS."""
    samples: dict[str, list[int]] = {f"/rths/{topic}": [] for topic in TOPICS}
    for topic, data, _ in bag.read(recording).messages():
        if topic in samples:
            message = names.TOPICS[topic.removeprefix("/rths/")].message
            samples[topic].append(decode(message, data)["sample"])
    return samples


def graph(node: Node) -> dict[str, Any]:
    """Return types, publishers and subscribers, with their QoS, of each topic of the rig."""
    topics = {}
    for topic, kinds in node.get_topic_names_and_types():
        if topic.startswith("/rths/"):
            ends = node.get_publishers_info_by_topic(topic) + node.get_subscriptions_info_by_topic(topic)
            rows = ((str(end.endpoint_type), end.node_name, str(end.qos_profile)) for end in ends)
            topics[topic] = kinds, sorted(rows)
    return topics


@pytest.mark.soak  # discovery of the complete graph takes time
def test_graph_and_recording_do_not_depend_on_transport(tmp_path: Path) -> None:
    results = {}
    for transport in ("sockets", "topics"):
        with composed.ros_context() as context:
            node = Node("onlooker", context=context)
            graphs: list[dict[str, Any]] = []
            options = {"host": "processes", "pace": "realtime", "transport": transport}
            options["record"] = tmp_path / transport
            run = threading.Thread(target=hosts.run, args=(NAME, ["duration=3"]), kwargs=options)
            run.start()
            while run.is_alive():
                graphs.append(graph(node))
                time.sleep(0.02)
            run.join()
            node.destroy_node()
        recording = bag.read(tmp_path / transport)
        largest = max(graphs, key=lambda topics: sum(len(ends) for _, ends in topics.values()))
        streams = {
            name: recording.counts.get(f"/rths/{name}", 0) for name, row in names.TOPICS.items() if row.stream
        }
        results[transport] = largest, sorted(recording.topics.keys() - names.ALSO_RECORDED), streams
    assert results["sockets"] == results["topics"]


def rig(folder: Path, namespace: str, user: int) -> subprocess.Popen[str]:
    """Start `rths run` as ``user`` with permission to read the Python files of these tests."""
    folder.mkdir()
    prefix: list[str] = []
    if user != os.getuid():
        os.chown(folder, user, user)
        may_read = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
        prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *may_read]
    command = [sys.executable, "-m", "rths_nodes.app.cli", "run", NAME, "--host", "processes", "--json"]
    homes = {name: str(folder) for name in ("HOME", "TMPDIR", "ROS_HOME", "ROS_LOG_DIR")}
    return subprocess.Popen(
        [*prefix, *command, "--namespace", namespace, "--record", str(folder / "run"), "--set", SHORT],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | homes | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_rigs_in_two_namespaces_are_independent(undisturbed: Any) -> None:
    """Rigs of two users if root runs this test, because only root may act as another user."""
    users = (os.getuid(), os.getuid() or NOBODY)
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        folders = [Path(parent, f"rig_{number}") for number in range(len(users))]
        rigs = [rig(*row) for row in zip(folders, ("rths", "lab/rig_2"), users, strict=True)]
        for run, folder in zip(rigs, folders, strict=True):
            output, _ = run.communicate(timeout=100)
            assert run.returncode == 0, output
            assert json.loads(output)["notes"] == []
            assert different(folder / "run", undisturbed) == []
