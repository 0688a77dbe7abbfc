# SPDX-License-Identifier: Apache-2.0
"""Tests of the private names of rclpy: one module uses them, and missing names are reported."""

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


def test_missing_private_names_are_listed() -> None:
    missing = rclpy_private.missing({"WaitSet": type("WaitSet", (), {"wait": None})}, type)
    assert {"Subscription.take_message", "WaitSet.add_service", "message._CONVERT_TO_PY"} <= {*missing}
    assert "WaitSet.wait" not in missing


def test_private_members_of_real_node_work() -> None:
    with composed.ros_context() as context:
        overrides = [Parameter("undeclared", value=7)]
        node = LifecycleNode("private_names", context=context, parameter_overrides=overrides)
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
    private = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE:
            of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not (of_self and node.attr in NODE_OF_RCLPY):
                private.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rclpy.impl"):
            private.add(str(node.module))
    return private


def test_only_one_module_uses_private_names() -> None:
    users = [path.name for path in PACKAGE.glob("ros/**/*.py") if private_names(path.read_text(encoding="utf-8"))]
    assert users == [Path(rclpy_private.__file__).name]
