# SPDX-License-Identifier: Apache-2.0
"""What ros2 bag, diagnostic_aggregator and SROS 2 are told of a rig is what its nodes do."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
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
from rths_nodes.ros import names, stack_files
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting.descriptions import describe
from rths_nodes.ros.hosting.listener import RigListener
from rths_nodes.ros.hosting.stop_client import StopClient
from rths_nodes.ros.nodes.operator import OperatorNode
from rths_nodes.ros.transport.endpoints import message_class, quality

AXES = ("story_1", "story_2", "story_3")
RIG = "lab/rig"
ORDER = {"policy": ["enclaves"], "enclaves": ["enclave"], "enclave": ["profiles"], "profiles": ["profile"]}
"""What may stand in each element of a policy, as its schema (0.2.0) says."""
RULES = {
    "topics": ("topic", {"publish", "subscribe"}),
    "services": ("service", {"reply", "request"}),
    "actions": ("action", {"call", "execute"}),
}


@contextmanager
def rig(tmp_path: Path, per_axis: bool = True) -> Iterator[dict[str, Any]]:
    """All nodes of a rig by their peer, configured; those of axes below its namespace."""
    scenario = "three_independent_axes" if per_axis else "chen_ricles_2010"
    options = run_options(
        {"scenario": scenario, "host": "composed", "namespace": RIG, "record": str(tmp_path / "run")}
    )
    nodes = {}
    with composed.ros_context() as context:
        for each in describe(options, AXES if per_axis else ()):
            arguments = composed.in_namespace(f"/{each.namespace}")
            made = composed.make_node(each.role, hosts.open_writer, context, each.parameters, cli_args=arguments)
            nodes[each.peer] = made
            assert made.trigger_configure() == TransitionCallbackReturn.SUCCESS, made.phase.problem
        try:
            yield nodes
        finally:
            for made in nodes.values():
                made.destroy_node()


def done_by(node: Any) -> dict[tuple[str, str], set[str]]:
    """Full names of what ``node`` does, by kind and doing of the rules of a policy."""
    services = {each.srv_name for each in node.services}
    return {
        ("topics", "publish"): {each.topic_name for each in node.publishers},
        ("topics", "subscribe"): {each.topic_name for each in node.subscriptions},
        ("services", "reply"): {node.resolve_service_name(name) for name in services},
        ("services", "request"): {node.resolve_service_name(each.srv_name) for each in node.clients},
    }


def allowed(text: str, enclave: str, node: str) -> dict[tuple[str, str], set[str]]:
    """Full names of what the policy ``text`` allows the ``node`` of an ``enclave``."""
    root = ElementTree.fromstring(text.encode())
    (found,) = (each for each in root.iter("enclave") if each.get("path") == enclave)
    (profile,) = (each for each in found.iter("profile") if f"{each.get('ns')}/{each.get('node')}" == node)
    rules: dict[tuple[str, str], set[str]] = {}
    for group in profile:
        for doing in group.attrib:
            named = {str(each.text).replace("~", node) for each in group}
            rules.setdefault((group.tag, doing), set()).update(named)
    return rules


def test_a_policy_allows_each_node_what_it_does(tmp_path: Path) -> None:
    text = stack_files.sros2_policy(RIG, AXES)
    with rig(tmp_path) as nodes:
        assert len(nodes) == len(names.NODES) + len(AXES)
        for peer, node in nodes.items():
            for enclave in (f"/{RIG}/{peer}", f"/{RIG}/test"):
                rules = allowed(text, enclave, node.get_fully_qualified_name())
                for rule, done in done_by(node).items():
                    assert done <= rules.get(rule, set()), (peer, rule)


def test_a_policy_allows_no_node_what_is_the_business_of_others() -> None:
    """The loop is closed by those who belong to it: only one may command, measure, or serve a stop."""
    root = ElementTree.fromstring(stack_files.sros2_policy("rths").encode())
    speakers: dict[str, set[str]] = {}
    for profile in root.iter("profile"):
        for group in profile:
            for each in group if {"publish", "reply"} & set(group.attrib) else ():
                speakers.setdefault(str(each.text), set()).add(str(profile.get("node")))
    for row in names.TOPICS.values():
        wanted = set(row.publishers)
        if row.name in names.OPERATOR_TOPICS:
            wanted.add(names.OPERATOR)
        wanted.discard(names.AXIS)  # without nodes of axes
        assert speakers.get(f"/rths/{row.name}", set()) == wanted, row.name
    assert speakers["~/stop"] == {names.ACTUATOR, names.OPERATOR}
    assert speakers["~/trip"] == speakers["~/emergency_stop"] == {names.ACTUATOR}
    assert speakers["~/hold"] == {names.OPERATOR}
    assert not any("*" in name for name in speakers)


def test_a_policy_has_the_structure_of_its_schema() -> None:
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
                child, doings = RULES[group.tag]
                assert set(group.attrib) <= doings
                assert set(group.attrib.values()) == {"ALLOW"}
                assert {each.tag for each in group} == {child}, "none is empty"


def test_the_operator_and_the_page_do_what_their_policy_allows() -> None:
    text = stack_files.sros2_policy(RIG)
    conducted: Any = SimpleNamespace(
        constants={"axis_names": ["story_1"], "auxiliary_names": [], "servo_rate": 1024.0},
        told_hz=0.0,
        stream_to=lambda receiver: None,
        stop=print,
        hold=print,
    )
    operator, page, stopper = OperatorNode(conducted, RIG), RigListener(RIG, "page"), StopClient(RIG, "page")
    try:
        page._join()
        for made, name in ((operator, "operator"), (page, "page"), (stopper, "page")):
            rules = allowed(text, f"/{RIG}/{name}", f"/{RIG}/{name}")
            for rule, done in done_by(made._node).items():
                assert done <= rules.get(rule, set()), (name, rule)
    finally:
        operator.close()
        page.close()
        stopper.close()


def test_diagnostics_are_sorted_by_what_the_nodes_call_themselves(tmp_path: Path) -> None:
    tree = yaml.safe_load(stack_files.diagnostics(RIG))["/**"]["ros__parameters"]
    branches = {name: each for name, each in tree.items() if isinstance(each, dict)}
    with rig(tmp_path) as nodes:
        listener = Ear(nodes["actuator"], DiagnosticArray, "/diagnostics")
        found: dict[str, list[str]] = {name: [] for name in branches}
        for node in nodes.values():
            node.diagnostics.publish()
        for _ in range(50):
            nodes["actuator"].clock.sleep(0.02)
            listener.listen()
        told = {status.name for message in listener.heard for status in message.status}
    assert len(told) == len(nodes)
    for name in sorted(told):
        matching = [key for key, each in branches.items() if matches(each, name)]
        assert len(matching) == 1, name
        found[matching[0]].append(name)
    assert found["loop"] == sorted(branches["loop"]["expected"])
    assert found["observers"] == sorted(branches["observers"]["expected"])
    assert found["axes"] == [f"{RIG}/{axis}/axis" for axis in AXES]


def matches(analyzer: dict[str, Any], name: str) -> bool:
    """Return whether a GenericAnalyzer takes ``name``: by its beginning, or all of it by a pattern."""
    begins = any(name.startswith(word) for word in analyzer.get("startswith", ()))
    return begins or any(re.fullmatch(pattern, name) for pattern in analyzer.get("regex", ()))


@pytest.mark.parametrize("best_effort", [False, True])
def test_a_foreign_recorder_listens_to_what_is_published(best_effort: bool) -> None:
    """Of reliable publishers reliably, of latched ones what was said before; and never only the last ten."""
    told = yaml.safe_load(stack_files.rosbag2_qos(RIG, best_effort))
    rows = {f"/{RIG}/{row.name}": row for row in names.OPERATOR_TOPICS.values()}
    rows |= {f"/{RIG}/{row.name}": row for row in names.TOPICS.values() if row.publishers}
    rows["/diagnostics"] = names.DIAGNOSTICS
    assert set(told) == set(rows)
    for name, row in rows.items():
        offered = quality(row, best_effort)
        assert HistoryPolicy[told[name]["history"].upper()] == HistoryPolicy.KEEP_ALL
        assert ReliabilityPolicy[told[name]["reliability"].upper()] == offered.reliability
        assert DurabilityPolicy[told[name]["durability"].upper()] == offered.durability
        assert message_class(row.type)


def test_the_shipped_files_are_those_of_the_default_namespace() -> None:
    """Made anew by: rths layouts chen_ricles_2010 --out config/stack, of which three files stay."""
    made = stack_files.of_rig("rths")
    shipped = {path.name: path.read_text(encoding="utf-8") for path in resource("config", "stack").iterdir()}
    assert shipped == made


def test_one_command_writes_them_for_any_rig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["layouts", "three_independent_axes", "--namespace", RIG, "--out", str(tmp_path)]
    assert main([*words, "--actuator-nodes", "per_axis"]) == 0
    made = stack_files.of_rig(RIG, list(AXES))
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in made} == made
    told = capsys.readouterr().out
    assert all(name in told for name in made)


def test_files_of_ros_have_no_aliases() -> None:
    """Its parser of parameters knows none."""
    for name, text in stack_files.of_rig("rths").items():
        assert name.endswith(".xml") or not re.search(r"[&*]id\d", text), name


def test_nothing_of_ros_is_needed_to_write_them() -> None:
    source = Path(str(importlib.import_module(stack_files.__name__).__file__)).read_text(encoding="utf-8")
    assert "import rclpy" not in source
