# SPDX-License-Identifier: Apache-2.0
"""The wiring as data: descriptions of nodes and the table of topics fit together, without ROS."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.loop.options import run_options
from rths_nodes.loop.scenario import files
from rths_nodes.ros import names
from rths_nodes.ros.hosting import descriptions
from rths_nodes.ros.names import ACTUATOR, COMPENSATOR, INTEGRATOR, LOOP, MONITOR, NODES, RECORDER

ROOT = Path(__file__).resolve().parents[2]
COMMON = {
    *("scenario", "rig", "case", "overrides", "pace", "run_id", "peers"),
    *("reliability", "transport", "faults", "autostart", "nodes", "peer_timeout"),
}
OWN = {RECORDER: {"record", "host", "record_topics"}, ACTUATOR: {"clock"}}
OTHER_PACKAGES = ("sensor_msgs/", "std_msgs/")


def described(scenario, axes=(), **options):
    given = {"scenario": scenario, "host": "processes"} | options
    return descriptions.describe(run_options(given), axes)


def by_role(**options):
    return {found.role: found for found in described("chen_ricles_2010", **options)}


def test_a_recorder_takes_part_only_where_something_is_recorded():
    assert tuple(by_role()) == (INTEGRATOR, COMPENSATOR, ACTUATOR, MONITOR)
    assert tuple(by_role(record="runs/a")) == NODES


@pytest.mark.parametrize("record", ["", "runs/a"])
def test_all_nodes_get_the_same_parameters_and_know_each_other(record):
    nodes = by_role(record=record, overrides=("duration=3",), run_id="a1")
    first = nodes[INTEGRATOR].parameters
    for role, node in nodes.items():
        shared = {name: node.parameters[name] for name in COMMON}
        assert shared == {name: first[name] for name in COMMON}
        assert shared["peers"] == list(nodes)
        assert set(node.parameters) - COMMON == OWN.get(role, set())


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
def test_an_option_reaches_every_node(option, value):
    assert all(node.parameters[option] == value for node in by_role(record="runs/a", **{option: value}).values())


def test_a_machine_may_start_some_of_the_nodes():
    chosen = run_options(
        {"nodes": [ACTUATOR, MONITOR], "run_id": "a", "scenario": "chen_ricles_2010", "pace": "lockstep"}, "launch"
    )
    all_of_them = descriptions.describe(chosen)
    assert descriptions.on_this_machine(chosen, all_of_them) == (ACTUATOR, MONITOR)
    assert all(each.parameters["nodes"] == [ACTUATOR, MONITOR] for each in all_of_them)
    assert {tuple(each.parameters["peers"]) for each in all_of_them} == {tuple(each.peer for each in all_of_them)}
    assert descriptions.on_this_machine(chosen.changed(nodes=()), all_of_them) == NODES[:-1]
    with pytest.raises(
        ConfigError, match=naming("nodes", "unknown", "recorder", "actuator", "compensator", "integrator")
    ):
        descriptions.on_this_machine(chosen.changed(nodes=(RECORDER,)), all_of_them)
    with pytest.raises(ConfigError, match=naming("actuator", "node")):
        descriptions.on_this_machine(chosen.changed(nodes=(MONITOR,), host="composed"), all_of_them)


def test_each_axis_may_have_a_node_of_its_own_in_its_namespace():
    axes = descriptions.axes_with_nodes(files.load("three_independent_axes"), "per_axis")
    nodes = described("three_independent_axes", record="runs/a", namespace="rig_2", axes=axes)
    assert [node.peer for node in nodes] == [*NODES, "story_1/axis", "story_2/axis", "story_3/axis"]
    assert {node.axis: node.namespace for node in nodes if node.axis} == {name: f"rig_2/{name}" for name in axes}
    assert all(node.parameters["peers"] == [other.peer for other in nodes] for node in nodes)
    for topic in names.TOPICS.values():
        peers = tuple(nodes[0].parameters["peers"])
        for publishing, roles in ((True, topic.publishers), (False, topic.subscribers)):
            for role in set(roles) & {*NODES, names.AXIS}:
                others = topic.subscribers if publishing else topic.publishers
                present = [node for node in nodes if node.role in others]
                assert len(names.partners(topic, role, peers, publishing)) <= len(present)


def test_one_actuator_node_is_what_a_rig_has_unless_it_is_asked_for_more():
    assert descriptions.axes_with_nodes(files.load("three_independent_axes"), "one") == ()
    with pytest.raises(ConfigError, match=naming("one", "per_axis")):
        by_role(actuator_nodes="two")


def test_the_topics_of_an_axis_close_its_own_loop():
    for topic in names.AXIS_TOPICS.values():
        assert {*topic.publishers, *topic.subscribers} == {ACTUATOR, names.AXIS}
        assert topic.stream
        assert not topic.recorded
        assert topic.type == names.TOPICS[topic.name].type
    assert names.axis_of(names.axis_node("story_2")) == "story_2"
    assert [names.axis_of(peer) for peer in names.PEERS] == [""] * len(names.PEERS)


def test_the_recorder_knows_where_and_for_which_host():
    parameters = by_role(record="runs/a", host="composed")[RECORDER].parameters
    assert (parameters["record"], parameters["host"]) == ("runs/a", "composed")


def test_the_namespace_is_that_of_all_nodes():
    assert {node.namespace for node in by_role(record="runs/a", namespace="rig_2").values()} == {"rig_2"}
    assert {node.namespace for node in by_role().values()} == {names.NAMESPACE}


def test_no_parameter_is_an_empty_list_which_ros_cannot_tell_the_type_of():
    assert all(value != [] for node in by_role().values() for value in node.parameters.values())


def test_parameters_survive_a_parameter_file():
    for node in by_role(record="runs/a", overrides=("ground_motion.scale=7.6e-1",)).values():
        assert yaml.safe_load(yaml.safe_dump(node.parameters)) == node.parameters


def test_every_node_has_its_executable():
    cmake = (ROOT / "CMakeLists.txt").read_text()
    for node in described("three_independent_axes", record="runs/a", axes=("story_1",)):
        script = ROOT / "scripts" / node.role
        assert script.is_file()
        assert f"scripts/{node.role}\n" in cmake
        assert f'node_main("{node.role}")' in script.read_text()


@pytest.mark.parametrize("topic", names.TOPICS.values(), ids=list(names.TOPICS))
def test_a_topic_has_publishers_and_listeners_that_exist_each_once(topic):
    for roles in (topic.publishers, topic.subscribers):
        assert set(roles) <= {*names.PEERS, names.AXIS}
        assert len(set(roles)) == len(roles)
    assert topic.publishers or topic.name == names.FORMER_TRIP, "everybody"
    assert len(topic.publishers) == 1 or not topic.stream, "samples are paired by number: one source each"
    assert topic.name == topic.name.strip("/"), "relative, so that a namespace moves it"


@pytest.mark.parametrize("topic", names.TOPICS.values(), ids=list(names.TOPICS))
def test_a_topic_has_a_type_that_exists(topic):
    if not topic.type.startswith(OTHER_PACKAGES):
        assert resource("msg", f"{topic.message}.msg").is_file()
        assert topic.type == f"rths_nodes/msg/{topic.message}"


def test_every_message_type_is_on_some_topic():
    on_topics = {topic.message for topic in names.TOPICS.values()}
    nested = {"Header"}
    assert {path.stem for path in (ROOT / "msg").glob("*.msg")} - nested <= on_topics


def test_the_recorder_hears_all_that_is_recorded_and_the_loop_is_closed():
    heard = {topic.name for topic in names.subscribed_by(RECORDER) if not topic.apart}
    assert {topic.name for topic in names.TOPICS.values() if topic.recorded} == heard
    for node, before in zip(LOOP, (ACTUATOR, INTEGRATOR, COMPENSATOR), strict=True):
        assert any(topic.stream and before in topic.publishers for topic in names.subscribed_by(node))


@pytest.mark.parametrize("record", ["", "runs/a"])
def test_every_endpoint_waits_for_as_many_partners_as_there_are(record):
    nodes = tuple(by_role(record=record))
    for topic in names.TOPICS.values():
        publishers = [node for node in topic.publishers if node in nodes]
        listeners = [node for node in topic.subscribers if node in nodes]
        for node in publishers:
            assert len(names.partners(topic, node, nodes, publishing=True)) <= len(listeners)
        for node in listeners:
            assert len(names.partners(topic, node, nodes, publishing=False)) <= len(publishers)
