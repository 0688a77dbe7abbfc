# SPDX-License-Identifier: Apache-2.0
"""Launch the nodes of a rig with one actuator node. Copy this file to replace that node with your own driver.

This command starts no actuator node:

    ros2 launch rths_nodes single_actuator.launch.py actuator:=false run_id:=monday_1

Your driver must use the topics that names.TOPICS lists for "actuator". The driver owns the state of the test and
must know the run id, which is part of the hash that all nodes compare.
"""

from rths_nodes.recording.bag import check_free
from rths_nodes.ros.hosting.launch_actions import FLAG, LaunchedTest, declare, description


def nodes(context):
    test = LaunchedTest(context, check_free)
    ours = context.launch_configurations["actuator"] == "true"
    return test.together(
        [
            test.node("integrator"),
            test.node("compensator"),
            *([test.node("actuator")] if ours else []),
            # A driver of the laboratory instead of the actuator node:
            # Node(package="my_lab", executable="driver", name="actuator", namespace=test.namespace,
            #      parameters=[{"run_id": test.run_id}]),
            test.node("monitor"),
            *test.recorders(),
        ]
    )


def generate_launch_description():
    actuator = declare("actuator", "true", "false: a third-party node drives the actuator", FLAG)
    return description(nodes, actuator)
