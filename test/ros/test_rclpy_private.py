# SPDX-License-Identifier: Apache-2.0
"""Private names of rclpy: one module uses them, the installed version has them, and others are named."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rclpy.lifecycle import LifecycleNode
from rclpy.parameter import Parameter
from rclpy.serialization import deserialize_message, serialize_message
from std_msgs.msg import String

import rths_nodes
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.transport import rclpy_private

PACKAGE = Path(rths_nodes.__file__).parent
NODE_OF_RCLPY = {"_parameters", "_parameter_overrides", "_state_machine"}
PRIVATE = {"publish_raw", "take_message", *rclpy_private.OF_MESSAGES, *NODE_OF_RCLPY}


def test_the_names_that_a_version_lacks_are_listed() -> None:
    found = rclpy_private.missing({"WaitSet": type("WaitSet", (), {"wait": None})}, type)
    assert {"Subscription.take_message", "WaitSet.add_service", "message._CONVERT_TO_PY"} <= {*found}
    assert "WaitSet.wait" not in found


def test_a_real_node_has_what_its_class_does_not_show() -> None:
    with composed.ros_context() as context:
        given = [Parameter("undeclared", value=7)]
        node = LifecycleNode("private_names", context=context, parameter_overrides=given)
        publisher = node.create_publisher(String, "words", 10)
        take = rclpy_private.take_bytes(node.create_subscription(String, "words", lambda _: None, 10))
        node.declare_parameter("declared", 1)
        assert rclpy_private.parameter_overrides(node)["undeclared"].value == 7
        assert "declared" in rclpy_private.declared_parameters(node)
        assert rclpy_private.type_support_loaded()
        publish = rclpy_private.publish_bytes(publisher)
        taken = None
        while taken is None:  # until both have discovered each other
            publish(serialize_message(String(data="taken")))
            taken = take(String, True)
        assert deserialize_message(taken[0], String).data == "taken"
        node.destroy_node()
        rclpy_private.remove_from_graph(node)


def private_names(text: str) -> set[str]:
    """Return attributes and imports in ``text`` that are private to rclpy."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE:
            own = isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in NODE_OF_RCLPY
            found |= set() if own else {node.attr}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rclpy.impl"):
            found.add(str(node.module))
    return found


def test_no_other_module_uses_a_private_name() -> None:
    found = {path: private_names(path.read_text(encoding="utf-8")) for path in PACKAGE.glob("ros/**/*.py")}
    assert {path.name for path, names in found.items() if names} == {Path(rclpy_private.__file__).name}
