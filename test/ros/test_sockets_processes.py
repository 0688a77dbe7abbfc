# SPDX-License-Identifier: Apache-2.0
"""Processes over sockets: no bit changes, whoever squats, calls, listens or runs beside them."""

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

from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from messages import mentions
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLIPPED, FLAG_TRIPPED
from rths_nodes.core.wire.plain import decode
from rths_nodes.recording import bag
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.transport.endpoints import message_class
from rths_nodes.ros.transport.greeting import address

NAME = "chen_ricles_2010"
SHORT = "duration=1.5"
NOBODY = 65534
"""A user that every machine has."""


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    return rths_nodes.run(NAME, [SHORT]).arrays()


def different(recording: Path, expected: Any, end: int | None = None) -> list[str]:
    """Names of the histories of a ``recording`` that differ from the ``expected`` ones.

    Only those of the rig where there is an ``end``, a sample. A tick may slip; what was computed must not show it.
    """
    found = rths_nodes.read(recording).arrays()
    found["flags"] &= ~np.uint32(FLAG_SLIPPED)
    names = ("flags", "command", "displacement", "force") if end is not None else expected
    return [name for name in names if found[name][:end].tobytes() != expected[name][:end].tobytes()]


# -- whoever is on the machine ----------------------------------------------------------------------------

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
            said = ((), (b"x" * 70,), (b'{{"run": "rt',), [os.urandom(300)] * 1000)[number % 4]
            try:
                for words in said: made.send(words)
            except OSError: pass
            sockets.append(made)
        del sockets[:-50]
{prepare}
print("up", flush=True)
{act}
sys.stdin.read()
"""


def hostile(prepare: str = "", act: str = "", user: int = 0) -> subprocess.Popen[str]:
    """Another process, at the names of all nodes of a rig."""
    domain = int(os.environ["ROS_DOMAIN_ID"])
    taken = [address(f"/rths/{role}", domain) for role in names.NODES]
    words = HOSTILE.format(user=user, names=taken, prepare=prepare, act=act)
    command = [sys.executable, "-I", "-S", "-c", words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
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
def test_squatters_on_all_names_change_no_bit_and_are_named(
    prepare: str, user: int, undisturbed: Any, tmp_path: Path, capfd: Any
) -> None:
    if user and os.getuid():
        pytest.skip("only root may act as another user")
    with hostile(prepare, user=user) as squatter:
        report = hosts.run(NAME, [SHORT], host="processes", record=tmp_path / "run")
        squatter.kill()
    assert (report.exit_code, report.reason) == (0, "")
    assert different(tmp_path / "run", undisturbed) == []
    told = capfd.readouterr()
    named = (
        f"process {squatter.pid} of user {user} has bound the address of the node"
        if "True" in prepare
        else "in use"
    )
    assert told.err.count(named) + told.out.count(named) >= len(names.NODES)


def test_a_process_that_calls_everybody_and_makes_no_sense_is_counted_and_changes_no_bit(
    undisturbed: Any, tmp_path: Path
) -> None:
    """Nothing, half a hello, something else, and as many messages as it gets rid of; many thousands a second."""
    with hostile(act="annoy()") as caller:
        report = hosts.run(NAME, [SHORT], host="processes", record=tmp_path / "run")
        caller.kill()
    assert (report.exit_code, report.reason) == (0, "")
    assert different(tmp_path / "run", undisturbed) == []
    assert any(mentions(note, caller.pid, f"user {os.getuid()}") for note in report.notes)


@contextmanager
def ways_told() -> Iterator[dict[str, str]]:
    """How the streams came to each node, by its last words on /diagnostics; known behind the ``with``."""
    told: dict[str, str] = {}
    with composed.ros_context() as context:
        node = Node("listener", context=context)
        take = node.create_subscription(DiagnosticArray, "/diagnostics", lambda _: None, 1000).handle.take_message
        yield told
        while found := take(DiagnosticArray, False):
            for status in found[0].status:
                told[status.name] = next(each.value for each in status.values if each.key == "inputs")
        node.destroy_node()


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
def test_both_transports_give_the_same_bits(
    pace: str, options: dict[str, str], undisturbed: Any, tmp_path: Path, patience: list[str]
) -> None:
    sets = [SHORT, *(patience if pace == "realtime" else [])]
    expected = rths_nodes.run(NAME, sets).arrays() if pace == "realtime" else undisturbed
    run = tmp_path / "run"
    with ways_told() as told:
        report = hosts.run(NAME, sets, host="processes", pace=pace, record=run, **options)
    assert (report.outcome, report.reason) == ("finished", "")
    found = rths_nodes.read(run)
    assert found.information["gaps"] == "0"
    end = as_fast_as(found, expected) if pace == "realtime" else None
    assert different(run, expected, end) == []
    assert told == dict.fromkeys([f"rths/{role}" for role in names.NODES], options.get("transport", "sockets"))


def as_fast_as(found: Any, expected: Any) -> int:
    """How many samples processes have bridged as ``expected``: then a busy machine has kept one waiting."""
    end = min(len(found.flags), len(expected["flags"]))
    waits = (found.flags[:end] ^ expected["flags"][:end]) & np.uint32(FLAG_BRIDGED) != 0
    return int(np.argmax(waits)) if waits.any() else end


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
def test_faults_come_as_in_the_embedded_loop(faults: Sequence[str], tmp_path: Path) -> None:
    reference = hosts.run(NAME, [SHORT], faults=faults)
    report = hosts.run(NAME, [SHORT], host="processes", record=tmp_path / "run", faults=faults)
    assert (report.outcome, report.exit_code) == (reference.outcome, reference.exit_code), report.reason
    run, expected = rths_nodes.read(tmp_path / "run"), reference.read()
    assert different(tmp_path / "run", expected.arrays(), driven(expected)) == []
    assert driven(run) == driven(expected) > 300
    assert run.information["gaps"] == "0"


def driven(run: Any) -> int:
    """Samples before a trip."""
    tripped = np.flatnonzero(run.flags & np.uint32(FLAG_TRIPPED))
    return int(tripped[0]) if len(tripped) else len(run.flags)


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["corrupt@0.4:measurement", "drop@0.4:command", "corrupt@0.4:target"])
def test_what_never_comes_trips_and_changes_no_bit_before(fault: str, undisturbed: Any, tmp_path: Path) -> None:
    sets = [SHORT, "port.longest_wait=0.5"]
    report = hosts.run(NAME, sets, host="processes", record=tmp_path / "run", faults=[fault])
    assert (report.outcome, report.exit_code) == ("tripped", 3), report.reason
    run = rths_nodes.read(tmp_path / "run")
    assert driven(run) > 300
    assert different(tmp_path / "run", undisturbed, driven(run)) == []
    assert run.information["gaps"] == "0"


@pytest.mark.soak
def test_what_is_late_on_purpose_is_bridged_as_in_the_embedded_loop(patience: list[str], tmp_path: Path) -> None:
    faults = ["reorder@0.1:command,2", "late@0.2:target,0.2,3", "delay@0.6:target,5"]
    sets = [SHORT, *patience]
    expected = hosts.run(NAME, sets, faults=faults).read()
    report = hosts.run(NAME, sets, host="processes", pace="realtime", record=tmp_path / "run", faults=faults)
    assert (report.outcome, report.reason) == ("finished", "")
    end = as_fast_as(rths_nodes.read(tmp_path / "run"), expected.arrays())
    assert different(tmp_path / "run", expected.arrays(), end) == []


@pytest.mark.soak
def test_axis_nodes_and_a_recorder_apart_hear_by_socket(tmp_path: Path) -> None:
    sets = [SHORT]
    expected = rths_nodes.run("three_independent_axes", sets).arrays()
    with ways_told() as told:
        report = hosts.run(
            "three_independent_axes", sets, host="processes", actuator_nodes="per_axis", record=tmp_path / "axes"
        )
    assert report.exit_code == 0
    assert set(told.values()) == {"sockets"}
    assert different(tmp_path / "axes", expected) == []
    with ways_told() as told:
        report = hosts.run(
            "three_independent_axes", sets, host="composed", separate=["recorder"], record=tmp_path / "apart"
        )
    assert report.exit_code == 0
    loop = dict.fromkeys([f"rths/{role}" for role in names.NODES if role != names.RECORDER], "process")
    assert told == loop | {"rths/recorder": "sockets"}
    assert different(tmp_path / "apart", expected) == []


def start(role: str, folder: Path, *values: str, words: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """One node in a process of its own, started by ``words``; the recorder writes into ``folder``."""
    values = (f"scenario:={NAME}", f"overrides:=['{SHORT}']", "run_id:=one_by_one", *values)
    values += (f"record:={folder / 'run'}",) if role == names.RECORDER else ()
    command = [*words, sys.executable, "-m", "rths_nodes.app.node", role, "--ros-args"]
    command += [part for value in values for part in ("-p", value)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET",
    }
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)


@contextmanager
def ended(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """All of them end in order behind the ``with``."""
    try:
        yield
        assert [process.wait(60) for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_node_on_another_machine_is_heard_by_topic_and_changes_no_bit(
    two_machines: Any, undisturbed: Any, tmp_path: Path
) -> None:
    """The integrator's Targets come by topic: its hearers give their other lines back."""
    here, there = two_machines
    machine = dict.fromkeys(names.NODES, here) | {names.INTEGRATOR: there}
    with ended([start(role, tmp_path, words=machine[role]) for role in names.NODES]):
        pass
    assert different(tmp_path / "run", undisturbed) == []
    found = rths_nodes.read(tmp_path / "run").information
    assert (found["outcome"], found["gaps"]) == ("finished", "0")


