# SPDX-License-Identifier: Apache-2.0
"""A test as somebody else launches it: our executables as LifecycleNodes of launch_ros, some of them respawned.

Nothing of our own launch files is in it. With ``manage:=true`` the events of launch configure and activate them.
"""

import functools

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, EmitEvent, OpaqueFunction, RegisterEventHandler
from launch.events import matches_action
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from launch_ros.parameter_descriptions import ParameterValue
from lifecycle_msgs.msg import Transition

from rths_nodes.loop.options import run_options
from rths_nodes.ros.hosting import descriptions

ARGUMENTS = {"overrides": "", "pace": "lockstep", "respawn": "", "manage": "false", "autostart": "true"}


def typed(value):
    return ParameterValue(value, value_type=list[type(value[0])] if isinstance(value, list) else type(value))


def change(node, transition):
    return EmitEvent(event=ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=transition))


def nodes(context):
    given = context.launch_configurations
    values = {"scenario": "chen_ricles_2010", "host": "processes", "record": "run", "run_id": "monday_1"}
    values |= {"overrides": given["overrides"].split(), "pace": given["pace"]}
    actions = []
    for each in descriptions.describe(run_options(values)):
        parameters = each.parameters | {"autostart": given["autostart"] == "true"}
        node = LifecycleNode(
            package="rths_nodes",
            executable=each.role,
            name=each.role,
            namespace=each.namespace,
            parameters=[{name: typed(value) for name, value in parameters.items()}],
            respawn=each.role in given["respawn"].split(),
            respawn_delay=0.5,
            output="both",
        )
        if given["manage"] == "true":
            active = functools.partial(OnStateTransition, target_lifecycle_node=node, goal_state="inactive")
            activate = active(entities=[change(node, Transition.TRANSITION_ACTIVATE)])
            actions.append(RegisterEventHandler(activate))
            actions += [node, change(node, Transition.TRANSITION_CONFIGURE)]
        else:
            actions.append(node)
    return actions


def generate_launch_description():
    declared = [DeclareLaunchArgument(name, default_value=value) for name, value in ARGUMENTS.items()]
    return LaunchDescription([*declared, OpaqueFunction(function=nodes)])
