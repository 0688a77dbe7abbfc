# SPDX-License-Identifier: Apache-2.0
"""Launch all nodes of the test that a scenario describes.

ros2 launch rths_nodes rths.launch.py scenario:=chen_ricles_2010 pace:=realtime
ros2 launch rths_nodes rths.launch.py overrides:='compensator.alpha_es=20 duration=10'
ros2 launch rths_nodes rths.launch.py composed:=true separate:=recorder pace:=realtime
"""

from rths_nodes.recording.bag import check_free
from rths_nodes.ros.hosting.launch_actions import LaunchedTest, description


def nodes(context):
    test = LaunchedTest(context, check_free)
    return test.together(test.everything())


def generate_launch_description():
    return description(nodes, composes=True)