def test_nodes_that_were_cleaned_up_and_configured_again_change_no_bit(undisturbed: Any, tmp_path: Path) -> None:
    again = (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_CLEANUP)
    with (
        ways_told() as told,
        ended([start(role, tmp_path, "autostart:=false") for role in names.NODES]),
        operator() as change,
    ):
        for step in (*again, *again):
            for role in names.NODES[:-1]:  # the recorder begins a recording only once
                change(role, step)
        for step in (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE):
            for role in names.NODES:
                change(role, step)
    assert different(tmp_path / "run", undisturbed) == []
    assert set(told.values()) == {"sockets"}


@contextmanager
def operator() -> Iterator[Callable[[str, int], None]]:
    """Yields what leads a node through a transition of its lifecycle."""
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
                if answer.done():  # the second time it is refused: it is done already
                    assert answer.result().success or lost, (role, step)
                    return
                # the middleware can lose the answer to a client that it has only just found
            raise AssertionError(f"{role} answers no request")

        yield change
        executor.shutdown()
        node.destroy_node()


# -- whoever listens, and two rigs ------------------------------------------------------------------------

HEARD = ("command", "measurement", "true_state")
JOINS = 225
"""Measurements that the first subscribers have heard when the next ones join."""
ENOUGH = 100
"""Messages that one of those has heard when the test may end."""


