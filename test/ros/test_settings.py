# SPDX-License-Identifier: Apache-2.0
"""The parameters of a node: declared when it is made, set until it is configured, refused after that."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter

from rths_nodes.core import registry
from rths_nodes.loop.options import PACES
from rths_nodes.loop.scenario import files
from rths_nodes.ros.hosting import composed

NAME = "chen_ricles_2010"


@contextmanager
def made(role: str = "compensator", **values: Any) -> Iterator[Any]:
    """A node that nobody has configured."""
    with composed.ros_context() as context:
        node = composed.make_node(role, lambda *_: None, context, {"scenario": NAME} | values)
        try:
            yield node
        finally:
            node.destroy_node()


def refusal(node: Any, **values: Any) -> str:
    """Why ``values`` (``__`` for the dot) cannot be set; empty: they are."""
    parameters = [Parameter(name.replace("__", "."), value=value) for name, value in values.items()]
    return str(node.set_parameters_atomically(parameters).reason)


def test_sections_are_parameters_as_soon_as_a_node_is_made() -> None:
    with made() as node:
        assert node.get_parameter("compensator.type").value == "adaptive_inverse"
        assert node.get_parameter("compensator.alpha_es").value == 15.0
        assert "must be >= 1" in str(node.describe_parameter("compensator.alpha_es").description) or (
            node.describe_parameter("compensator.alpha_es").floating_point_range[0].from_value == 1.0
        )


@pytest.mark.parametrize("role", ["integrator", "compensator", "actuator", "monitor", "recorder"])
def test_what_no_parameter_can_hold_stays_in_the_scenario(role: str) -> None:
    """Matrices, and what a study has drawn, which the recorder would own."""
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
def test_a_descriptor_lists_the_choices(role: str, name: str, choices: Sequence[str]) -> None:
    with made(role) as node:
        constraints = node.describe_parameter(name).additional_constraints if node.has_parameter(name) else ""
        assert constraints == (f"one of {', '.join(choices)}" if choices else "")


def test_a_bound_that_is_not_there_is_infinite() -> None:
    """Tools show it so; the largest number of its type would look like a limit of the rig."""
    with made("actuator") as node:
        described = node.describe_parameter("axes.story_1.actuator.alpha").floating_point_range[0]
        assert (described.from_value, described.to_value) == (1.0, math.inf)
        assert refusal(node, axes__story_1__actuator__alpha=1e9) == ""
        assert "must be >= 1" in refusal(node, axes__story_1__actuator__alpha=0.5) or (
            "range" in refusal(node, axes__story_1__actuator__alpha=0.5)
        )


def test_what_is_set_before_configure_is_what_the_node_runs_with() -> None:
    with made() as node:
        assert refusal(node, compensator__alpha_es=20.0, pace="realtime") == ""
        node.start()
        assert node.scenario.compensator.alpha_es == 20.0
        assert not node.settings.lockstep


def test_a_configured_node_refuses_changes_until_it_is_cleaned_up() -> None:
    with made() as node:
        node.start()
        words = "compensator.alpha_es: cannot change while the node is configured. Clean up the node first"
        assert refusal(node, compensator__alpha_es=20.0) == words
        for transition in (node.trigger_deactivate, node.trigger_cleanup):
            assert transition() == TransitionCallbackReturn.SUCCESS
        assert refusal(node, compensator__alpha_es=20.0) == ""
        assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS
        assert node.scenario.compensator.alpha_es == 20.0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"pace": "fast"}, ("pace", "fast", "lockstep", "realtime")),
        ({"peers": ["actuator", "nobody"]}, ("peers", "unknown", "nobody")),
        ({"scenario": "no_such_test"}, ("no_such_test",)),
        ({"compensator__alpha_es": 0.5}, ("alpha_es",)),
        ({"compensator__type": "no_such_method"}, ("no_such_method",)),
    ],
)
def test_a_wrong_value_is_refused_at_once_with_its_reason(values: dict[str, Any], words: tuple[str, ...]) -> None:
    with made() as node:
        assert mentions(refusal(node, **values), *words)
        node.start()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"scenario": ""}, ("scenario", "missing")),
        ({"scenario": "no_such_test"}, ("no_such_test",)),
        ({"pace": 3}, ("pace", "3", "str")),
        ({"compensator.alpha_es": 0.5}, ("compensator.alpha_es", "0.5", ">= 1")),
        ({"compensator.alpha": 15.0}, ("alpha",)),
        ({"overrides": "duration=3"}, ("overrides", "duration=3")),
    ],
)
def test_what_a_node_was_started_with_is_refused_when_it_is_configured(
    values: dict[str, Any], words: tuple[str, ...]
) -> None:
    with made(**values) as node:
        assert node.trigger_configure() == TransitionCallbackReturn.FAILURE
        assert node.phase.exit_code == 2
        assert mentions(node.phase.problem, *words)


def test_a_scenario_that_the_runner_has_built_is_not_read_again() -> None:
    """Until the parameter names another one."""
    built = files.load("tadc_sine", ["compensator.type=none"])
    with composed.ros_context() as context:
        node = composed.make_node(
            "compensator", lambda *_: None, context, {"scenario": built.name}, scenario=built
        )
        try:
            assert node.get_parameter("compensator.type").value == "none"
            assert node.settings.load() is built
            assert refusal(node, scenario=NAME) == ""
            assert node.get_parameter("compensator.type").value == "adaptive_inverse"
        finally:
            node.destroy_node()


def test_another_scenario_has_other_sections() -> None:
    with made(scenario="") as node:
        assert not node.has_parameter("compensator.type")
        assert refusal(node, scenario=NAME) == ""
        assert refusal(node, compensator__alpha_es=20.0) == ""
        assert refusal(node, compensator__type="none") != "", "alpha_es is no parameter of it"
        assert refusal(node, scenario="phillips_spencer_2012") == ""
        assert node.get_parameter("compensator.type").value == "model_based"
        assert not node.has_parameter("compensator.alpha_es")
        node.start()
        assert node.scenario.name == "phillips_spencer_2012"


def test_another_type_has_other_parameters() -> None:
    with made() as node:
        assert refusal(node, compensator__type="none") == ""
        assert not node.has_parameter("compensator.alpha_es")
