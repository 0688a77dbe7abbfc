# SPDX-License-Identifier: Apache-2.0
"""Launch of our executables as LifecycleNodes of launch_ros, without our launch files; some are respawned.

With ``manage:=true`` events of launch configure and activate them.
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, EmitEvent, OpaqueFunction, RegisterEventHandler
from launch.events import matches_action
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from launch_ros.parameter_descriptions import ParameterValue
from lifecycle_msgs.msg import Transition

from rths_nodes.loop.options import run_options
from rths_nodes.ros.hosting import node_processes

ARGUMENTS = {"overrides": "", "pace": "lockstep", "respawn": "", "manage": "false", "autostart": "true"}


def typed(value):
    return ParameterValue(value, value_type=list[type(value[0])] if isinstance(value, list) else type(value))


def change(node, transition):
    return EmitEvent(event=ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=transition))


def nodes(context):
    arguments = context.launch_configurations
    values = {"scenario": "chen_ricles_2010", "host": "processes", "record": "run", "run_id": "monday_1"}
    values |= {"overrides": arguments["overrides"].split(), "pace": arguments["pace"]}
    actions = []
    for description in node_processes.describe(run_options(values)):
        parameters = description.parameters | {"autostart": arguments["autostart"] == "true"}
        node = LifecycleNode(
            package="rths_nodes",
            executable=description.role,
            name=description.role,
            namespace=description.namespace,
            parameters=[{name: typed(value) for name, value in parameters.items()}],
            respawn=description.role in arguments["respawn"].split(),
            respawn_delay=0.5,
            output="both",
        )
        if arguments["manage"] == "true":
            activate = OnStateTransition(
                target_lifecycle_node=node,
                goal_state="inactive",
                entities=[change(node, Transition.TRANSITION_ACTIVATE)],
            )
            actions.append(RegisterEventHandler(activate))
            actions += [node, change(node, Transition.TRANSITION_CONFIGURE)]
        else:
            actions.append(node)
    return actions


def generate_launch_description():
    declared = [DeclareLaunchArgument(name, default_value=value) for name, value in ARGUMENTS.items()]
    return LaunchDescription([*declared, OpaqueFunction(function=nodes)])
