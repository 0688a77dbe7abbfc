"""A test as a scenario describes it: all its nodes.

ros2 launch rths_nodes rths.launch.py scenario:=chen_ricles_2010 pace:=realtime
ros2 launch rths_nodes rths.launch.py overrides:='compensator.alpha_es=20 duration=10'
"""

from launch import LaunchDescription

from rths_nodes.recording.bag import check_free
from rths_nodes.ros.hosting.launch_actions import LaunchedTest, arguments, when_known
from rths_nodes.ros.names import NODES, RECORDER


def nodes(context):
    test = LaunchedTest(context, check_free)
    return test.together([*(test.node(role) for role in NODES if role != RECORDER), *test.recorders()])


def generate_launch_description():
    return LaunchDescription([*arguments(), when_known(nodes)])
