# SPDX-License-Identifier: Apache-2.0
"""Tests of the parameters of a node: sections of its scenario, and remapping.

Parameters are declared when a node is made, can be set until it is configured, and are refused afterwards. Names
can be remapped only for topics that no test node subscribes to.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter

from rths_nodes.app import hosts
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.options import PACES
from rths_nodes.loop.scenario import files
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.transport.endpoints import quality
from rths_nodes.ros.transport.topics import refuse_remapping
from rths_nodes.ros.transport.wiring import endpoints

NAME = "chen_ricles_2010"


@contextmanager
def made(
    role: str = names.COMPENSATOR, arguments: Sequence[str] = (), scenario_of_runner: Any = None, **values: Any
) -> Iterator[Any]:
    """Create an unconfigured node with parameter ``values``."""
    values = {"scenario": NAME} | values
    with composed.ros_context() as context:
        node = composed.make_node(
            role, hosts.open_writer, context, values, arguments or None, scenario=scenario_of_runner
        )
        try:
            yield node
        finally:
            node.destroy_node()


# -- sections ---------------------------------------------------------------------------------------------


def refusal(node: Any, **values: Any) -> str:
    """Set ``values`` (``__`` for the dot); return the reason of a refusal, or an empty text."""
    parameters = [Parameter(name.replace("__", "."), value=value) for name, value in values.items()]
    return str(node.set_parameters_atomically(parameters).reason)


def test_sections_are_declared_when_node_is_made() -> None:
    with made() as node:
        assert node.get_parameter("compensator.type").value == "adaptive_inverse"
        assert node.get_parameter("compensator.alpha_es").value == 15.0
        descriptor = node.describe_parameter("compensator.alpha_es")
        assert (
            "must be >= 1" in str(descriptor.description) or descriptor.floating_point_range[0].from_value == 1.0
        )


@pytest.mark.parametrize("role", names.NODES)
def test_values_without_parameter_type_stay_in_scenario(role: str) -> None:
    """Matrices, and values drawn by a study, which the recorder would own."""
    with made(role) as node:
        assert not node.has_parameter("recording.drawn")
        assert node.has_parameter("recording.note") == (role == "recorder")


@pytest.mark.parametrize(
    ("role", "name", "choices"),
    [
        ("monitor", "pace", PACES),
        ("compensator", "compensator.type", registry.names("compensator")),
        ("actuator", "axes.story_1.actuator.type", registry.names("actuator")),
        ("compensator", "compensator.alpha_es", ()),
    ],
)
def test_descriptor_lists_choices(role: str, name: str, choices: Sequence[str]) -> None:
    with made(role) as node:
        constraints = node.describe_parameter(name).additional_constraints if node.has_parameter(name) else ""
        assert constraints == (f"one of {', '.join(choices)}" if choices else "")


def test_missing_bound_is_infinite() -> None:
    """Tools show it; the largest number of the type would look like a limit of the rig."""
    with made("actuator") as node:
        bounds = node.describe_parameter("axes.story_1.actuator.alpha").floating_point_range[0]
        assert (bounds.from_value, bounds.to_value) == (1.0, math.inf)
        assert refusal(node, axes__story_1__actuator__alpha=1e9) == ""
        reason = refusal(node, axes__story_1__actuator__alpha=0.5)
        assert "must be >= 1" in reason or "range" in reason


def test_values_set_before_configure_are_used() -> None:
    with made() as node:
        assert refusal(node, compensator__alpha_es=20.0, pace="realtime") == ""
        node.start()
        assert node.scenario.compensator.alpha_es == 20.0
        assert not node.settings.lockstep


def test_configured_node_refuses_changes_until_cleanup() -> None:
    with made() as node:
        node.start()
        reason = "compensator.alpha_es: cannot change while the node is configured. Clean up the node first"
        assert refusal(node, compensator__alpha_es=20.0) == reason
        for transition in (node.trigger_deactivate, node.trigger_cleanup):
            assert transition() == TransitionCallbackReturn.SUCCESS
        assert refusal(node, compensator__alpha_es=20.0) == ""
        assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS
        assert node.scenario.compensator.alpha_es == 20.0


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"pace": "fast"}, ("pace", "fast", "lockstep", "realtime")),
        ({"peers": ["actuator", "nobody"]}, ("peers", "unknown", "nobody")),
        ({"scenario": "no_such_test"}, ("no_such_test",)),
        ({"peer_timeout": math.nan}, ("peer_timeout", "nan", "finite", "s")),
        ({"compensator__alpha_es": 0.5}, ("alpha_es",)),
        ({"compensator__type": "no_such_method"}, ("no_such_method",)),
    ],
)
def test_invalid_value_is_refused_at_once(values: dict[str, Any], parts: tuple[str, ...]) -> None:
    with made() as node:
        assert mentions(refusal(node, **values), *parts)
        node.start()


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"scenario": ""}, ("scenario", "missing")),
        ({"scenario": "no_such_test"}, ("no_such_test",)),
        ({"pace": 3}, ("pace", "3", "str")),
        ({"peer_timeout": -1.0}, ("peer_timeout", "-1 s", "> 0 and <= 86400 s")),
        ({"compensator.alpha_es": 0.5}, ("compensator.alpha_es", "0.5", ">= 1")),
        ({"compensator.alpha": 15.0}, ("alpha",)),
        ({"overrides": "duration=3"}, ("overrides", "duration=3")),
    ],
)
def test_invalid_initial_value_fails_configure(values: dict[str, Any], parts: tuple[str, ...]) -> None:
    with made(**values) as node:
        assert node.trigger_configure() == TransitionCallbackReturn.FAILURE
        assert node.phase.exit_code == 2
        assert mentions(node.phase.problem, *parts)


def test_scenario_of_runner_is_used_until_renamed() -> None:
    scenario = files.load("tadc_sine", ["compensator.type=none"])
    with made(scenario_of_runner=scenario, scenario=scenario.name) as node:
        assert node.get_parameter("compensator.type").value == "none"
        assert node.settings.load() is scenario
        assert refusal(node, scenario=NAME) == ""
        assert node.get_parameter("compensator.type").value == "adaptive_inverse"


def test_other_scenario_replaces_sections() -> None:
    with made(scenario="") as node:
        assert not node.has_parameter("compensator.type")
        assert refusal(node, scenario=NAME) == ""
        assert refusal(node, compensator__alpha_es=20.0) == ""
        assert refusal(node, compensator__type="none") != "", "it has no alpha_es"
        assert refusal(node, scenario="phillips_spencer_2012") == ""
        assert node.get_parameter("compensator.type").value == "model_based"
        assert not node.has_parameter("compensator.alpha_es")
        node.start()
        assert node.scenario.name == "phillips_spencer_2012"


def test_other_type_replaces_parameters() -> None:
    with made() as node:
        assert refusal(node, compensator__type="none") == ""
        assert not node.has_parameter("compensator.alpha_es")


# -- QoS and names of topics ------------------------------------------------------------------------------

BETWEEN_NODES = {row for row in names.TOPICS.values() if row.publishers and row.subscribers}


@pytest.mark.parametrize("topic", sorted({row.name for row in names.TOPICS.values()} - {"node_status"}))
def test_offered_qos_is_that_of_topic_table(topic: str) -> None:
    row = names.TOPICS[topic]
    with made("monitor") as node:
        node.start()
        for publisher in node.get_publishers_info_by_topic(f"/rths/{topic}"):
            expected, offered = quality(row), publisher.qos_profile
            assert (offered.reliability, offered.durability) == (expected.reliability, expected.durability)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ("-p", "qos_overrides./rths/measurement.publisher.depth:=1"),
            ("qos_overrides./rths/measurement.publisher.depth", "unknown", "parameter"),
        ),
        (("-r", "measurement:=/lab/measurement"), ("/rths/measurement", "/lab/measurement", "refused")),
    ],
    ids=["override", "remapping"],
)
def test_process_with_changed_stream_exits_with_code_2(arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "rths_nodes.app.node", "actuator", "--ros-args", "-p", f"scenario:={NAME}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 2
    assert mentions(result.stderr, *parts)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("role", [*names.NODES, names.AXIS])
def test_only_topics_between_nodes_cannot_be_remapped(role: str) -> None:
    """In the namespace of an axis these include its own three; other programs publish the former trip topic."""
    namespace = "/rths/story_1" if role == names.AXIS else "/rths"
    topics = [*names.TOPICS, names.DIAGNOSTICS.name, names.CLOCK.name]
    of_axis = [f"{namespace}/{key}" for key in names.AXIS_TOPICS if role == names.AXIS]
    canonical = [name if name.startswith("/") else f"/rths/{name}" for name in topics] + of_axis
    remapped = [word for number, name in enumerate(canonical) for word in ("-r", f"{name}:=/lab/t_{number}")]
    arguments = [*composed.in_namespace(namespace), *remapped]
    with made(role, arguments) as node, pytest.raises(ConfigError) as refused:
        refuse_remapping(node, endpoints(node.location, names.NODES))
    used = {row.name for row in (*names.published_by(role), *names.subscribed_by(role)) if not row.apart}
    between_nodes = {f"/rths/{row.name}" for row in BETWEEN_NODES if row.name in used and not row.section}
    assert {problem.partition(": ")[0] for problem in refused.value.problems} == {*between_nodes, *of_axis}
