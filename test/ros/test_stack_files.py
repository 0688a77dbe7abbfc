# SPDX-License-Identifier: Apache-2.0
"""Tests of the files for ros2 bag, diagnostic_aggregator and SROS 2 against the nodes of a rig."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from diagnostic_msgs.msg import DiagnosticArray
from ear import Ear
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.qos import DurabilityPolicy, HistoryPolicy, ReliabilityPolicy

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.resources import resource
from rths_nodes.loop.options import run_options
from rths_nodes.loop.scenario import files
from rths_nodes.ros import names, stack_files
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting.listener import RigListener, StopClient
from rths_nodes.ros.hosting.node_processes import describe
from rths_nodes.ros.nodes.operator import OperatorNode
from rths_nodes.ros.transport.endpoints import message_class, quality

AXES = ("story_1", "story_2", "story_3")
RIG = "lab/rig"
ORDER = {"policy": ["enclaves"], "enclaves": ["enclave"], "enclave": ["profiles"], "profiles": ["profile"]}
"""Allowed contents of the elements of a policy, by its schema (0.2.0)."""
RULES = {
    "topics": ("topic", {"publish", "subscribe"}),
    "services": ("service", {"reply", "request"}),
    "actions": ("action", {"call", "execute"}),
}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """All nodes of a rig by peer, configured; axis nodes are below its namespace."""
    options = {"scenario": "three_independent_axes", "host": "composed", "namespace": RIG}
    nodes = {}
    with composed.ros_context() as context:
        for description in describe(run_options(options | {"record": str(tmp_path / "run")}), AXES):
            node = nodes[description.peer] = composed.make_node(
                description.role,
                hosts.open_writer,
                context,
                description.parameters,
                cli_args=composed.in_namespace(f"/{description.namespace}"),
            )
            assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS, node.phase.problem
        try:
            yield nodes
        finally:
            for node in nodes.values():
                node.destroy_node()


Rules = dict[tuple[str, str], set[str]]
"""Full names by kind (topics, services) and permission (publish, reply, ...) of a policy."""


def used_by(node: Any) -> Rules:
    return {
        ("topics", "publish"): {publisher.topic_name for publisher in node.publishers},
        ("topics", "subscribe"): {subscription.topic_name for subscription in node.subscriptions},
        ("services", "reply"): {node.resolve_service_name(service.srv_name) for service in node.services},
        ("services", "request"): {node.resolve_service_name(client.srv_name) for client in node.clients},
    }


def allowed(text: str, enclave: str, node: str) -> Rules:
    """Return the rules of the policy ``text`` for the ``node`` of an ``enclave``."""
    root = ElementTree.fromstring(text.encode())
    (element,) = (tag for tag in root.iter("enclave") if tag.get("path") == enclave)
    (profile,) = (tag for tag in element.iter("profile") if f"{tag.get('ns')}/{tag.get('node')}" == node)
    rules: Rules = {}
    for group in profile:
        for permission in group.attrib:
            full_names = {str(tag.text).replace("~", node) for tag in group}
            rules.setdefault((group.tag, permission), set()).update(full_names)
    return rules


def test_policy_allows_each_node_its_own_use(rig: dict[str, Any]) -> None:
    text = stack_files.sros2_policy(RIG, AXES)
    assert len(rig) == len(names.NODES) + len(AXES)
    for peer, node in rig.items():
        for enclave in (f"/{RIG}/{peer}", f"/{RIG}/test"):
            rules = allowed(text, enclave, node.get_fully_qualified_name())
            for rule, used in used_by(node).items():
                assert used <= rules.get(rule, set()), (peer, rule)


def test_policy_allows_no_node_the_role_of_another() -> None:
    """Only one node may command, measure, or serve a stop."""
    root = ElementTree.fromstring(stack_files.sros2_policy("rths").encode())
    publishers: dict[str, set[str]] = {}
    for profile in root.iter("profile"):
        for group in profile:
            for tag in group if {"publish", "reply"} & set(group.attrib) else ():
                publishers.setdefault(str(tag.text), set()).add(str(profile.get("node")))
    for row in names.TOPICS.values():
        expected = set(row.publishers) | ({names.OPERATOR} if row.name in names.OPERATOR_TOPICS else set())
        expected.discard(names.AXIS)  # there are no axis nodes
        assert publishers.get(f"/rths/{row.name}", set()) == expected, row.name
    assert publishers["~/stop"] == {names.ACTUATOR, names.OPERATOR}
    assert publishers["~/trip"] == publishers["~/emergency_stop"] == {names.ACTUATOR}
    assert publishers["~/hold"] == {names.OPERATOR}
    assert not any("*" in name for name in publishers)


def test_policy_follows_its_schema() -> None:
    root = ElementTree.fromstring(stack_files.sros2_policy(RIG, AXES).encode())
    assert (root.tag, root.attrib) == ("policy", {"version": "0.2.0"})
    for element in root.iter():
        if element.tag in ORDER:
            assert len(element) >= 1
            assert {child.tag for child in element} == set(ORDER[element.tag])
        if element.tag == "enclave":
            assert set(element.attrib) == {"path"}
        if element.tag == "profile":
            assert set(element.attrib) == {"ns", "node"}
            for group in element:
                child, permissions = RULES[group.tag]
                assert set(group.attrib) <= permissions
                assert set(group.attrib.values()) == {"ALLOW"}
                assert {tag.tag for tag in group} == {child}, "none is empty"


def test_policy_allows_operator_and_page_their_use() -> None:
    text = stack_files.sros2_policy(RIG)
    drive = SimpleNamespace(port=SimpleNamespace(auxiliary_names=()), receivers=[print])
    record = SimpleNamespace(scenario="", scenario_hash="", test_id="")
    session: Any = SimpleNamespace(scenario=files.load("chen_ricles_2010"), record=record, drive=drive)
    operator = OperatorNode(session, print, print, RIG)
    page, stopper = RigListener(RIG, "page"), StopClient(RIG, "page")
    try:
        page._join()
        for program, name in ((operator, "operator"), (page, "page"), (stopper, "page")):
            rules = allowed(text, f"/{RIG}/{name}", f"/{RIG}/{name}")
            for rule, used in used_by(program._node).items():
                assert used <= rules.get(rule, set()), (name, rule)
    finally:
        operator.close()
        page.close()
        stopper.close()


def test_diagnostics_are_grouped_by_names_of_nodes(rig: dict[str, Any]) -> None:
    tree = yaml.safe_load(stack_files.diagnostics(RIG))["/**"]["ros__parameters"]
    branches = {name: branch for name, branch in tree.items() if isinstance(branch, dict)}
    listener = Ear(rig["actuator"], DiagnosticArray, "/diagnostics")
    for node in rig.values():
        node.diagnostics.publish()
    for _ in range(50):
        rig["actuator"].clock.sleep(0.02)
        listener.listen()
    published = {status.name for message in listener.heard for status in message.status}
    assert len(published) == len(rig)
    grouped: dict[str, list[str]] = {name: [] for name in branches}
    for name in sorted(published):
        matching = [key for key, branch in branches.items() if matches(branch, name)]
        assert len(matching) == 1, name
        grouped[matching[0]].append(name)
    assert grouped["loop"] == sorted(branches["loop"]["expected"])
    assert grouped["observers"] == sorted(branches["observers"]["expected"])
    assert grouped["axes"] == [f"{RIG}/{axis}/axis" for axis in AXES]


def matches(analyzer: dict[str, Any], name: str) -> bool:
    """Return whether a GenericAnalyzer selects ``name``, by prefix or by a pattern for the full name."""
    begins = any(name.startswith(prefix) for prefix in analyzer.get("startswith", ()))
    return begins or any(re.fullmatch(pattern, name) for pattern in analyzer.get("regex", ()))


@pytest.mark.parametrize("best_effort", [False, True])
def test_rosbag2_qos_matches_publishers(best_effort: bool) -> None:
    """Reliable for reliable publishers, transient local for latched ones, and a queue without limit."""
    profiles = yaml.safe_load(stack_files.rosbag2_qos(RIG, best_effort))
    rows = {f"/{RIG}/{row.name}": row for row in names.OPERATOR_TOPICS.values()}
    rows |= {f"/{RIG}/{row.name}": row for row in names.TOPICS.values() if row.publishers}
    rows["/diagnostics"] = names.DIAGNOSTICS
    assert set(profiles) == set(rows)
    for name, row in rows.items():
        profile, offered = profiles[name], quality(row, best_effort)
        assert HistoryPolicy[profile["history"].upper()] == HistoryPolicy.KEEP_ALL
        assert ReliabilityPolicy[profile["reliability"].upper()] == offered.reliability
        assert DurabilityPolicy[profile["durability"].upper()] == offered.durability
        assert message_class(row.type)


def test_shipped_files_are_current() -> None:
    """Update them by: rths layouts chen_ricles_2010 --out config/stack, and keep three of the files."""
    shipped = {path.name: path.read_text(encoding="utf-8") for path in resource("config", "stack").iterdir()}
    assert shipped == stack_files.of_rig("rths")


def test_layouts_command_writes_files_of_any_rig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["layouts", "three_independent_axes", "--namespace", RIG, "--out", str(tmp_path)]
    assert main([*command, "--actuator-nodes", "per_axis"]) == 0
    expected = stack_files.of_rig(RIG, list(AXES))
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in expected} == expected
    output = capsys.readouterr().out
    assert all(name in output for name in expected)


def test_parameter_files_have_no_aliases() -> None:
    """The YAML parser of ROS 2 supports none."""
    for name, text in stack_files.of_rig("rths").items():
        assert name.endswith(".xml") or not re.search(r"[&*]id\d", text), name


def test_module_does_not_import_rclpy() -> None:
    assert "import rclpy" not in Path(str(stack_files.__file__)).read_text(encoding="utf-8")
