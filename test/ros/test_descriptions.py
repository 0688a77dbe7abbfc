# SPDX-License-Identifier: Apache-2.0
"""Descriptions of nodes, table of topics and graph of doc/ agree with each other and with the files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from messages import naming
from programs import module_of

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.loop.options import run_options
from rths_nodes.loop.scenario import files
from rths_nodes.recording import bag
from rths_nodes.ros import names
from rths_nodes.ros.hosting import node_processes
from rths_nodes.ros.names import ACTUATOR, COMPENSATOR, INTEGRATOR, LOOP, MONITOR, NODES, RECORDER

ROOT = Path(__file__).resolve().parents[2]
COMMON = {
    *("scenario", "rig", "case", "overrides", "pace", "run_id", "peers"),
    *("reliability", "transport", "faults", "autostart", "nodes", "peer_timeout"),
}
SPECIAL = {RECORDER: {"record", "host", "record_topics"}, ACTUATOR: {"clock"}}
AXES = "three_independent_axes"


def described(scenario, axes=(), **options):
    return node_processes.describe(run_options({"scenario": scenario, "host": "processes"} | options), axes)


def by_role(**options):
    return {node.role: node for node in described("chen_ricles_2010", **options)}


def check_partners(nodes):
    """Check that no endpoint waits for more partners than are present."""
    peers = tuple(node.peer for node in nodes)
    for node in nodes:
        for endpoint in names.endpoints(names.NodeLocation(node.role, f"/{node.namespace}"), peers):
            partners = endpoint.row.subscribers if endpoint.publishes else endpoint.row.publishers
            assert len(endpoint.partners) <= sum(node.role in partners for node in nodes)


def test_recorder_exists_only_with_a_recording():
    assert tuple(by_role()) == (INTEGRATOR, COMPENSATOR, ACTUATOR, MONITOR)
    nodes = by_role(record="runs/a", host="composed")
    assert tuple(nodes) == NODES
    parameters = nodes[RECORDER].parameters
    assert (parameters["record"], parameters["host"]) == ("runs/a", "composed")


@pytest.mark.parametrize("record", ["", "runs/a"])
def test_nodes_share_parameters_and_peers(record):
    nodes = by_role(record=record, overrides=("duration=3",), run_id="a1")
    first = nodes[INTEGRATOR].parameters
    for role, node in nodes.items():
        shared = {name: node.parameters[name] for name in COMMON}
        assert (shared, shared["peers"]) == ({name: first[name] for name in COMMON}, list(nodes))
        assert set(node.parameters) - COMMON == SPECIAL.get(role, set())
    check_partners(list(nodes.values()))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("pace", "realtime"),
        ("run_id", "monday_1"),
        ("reliability", "best_effort"),
        ("rig", "bench_simulated"),
        ("case", "alpha_29_k_p_0"),
        ("overrides", ["compensator.alpha_es=20", "duration=3"]),
    ],
)
def test_option_reaches_every_node(option, value):
    assert all(node.parameters[option] == value for node in by_role(record="runs/a", **{option: value}).values())


def test_machine_may_start_some_of_the_nodes():
    options = run_options(
        {"nodes": [ACTUATOR, MONITOR], "run_id": "a", "scenario": "chen_ricles_2010", "pace": "lockstep"}, "launch"
    )
    nodes = node_processes.describe(options)
    assert node_processes.on_this_machine(options, nodes) == (ACTUATOR, MONITOR)
    assert all(node.parameters["nodes"] == [ACTUATOR, MONITOR] for node in nodes)
    assert {tuple(node.parameters["peers"]) for node in nodes} == {tuple(node.peer for node in nodes)}
    assert node_processes.on_this_machine(options.changed(nodes=()), nodes) == NODES[:-1]
    with pytest.raises(
        ConfigError, match=naming("nodes", "unknown", "recorder", "actuator", "compensator", "integrator")
    ):
        node_processes.on_this_machine(options.changed(nodes=(RECORDER,)), nodes)
    with pytest.raises(ConfigError, match=naming("actuator", "node")):
        node_processes.on_this_machine(options.changed(nodes=(MONITOR,), host="composed"), nodes)


def test_axis_nodes_have_namespaces_of_their_axes():
    axes = node_processes.axes_with_nodes(files.load(AXES), "per_axis")
    nodes = described(AXES, record="runs/a", namespace="rig_2", axes=axes)
    assert [node.peer for node in nodes] == [*NODES, "story_1/axis", "story_2/axis", "story_3/axis"]
    assert {node.axis: node.namespace for node in nodes if node.axis} == {name: f"rig_2/{name}" for name in axes}
    assert all(node.parameters["peers"] == [peer.peer for peer in nodes] for node in nodes)
    check_partners(nodes)


def test_one_actuator_node_is_the_default():
    assert node_processes.axes_with_nodes(files.load(AXES), "one") == ()
    with pytest.raises(ConfigError, match=naming("one", "per_axis")):
        by_role(actuator_nodes="two")


def test_topics_of_an_axis_connect_it_to_the_actuator_node():
    for topic in names.AXIS_TOPICS.values():
        assert {*topic.publishers, *topic.subscribers} == {ACTUATOR, names.AXIS}
        assert topic.stream
        assert not topic.recorded
        assert topic.type == names.TOPICS[topic.name].type
    assert names.axis_of(names.axis_node("story_2")) == "story_2"
    assert [names.axis_of(peer) for peer in names.PEERS] == [""] * len(names.PEERS)


def test_nodes_share_the_namespace():
    assert {node.namespace for node in by_role(record="runs/a", namespace="rig_2").values()} == {"rig_2"}
    assert {node.namespace for node in by_role().values()} == {names.NAMESPACE}


def test_parameters_fit_into_parameter_files():
    """ROS cannot infer the type of an empty list."""
    assert all(value != [] for node in by_role().values() for value in node.parameters.values())
    for node in by_role(record="runs/a", overrides=("ground_motion.scale=7.6e-1",)).values():
        assert yaml.safe_load(yaml.safe_dump(node.parameters)) == node.parameters


def test_every_node_has_its_executable():
    cmake = (ROOT / "CMakeLists.txt").read_text()
    for node in described(AXES, record="runs/a", axes=("story_1",)):
        script = ROOT / "scripts" / node.role
        assert script.is_file()
        assert f"scripts/{node.role}\n" in cmake
        assert f'node_main("{node.role}")' in script.read_text()


@pytest.mark.parametrize("topic", names.TOPICS.values(), ids=list(names.TOPICS))
def test_topic_has_existing_nodes_and_type(topic):
    for roles in (topic.publishers, topic.subscribers):
        assert set(roles) <= {*names.PEERS, names.AXIS}
        assert len(set(roles)) == len(roles)
    assert topic.publishers or topic.name == names.FORMER_TRIP, "any node may publish it"
    assert len(topic.publishers) == 1 or not topic.stream, "samples are paired by number: one source per stream"
    assert topic.name == topic.name.strip("/"), "the name must be relative to the namespace"
    if not topic.type.startswith(("sensor_msgs/", "std_msgs/")):
        assert resource("msg", f"{topic.message}.msg").is_file()
        assert topic.type == f"rths_nodes/msg/{topic.message}"


def test_every_message_type_has_a_topic():
    types = {topic.message for topic in names.TOPICS.values()}
    assert {path.stem for path in (ROOT / "msg").glob("*.msg")} - {"Header"} <= types


def test_recorder_subscribes_to_recorded_topics_and_the_loop_is_closed():
    subscribed = {topic.name for topic in names.subscribed_by(RECORDER) if not topic.apart}
    assert {topic.name for topic in names.TOPICS.values() if topic.recorded} == subscribed
    for node, predecessor in zip(LOOP, (ACTUATOR, INTEGRATOR, COMPENSATOR), strict=True):
        assert any(topic.stream and predecessor in topic.publishers for topic in names.subscribed_by(node))


# Graph of nodes and topics in doc/ros/graph.md


@pytest.fixture(scope="module")
def graph() -> Any:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    return module_of(ROOT / "doc" / "graph.py")


def test_page_shows_the_graph_of_the_code(graph):
    page = (ROOT / "doc" / "ros" / "graph.md").read_text(encoding="utf-8")
    (shown,) = (block[1] for block in graph.BLOCK.findall(page))
    assert shown == graph.graph(), "python doc/graph.py"


def test_graph_has_every_topic_with_its_rate(graph):
    apart = {row.name for row in names.TOPICS.values() if row.apart or row.section} | {names.FORMER_TRIP}
    assert set(graph.RATES) == set(names.TOPICS) - apart | {names.CLOCK.name, names.DIAGNOSTICS.name}
    assert all(f"{name}: {rate}" in graph.graph() for name, rate in graph.RATES.items())


def test_rates_of_the_graph_are_those_of_a_test(graph, tmp_path):
    from rths_nodes.ros.nodes.monitor import RATE

    scenario = hosts.run("chen_ricles_2010", ["duration=2"], host="composed", record=tmp_path / "run").scenario
    counts = Counter(topic.rpartition("/")[2] for topic, _, _ in bag.read(tmp_path / "run").messages())
    numbers = {"step": scenario.samples // scenario.substeps + 1, "sample": scenario.samples + 1}
    for name, rate in graph.RATES.items():
        for noun, number in numbers.items():
            if rate == graph.BY_NUMBER.format(noun):
                assert abs(counts[name] - number) <= 1, name
    seconds = scenario.samples / scenario.servo_rate
    assert counts["sync_status"] == pytest.approx(RATE * seconds, abs=2)
