# SPDX-License-Identifier: Apache-2.0
"""Tests of the parameters of a node: sections of its scenario, QoS overrides, and remapping.

Parameters are declared when a node is made, can be set until it is configured, and are refused afterwards. QoS
can be overridden, and names remapped, only for topics that no test node subscribes to.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from programs import completed

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

from rths_nodes.app import hosts
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.options import PACES
from rths_nodes.loop.scenario import files
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.transport import endpoints
from rths_nodes.ros.transport.endpoints import quality

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
        ({"peers": ["actuator", "monitor"]}, ("peers", "must contain compensator")),
        ({"peers": ["actuator", "compensator", "actuator"]}, ("peers", "once")),
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


# -- QoS overrides ----------------------------------------------------------------------------------------

OVERRIDABLE = [topic for topic in names.TOPICS.values() if topic.for_onlookers]
PROTOCOL = [topic for topic in names.TOPICS.values() if not topic.for_onlookers]


@contextmanager
def started(role: str, **overrides: Any) -> Iterator[Any]:
    """Start a node with QoS ``overrides``, for example ``joint_states__depth`` for /rths/joint_states."""
    values = {}
    for name, value in overrides.items():
        topic, policy = name.split("__")
        values[f"qos_overrides./rths/{topic}.publisher.{policy}"] = value
    with made(role, **values) as node:
        node.start()
        yield node


def offered(node: Any, topic: str) -> Any:
    (publisher,) = node.get_publishers_info_by_topic(f"/rths/{topic}")
    return publisher.qos_profile


def test_only_topics_for_other_programs_are_overridable() -> None:
    assert {topic.name for topic in OVERRIDABLE} == {*names.JOINTS, "live", "live_curves"}
    assert names.DIAGNOSTICS.for_onlookers
    assert names.CLOCK.for_onlookers
    assert not names.TOPICS[names.FORMER_TRIP].for_onlookers, "an operator publishes it"
    assert all(endpoints.overridable(topic) is None for topic in PROTOCOL)


def test_publisher_uses_qos_override() -> None:
    overrides = {"joint_states__reliability": "best_effort", "joint_states__durability": "transient_local"}
    with started("monitor", **overrides) as node:
        qos = offered(node, "joint_states")
        assert qos.reliability == ReliabilityPolicy.BEST_EFFORT
        assert qos.durability == DurabilityPolicy.TRANSIENT_LOCAL
        untouched = offered(node, "joint_targets")
        assert untouched.reliability == ReliabilityPolicy.RELIABLE
        assert untouched.durability == DurabilityPolicy.VOLATILE
        name = "qos_overrides./rths/joint_states.publisher.reliability"
        assert node.get_parameter(name).value == "best_effort"


@pytest.mark.parametrize("topic", OVERRIDABLE, ids=lambda topic: topic.name)
def test_default_qos_is_that_of_topic_table(topic: names.Topic) -> None:
    with started("monitor") as node:
        qos, expected = offered(node, topic.name), quality(topic)
        assert (qos.reliability, qos.durability) == (expected.reliability, expected.durability)
        prefix = f"qos_overrides./rths/{topic.name}.publisher."
        assert node.get_parameter(f"{prefix}depth").value == expected.depth


def test_overrides_of_other_nodes_are_ignored() -> None:
    """A parameter file may be for all nodes."""
    with started("compensator", live__depth=5) as node:
        assert not node.has_parameter("qos_overrides./rths/live.publisher.depth")


def test_axis_node_accepts_overrides_of_rig_topics() -> None:
    values = {"scenario": "three_independent_axes", "qos_overrides./rths/live.publisher.depth": 5}
    values["qos_overrides./diagnostics.publisher.depth"] = 3
    with made(names.AXIS, composed.in_namespace("/rths/story_1"), **values) as node:
        node.start()
        assert node.get_parameter("qos_overrides./diagnostics.publisher.depth").value == 3


def test_overrides_hold_after_reconfiguration() -> None:
    with started("monitor", live__reliability="reliable") as node:
        node.trigger_deactivate()
        node.trigger_cleanup()
        node.start()
        assert offered(node, "live").reliability == ReliabilityPolicy.RELIABLE


@pytest.mark.parametrize("topic", [topic.name for topic in PROTOCOL])
def test_qos_of_loop_protocol_is_fixed(topic: str) -> None:
    with pytest.raises(ConfigError) as refused, started("monitor", **{f"{topic}__reliability": "best_effort"}):
        pass
    reason = str(refused.value)
    assert reason.startswith(f"qos_overrides./rths/{topic}.publisher.reliability: refused")
    assert "/rths/joint_states" in reason


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("/rths/joint_state.publisher.depth", 3, ("did you mean",)),
        ("/rths/live.subscription.depth", 3, ("qos_overrides", "/rths/live.publisher.depth")),
        ("/rths/live.publisher.deadline", 3, ("known", "depth", "durability", "history", "reliability")),
        ("/rths/live.publisher.depth", 0, ("number", "1", "5000")),
        ("/rths/live.publisher.depth", 2.5, ("whole", "number")),
        ("/rths/live.publisher.history", "keep_all", ("keep_last",)),
        ("/rths/live.publisher.reliability", "relaible", ("reliable", "best_effort")),
        ("/rths/live", 3, ("qos_overrides", "/TOPIC.publisher.POLICY")),
        ("/rths/story_1/command.publisher.depth", 1, ("protocol", "loop")),
    ],
)
def test_invalid_override_is_refused(name: str, value: Any, parts: tuple[str, ...]) -> None:
    with made("actuator", peers=[*names.NODES, "story_1/axis"]) as node, pytest.raises(ConfigError) as refused:
        endpoints.check_overrides(node, node.location, {f"qos_overrides.{name}": value, "pace": "lockstep"})
    assert mentions(str(refused.value), *parts)
    assert str(refused.value).startswith(f"qos_overrides.{name}")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ("-p", "qos_overrides./rths/measurement.publisher.depth:=1"),
            ("qos_overrides./rths/measurement.publisher.depth: refused",),
        ),
        (("-r", "measurement:=/lab/measurement"), ("/rths/measurement", "/lab/measurement", "refused")),
    ],
    ids=["override", "remapping"],
)
def test_process_with_changed_stream_exits_with_code_2(arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "rths_nodes.app.node", "actuator", "--ros-args", "-p", f"scenario:={NAME}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    result = completed([*command, *arguments], env=environment, timeout=60)
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
    with made(role, [*composed.in_namespace(namespace), *remapped]) as node, pytest.raises(ConfigError) as refused:
        endpoints.check_overrides(node, node.location, {})
    between_nodes = {f"/rths/{row.name}" for row in names.TOPICS.values() if row.publishers and row.subscribers}
    assert {problem.partition(": ")[0] for problem in refused.value.problems} == {*between_nodes, *of_axis}