def test_who_subscribes_at_any_time_hears_every_message_after_its_first(
    patience: list[str], tmp_path: Path
) -> None:
    """Ordinary typed subscribers, before and during the test, on topics that otherwise nobody needs."""
    heard: list[tuple[str, list[int]]] = []
    qos = QoSProfile(history=HistoryPolicy.KEEP_ALL, depth=0)
    over = threading.Event()
    with composed.ros_context() as context:
        node = Node("listener", context=context)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)

        def join() -> None:
            for topic in HEARD:
                numbers: list[int] = []
                heard.append((f"/rths/{topic}", numbers))
                kind = message_class(names.TOPICS[topic].type)
                node.create_subscription(
                    kind, f"/rths/{topic}", lambda told, to=numbers: to.append(told.sample), qos
                )

        def listen() -> None:
            join()
            measurements = heard[HEARD.index("measurement")][1]
            while not over.is_set():
                if len(heard) == len(HEARD) and len(measurements) > JOINS:
                    join()
                executor.spin_once(timeout_sec=0.01)

        def joined_under_way() -> bool:
            return any(len(numbers) > ENOUGH for _, numbers in heard[len(HEARD) :])

        thread = threading.Thread(target=listen)
        thread.start()
        # so slow that the listener keeps up on a busy machine: a publisher waits for it only so long at the end.
        # When the middleware finds a subscriber is its own affair: the test goes on until one has joined under way
        sets = ["servo_rate=256", *patience]
        options: dict[str, Any] = {"host": "processes", "pace": "realtime", "record": tmp_path / "run"}
        report = hosts.run(NAME, sets, interrupted=joined_under_way, **options)
        over.set()
        thread.join()
        quiet = 0
        while quiet < 10:  # what has come and was not looked at yet
            before = sum(len(numbers) for _, numbers in heard)
            executor.spin_once(timeout_sec=0.1)
            quiet = quiet + 1 if sum(len(numbers) for _, numbers in heard) == before else 0
        executor.shutdown()
        node.destroy_node()
    assert joined_under_way(), report.reason
    assert (report.outcome, report.exit_code) == ("held", 130), report.reason
    recorded = numbers_in(tmp_path / "run")
    for topic, numbers in recorded.items():
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), f"{topic}: nothing is missing there"
    for topic, numbers in heard:  # even the first ones may be found under way
        assert numbers == recorded[topic][len(recorded[topic]) - len(numbers) :], topic
    assert all(numbers for _, numbers in heard[: len(HEARD)]), "subscribed before the test"
    assert any(0 < len(numbers) < len(recorded[topic]) for topic, numbers in heard), "has joined under way"


