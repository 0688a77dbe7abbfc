# SPDX-License-Identifier: Apache-2.0
"""Launch the nodes of a rig with several actuators. Copy this file to replace axis nodes with your own drivers.

    ros2 launch rths_nodes multi_actuator.launch.py
    ros2 launch rths_nodes multi_actuator.launch.py scenario:=two_actuator_coupler actuator_nodes:=one

Each axis of an uncoupled rig has its own node, in its own namespace (/rths/story_1). An axis node receives the
Commands and publishes the Measurements of its axis. The actuator node merges the axes by sample, and leads the
test. Your driver can replace an axis node if it uses the topics that names.AXIS_TOPICS and names.TOPICS list for
"axis":

    ros2 launch rths_nodes multi_actuator.launch.py drivers:=story_2 run_id:=monday_1
"""

from rths_nodes.core.errors import ConfigError
from rths_nodes.recording.bag import check_free
from rths_nodes.ros.hosting.launch_actions import LaunchedTest, declare, description


def nodes(context):
    test = LaunchedTest(context, check_free)
    drivers = context.launch_configurations["drivers"].split()
    for name in drivers:
        if name not in test.axes:
            known = ", ".join(test.axes) or "none"
            raise ConfigError(f"drivers: {name!r}: must be an axis with its own node; known: {known}")
    return test.together(
        [
            test.node("integrator"),
            test.node("compensator"),
            test.node("actuator"),
            *(test.axis(name) for name in test.axes if name not in drivers),
            # A driver of the laboratory instead of an axis node:
            # Node(package="my_lab", executable="driver", name="axis", namespace=test.namespace + "/story_2",
            #      parameters=[{"run_id": test.run_id}]),
            test.node("monitor"),
            *test.recorders(),
        ]
    )


def generate_launch_description():
    drivers = declare("drivers", "", "axes that third-party nodes drive, separated by spaces", ())
    return description(nodes, drivers, scenario="three_independent_axes", actuator_nodes="per_axis")