def numbers_in(recording: Path) -> dict[str, list[int]]:
    """The samples of all messages that were recorded of the topics HEARD."""
    found: dict[str, list[int]] = {f"/rths/{topic}": [] for topic in HEARD}
    for topic, data, _ in bag.read(recording).messages():
        if topic in found:
            message = names.TOPICS[topic.removeprefix("/rths/")].message
            found[topic].append(decode(message, data)["sample"])
    return found


def graph(node: Node) -> dict[str, Any]:
    """Topics of the rig: types, and who publishes and listens with which QoS."""
    found = {}
    for topic, kinds in node.get_topic_names_and_types():
        if topic.startswith("/rths/"):
            ends = node.get_publishers_info_by_topic(topic) + node.get_subscriptions_info_by_topic(topic)
            told = ((str(each.endpoint_type), each.node_name, str(each.qos_profile)) for each in ends)
            found[topic] = kinds, sorted(told)
    return found


@pytest.mark.soak  # who looks on sees the whole graph only where it is given the time
def test_topics_qualities_and_recordings_are_the_same_over_both_transports(tmp_path: Path) -> None:
    found = {}
    for transport in ("sockets", "topics"):
        with composed.ros_context() as context:
            node = Node("onlooker", context=context)
            graphs: list[dict[str, Any]] = []
            run = threading.Thread(
                target=hosts.run,
                args=(NAME, ["duration=3"]),
                kwargs={
                    "host": "processes",
                    "pace": "realtime",
                    "transport": transport,
                    "record": tmp_path / transport,
                },
            )
            run.start()
            while run.is_alive():
                graphs.append(graph(node))
                time.sleep(0.02)
            run.join()
            node.destroy_node()
        recording = bag.read(tmp_path / transport)
        whole = max(graphs, key=lambda each: sum(len(ends) for _, ends in each.values()))
        streams = {name: recording.counts[f"/rths/{name}"] for name, row in names.TOPICS.items() if row.stream}
        found[transport] = whole, sorted(recording.topics.keys() - names.ALSO_RECORDED), streams
    assert found["sockets"] == found["topics"]


def rig(folder: Path, namespace: str, user: int) -> subprocess.Popen[str]:
    """`rths run` as ``user`` starts it, who may read the Python of these tests."""
    folder.mkdir()
    other: list[str] = []
    if user != os.getuid():
        os.chown(folder, user, user)
        may_read = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
        other = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *may_read]
    command = [sys.executable, "-m", "rths_nodes.app.cli", "run", NAME, "--host", "processes", "--json"]
    homes = {name: str(folder) for name in ("HOME", "TMPDIR", "ROS_HOME", "ROS_LOG_DIR")}
    return subprocess.Popen(
        [*other, *command, "--namespace", namespace, "--record", str(folder / "run"), "--set", SHORT],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | homes | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_two_rigs_in_two_namespaces_on_one_machine_do_not_meet(undisturbed: Any) -> None:
    """Of two users, where root tests, who alone may act as another one."""
    users = (os.getuid(), os.getuid() or NOBODY)
    with tempfile.TemporaryDirectory() as everybody:
        os.chmod(everybody, 0o755)
        folders = [Path(everybody, f"rig_{number}") for number in range(len(users))]
        spaces = ("rths", "lab/rig_2")
        rigs = [rig(*each) for each in zip(folders, spaces, users, strict=True)]
        for run, folder in zip(rigs, folders, strict=True):
            out, _ = run.communicate(timeout=100)
            assert run.returncode == 0, out
            assert json.loads(out)["notes"] == []
            assert different(folder / "run", undisturbed) == []
